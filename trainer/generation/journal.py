"""The journal of a set in the making: each finished piece of work once, so that a killed process loses none.

A line is `{"what": …, "key": …, "value": …}`. A torn last line, left by a kill, is cut off before anything is added;
what it stood for is done again, to the same bytes.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skill_bank.files import append_json, read_json_lines

Make = Callable[[], Any]


class Journal:
    """Work by (what, key). One process at a time writes it."""

    def __init__(self, path: Path) -> None:
        """Reads what there is. Raises OSError."""
        self._path = path
        read = read_json_lines(path)
        if path.exists() and path.stat().st_size > read.end:
            os.truncate(path, read.end)
        self._done = {(row["what"], row["key"]): row["value"] for _, row in read.rows}

    def has(self, what: str, key: str) -> bool:
        """Whether this work is done."""
        return (what, key) in self._done

    def once(self, what: str, key: str, make: Make) -> Any:
        """The value of this work, made where it is not there yet. Values are JSON."""
        if (what, key) not in self._done:
            self.note(what, key, make())
        return self._done[what, key]

    def note(self, what: str, key: str, value: Any) -> None:
        """Writes the value of work that was done. Raises OSError."""
        append_json(self._path, {"what": what, "key": key, "value": value})
        self._done[what, key] = value
