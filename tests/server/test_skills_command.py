"""`mcp-evo skills`, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli.main import run
from optimizer.audit import AuditLog
from skill_bank.bank import SkillBank
from skill_bank.install import MANIFEST

PATCH = "Say how sure you are."


@pytest.fixture
def skills(root: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `mcp-evo skills …` and returns (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["--workspace", str(root), "skills", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def bank_with_patch(root: Path) -> SkillBank:
    bank = SkillBank.seed(root / "skills")
    patch = bank.render_patch(
        "rllm-monitor",
        id="001-sure",
        target_section="loop",
        body=PATCH,
        description="sure",
        source="test",
        created="2026-01-01",
    )
    bank.add_patch(patch)
    bank.activate("rllm-monitor", "001-sure")
    return bank


def test_status_and_compile(skills: Any, root: Path) -> None:
    code, out, _ = skills("status", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["total"] == len(document["skills"]) == 15
    assert not any(one["stale"] or one["problems"] for one in document["skills"])
    base = root / "skills" / "rllm" / "rllm-run" / "base.md"
    base.write_text(base.read_text(encoding="utf-8").replace("exactly one run", "just one run"), encoding="utf-8")
    stale = {one["name"]: one["stale"] for one in json.loads(skills("status", "--json")[1])["skills"]}
    assert [name for name, value in stale.items() if value] == ["rllm-run"]
    document = json.loads(skills("compile", "--json")[1])
    assert document["written"] == ["rllm-run"]
    assert document["versions"]["rllm-run"] == "rllm-run@2"
    assert json.loads(skills("compile", "rllm-run", "--json")[1])["written"] == []


def test_compile_into_a_folder_under_a_profile(skills: Any, tmp_path: Path) -> None:
    code, out, _ = skills(
        "compile", "rllm-config", "--out", str(tmp_path / "out"), "--profile", "original", "--bank",
        str(Path(SkillBank.shipped().root)), "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["written"] == ["rllm-config"]
    assert (tmp_path / "out" / "rllm-config" / "SKILL.md").exists()
    assert '"profile": "original"' in (tmp_path / "out" / "rllm-config" / "policy.json").read_text()
    code, _, err = skills("compile", "rllm-config", "--profile", "original")
    assert code == 1
    assert "--out" in err


def test_all_problems_come_with_file_and_line_and_nothing_is_written(skills: Any, root: Path) -> None:
    skills("status")
    for name in ("rllm-run", "rllm-train"):
        path = root / "skills" / "rllm" / name / "base.md"
        path.write_text(path.read_text(encoding="utf-8").replace("<!-- /section:intro -->", ""), encoding="utf-8")
    compiled = (root / "skills" / "compiled" / "rllm-run" / "SKILL.md").read_bytes()
    code, out, _ = skills("validate", "--json")
    problems = json.loads(out)["problems"]
    assert code == 1
    assert {one["file"] for one in problems} == {"rllm/rllm-run/base.md", "rllm/rllm-train/base.md"}
    assert all(one["line"] > 0 and one["fix"] for one in problems)
    code, _, err = skills("compile")
    assert code == 1
    assert "rllm/rllm-run/base.md:" in err
    assert "rllm/rllm-train/base.md:" in err
    assert (root / "skills" / "compiled" / "rllm-run" / "SKILL.md").read_bytes() == compiled


def test_history_diff_and_rollback(skills: Any, root: Path) -> None:
    bank = bank_with_patch(root)
    before = bank.version_files("rllm-monitor", 1)["SKILL.md"]
    versions = json.loads(skills("history", "rllm-monitor", "--json")[1])["versions"]
    assert [one["label"] for one in versions] == ["rllm-monitor@1", "rllm-monitor@2"]
    assert versions[1]["patches"] == ["001-sure"]
    difference = json.loads(skills("diff", "rllm-monitor", "--json")[1])
    assert (difference["from"], difference["to"]) == (1, 2)
    assert f"+{PATCH}" in difference["diff"]
    code, out, _ = skills("rollback", "rllm-monitor", "1", "--reason", "not needed", "--json")
    assert code == 0
    assert json.loads(out) == {"skill": "rllm-monitor", "restored": 1, "version": "rllm-monitor@3"}
    assert (bank.compiled_folder("rllm-monitor") / "SKILL.md").read_bytes() == before
    (entry,) = AuditLog(root).entries()
    assert (entry["kind"], entry["reason"]) == ("rolled_back", "not needed")
    code, _, err = skills("rollback", "rllm-monitor", "9")
    assert code == 1
    assert "There are: 1 to 3" in err


def test_policy_by_situation_and_by_key(skills: Any) -> None:
    small = json.loads(skills("policy", "rllm-config", "--model", "tiny", "--env", "calculator", "--json")[1])
    large = json.loads(skills("policy", "rllm-config", "--model", "qwen-0.5b", "--json")[1])
    assert small["values"]["learning_rate"]["default"] > 10 * large["values"]["learning_rate"]["default"]
    assert small["provenance"]["learning_rate.default"]["patch"] == "base"
    rules = json.loads(skills("policy", "rllm-config", "--explain", "learning_rate", "--json")[1])["rules"]
    assert {one["when"]["params"] for one in rules if one["when"]} >= {"<10M", "300M-2B"}
    code, _, err = skills("policy", "rllm-config", "--explain", "learning_rat")
    assert code == 1
    assert "learning_rate" in err


def test_an_edited_file_is_not_overwritten(skills: Any, root: Path, tmp_path: Path) -> None:
    to = tmp_path / ".claude" / "skills"
    assert len(json.loads(skills("install", "--to", str(to), "--json")[1])["written"]) == 15
    assert json.loads(skills("install", "--to", str(to), "--json")[1])["written"] == []
    mine = to / "rllm-run" / "SKILL.md"
    mine.write_text(mine.read_text(encoding="utf-8") + "my own line\n", encoding="utf-8")
    bank_with_patch(root)
    monitor = (to / "rllm-monitor" / "SKILL.md").read_bytes()
    code, _, err = skills("install", "--to", str(to))
    assert code == 1
    assert "was edited by hand" in err
    assert "my own line" in err
    assert (to / "rllm-monitor" / "SKILL.md").read_bytes() == monitor, "one objection stops the whole installation"
    assert json.loads(skills("install", "rllm-monitor", "--to", str(to), "--json")[1])["written"] == ["rllm-monitor"]
    assert PATCH in (to / "rllm-monitor" / "SKILL.md").read_text(encoding="utf-8")
    assert sorted(json.loads(skills("install", "--to", str(to), "--force", "--json")[1])["written"]) == ["rllm-run"]
    assert "my own line" not in mine.read_text(encoding="utf-8")
    assert (to / MANIFEST).exists()


def test_somebody_elses_skill_is_not_touched(skills: Any, tmp_path: Path) -> None:
    to = tmp_path / "skills"
    (to / "rllm-run").mkdir(parents=True)
    (to / "rllm-run" / "SKILL.md").write_text("mine", encoding="utf-8")
    code, _, err = skills("install", "--to", str(to))
    assert code == 1
    assert "was not written by mcp-evo" in err
    assert sorted(path.name for path in to.iterdir()) == ["rllm-run"]


@pytest.mark.parametrize("command", ["history", "diff", "policy"])
def test_an_unknown_skill_is_named_with_those_there_are(skills: Any, command: str) -> None:
    code, _, err = skills(command, "rllm-trane")
    assert code == 1
    assert "rllm-train" in err


def test_a_group_all_or_one_skill_and_no_two_of_them(skills: Any, root: Path) -> None:
    meta = json.loads(skills("compile", "--group", "meta", "--dry-run", "--json")[1])
    assert list(meta["digests"]) == ["meta-loop"]
    assert len(json.loads(skills("compile", "--all", "--dry-run", "--json")[1])["digests"]) == 15
    assert skills("compile", "rllm-run", "--all")[0] == 2
    code, _, err = skills("compile", "--group", "rlm")
    assert code == 1
    assert "There are: rllm, traj, meta" in err


def test_every_problem_is_in_the_one_json_document(skills: Any, root: Path, tmp_path: Path) -> None:
    skills("status")
    for name in ("rllm-run", "meta-loop"):
        folder = next((root / "skills").glob(f"*/{name}"))
        (folder / "patches").mkdir(exist_ok=True)
        (folder / "patches" / "001-x.md").write_text("no front matter", encoding="utf-8")
    code, out, err = skills("compile", "--out", str(tmp_path / "out"), "--json")
    document = json.loads(out)
    assert code == 1
    assert [(one["file"], one["line"]) for one in document["problems"]] == [
        ("meta/meta-loop/patches/001-x.md", 1),
        ("rllm/rllm-run/patches/001-x.md", 1),
    ]
    assert document["written"] == []
    assert not (tmp_path / "out").exists()
    assert "rllm/rllm-run/patches/001-x.md:1: no front matter" in err


def test_preview_shows_what_a_patch_would_change_and_writes_nothing(skills: Any, root: Path) -> None:
    bank = SkillBank.seed(root / "skills")
    patch = bank.render_patch(
        "rllm-monitor", id="001-sure", target_section="loop", body=PATCH, description="sure", source="test",
        created="2026-01-01",
    )  # fmt: skip
    bank.add_patch(patch)
    before = (bank.compiled_folder("rllm-monitor") / "SKILL.md").read_bytes()
    document = json.loads(skills("preview", "rllm-monitor", "--with", "001-sure", "--json")[1])
    assert document["patches"] == ["001-sure"]
    assert f"+{PATCH}" in document["diff"]
    assert PATCH in document["text"]
    code, out, _ = skills("preview", "rllm-monitor", "--diff")
    assert (code, out.strip()) == (0, "rllm-monitor would stay as it is")
    original = json.loads(skills("preview", "rllm-config", "--profile", "original", "--json")[1])
    assert {one["patch"] for one in original["policy"]} == {"000-original-defaults"}
    assert (bank.compiled_folder("rllm-monitor") / "SKILL.md").read_bytes() == before
    code, _, err = skills("preview", "rllm-monitor", "--with", "009-none")
    assert code == 1
    assert "001-sure" in err


def test_squash_show_and_pin(skills: Any, root: Path) -> None:
    bank = bank_with_patch(root)
    text = bank.load_compiled("rllm-monitor")
    dry = json.loads(skills("squash", "rllm-monitor", "--dry-run", "--json")[1])
    assert (dry["folded"], dry["version"]) == (["001-sure"], None)
    done = json.loads(skills("squash", "rllm-monitor", "--json")[1])
    assert (done["archived"], done["version"]) == (["001-sure"], "rllm-monitor@3")
    assert bank.load_compiled("rllm-monitor") == text
    shown = json.loads(skills("show", "rllm-monitor", "2", "--sources", "--json")[1])
    assert PATCH in shown["files"]["rllm/rllm-monitor/patches/001-sure.md"]
    assert json.loads(skills("show", "rllm-monitor", "--json")[1])["files"]["SKILL.md"] == text
    assert json.loads(skills("pin", "rllm-monitor", "--json")[1]) == {
        "skill": "rllm-monitor", "pinned": 3, "before": None, "dry_run": False,
    }  # fmt: skip
    code, _, err = skills("rollback", "rllm-monitor", "1")
    assert code == 1
    assert "skills pin rllm-monitor --off" in err
    assert json.loads(skills("compile", "--json")[1])["pinned"] == {"rllm-monitor": 3}
    assert json.loads(skills("pin", "rllm-monitor", "--off", "--json")[1])["pinned"] is None
    assert [one["kind"] for one in AuditLog(root).entries()] == ["squashed", "pinned", "unpinned"]
    log = skills("history", "rllm-monitor", "--markdown")[1]
    assert log.index("rllm-monitor@3") < log.index("rllm-monitor@2") < log.index("rllm-monitor@1")
    assert "`001-sure` now in force: sure" in log


def test_a_dry_rollback_and_a_difference_of_values(skills: Any, root: Path) -> None:
    bank = SkillBank.seed(root / "skills")
    patch = bank.render_patch(
        "rllm-config", id="001-rate", target_section="sizes", description="x", source="test", created="2026-01-01",
        scope={"params": "<10M"},
        body='```yaml policy\nlearning_rate:\n  - {when: {params: "<10M"}, default: 4.0e-4}\n```',
    )  # fmt: skip
    bank.add_patch(patch)
    bank.activate("rllm-config", "001-rate")
    change = json.loads(skills("diff", "rllm-config", "1", "2", "--json")[1])["policy"]
    assert change == [
        {"key": "learning_rate.default", "when": {"params": "<10M"}, "before": 0.0002, "after": 0.0004,
         "patch": "001-rate"}
    ]  # fmt: skip
    dry = json.loads(skills("rollback", "rllm-config", "1", "--dry-run", "--json")[1])
    assert (dry["dry_run"], dry["policy"][0]["after"]) == (True, 0.0002)
    assert len(bank.history("rllm-config")) == 2
    for_tiny = json.loads(skills("policy", "rllm-config", "--for", "tiny,calculator", "--json")[1])
    assert for_tiny["provenance"]["learning_rate.default"]["patch"] == "001-rate"
    explained = json.loads(
        skills("policy", "rllm-config", "--explain", "learning_rate", "--for", "qwen-0.5b", "--json")[1]
    )
    assert explained["provenance"]["learning_rate.default"]["patch"] == "base"
    assert explained["context"]["params"] > 300 * 10**6
    code, _, err = skills("policy", "rllm-config", "--for", "a,b,c")
    assert code == 1
    assert "MODEL,ENV" in err


def test_validate_tells_warnings_and_strict_counts_them(skills: Any, root: Path) -> None:
    skills("status")
    index = root / "skills" / "bank.yaml"
    index.write_text(index.read_text(encoding="utf-8") + "  warn: {skill_tokens: 10}\n", encoding="utf-8")
    code, out, _ = skills("validate", "rllm-run", "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (0, True)
    assert "settings.warn.skill_tokens is 10" in document["warnings"][0]["message"]
    assert skills("validate", "rllm-run", "--strict")[0] == 1
