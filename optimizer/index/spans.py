"""Skill and layer of events, from the segments of their session."""

from collections.abc import Sequence

from optimizer.index.build import SpanRow, SpansOf
from optimizer.segment.store import SegmentStore
from optimizer.segment.types import SegmentKind


def spans_of(segments: SegmentStore) -> SpansOf:
    """The spans in which a skill was in force; other calls have no skill and no layer of ours."""

    def spans(session: str) -> Sequence[SpanRow]:
        return [
            SpanRow(segment.agent, span.first_line, span.last_line, segment.skill, str(segment.layer))
            for segment in segments.update(session)
            if segment.kind == SegmentKind.SKILL
            for span in segment.spans
        ]

    return spans
