"""Values of segmentation: a segment, its spans, and the lines that its judgements rest on.

All counts of one segment are exclusive: a call belongs to exactly one segment. What an orchestrator's whole tree did is
`tree_tool_calls`.
"""

from enum import StrEnum
from typing import Any

import msgspec

from optimizer.ids import content_id


class SegmentKind(StrEnum):
    """What holds a segment's calls together."""

    SKILL = "skill"
    """A skill was in force."""
    FREE = "free"
    """None was: calls of one turn that work on the same files."""


class IntentKind(StrEnum):
    """What a call was for, as its own input shows."""

    TEST = "test"
    """A test runner ran."""
    EDIT = "edit"
    """A file was changed."""
    CONFIG = "config"
    """A configuration was written."""
    LAUNCH = "launch"
    """A training or a long process was started."""
    MONITOR = "monitor"
    """Something that goes on was looked at again, or a timer was set for it."""
    LOG = "log"
    """A log was read."""


class LineEvidence(msgspec.Struct, frozen=True):
    """A line of the session's raw file and what in it tells."""

    line: int
    text: str
    """Shortened."""


class Intent(msgspec.Struct, kw_only=True):
    """An intent that calls of the segment had."""

    kind: str
    line: int
    """The first call that shows it."""
    text: str
    """What in its input shows it, shortened."""
    calls: int = 0
    """How many calls show it."""


class FileGuess(msgspec.Struct, frozen=True):
    """A file that a shell command seems to have written. A guess: commands are not interpreted."""

    path: str
    line: int
    how: str
    """The redirection or command it was read off: `>`, `>>`, `tee`, `sed -i`, `cp`, `mv`."""


class Span(msgspec.Struct, kw_only=True):
    """An unbroken run of the segment's calls: no other call of its agent and no turn end lies within."""

    first_line: int
    last_line: int
    tool_calls: int = 0
    ended_by: str | None = None
    """turn_end | skill | user_prompt | session_end | files (the next call was about other files); None: still open."""


class Segment(msgspec.Struct, kw_only=True):
    """Calls that belong together. Lines are those of the session's raw file."""

    id: str
    kind: SegmentKind
    session: str
    agent: str
    skill: str | None = None
    args: str | None = None
    layer: str
    first_line: int
    last_line: int
    tool_calls: int = 0
    """Calls of the whole segment, over all its spans."""
    span_tool_calls: int = 0
    """Calls up to the first turn end, next skill call or the end: what a count without continuation gives."""
    tree_tool_calls: int = 0
    """Calls of the segment and of all segments below it in the tree, made while this one was open: a sub-agent may go
    on with a child after its orchestrator ended."""
    parent: str | None = None
    """Segment of the orchestrator that declares this skill and was open when it was called."""
    children: list[str] = msgspec.field(default_factory=list)
    """Segments whose parent this is, in order."""
    tools: dict[str, int] = msgspec.field(default_factory=dict)
    failed: list[int] = msgspec.field(default_factory=list)
    """Lines of calls that failed."""
    failures: list[LineEvidence] = msgspec.field(default_factory=list)
    """The same with the evidence: structured failures, masked and reported ones."""
    masked: list[LineEvidence] = msgspec.field(default_factory=list)
    """Those of `failures` whose exit status was hidden or that only the program's output tells."""
    unknown: int = 0
    """Calls whose outcome nothing tells."""
    runs: list[str] = msgspec.field(default_factory=list)
    """Training runs that its events launched or looked at."""
    launched: list[str] = msgspec.field(default_factory=list)
    """Those of `runs` that a call of this segment launched."""
    files: list[str] = msgspec.field(default_factory=list)
    """Files that its calls read or changed, from tool inputs only."""
    written: list[str] = msgspec.field(default_factory=list)
    """Those of `files` that its calls changed."""
    file_guesses: list[FileGuess] = msgspec.field(default_factory=list)
    """Files that its shell commands seem to have written; never among `files`."""
    intents: list[Intent] = msgspec.field(default_factory=list)
    spans: list[Span] = msgspec.field(default_factory=list)
    started_at: float | None = None
    ended_at: float | None = None
    open: bool = True
    waiting: bool = False
    """Between spans: a timer may take the skill up again."""
    has_timer: bool = False
    """A timer or monitor is set, so the next turn may be the timer's and not a person's."""

    @property
    def outcome(self) -> str:
        """failed: some call failed; unknown: nothing tells of any; else ok."""
        if self.failed:
            return "failed"
        return "unknown" if self.unknown == self.tool_calls else "ok"

    def document(self) -> dict[str, Any]:
        """The segment with its outcome, ready for JSON."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        document["outcome"] = self.outcome
        return document


MAX_BAD_LINES = 100
"""Numbers of bad lines of a session that are kept; all of them are counted."""


class SegmentedSession(msgspec.Struct, frozen=True):
    """A session whose segments are up to date."""

    session: str
    events: int
    bad_lines: int
    bad_line_numbers: list[int]
    """The first `MAX_BAD_LINES`."""
    changed: bool
    """Something was read now."""


def segment_id(session: str, first_line: int, kind: SegmentKind) -> str:
    """The same segment has the same id in every run."""
    return content_id(session, first_line, kind)
