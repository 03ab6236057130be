"""Values of segmentation: a segment, its spans, and what a segmenter remembers between two runs."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from optimizer.ids import content_id


class SegmentKind(StrEnum):
    """What holds a segment's calls together."""

    SKILL = "skill"
    """A skill was in force."""
    FREE = "free"
    """None was: the calls of one turn."""


class Span(BaseModel):
    """An unbroken run of calls inside a segment: it ends at a turn end."""

    model_config = ConfigDict(extra="forbid")

    first_line: int
    last_line: int
    tool_calls: int = 0
    ended_by: str | None = None
    """turn_end | skill | user_prompt | session_end; None: still open."""


class Segment(BaseModel):
    """Calls that belong together. Lines are those of the session's raw file."""

    model_config = ConfigDict(extra="forbid")

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
    tools: dict[str, int] = Field(default_factory=dict)
    failed: list[int] = Field(default_factory=list)
    """Lines of calls that failed."""
    unknown: int = 0
    """Calls whose outcome nothing tells."""
    runs: list[str] = Field(default_factory=list)
    """Training runs that its events launched or looked at."""
    files: list[str] = Field(default_factory=list)
    """Files that its calls read or changed, from tool inputs only."""
    spans: list[Span] = Field(default_factory=list)
    started_at: float | None = None
    ended_at: float | None = None
    open: bool = True
    waiting: bool = False
    """Between spans: a timer may take the skill up again."""
    has_timer: bool = False
    """A call set a timer or monitor, so the next turn may be the timer's and not a person's."""

    @property
    def outcome(self) -> str:
        """failed: some call failed; unknown: nothing tells of any; else ok."""
        if self.failed:
            return "failed"
        return "unknown" if self.unknown == self.tool_calls else "ok"


def segment_id(session: str, first_line: int, kind: SegmentKind) -> str:
    """The same segment has the same id in every run."""
    return content_id(session, first_line, kind)
