"""What a call was for, read off its own input: the tool, or the programs in command position of a shell command.

A word in a text proves no intent: `echo pytest`, a grep for "train" or a here-document that mentions a test does not.
"""

import re
from collections.abc import Callable

from optimizer.call_fields import CallInput, text
from optimizer.segment.types import IntentKind

FILE_KEYS = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""Tools that name a file as theirs → the field of the input."""

WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})

TIMERS_ONCE = frozenset({"ScheduleWakeup"})
"""Fire once: the next turn may be theirs."""

TIMERS_LASTING = frozenset({"Monitor", "CronCreate"})
"""Fire until they are stopped."""

TIMER_STOPS = frozenset({"CronDelete", "TaskStop", "KillShell"})

_MONITORS = TIMERS_ONCE | TIMERS_LASTING | {"TaskOutput", "BashOutput", "AgentOutput", "monitor_run"}
LAUNCHES = frozenset({"start_training"})
"""Tools of ours whose answer names the run that they launched."""

_LAUNCHERS = LAUNCHES | {"evolve", "try_patch"}

_CONFIG_FILE = re.compile(r"(?:\.(?:ya?ml|toml|ini|cfg|conf|env)|(?:config|settings|params|hparams)[^/]*\.json)$", re.I)
_LOG_FILE = re.compile(r"\.log(?:\.\d+)?$|(?:^|[/_-])logs?/|[_-]log\.(?:txt|jsonl?)$")
_LOG_ENDINGS = (".log", ".out", ".err")

_TEST_PROGRAMS = frozenset({"pytest", "py.test", "tox", "nox", "jest", "vitest", "ctest", "phpunit", "rspec", "mocha"})
_TEST_MODULES = frozenset({"pytest", "unittest", "nose2", "doctest"})
_TEST_VERBS = frozenset({"npm", "yarn", "pnpm", "bun", "go", "cargo", "make", "mvn", "gradle", "deno", "dotnet"})
"""Programs whose verb `test` runs the tests."""
_LAUNCH_PROGRAMS = frozenset({"torchrun", "deepspeed", "sbatch", "srun", "qsub"})
_LAUNCH_PHRASES = (("accelerate", "launch"), ("ray", "job"), ("mcp-evo", "train"), ("mcp-evo", "evolve"))
_TRAINS = re.compile(
    r"(?:^|[/_.-])(?:train|run_[a-z]*train|launch|finetune|grpo|ppo|sft)[a-z0-9_]*(?:\.py|\.sh)?$|^verl\.trainer"
)
_LOOKERS = frozenset({"nvidia-smi", "npu-smi", "ps", "pgrep", "top", "htop", "squeue", "watch", "jobs"})
_READERS = frozenset({"tail", "head", "cat", "less", "more", "grep", "egrep", "rg", "sed", "awk", "zcat"})
_SHELLS = frozenset({"bash", "sh", "zsh", "source", "."})
_SHOWN = 80

Shown = tuple[IntentKind, str]

# Bound once: a member of an enum is looked up by a descriptor each time.
_TEST = IntentKind.TEST
_EDIT = IntentKind.EDIT
_CONFIG = IntentKind.CONFIG
_LAUNCH = IntentKind.LAUNCH
_MONITOR = IntentKind.MONITOR
_LOG = IntentKind.LOG


def intents_of_tool(tool: str, call: CallInput) -> list[Shown]:
    """Intents of a call that is no shell command."""
    key = FILE_KEYS.get(tool)
    if key is not None:
        path = text(call.notebook_path if tool == "NotebookEdit" else call.file_path)
        if path is None:
            return []
        if tool in WRITERS:
            kind = _CONFIG if _CONFIG_FILE.search(path) else _EDIT
            return [(kind, f"{tool} {_short(path)}")]
        return [(_LOG, f"Read {_short(path)}")] if _is_log(path) else []
    if tool in _MONITORS:
        return [(_MONITOR, tool)]
    name = tool.rsplit("__", 1)[-1]
    if name in _LAUNCHERS:
        return [(_LAUNCH, name)]
    return [(_MONITOR, name)] if name in _MONITORS else []


def intents_of_shell(commands: list[tuple[str, list[str]]], background: bool) -> list[Shown]:
    """Intents of a shell command by its simple commands; each kind once, with the command that shows it."""
    found: list[Shown] = []
    waits = False
    for program, words in commands:
        rule = _RULES.get(program)
        if rule is not None:
            kind = rule(words)
        elif program[:6] == "python":
            kind = _of_python(words)
        elif program == "sleep":
            waits = True
            continue
        elif program[-3:] == ".sh" and _TRAINS.search(program):
            kind = _LAUNCH
        else:
            continue
        if kind is None:
            continue
        if waits and kind is _LOG:
            kind = _MONITOR
        if not any(kind is one for one, _ in found):
            found.append((kind, _short(" ".join(words))))
    if background and commands and not any(one is _LAUNCH or one is _MONITOR for one, _ in found):
        found.append((_LAUNCH, _short(" ".join(commands[-1][1]))))
    return found


def _of_reader(words: list[str]) -> IntentKind | None:
    joined = " ".join(words).lower()
    if "log" not in joined and ".out" not in joined and ".err" not in joined:
        return None
    if not any(_is_log(word) for word in words[1:]):
        return None
    follows = words[0].endswith("tail") and ("-f" in words or "-F" in words)
    return _MONITOR if follows else _LOG


def _of_test_verb(words: list[str]) -> IntentKind | None:
    return _TEST if len(words) > 1 and words[1] == "test" else None


def _of_phrase(words: list[str]) -> IntentKind | None:
    program, second = words[0].rsplit("/", 1)[-1], words[1] if len(words) > 1 else ""
    if (program, second) in _LAUNCH_PHRASES:
        return _LAUNCH
    return _MONITOR if program == "mcp-evo" and second in ("runs", "status") else None


def _of_script(words: list[str]) -> IntentKind | None:
    return _LAUNCH if len(words) > 1 and _TRAINS.search(words[1]) else None


_RULES: dict[str, Callable[[list[str]], IntentKind | None]] = {
    **dict.fromkeys(_READERS, _of_reader),
    **dict.fromkeys(_LOOKERS, lambda words: _MONITOR),
    **dict.fromkeys(_TEST_PROGRAMS, lambda words: _TEST),
    **dict.fromkeys(_LAUNCH_PROGRAMS, lambda words: _LAUNCH),
    **dict.fromkeys(_TEST_VERBS, _of_test_verb),
    **dict.fromkeys((program for program, _ in _LAUNCH_PHRASES), _of_phrase),
    **dict.fromkeys(_SHELLS, _of_script),
}
"""Program → what its words show."""


def _of_python(words: list[str]) -> IntentKind | None:
    target = ""
    for number, word in enumerate(words[1:], 1):
        if word == "-m":
            target = words[number + 1] if number + 1 < len(words) else ""
            if target.split(".", 1)[0] in _TEST_MODULES:
                return _TEST
            target = target.replace(".", "/") if not target.startswith("verl.") else target
            break
        if word in ("-c", "-"):
            return None
        if word[:1] != "-":
            target = word
            break
    return _LAUNCH if target and _TRAINS.search(target) else None


def _is_log(path: str) -> bool:
    path = path.lower()
    return path.endswith(_LOG_ENDINGS) or ("log" in path and _LOG_FILE.search(path) is not None)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
