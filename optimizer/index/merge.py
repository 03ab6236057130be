"""Which events are the same call, seen by two sources: a pure function of the calls, whatever order they came in.

1. The client's id of the call, the same tool and the same arguments: the same call. Ids that a client gives out hold
   everywhere; those of our own records hold within their session.
2. Else the same tool with the same arguments, begun or ended within `WINDOW_S` of each other, from two sources, where
   not both know an id. The closest pair is joined first, and a group never holds two events of one source.
3. One event speaks for its group: that of the richest source, then by session and line.

A call's tool is compared without the server's prefix (`mcp__evo__list_runs` is `list_runs`), its arguments by a hash
that does not change when long texts are clipped.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from optimizer.events import Event

WINDOW_S = 2.0

Key = tuple[str, int]
"""(session, line): the identity of an event."""

_RANK = {"hook": 0, "transcript": 1, "server": 2, "evolve": 3, "import": 4}

_CLIENTS = frozenset({"hook", "transcript", "import"})
"""Sources that carry the client's own ids."""

_LONG = 1024
"""Characters from which on a text counts by its hash: none shorter is ever clipped."""

_CLIPPED = re.compile(r"\n\[… \d+ of \d+ bytes left out, sha256 ([0-9a-f]{64})\]\n")


@dataclass(frozen=True)
class Call:
    """What of a call decides which others are the same."""

    key: Key
    source: str
    same: int
    """`call_hash` of its tool and arguments."""
    call_id: str | None
    began: float | None
    ended: float | None

    @property
    def order(self) -> tuple[int, str, int]:
        return (_RANK.get(self.source, 9), *self.key)


def times_of(event: Event) -> tuple[float | None, float | None]:
    """(begun, ended). A hook is told at the end of a call, our own records keep its beginning."""
    if event.time is None:
        return None, None
    duration = event.duration_s or 0.0
    if event.source in ("hook", "transcript", "import"):
        return event.time - duration, event.time
    return event.time, event.time + duration


def base_tool(tool: str) -> str:
    """The tool without the prefix of the server that offers it."""
    return tool.rsplit("__", 1)[-1]


def call_hash(tool: str | None, call_input: Any) -> int:
    """64 bits of tool and arguments, signed; missing and empty arguments are the same."""
    try:
        plain = _canonical(call_input or {})
        if len(plain) > _LONG:
            plain = _canonical(_shortened(call_input))
    except RecursionError:  # nested too deeply for any encoder: such calls are alike by their tool only
        plain = b""
    digest = hashlib.blake2b(base_tool(tool or "").encode("utf-8", "surrogatepass") + b"\0" + plain, digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def _canonical(value: Any) -> bytes:
    """Equal values give equal bytes."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (msgspec.MsgspecError, ValueError, OverflowError):  # half a surrogate pair, a number beyond 64 bits
        return json.dumps(value, sort_keys=True, default=str).encode("ascii")


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) >= _LONG // 4:
        data = value.encode("utf-8", "surrogatepass")
        if len(data) >= _LONG:
            cut = _CLIPPED.search(value)
            return "sha256:" + (cut[1] if cut is not None else hashlib.sha256(data).hexdigest())
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    return value


class _Groups:
    """Union-find over calls."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = {call.key: call for call in calls}
        self.parent = {call.key: call.key for call in calls}
        self.members: dict[Key, list[Call]] = {call.key: [call] for call in calls}

    def root(self, key: Key) -> Key:
        while self.parent[key] != key:
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

    def join(self, a: Key, b: Key) -> None:
        a, b = sorted((self.root(a), self.root(b)))
        if a != b:
            self.parent[b] = a
            self.members[a] += self.members.pop(b)


def leaders(calls: Iterable[Call]) -> dict[Key, Key]:
    """Event → the event that speaks for its group, for all events that do not speak for themselves."""
    by_call: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        by_call[call.same].append(call)
    found: dict[Key, Key] = {}
    for alike in by_call.values():
        if len(alike) > 1:
            found |= _leaders(alike)
    return found


def _leaders(alike: Sequence[Call]) -> dict[Key, Key]:
    groups = _Groups(alike)
    first_with: dict[tuple[str, str], Key] = {}
    for call in alike:
        if call.call_id is not None:
            scope = "" if call.source in _CLIENTS or call.call_id.startswith("toolu_") else call.key[0]
            groups.join(first_with.setdefault((scope, call.call_id), call.key), call.key)
    if len({call.source for call in alike}) > 1:
        for _, a, b in sorted(_near_pairs(alike)):
            if _may_join(groups.members[groups.root(a)], groups.members[groups.root(b)]):
                groups.join(a, b)
    found: dict[Key, Key] = {}
    for members in groups.members.values():
        if len(members) > 1:
            speaker = min(members, key=lambda one: one.order).key
            found |= {one.key: speaker for one in members if one.key != speaker}
    return found


def _may_join(some: Sequence[Call], others: Sequence[Call]) -> bool:
    if {one.source for one in some} & {one.source for one in others}:
        return False
    return all(one.call_id is None for one in some) or all(one.call_id is None for one in others)


def _near_pairs(alike: Sequence[Call]) -> set[tuple[float, Key, Key]]:
    """(distance in seconds, event, event) of pairs from two sources within the window, by beginning and by end."""
    closest: dict[tuple[Key, Key], float] = {}
    for moments in (
        sorted((call.began, call.key, call) for call in alike if call.began is not None),
        sorted((call.ended, call.key, call) for call in alike if call.ended is not None),
    ):
        first = 0
        for number, (moment, key, call) in enumerate(moments):
            while moment - moments[first][0] > WINDOW_S:
                first += 1
            for other_moment, other_key, other in moments[first:number]:
                if other.source != call.source:
                    pair = (min(key, other_key), max(key, other_key))
                    distance = moment - other_moment
                    closest[pair] = min(distance, closest.get(pair, distance))
    return {(distance, a, b) for (a, b), distance in closest.items()}
