"""Which package a new task starts from.

1. A vertical package of the task's domain, one for its agent before one for any agent.
2. An experimental package of the domain, in the same order, only where experiments are allowed.
3. A stable package, in the same order.
Of several, the one that was made last. A package for other agents is never chosen, nor is an older version, nor a
record (task, lineage).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from skill_bank.packages.types import Kind, RegistryEntry

_RANK = {Kind.VERTICAL: 0, Kind.EXPERIMENTAL: 1, Kind.STABLE: 2}


@dataclass(frozen=True)
class Considered:
    """A package and why it was or was not chosen."""

    entry: RegistryEntry
    chosen: bool
    why: str


def select_package(
    entries: Sequence[RegistryEntry], domain: str | None, agent: str | None, *, experimental: bool = False
) -> list[Considered]:
    """Every package of skills with the reason, the chosen one first; none is chosen where none fits."""
    fitting: list[tuple[tuple[int, int, float], RegistryEntry]] = []
    refused: list[Considered] = []
    for entry in entries:
        why = _objection(entry, domain, agent, experimental)
        if why is not None:
            refused.append(Considered(entry, False, why))
        else:
            rank = (_RANK[entry.kind], 0 if agent is not None and agent in entry.agents else 1, -entry.created_at)
            fitting.append((rank, entry))
    fitting.sort(key=lambda one: (one[0], one[1].label))
    found: list[Considered] = []
    for position, (_, entry) in enumerate(fitting):
        for_agent = f", made for {agent}" if agent is not None and agent in entry.agents else ""
        reason = f"{entry.kind}{f' for {entry.domain}' if entry.domain else ''}{for_agent}"
        better = fitting[0][1].label
        found.append(Considered(entry, position == 0, reason if position == 0 else f"{reason}; {better} goes before"))
    return found + refused


def _objection(entry: RegistryEntry, domain: str | None, agent: str | None, experimental: bool) -> str | None:
    if entry.kind not in _RANK:
        return f"a {entry.kind} package is a record"
    if not entry.current:
        return "an older version"
    if entry.domain is not None and entry.domain != domain:
        return f"for the domain {entry.domain}"
    if entry.agents and agent not in entry.agents:
        return f"for {', '.join(entry.agents)}"
    if entry.kind is Kind.EXPERIMENTAL and not experimental:
        return "experimental, which was not allowed"
    return None
