"""What a detector looks at: one session, its segments and its numbers, as far as the reader may see them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from optimizer.analyze.series import SeriesBook
from optimizer.analyze.texts import input_text, output_text
from optimizer.events import Event, EventKind
from optimizer.segment.segmenter import skill_of
from optimizer.segment.types import Segment


@dataclass
class View:
    """One session as a detector sees it."""

    session: str
    events: list[Event]
    """In file order. Only those that the reader may see."""
    segments: list[Segment]
    layer: str
    orchestrators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Skill of the bank that leads others → the skills of its steps, in order."""
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Skill of the bank → the tools that working by it means to call."""

    @classmethod
    def of_layer(
        cls,
        session: str,
        events: Iterable[Event],
        segments: Sequence[Segment],
        layer: str,
        orchestrators: Mapping[str, tuple[str, ...]],
        steps: Mapping[str, tuple[str, ...]] | None = None,
    ) -> "View":
        """The part of a session that a layer's segments hold, prompts and turn ends in between included."""
        mine = [one for one in segments if one.layer == layer]
        spans = [(one.agent, span.first_line, span.last_line) for one in mine for span in one.spans]
        last = max((end for _, _, end in spans), default=-1)
        seen = [
            event
            for event in events
            if (
                any(event.agent == agent and first <= event.line <= end for agent, first, end in spans)
                if event.is_call
                else event.line <= last
            )
        ]
        return cls(session, seen, mine, layer, orchestrators, steps or {})

    @cached_property
    def calls(self) -> list[Event]:
        """Tool calls, in file order."""
        return [event for event in self.events if event.is_call]

    @cached_property
    def book(self) -> SeriesBook:
        """The numbers that the calls show."""
        return SeriesBook.build(self.session, self.events)

    @cached_property
    def outputs(self) -> dict[int, str]:
        """Line → text that came back."""
        return {event.line: output_text(event) for event in self.calls}

    @cached_property
    def inputs(self) -> dict[int, str]:
        """Line → what the agent wrote into the call."""
        return {event.line: input_text(event) for event in self.calls}

    @cached_property
    def skills(self) -> list[tuple[int, str]]:
        """Lines of the calls that put a skill in force, with its name."""
        return [(event.line, name) for event in self.calls if (name := skill_of(event)) is not None]

    def children(self, skill: str) -> tuple[str, ...]:
        """The skills of the steps that a skill leads; empty where it leads none."""
        return self.orchestrators.get(skill, ())

    @cached_property
    def prompts(self) -> list[Event]:
        """Prompts of a person, where the source recorded them."""
        return [event for event in self.events if event.kind == EventKind.USER_PROMPT]

    def segment_of(self, event: Event) -> Segment | None:
        """The segment that a call belongs to."""
        for segment in self.segments:
            inside = any(span.first_line <= event.line <= span.last_line for span in segment.spans)
            if segment.agent == event.agent and inside:
                return segment
        return None
