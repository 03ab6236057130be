"""The lint finds names that do not exist, each with file, line and fix, and lets the right ones be."""

from pathlib import Path

import pytest

from mcp_server.skills.lint import lint_bank, lint_source
from mcp_server.skills.markdown import SourceFile, blocks_of
from mcp_server.skills.words import Words
from skill_bank.bank import SkillBank
from skill_bank.types import BankError

SKILL = "rllm-run"
FILE = "rllm/rllm-run/base.md"


@pytest.fixture(scope="module")
def words() -> Words:
    return Words.of(SkillBank.shipped())


def found_in(words: Words, text: str, skill: str = SKILL) -> list[tuple[int, str, str]]:
    """(line, message, fix) of everything that is wrong with a text."""
    return [(one.line, one.message, one.fix) for one in lint_source(skill, SourceFile(FILE, text), words)]


def test_it_knows_the_live_server_and_command_line(words: Words) -> None:
    assert words.tools["start_training"].arguments[:2] == ("request", "overrides")
    assert words.tools["load_skill"].required == ("skill",)
    assert "check_again_s" in words.tools["monitor_run"].answers
    assert "mean" in words.tools["monitor_run"].answers, "fields of parts"
    assert {"evo://runs/{run_id}", "evo://trajectories/{session}"} <= set(words.resources)
    assert words.command.children["skills"].children["history"].places == 1
    assert words.command.children["runs"].children["list"].options["--json"] is False
    assert "sizes" in words.skills["rllm-config"]
    assert {"learning_rate", "learning_rate.default"} <= words.policy["rllm-config"]


PLANTED: list[tuple[str, int, str, str]] = [
    ("Call `start_trainig(request=…)`.", 1, "there is no tool 'start_trainig'", "start_training"),
    ("a\nb\nThen monitor_runs(run_id=…) again.", 3, "there is no tool 'monitor_runs'", "monitor_run"),
    ("Use `monitor_run(run=…)`.", 1, "no argument of monitor_run 'run'", "run_id"),
    ("Use `monitor_run(wait_s=60)`.", 1, "monitor_run(wait_s=60) is refused", "less than or equal to 45"),
    ("Use `propose_patch(action=\"delete\")`.", 1, "is refused", "'append'"),
    ("Use `load_skill()`.", 1, "load_skill is called without skill", "load_skill(skill=…)"),
    ("Use `load_skill(skill=\"rllm-trian\")`.", 1, "there is no skill 'rllm-trian'", "rllm-train"),
    ("Follow traj-optimise next.", 1, "there is no skill 'traj-optimise'", "traj-optimize"),
    ("Use `stop_run(\"abc\")`.", 1, "without naming its arguments", "run_id"),
    ("Use `start_training(overrides={\"learning_rat\": 1})`.", 1, "key of overrides 'learning_rat'", "learning_rate"),
    ("Use `start_training(campaign={\"runs\": 5})`.", 1, "no key of campaign 'runs'", "max_runs"),
    ("Use `propose_patch(scope={\"modle\": \"tiny\"})`.", 1, "no key of scope 'modle'", "model"),
    ("`analyze_trajectories(claims=[{\"metrc\": \"x\"}])`", 1, "no key of claims 'metrc'", "metric"),
    ("`start_training(request=\"tiny, 8 problems, 9 problems\")`", 1, "is refused", "contradicts itself"),
    ("`start_training(request=\"tiny blorfing calculator\")`", 1, "words without effect: 'blorfing'", "rllm-clarify"),
    ("Look at `check_agian_s`.", 1, "'check_agian_s'", "check_again_s"),
    ("Write `runn_id=abc`.", 1, "no argument 'runn_id'", "run_id"),
    ("Read `evo://runz/abc`.", 1, "no resource 'evo://runz/abc'", "evo://runs/{run_id}"),
    ("Read evo://runs/a/b now.", 1, "no resource 'evo://runs/a/b'", "evo://runs/{run_id}"),
    ("Run `mcp-evo trajectorys list`.", 1, "no command of mcp-evo 'trajectorys'", "trajectories"),
    ("Run `mcp-evo trajectories list`.", 1, "no command of mcp-evo trajectories 'list'", "search"),
    ("Run `mcp-evo runs list --jsn`.", 1, "no option of mcp-evo runs list '--jsn'", "--json"),
    ("Run `mcp-evo skills history a b c`.", 1, "takes 1 word(s), 3 are given", "--help"),
    ("x\n```\nmcp-evo skillz status\n```", 3, "no command of mcp-evo 'skillz'", "skills"),
    ("x {{policy.wait_s.defalt}}", 1, "no policy key of rllm-monitor 'wait_s.defalt'", "wait_s.default"),
    ("`start_training(request=`", 1, "is not closed", "bracket"),
    ("`monitor_run(run_id=, x)`", 1, "cannot be read as a call", "argument=value"),
    ("```python example\n# t\nx = monitor_rum(wait_s=1)\n```", 3, "no tool 'monitor_rum'", "monitor_run"),
    ("```python example\n# t\nx = refusal(monitor_rum())\n```", 3, "no tool 'monitor_rum'", "monitor_run"),
    ("```python example\n# t\n\nx = monitor_run(wait=1)\n```", 4, "argument of monitor_run 'wait'", "wait_s"),
    ("```python example\n# t\nmcp_evo(\"runs lst\")\n```", 3, "no command of mcp-evo runs 'lst'", "list"),
    ("```python example\nx = monitor_run()\n```", 2, "begins with a comment", "calls"),
    ("```python example\n# t\nimport os\n```", 3, "Import is not part of an example", "calls"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message", "fix"), PLANTED, ids=[one[2] for one in PLANTED])
def test_a_planted_fault_is_found_with_its_line_and_fix(
    words: Words, text: str, line: int, message: str, fix: str
) -> None:
    skill = "rllm-monitor" if "policy" in text else SKILL
    [found] = found_in(words, text, skill)
    assert found[0] == line
    assert message in found[1]
    assert fix in found[2]


@pytest.mark.parametrize(
    "text",
    [
        "`start_training(request=…, overrides={…}, profile=…, key=…)` answers at once.",
        "`monitor_run(run_id=…, since_step=LAST, wait_s={{policy.wait_s.default}})`",
        "`start_training(request=\"用 tiny 训练计算器智能体，16 题\")`",
        "`compare_runs(runs=[first, second])`, then `propose_patch(…)`",
        "`learning_rate`, `check_again_s`, `reward_collapse`, `awaiting_approval`, `failure.kind`, `tasks.jsonl`",
        "`mcp-evo skills policy rllm-config --for tiny,calculator --explain KEY`",
        "`mcp-evo runs list --json --workspace DIR`, `mcp-evo approve …`, `mcp-evo --help`",
        "the mcp-evo server, mcp-evo in prose, evo://runs/20260131-1 and evo://trajectories/abc.",
        "```yaml policy\nno_such_key: {default: 1}\n```",
        "```python example\n# t\nwhy = refusal(monitor_run(wait=1))\nassert \"wait_s\" in why\n```",
        "a function foo(bar) and f(x), `a_file.py`",
    ],
)  # fmt: skip
def test_what_exists_is_let_be(words: Words, text: str) -> None:
    assert found_in(words, text, "rllm-monitor") == []


def test_a_fault_planted_in_a_bank_is_found_in_base_and_patch(tmp_path: Path, words: Words) -> None:
    bank = SkillBank.seed(tmp_path / "skills")
    base = bank.root / "rllm" / "rllm-run" / "base.md"
    text = base.read_text(encoding="utf-8").replace("`stop_run(run_id=…)` asks", "`stop_run(run=…)` asks")
    base.write_text(text, encoding="utf-8")
    patch = bank.render_patch(
        "rllm-train",
        id="001-wrong",
        target_section="report",
        body="Then `analyse_run(run_id=…)`.",
        description="d",
        source="test",
        created="2026-01-01",
    )
    bank.add_patch(patch)
    found = lint_bank(bank, "rllm", words)
    assert [(one.file, one.message) for one in found] == [
        ("rllm/rllm-run/base.md", "there is no argument of stop_run 'run'"),
        ("rllm/rllm-train/patches/001-wrong.md", "there is no tool 'analyse_run'"),
    ]
    assert text.splitlines()[found[0].line - 1].count("stop_run(run=…)") == 1
    lines = (bank.root / found[1].file).read_text(encoding="utf-8").splitlines()
    assert "analyse_run" in lines[found[1].line - 1]
    assert lint_bank(bank, "traj", words) == []
    assert len(lint_bank(bank, "rllm-run", words)) == 1
    with pytest.raises(BankError, match="rllm-rn"):
        lint_bank(bank, "rllm-rn", words)


def test_what_does_not_compile_is_told_too(tmp_path: Path, words: Words) -> None:
    bank = SkillBank.seed(tmp_path / "skills")
    base = bank.root / "rllm" / "rllm-monitor" / "base.md"
    base.write_text(base.read_text(encoding="utf-8").replace("{{policy.wait_s.max}}", "{{policy.wait_s.mx}}"), "utf-8")
    found = lint_bank(bank, "rllm-monitor", words)
    assert {one.file for one in found} == {"rllm/rllm-monitor/base.md"}
    assert any("wait_s.mx" in one.message for one in found)


def test_blocks_keep_their_lines() -> None:
    text = "one\n```yaml policy\na: 1\n```\ntwo\nthree\n~~~~\n```\n~~~~\nlast"
    assert [(one.line, one.info, one.text) for one in blocks_of(SourceFile("f", text))] == [
        (1, None, "one"),
        (3, "yaml policy", "a: 1"),
        (5, None, "two\nthree"),
        (8, "", "```"),
        (10, None, "last"),
    ]
