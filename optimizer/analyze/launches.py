"""Launches: calls that start a training, by the command they run, not by words in a text.

A shell command is split into its parts; a part launches when it runs a training program: `python -m <x>.train`,
`torchrun … <x>train…`, `accelerate launch`, `bash <x>/run_….sh`, `mcp-evo train`; our own tool is `start_training`.
Programs that only mention one (`cat run_x.sh`, `grep main_ppo`) launch nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.analyze.runs_named import named_runs
from optimizer.analyze.texts import command_of, input_text, output_text
from optimizer.events import Event

_PARTS = re.compile(r"\n|;|&&|\|\||(?<![>&])&(?![>&\d])")
_SKIPPED = re.compile(
    r"\A(?:\w+=(?:\"[^\"]*\"|'[^']*'|\S*)\s+|(?:nohup|exec|time|env|sudo|setsid|stdbuf\s+-\S+|timeout\s+\S+)\s+)+"
)
_TRAINS = re.compile(
    r"\A(?:\S*/)?(?:"
    r"python[\d.]*\s+(?:-\w\s+)*-m\s+\S*(?:train|main_ppo|main_grpo)\S*"
    r"|python[\d.]*\s+(?:-u\s+)?\S*train\w*\.py"
    r"|(?:torchrun|deepspeed|accelerate\s+launch)\b.*train"
    r"|(?:bash|sh)\s+(?:-\w+\s+)*\S*(?:run|train|launch)\w*\.sh"
    r"|\.?/?\S*(?:run_|train|launch)\w*\.sh\b"
    r"|mcp-evo\s+(?:train|evolve)\b"
    r")",
)
_INLINE = re.compile(r"\bfrom\s+\S*train\S*\s+import\s+main\b[\s\S]*\bmain\(")
_HELP = re.compile(r"\s(?:--help|-h|--dry-run)\b")
_LOG = re.compile(r"(?:&>|>>?)\s*([\w./~-]+\.(?:log|txt|out))\b")
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)(\w+)\1")
MAX_PART = 1000
"""Characters of a command's part that are looked at: the program stands at its beginning."""

_TOOLS = frozenset({"start_training"})


@dataclass(frozen=True)
class Launch:
    """A call that started a training."""

    line: int
    run: str | None
    """The run it names, where it names one."""
    log: str | None
    """The file that its output goes to."""
    background: bool
    """The call came back before the training ended."""
    command: str


def find_launches(calls: Sequence[Event], known: set[str]) -> list[Launch]:
    """The launches among a session's calls, in file order."""
    found = []
    for event in calls:
        launch = _launch(event, known)
        if launch is not None:
            found.append(launch)
    return found


def with_runs_by_log(launches: Sequence[Launch], calls: Sequence[Event], known: set[str]) -> list[Launch]:
    """Launches that name no run get the one that their own log states: a later call shows the log file, and its output
    names exactly one run."""
    found = []
    for at, launch in enumerate(launches):
        if launch.run is not None or launch.log is None:
            found.append(launch)
            continue
        again = next((other.line for other in launches[at + 1 :] if other.log == launch.log), None)
        runs: set[str] = set()
        for event in calls:
            inside = event.line > launch.line and (again is None or event.line < again)
            if inside and launch.log in input_text(event):
                here = named_runs(output_text(event), known)
                runs |= set(here) if len(here) == 1 else set()
        found.append(replace(launch, run=next(iter(runs)) if len(runs) == 1 else None))
    return found


def _launch(event: Event, known: set[str]) -> Launch | None:
    tool = (event.tool or "").rsplit("__", 1)[-1]
    if tool in _TOOLS and not event.failed:
        runs = [event.run_id] if event.run_id else named_runs(output_text(event), known)
        return Launch(event.line, runs[0] if len(runs) == 1 else None, None, True, tool)
    command = command_of(event)
    if event.tool != "Bash" or not command:
        return None
    parts = [_SKIPPED.sub("", part.strip()[:MAX_PART]) for part in _PARTS.split(_without_heredocs(command))]
    trains = [part for part in parts if _TRAINS.match(part) and not _HELP.search(part)]
    if not trains and not _INLINE.search(command):
        return None
    runs = named_runs(input_text(event), known) or named_runs(output_text(event), known)
    log = _LOG.search(command)
    started = isinstance(event.input, dict) and event.input.get("run_in_background") is True
    background = started or bool(re.search(r"\bnohup\b|(?<![>&])&\s*(?:\n|$|echo\b)", command))
    return Launch(
        event.line,
        runs[0] if len(runs) == 1 else None,
        log[1] if log is not None else None,
        background,
        (trains[0] if trains else command.split("\n", 1)[0])[:200],
    )


def _without_heredocs(command: str) -> str:
    """The command without the bodies of heredocs and quoted programs, whose lines are no commands."""
    kept: list[str] = []
    tag: str | None = None
    for line in command.split("\n"):
        if tag is not None:
            tag = None if line.strip() == tag else tag
            continue
        begins = _HEREDOC.search(line)
        tag = begins[2] if begins is not None else None
        kept.append(_HEREDOC.sub(" ", line))
    bare = "\n".join(kept)
    return re.sub(r"(-c\s+)(\"(?:[^\"\\]|\\.)*\"|'[^']*')", r"\1…", bare, flags=re.DOTALL)
