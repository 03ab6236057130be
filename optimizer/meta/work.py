"""What the optimiser did, as its trajectories show it: the calls of layer `traj` that name patches or trials."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.events import Event
from optimizer.home import Home
from optimizer.layers import Layer, check_read
from optimizer.types import EventEvidence

_NAMING = frozenset({"patch_id", "patches", "trial_id", "promoted"})
"""Keys under which calls and answers name patches and trials."""

_DEPTH = 4


@dataclass(frozen=True)
class OptimizerCall:
    """One call of the optimiser."""

    evidence: EventEvidence
    tool: str
    names: frozenset[str]
    """Patches and trials that its input or answer names."""
    failed: bool
    reason: str | None


@dataclass(frozen=True)
class Work:
    """The calls of all sessions."""

    calls: tuple[OptimizerCall, ...]
    sessions: tuple[str, ...]
    segments: int

    def naming(self, names: Iterable[str]) -> list[EventEvidence]:
        """Events that name one of these patches or trials, in order."""
        wanted = frozenset(names)
        return [one.evidence for one in self.calls if one.names & wanted]


def work_of_optimizer(home: Home) -> Work:
    """Reads the segments of layer `traj`, as the meta layer may."""
    check_read(Layer.META, Layer.TRAJ)
    calls: list[OptimizerCall] = []
    sessions: list[str] = []
    count = 0
    for session in home.trajectories.sessions():
        segments = [one for one in home.segments.update(session) if one.layer == Layer.TRAJ]
        if not segments:
            continue
        sessions.append(session)
        count += len(segments)
        spans = [(one.agent, span.first_line, span.last_line) for one in segments for span in one.spans]
        for event in home.trajectories.read(session).events:
            inside = any(event.agent == agent and first <= event.line <= last for agent, first, last in spans)
            if event.is_call and inside:
                calls.append(_call(session, event))
    return Work(tuple(calls), tuple(sessions), count)


def _call(session: str, event: Event) -> OptimizerCall:
    names = frozenset([*_names(event.input, 0), *_names(event.response, 0)])
    evidence = EventEvidence(session=session, line=event.line)
    return OptimizerCall(evidence, event.tool or "", names, event.failed, event.reason)


def _names(value: Any, depth: int) -> Iterable[str]:
    """Ids under the naming keys, in an answer's nesting too."""
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        for key, one in value.items():
            if key in _NAMING:
                yield from _texts(one)
            if isinstance(one, Mapping | list):
                yield from _names(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _names(one, depth + 1)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))
