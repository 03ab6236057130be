"""Commands of the pages: how they are read, which are not executed and why, and what the command line makes of them."""

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from mcp_server.cli.main import build_app, global_options_first

ROOT = Path(__file__).parents[2]

NOT_EXECUTED: dict[tuple[str, ...], str] = {
    ("mcp-evo", "evaluate"): "plays episodes with a real model: the slow test of the page executes it",
    ("mcp-evo", "chat"): "needs a real model: the slow test of the page executes it",
    ("mcp-evo", "runs", "resume"): "needs a checkpoint of a real run: tests/trainer resumes runs",
    ("mcp-evo", "experience", "distill"): "needs episodes of a real run: tests/experience distils such",
    ("mcp-evo", "runs", "compare"): "names a second run by a placeholder",
    ("mcp-evo", "serve"): "serves until it is stopped: tests/server starts it",
    ("mcp-evo", "dashboard"): "serves until it is stopped: tests/dashboard starts it",
    ("python3", "-m", "venv"): "installs the package from the network: .ci/run does it",
    ("pip", "install"): "installs from the network: .ci/run does it",
    (".",): "a virtual environment that is not made here",
    ("python", "-P", "-m", "pytest"): "these tests themselves",
    ("tensorboard",): "a program that is not part of the package, serving until it is stopped",
    ("claude",): "Claude Code: tests/installs runs it, from npm",
    ("python",): "benchmarks and npm's checks take minutes: their options are checked, --help runs in the slow test",
}
"""First words of a command → why it is not executed. What is ours is parsed by the real parser all the same."""

ANSWERED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("mcp-evo", "setup", "claude-code"): ("--yes",),
    ("mcp-evo", "setup", "claude-desktop"): ("--yes",),
}
"""Commands that ask a person → the option that answers beforehand."""


@dataclass(frozen=True)
class Command:
    """One simple command."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return shlex.join(self.words)


def reason_not_executed(command: Command) -> str | None:
    """Why it is read only; None: it is executed."""
    fitting = [words for words in NOT_EXECUTED if command.words[: len(words)] == words]
    return NOT_EXECUTED[max(fitting, key=len)] if fitting else None


def commands(text: str, *, console: bool = False) -> list[Command]:
    """The simple commands of a block, in order; of a `console` block the lines after a prompt."""
    text = text.replace("\\\n", " ")
    lines = text.splitlines()
    if console:
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    found = []
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        part: list[str] = []
        for word in [*lexer, "&&"]:
            if set(word) <= set("&|;"):
                if part:
                    found.append(_simple(part))
                part = []
            else:
                part.append(word)
    return found


def _simple(words: list[str]) -> Command:
    environment = []
    while re.match(r"[A-Z_][A-Z0-9_]*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment.append((name, value))
    if ">" in words:
        words = words[: words.index(">")]
    return Command(tuple(words), tuple(environment))


# ---- our own command line, without its effects


@cache
def _parser() -> Any:
    """The command line with every function taken out: what is left reads arguments and refuses wrong ones."""
    root = get_command(build_app(None))

    def empty(command: Any) -> None:
        command.callback = _nothing
        if isinstance(command, TyperGroup):
            for name in command.list_commands(typer.Context(command)):
                empty(command.get_command(typer.Context(command), name))

    empty(root)
    return root


@cache
def names_of_commands() -> frozenset[tuple[str, ...]]:
    """Every command and group, as its words after `mcp-evo`."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
        yield words
        if isinstance(command, TyperGroup):
            for name in command.list_commands(typer.Context(command)):
                yield from below((*words, name), command.get_command(typer.Context(command), name))

    return frozenset(below((), _parser()))


def _nothing(*values: Any, **named: Any) -> None:
    """In place of a command."""


def refusal(words: tuple[str, ...]) -> str | None:
    """What the real parser has against `mcp-evo WORDS…`; None: nothing."""
    try:
        _parser()(args=global_options_first(words), prog_name="mcp-evo", standalone_mode=False)
    except SystemExit as end:
        return None if end.code in (0, None) else f"exit code {end.code}"
    except Exception as error:  # every kind of usage error of typer, whose classes depend on its release
        return f"{type(error).__name__}: {error}"
    return None


PLACEHOLDERS = {"N": "1", "A": "1", "B": "1", "A-B": "1-2", "LINE": "1"}
"""What stands for a number in a command within a line; other capitals are words already."""


def spelled_out(code: str) -> Iterator[tuple[str, ...]]:
    """The command lines that a command within a line stands for: `[OPTIONAL]`, `one|another`, `…`."""
    text = _elided(code)
    choices: list[list[str]] = []
    for part in re.split(r"(\[[^\]]*\])", text):
        if part.startswith("["):
            inner = part[1:-1]
            options = inner.split("|") if re.search(r"\s\|\s|^[A-Z|a-z]+$|--\S+\|--", inner) else [inner]
            choices.append(["", *(one.strip() for one in options)])
        elif " | " in part and '"' not in part:
            head, _, last = part.partition(" | ")
            before, _, first = head.rpartition(" ")
            choices += [[before], [first, *last.split(" | ")]]
        else:
            choices.append([part])
    for chosen in itertools.product(*choices):
        for words in _alternatives(shlex.split(" ".join(chosen), comments=True)):
            yield tuple(PLACEHOLDERS.get(word, word) for word in words)


def _elided(code: str) -> str:
    """Without `…`: a value where an option wants one or within quotation marks, else nothing."""
    text = re.sub(r"(--[a-z-]+) …", r"\1 x", code)
    return re.sub(r"(?<=\s)…", "", text).replace("…", "x")


def _alternatives(words: list[str]) -> Iterator[list[str]]:
    """Words like `normalised|hooks` are several command lines."""
    several = [word.split("|") if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word) else [word] for word in words]
    for chosen in itertools.product(*several):
        yield list(chosen)


# ---- benchmarks and tests that pages name


def options_of(script: Path) -> set[str]:
    """Options that a script declares, itself or in what it imports from its own folder."""
    found: set[str] = set()
    tree = ast.parse(script.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            beside = ROOT / (node.module.replace(".", "/") + ".py")
            for place in (beside, script.parent / f"{node.module.rpartition('.')[2]}.py"):
                if place.is_file() and place.parent == script.parent and place != script:
                    found |= options_of(place)
                    break
    return found
