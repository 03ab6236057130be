"""Which run a text speaks of: run ids are taken from where they are stated, never from what looks like one.

Stated means: the folder below `runs/`, `Run ID: …`, `run_id: …` or `"run_id": "…"`. An id that was stated once in a
session is recognised anywhere in it.
"""

import re
from collections.abc import Iterable, Sequence

_STATED = re.compile(
    r"(?:\bruns/|[Rr]un ID:\s+|\brun_id['\"]?\s*[:=]\s*f?['\"]?)(?P<id>[A-Za-z0-9][A-Za-z0-9._-]{2,79})"
)
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,79}")


def stated_runs(text: str) -> set[str]:
    """Ids that the text states; a name without a digit (`latest`) is none."""
    found = {match["id"].rstrip(".-_") for match in _STATED.finditer(text)}
    return {
        one for one in found if any(character.isdigit() for character in one) and not one.endswith((".json", ".sh"))
    }


def named_runs(text: str, known: set[str]) -> list[str]:
    """Known ids in the text, in order, each once."""
    if not known:
        return []
    seen: dict[str, None] = {}
    for match in _TOKEN.finditer(text):
        token = match[0].rstrip(".-_")
        if token in known:
            seen.setdefault(token)
    return list(seen)


class RunOfRow:
    """The run that a row of an output belongs to."""

    def __init__(self, lines: Sequence[str], asked: Iterable[str], known: set[str]) -> None:
        """`asked` are the runs that the call's own input names."""
        self._marks: list[tuple[int, str | None]] = []
        for row, line in enumerate(lines):
            here = named_runs(line, known)
            if here:
                self._marks.append((row, here[0] if len(here) == 1 else None))
        distinct = {run for _, run in self._marks}
        wanted = list(asked)
        self._only: str | None = None
        if len(distinct) == 1:
            self._only = next(iter(distinct))
        elif not distinct and len(wanted) == 1:
            self._only = wanted[0]
        self._many = len(distinct) > 1

    def at(self, row: int) -> str | None:
        """The only run of the output, else the one named last before the row; None where nothing tells."""
        if not self._many:
            return self._only
        found: str | None = None
        for marked, run in self._marks:
            if marked > row:
                break
            found = run
        return found
