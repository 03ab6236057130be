"""Examples of skills: read as a small language, carried out on a server, and failures told with file and line."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli.main import run
from mcp_server.skills.examples import Example, ExampleError, Refused, examples_of, run_example
from mcp_server.skills.markdown import SourceFile
from mcp_server.skills.testing import collect, run_examples
from skill_bank.bank import SkillBank

pytestmark = pytest.mark.anyio


class Played:
    """Actions that answer what the test says, and remember what they were asked."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._answers = list(answers)

    def _next(self, what: str, given: Any) -> Any:
        self.asked.append((what, given))
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return dict(self._next(name, arguments))

    async def command(self, words: str) -> Any:
        return self._next("mcp-evo", words)

    async def finished_run(self) -> str:
        return str(self._next("finished_run", None))


def example(code: str) -> Example:
    found, wrong = examples_of("s", SourceFile("g/s/base.md", f"above\n\n```python example\n# title\n{code}\n```\n"))
    assert wrong == []
    return found[0]


async def test_answers_are_kept_looked_into_and_passed_on() -> None:
    played = Played({"run_id": "r1", "list": [{"a": 1}]}, {"state": "finished"}, {"ok": True}, "r9")
    code = (
        "one = start_training(request='x', overrides={'seed': 2}, flags=[True, -1])\n"
        "two = monitor_run(run_id=one.run_id, since_step=one.list[0].a)\n"
        "three = mcp_evo('runs list')\n"
        "four = finished_run()\n"
        "assert two.state == 'finished' and not two.missing and two.missing is None\n"
        "assert three.ok and four in ['r9'] and len(one.list) == 1 and 0 < one.list[0].a <= 1"
    )
    await run_example(example(code), played)
    assert played.asked == [
        ("start_training", {"request": "x", "overrides": {"seed": 2}, "flags": [True, -1]}),
        ("monitor_run", {"run_id": "r1", "since_step": 1}),
        ("mcp-evo", "runs list"),
        ("finished_run", None),
    ]


async def test_a_while_repeats_until_its_condition_fails() -> None:
    played = Played({"again": 1}, {"again": 1}, {"state": "finished"})
    code = "seen = monitor_run()\nwhile seen.again is not None:\n    seen = monitor_run(wait_s=1)\nassert seen.state"
    await run_example(example(code), played)
    assert len(played.asked) == 3


async def test_a_refusal_is_a_text_and_its_absence_a_failure() -> None:
    await run_example(example("why = refusal(x_y(a=1))\nassert 'no such' in why"), Played(Refused("no such run")))
    with pytest.raises(ExampleError, match="was not refused") as caught:
        await run_example(example("why = refusal(x_y(a=1))"), Played({}))
    assert caught.value.line == 5


FAILING: list[tuple[str, list[Any], int, str]] = [
    ("a = x_y()\nassert a.b == 2", [{"b": 1}], 6, r"does not hold: a\.b == 2 \(a\.b is 1\)"),
    ("a = x_y()\n\nb = a.b.c", [{}], 7, r"there is no \.c"),
    ("a = x_y()\nb = a.list[3]", [{"list": []}], 6, "out of range"),
    ("a = x_y()", [Refused("no workspace. Next: …")], 5, "was refused: no workspace"),
    ("assert b == 1", [], 5, "the name b has no value yet"),
    ("a = x_y()\nassert a < 1", [{}], 6, "not supported"),
    ("a = x_y()\nwhile a.on:\n    b = a.on", [{"on": True}], 6, "still holds after"),
]


@pytest.mark.parametrize(("code", "answers", "line", "words"), FAILING)
async def test_a_failure_names_its_line(code: str, answers: list[Any], line: int, words: str) -> None:
    with pytest.raises(ExampleError, match=words) as caught:
        await run_example(example(code), Played(*answers))
    assert caught.value.line == line


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "a.b = 1",
        "a, b = x_y()",
        "a = b = x_y()",
        "a = [one for one in x_y()]",
        "a = (lambda: 1)()",
        "a = x_y().run()",
        "a = x_y(1)",
        "a = x_y(**b)",
        "a = f'{x_y()}'",
        "for a in [1]:\n    x_y()",
        "while True:\n    import os",
        "del a",
        "a = b if c else d",
        "a = 1 + 1",
        "a = (b := x_y())",
    ],
)
def test_the_language_is_small(code: str) -> None:
    found, wrong = examples_of("s", SourceFile("f", f"```python example\n# t\n{code}\n```"))
    assert found == []
    assert len(wrong) == 1
    assert wrong[0].line >= 3


def test_other_fences_are_no_examples() -> None:
    text = "```python\nimport os\n```\n~~~\n# t\nx\n~~~\n```yaml policy\na: 1\n```"
    assert examples_of("s", SourceFile("f", text)) == ([], [])


QUICK = ("rllm-monitor", "traj-status", "traj-segment", "traj-loop")
"""Skills whose examples take little with a worker that trains nothing."""


def test_examples_of_shipped_skills_work_on_a_server() -> None:
    bank = SkillBank.shipped()
    told: list[str] = []
    chosen = [one for one in collect(bank)[0] if one.skill in QUICK]
    outcomes = run_examples(bank, chosen, lambda one: told.append(one.skill))
    assert [one.problem for one in outcomes] == [None] * len(chosen)
    assert set(told) == set(QUICK)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_example_of_the_shipped_skills_works_with_real_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EVO_WORKER")
    bank = SkillBank.shipped()
    outcomes = run_examples(bank, collect(bank)[0])
    assert [f"{one.file}:{one.line}: {one.problem}" for one in outcomes if not one.passed] == []


def test_the_example_of_the_documentation_works() -> None:
    text = (Path(__file__).parents[2] / "docs" / "skills.md").read_text(encoding="utf-8")
    inner = text.split("````markdown\n", 1)[1].split("\n````", 1)[0]
    [shown], wrong = examples_of("docs", SourceFile("docs/skills.md", inner))
    assert wrong == []
    assert [one.problem for one in run_examples(SkillBank.shipped(), [shown])] == [None]


def planted(root: Path, code: str) -> SkillBank:
    """A bank whose traj-status has one more example."""
    bank = SkillBank.seed(root)
    base = bank.root / "traj" / "traj-status" / "base.md"
    fence = f"\n```python example\n# planted\n{code}\n```\n"
    text = base.read_text(encoding="utf-8").replace("\n<!-- /section:example -->", f"{fence}<!-- /section:example -->")
    base.write_text(text, encoding="utf-8")
    return bank


def skills_test(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["--workspace", str(root), "skills", "test", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_reports_each_example_and_fails_for_one(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = planted(tmp_path / "bank", "seen = round_status()\n\nassert seen.state == 'running'")
    code, document = skills_test(root, capsys, "traj-status", "--bank", str(bank.root))
    assert code == 1
    assert document["ok"] is False
    assert (document["passed"], document["failed"], document["problems"]) == (1, 1, [])
    bad = document["examples"][1]
    assert (bad["skill"], bad["title"], bad["passed"]) == ("traj-status", "planted", False)
    line = (bank.root / bad["file"]).read_text(encoding="utf-8").splitlines()[bad["line"] - 1]
    assert line == "assert seen.state == 'running'"
    assert "seen.state is 'none'" in bad["problem"]
    assert not list(tmp_path.glob("bank/runs")), "the bank's own folder is left as it was"
    assert not (root / "runs").exists() or not list((root / "runs").iterdir()), "so is the workspace"


def test_the_command_tells_wrong_names_and_succeeds_without(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank = planted(tmp_path / "bank", "seen = rounds_status()")
    code, document = skills_test(root, capsys, "traj-status", "--lint", "--bank", str(bank.root))
    assert code == 1
    [problem] = document["problems"]
    assert problem["file"] == "traj/traj-status/base.md"
    assert problem["fix"] == "Did you mean round_status?"
    assert skills_test(root, capsys, "traj-loop", "--lint", "--bank", str(bank.root)) == (
        0,
        {"ok": True, "problems": [], "examples": [], "passed": 0, "failed": 0},
    )
