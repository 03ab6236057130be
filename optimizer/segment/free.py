"""Free segments: the calls of one turn under no skill, held together by the files they name.

1. A call's *keys* are the last components of the file its input names or of the paths its shell command names.
2. Calls that share a key belong together, over the whole turn, however many calls lie between them (union-find).
3. A call without keys goes with the call before it; keys that follow a group without any join it.
"""

import msgspec

from optimizer.segment.types import Intent, Segment, SegmentKind, segment_id


class FreeTurn(msgspec.Struct):
    """The groups of a turn that has not ended."""

    groups: list[Segment] = msgspec.field(default_factory=list)
    keys: dict[str, int] = msgspec.field(default_factory=dict)
    """Key → index of its group, the one that was named last at the end."""
    last: int = -1
    """Group of the last call; -1: there was none."""

    def group_of(self, keys: list[str]) -> int:
        """The group that a call with these keys belongs to, joining those that it connects; -1: a new one."""
        known = sorted({self.keys[key] for key in keys if key in self.keys})
        if known:
            target = known[0]
            for other in reversed(known[1:]):
                self._join(target, other)
        elif not keys or (self.last >= 0 and self.last not in reversed(self.keys.values())):
            target = self.last
        else:
            target = -1
        index = target if target >= 0 else len(self.groups)
        for key in keys:
            self.keys.pop(key, None)  # to the end: so the look for the last group above ends where it begins
            self.keys[key] = index
        return target

    def _join(self, target: int, other: int) -> None:
        into, from_ = self.groups[target], self.groups.pop(other)
        joined(into, from_)
        for key, index in self.keys.items():
            if index == other:
                self.keys[key] = target
            elif index > other:
                self.keys[key] = index - 1
        if self.last == other:
            self.last = target
        elif self.last > other:
            self.last -= 1


def joined(into: Segment, other: Segment) -> None:
    """Takes `other` into `into`: what the two would be as one."""
    into.first_line = min(into.first_line, other.first_line)
    into.last_line = max(into.last_line, other.last_line)
    into.id = segment_id(into.session, into.first_line, SegmentKind.FREE)
    into.spans = sorted([*into.spans, *other.spans], key=lambda span: span.first_line)
    into.tool_calls += other.tool_calls
    into.span_tool_calls += other.span_tool_calls
    into.tree_tool_calls += other.tree_tool_calls
    into.unknown += other.unknown
    for tool, calls in other.tools.items():
        into.tools[tool] = into.tools.get(tool, 0) + calls
    into.failed = sorted([*into.failed, *other.failed])
    into.failures = sorted([*into.failures, *other.failures], key=lambda one: one.line)
    into.masked = sorted([*into.masked, *other.masked], key=lambda one: one.line)
    into.file_guesses = sorted([*into.file_guesses, *other.file_guesses], key=lambda one: one.line)
    for mine, more in (
        (into.runs, other.runs),
        (into.launched, other.launched),
        (into.files, other.files),
        (into.written, other.written),
    ):
        mine.extend(one for one in more if one not in mine)
    into.intents = _intents([*into.intents, *other.intents])
    into.started_at = _earlier(into.started_at, other.started_at)
    into.ended_at = _later(into.ended_at, other.ended_at)
    into.has_timer = into.has_timer or other.has_timer


def _intents(both: list[Intent]) -> list[Intent]:
    kept: dict[str, Intent] = {}
    for one in sorted(both, key=lambda one: one.line):
        if one.kind in kept:
            kept[one.kind].calls += one.calls
        else:
            kept[one.kind] = one
    return list(kept.values())


def _earlier(one: float | None, other: float | None) -> float | None:
    return min(one, other) if one is not None and other is not None else one if other is None else other


def _later(one: float | None, other: float | None) -> float | None:
    return max(one, other) if one is not None and other is not None else one if other is None else other
