"""Every command of the pages is executed, or parsed by the real parser with the reason why it is not executed.

The commands of a page run one after the other in one scratch folder, with a worker that trains nothing (its numbers
are a function of the settings, so that whole rounds go through). The slow test runs the README with the real one.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from doc_commands import (
    ANSWERED,
    NOT_EXECUTED,
    Command,
    commands,
    names_of_commands,
    options_of,
    reason_not_executed,
    refusal,
    spelled_out,
)
from doc_pages import PAGES, ROOT, blocks, inline_code, name_of

from mcp_server.cli import main

FAKE_WORKER = [sys.executable, "-P", str(ROOT / "tests" / "support" / "fake_worker.py")]

WITH_COMMANDS = [page for page in PAGES if any(block.language in ("bash", "console") for block in blocks(page))]


def commands_of(page: Path) -> list[Command]:
    """All commands of a page's blocks, in order."""
    return [
        command
        for block in blocks(page)
        if block.language in ("bash", "console")
        for command in commands(block.text, console=block.language == "console")
    ]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, a home of its own, the worker that trains nothing, nobody at the terminal."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MCP_EVO_WORKER", json.dumps(FAKE_WORKER))
    for name in ("MCP_EVO_HOME", "MCP_EVO_LAYER", "MCP_EVO_SESSION", "CLAUDECODE", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work" / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_work_one_after_the_other(
    page: Path, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands_of(page):
        if reason_not_executed(command) is not None:
            continue
        words = command.words
        if words[0] == "cd":
            os.chdir(words[1])
        elif words[0] == "mkdir":
            Path(words[1]).mkdir()
        else:
            assert words[0] == "mcp-evo", f"{command}: execute it, or say in NOT_EXECUTED why not"
            answers = next((more for first, more in ANSWERED.items() if words[: len(first)] == first), ())
            capsys.readouterr()
            code = main.run([*words[1:], *answers])
            said = capsys.readouterr()
            assert code == 0, f"{command}\n{said.out}\n{said.err}"
            assert "Traceback" not in said.err


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_what_is_not_executed_is_parsed(page: Path) -> None:
    for command in commands_of(page):
        words = command.words
        if words[0] == "mcp-evo":
            assert refusal(words[1:]) is None, f"{command}: {refusal(words[1:])}"
        elif words[0] == "python" and "-m" not in words:
            check_script(tuple(word for word in words if word != "-P"))
        elif words[:2] == ("pip", "install"):
            check_extras(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_lines_are_parsed(page: Path) -> None:
    """With everything that is optional, and without it."""
    problems = []
    for code in inline_code(page):
        if code.startswith("mcp-evo "):
            for words in spelled_out(code):
                named_only = words[1:] in names_of_commands()  # "what `mcp-evo evaluate` does" is no command line
                if not named_only and (said := refusal(words[1:])) is not None:
                    problems.append(f"`{code}` as {' '.join(words)}: {said}")
        elif re.match(r"python (-P )?[a-z]+/", code):
            check_script(tuple(word for word in code.split() if word != "-P"))
        elif "pytest " in code:
            check_tests(tuple(code.split()))
        elif code.startswith("pip install"):
            check_extras(tuple(code.replace("'", "").split()))
    assert not problems, "\n".join(problems)


def check_script(words: tuple[str, ...]) -> None:
    """`python SCRIPT OPTIONS`: the script exists and knows the options."""
    script = ROOT / words[1]
    assert script.is_file(), f"{' '.join(words)}: there is no {words[1]}"
    unknown = {word for word in words[2:] if word.startswith("--")} - options_of(script) - {"--help"}
    assert not unknown, f"{' '.join(words)}: {words[1]} does not know {', '.join(sorted(unknown))}"


def check_tests(words: tuple[str, ...]) -> None:
    """`pytest … FILE … -k WORD`: the file exists, and a test in it has the word in its name."""
    for word in words:
        if word.startswith("tests/"):
            place = ROOT / word
            assert place.exists(), f"{' '.join(words)}: there is no {word}"
            if "-k" in words:
                chosen = words[words.index("-k") + 1]
                names = [line for line in place.read_text(encoding="utf-8").splitlines() if "def test_" in line]
                assert any(chosen in name for name in names), f"{' '.join(words)}: no test has {chosen} in its name"


def check_extras(words: tuple[str, ...]) -> None:
    """`pip install`: extras and constraint files exist."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for word in words:
        if "[" in word and word.startswith(("mcp-evo", ".")):
            assert word.partition("[")[2].rstrip("]") in extras, f"{word}: extras are {sorted(extras)}"
    if "-c" in words:
        assert (ROOT / words[words.index("-c") + 1]).is_file()


# ---- the test can fail


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mcp-evo runs list --jsom", "No such option"),
        ("mcp-evo trajectory import x", "No such command"),
        ("mcp-evo explain", "missing"),
        ("mcp-evo evaluate latest --n many", "integer"),
        ('mcp-evo train "tiny" "calculator"', "unexpected extra argument"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, expected: str) -> None:
    (command,) = commands(line)
    said = refusal(command.words[1:])
    assert said is not None
    assert expected.lower() in said.lower()


def test_blocks_are_read_as_a_shell_reads_them() -> None:
    text = 'cd a && X_Y=1 mcp-evo train "a; b | c" \\\n  --yes   # comment\nmcp-evo runs list | head > f\n'
    assert [(one.words, one.environment) for one in commands(text)] == [
        (("cd", "a"), ()),
        (("mcp-evo", "train", "a; b | c", "--yes"), (("X_Y", "1"),)),
        (("mcp-evo", "runs", "list"), ()),
        (("head",), ()),
    ]
    assert [one.words for one in commands("$ mcp-evo runs list\nno runs\n", console=True)] == [
        ("mcp-evo", "runs", "list")
    ]


def test_commands_within_lines_are_spelled_out() -> None:
    assert set(spelled_out("mcp-evo skills diff SKILL [A] [B]")) == {
        ("mcp-evo", "skills", "diff", "SKILL"),
        ("mcp-evo", "skills", "diff", "SKILL", "1"),
        ("mcp-evo", "skills", "diff", "SKILL", "1", "1"),
    }
    assert set(spelled_out("mcp-evo trajectories segment | search")) == {
        ("mcp-evo", "trajectories", "segment"),
        ("mcp-evo", "trajectories", "search"),
    }
    assert ("mcp-evo", "s", "--format", "hooks") in set(spelled_out("mcp-evo s --format normalised|hooks"))
    assert list(spelled_out("mcp-evo evaluate MODEL --env …")) == [("mcp-evo", "evaluate", "MODEL", "--env", "x")]


def test_every_reason_is_needed() -> None:
    """A reason for a command that no page names any more is taken out of the table."""
    used = {
        max((words for words in NOT_EXECUTED if command.words[: len(words)] == words), key=len)
        for page in WITH_COMMANDS
        for command in commands_of(page)
        if reason_not_executed(command) is not None
    }
    assert used == set(NOT_EXECUTED), set(NOT_EXECUTED) - used


# ---- slow: for real


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """Real processes, the real worker, each command line given to a shell. Minutes on two cores."""
    folder = tmp_path / "work"
    folder.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "PATH": path, "HOME": str(tmp_path), "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    real = {("mcp-evo", "evaluate"), ("mcp-evo", "chat")}
    for command in dict.fromkeys(commands_of(ROOT / "README.md")):  # the recorded run is a command of the page, too
        words = command.words
        if words[0] == "cd":
            folder = folder / words[1]
        elif words[0] == "mkdir":
            (folder / words[1]).mkdir()
        elif reason_not_executed(command) is None or words[:2] in real:
            answers = next((more for first, more in ANSWERED.items() if words[: len(first)] == first), ())
            done = subprocess.run(
                [*words, *answers],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def options_on_the_pages() -> dict[str, set[str]]:
    """Script that the pages name → options that they give it."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for script, rest in re.findall(
            r"python (?:-P )?(benchmarks/\w+\.py)([^`\n]*)", page.read_text(encoding="utf-8")
        ):
            found.setdefault(script, set()).update(re.findall(r"--[a-z][\w-]*", rest))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(options_on_the_pages()))
def test_benchmarks_tell_the_options_of_the_pages(script: str) -> None:
    done = subprocess.run([sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    missing = {option for option in options_on_the_pages()[script] if option not in done.stdout}
    assert not missing, f"{script} --help does not tell {', '.join(sorted(missing))}"
