"""The command group and the three tools over a run with scripted episodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pool_helpers import write_run
from server_helpers import in_memory
from test_services import service

from mcp_server.cli.main import run
from trainer.envs.base import Split
from trainer.envs.house_rules import HouseRules
from trainer.runs.workspace import create_workspace
from trainer.tasks import TEST_SEED


class CommandLine:
    """`mcp-evo experience …` in this process."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        told = self.text(*arguments, "--json", code=code)
        document = json.loads(told)
        assert isinstance(document, dict)
        return document

    def text(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        assert run(["experience", *arguments, "--workspace", str(self.root)]) == code
        return self.capsys.readouterr().out


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project" / ".mcp-evo"


@pytest.fixture
def cli(root: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(root, capsys)


def test_the_whole_group(cli: CommandLine, root: Path, tmp_path: Path) -> None:
    write_run(root)
    made = cli.json("init")
    assert (made["created"], made["records"], made["guarded"], made["notices"]) == (True, 0, 32, [])
    found = cli.json("distill")
    assert found["run_id"] == "house-run"
    assert found["attempts"] == 96
    assert found["outcomes"]["added"] >= 10
    record = next(one for one in found["records"] if one["polarity"] == "success")
    assert record["status"] == "quarantined"
    again = cli.json("distill")
    assert set(again["outcomes"]) <= {"merged", "contradicts", "refused"}
    listed = cli.json("list", "--pool", "default", "--limit", "3")
    assert len(listed["records"]) == 3
    assert listed["total"] >= 10
    assert cli.json("list")["pools"][0]["by_status"] == {"quarantined": listed["total"]}
    shown = cli.json("show", record["id"][:10])
    assert shown["rendered"].startswith("For a task like: ")
    assert shown["evidence"][0]["run_id"] == "house-run"
    question = record["when_to_use"].replace(" x ", " 7 ").replace(" y", " 5")
    hits = cli.json("search", question)["hits"]
    assert record["content"] in {hit["content"] for hit in hits}
    exported = cli.json("export", str(tmp_path / "out.jsonl"))
    assert exported["records"] == listed["total"]
    taken = cli.json("import", str(tmp_path / "out.jsonl"), "--pool", "copy")
    assert (taken["added"], taken["refused"]) == (listed["total"], [])
    added = cli.json("add", "--when", "Sorting names", "--do", "compare in lower case", "--pool", "copy", "--active")
    assert (added["outcome"], added["record"]["status"]) == ("added", "active")
    plan = cli.json("prune", "--pool", "copy", "--retire", added["record"]["id"], "--delete")
    assert (plan["done"], len(plan["moved"]), plan["deleted"]) == (False, 1, [])
    done = cli.json("prune", "--pool", "copy", "--retire", added["record"]["id"], "--delete", "--yes")
    assert done["deleted"] == [added["record"]["id"]]
    stats = cli.json("stats", "--pool", "copy")
    assert (stats["records"], stats["file_check"], stats["guarded"]) == (listed["total"], "ok", 32)
    assert "pairs" in cli.json("distill", "--by", "pairs", "--limit", "2")
    for command in (["list"], ["stats"], ["list", "--pool", "copy"], ["search", question], ["show", record["id"]]):
        assert cli.text(*command).strip()


def test_refusals_are_one_clear_line(cli: CommandLine, root: Path) -> None:
    write_run(root)
    for arguments, words in (
        (["stats", "--pool", "nothing"], "experience init nothing"),
        (["init", "../up"], "name of a pool"),
        (["distill", "--by", "magic"], "rules, endpoint, pairs"),
        (["distill", "--by", "endpoint"], "experience.endpoint"),
        (["distill", "unknown-run"], "unknown-run"),
        (["add", "--when", "", "--do", "x"], "when_to_use is empty"),
    ):
        assert words in cli.json(*arguments, code=1)["error"]
    cli.json("init")
    assert "experience list" in cli.json("show", "nothing", code=1)["error"]
    (root / "experience" / "default.db").write_bytes(b"not a database" * 999)
    assert "left as it is" in cli.json("stats", code=1)["error"]
    assert "damaged" in cli.json("list")["pools"][0]["problem"]


def test_a_file_that_gives_nothing_is_an_error_and_makes_no_pool(cli: CommandLine, root: Path, tmp_path: Path) -> None:
    create_workspace(root)
    assert "cannot be read" in cli.json("import", str(tmp_path / "none.jsonl"), code=1)["error"]
    assert not (root / "experience" / "default.db").exists()
    file = tmp_path / "some.jsonl"
    file.write_text('[1]\n{"broken\n{}', encoding="utf-8")
    told = cli.json("import", str(file), code=1)
    assert (told["added"], [one["line"] for one in told["refused"]], told["bad_lines"]) == (0, [1, 3], [2])
    good = {"memory_id": "m", "when_to_use": "With sk-proj-abcdefghij0123456789", "content": "do b"}
    file.write_text(f"{json.dumps(good)}\n{{broken\n", encoding="utf-8")
    assert cli.json("import", str(file))["added"] == 1
    assert cli.json("show", "m")["when_to_use"] == "With [redacted:api-key]"


def test_an_evaluation_task_of_a_run_is_refused(cli: CommandLine, root: Path) -> None:
    write_run(root)
    row = HouseRules.tasks(Split.TEST, 16, 3 + TEST_SEED)[4]
    told = cli.json("add", "--when", row["prompt"], "--do", f"finish with {row['answer']}", code=1)
    assert "house-run:test" in told["error"]
    assert told["kind"] == "CommandError"


def test_a_wrong_setting_names_the_file(cli: CommandLine, root: Path) -> None:
    write_run(root)
    (root / "config.yaml").write_text("experience: {embedder: magic}\n", encoding="utf-8")
    assert "hashed, sentence-transformers:MODEL, endpoint" in cli.json("init", code=1)["error"]
    (root / "config.yaml").write_text("experience: {embeder: hashed}\n", encoding="utf-8")
    assert "experience.embeder" in cli.json("init", code=1)["error"]


@pytest.mark.anyio
async def test_the_tools(root: Path) -> None:
    write_run(root)
    async with in_memory(root, "auto") as caller:
        nothing = await caller.ok("search_experience", query="In house 123, what is 7 @ 5?")
        assert nothing["hits"] == []
        assert nothing["next"]["tool"] == "distill_experience"
        assert not (root / "experience" / "default.db").exists()
        pairs = await caller.ok("distill_experience", by="agent", limit=3)
        assert len(pairs["pairs"]) == 3
        assert pairs["pairs"][0]["won"]
        assert pairs["pairs"][0]["lost"]
        assert set(pairs["form"]) == {"when_to_use", "content", "polarity"}
        assert pairs["next"]["arguments"] == {"pool": "default", "family": "house_rules"}
        made = await caller.ok("distill_experience")
        assert made["outcomes"]["added"] >= 10
        lesson = {"when_to_use": "In house 101, what is x @ y?", "content": "use calculate with x + y"}
        added = await caller.ok("add_experience", **lesson, polarity="contrast", family="house_rules")
        assert (added["outcome"], added["status"]) == ("added", "quarantined")
        merged = await caller.ok("add_experience", **lesson)
        assert (merged["outcome"], merged["id"]) == ("merged", added["id"])
        found = await caller.ok("search_experience", query="In house 101, what is 7 @ 5?")
        assert found["hits"][0]["id"] == added["id"]
        assert await caller.ok("search_experience", query="In house 101, what is 7 @ 5?", status="active") != found
        row = HouseRules.tasks(Split.TEST, 16, 3 + TEST_SEED)[2]
        refused = await caller.refused("add_experience", when_to_use=row["prompt"], content="use calculate")
        assert "house-run:test" in refused
        assert "search_experience" in refused
        (root / "experience" / "default.db").write_bytes(b"not a database" * 999)
        assert "left as it is" in await caller.refused("search_experience", query="x")


def test_lessons_by_a_service(cli: CommandLine, root: Path) -> None:
    directory = write_run(root)
    row = HouseRules.tasks(Split.TEST, 16, 3 + TEST_SEED)[4]
    lessons = [
        {"when_to_use": "In house 101, what is x @ y?", "content": "use calculate with x + y", "polarity": "contrast"},
        {"when_to_use": row["prompt"], "content": f"finish with {row['answer']}"},
        {"when_to_use": "nothing"},
    ]

    def reply(method: str, path: str, document: Any) -> tuple[int, Any]:
        assert path == "/v1/chat/completions"
        return 200, {"choices": [{"message": {"content": json.dumps(lessons)}}]}

    with service(reply) as (address, _):
        settings = f"experience: {{endpoint: {{base_url: '{address}/v1', model: writer}}}}\n"
        (root / "config.yaml").write_text(settings, encoding="utf-8")
        found = cli.json("distill", "--by", "endpoint")
    assert found["outcomes"] == {"added": 1, "refused": 1}
    assert f"{directory.run_id}:test" in found["refused"][0]
    assert any("content is missing" in reason for reason in found["dropped"])
    (record,) = found["records"]
    assert (record["polarity"], record["family"], record["status"]) == ("contrast", "house_rules", "quarantined")
    assert cli.json("show", record["id"])["author"] == "writer"
    assert "cannot be reached" in cli.json("distill", "--by", "endpoint", code=1)["error"]
