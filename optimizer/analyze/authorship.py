"""Who wrote a number: a program that measured it, or the agent itself.

An agent may print a report it made up and read it back later; such a number is no evidence of anything. A number in an
output counts as the agent's own when

1. its line stands, spaces aside, in what the agent wrote into this or an earlier call;
2. the call's own input holds the same decimal number (a table of old results typed into the program that prints it);
3. it has four or more significant digits and the session saw it in an input before it saw it in any output;
4. it has two or more, the agent wrote it beside that metric's name, and no output had shown it before;
5. it was written by the agent (Write, Edit) in the same call.

Settings are the agent's to choose: of them only an echo (1, 5) is its own text.

And a number that equals the default in `.get(name, 0)` of the command is nobody's: the key may have been missing.
"""

import re

from optimizer.analyze.readings import NUMBER, Reading, significant
from optimizer.analyze.texts import input_text
from optimizer.events import Event

MIN_LINE = 12
"""Characters of a line that is recognised; shorter ones coincide by chance."""

MIN_DIGITS = 4
"""Significant digits of a number that is recognised again later in a session."""

WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})

MIN_TOLD = 2
"""Significant digits of a number that is recognised beside its metric's name."""

MAX_TOLD = 400
"""Characters of such a line that are kept."""

_WORDS = re.compile(r"[a-z]{3,}")
_SHOWN = re.compile(rf"(?<![\w.]){NUMBER}")
_NUMBERS = re.compile(rf"(?<![\w.]){NUMBER}(?![\w.])")
_DEFAULT = re.compile(rf"\.get\(\s*[^(),]{{1,120}},\s*({NUMBER})\s*\)")


class Authorship:
    """Walks along a session; `take` every call in file order, then ask about that call's readings."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._first: dict[float, bool] = {}
        self._shown: set[float] = set()
        self._told: dict[float, list[str]] = {}
        self._own: set[float] = set()
        self._defaults: set[float] = set()
        self._writer = False

    def take(self, event: Event, output: str) -> None:
        """Takes in a call: first what the agent wrote, then what came back."""
        written = input_text(event)
        self._lines.update(_squeezed(line) for line in written.split("\n") if len(_squeezed(line)) >= MIN_LINE)
        texts = _NUMBERS.findall(written)
        self._own = {float(text) for text in texts if "." in text or "e" in text.lower()}
        self._defaults = {float(text) for text in _DEFAULT.findall(written)}
        self._writer = event.tool in WRITERS
        self._tell(written)
        for text in texts:
            self._see(text, own=True)
        for text in _SHOWN.findall(output):
            self._see(text, own=False)
            if significant(text) >= MIN_TOLD:
                self._shown.add(float(text))

    def own(self, reading: Reading, line: str) -> bool:
        """Whether the number of this line of the last call's output is the agent's own."""
        if self._writer or _squeezed(line) in self._lines:
            return True
        if reading.setting:
            return False
        if reading.value in self._own:
            return True
        if significant(reading.printed) >= MIN_DIGITS and self._first.get(reading.value, False):
            return True
        words = _WORDS.findall(reading.name.lower().rsplit("/", 1)[-1])
        return any(word in line for line in self._told.get(reading.value, ()) for word in words)

    def may_be_missing(self, reading: Reading) -> bool:
        """Whether the number may stand for a key that was not there."""
        return reading.value in self._defaults

    def _tell(self, written: str) -> None:
        """Notes the lines in which the agent writes a number that no output has shown."""
        for line in written.split("\n"):
            for text in _NUMBERS.findall(line):
                if "." in text and significant(text) >= MIN_TOLD and float(text) not in self._shown:
                    self._told.setdefault(float(text), []).append(line.lower()[:MAX_TOLD])

    def _see(self, text: str, *, own: bool) -> None:
        if significant(text) >= MIN_DIGITS:
            self._first.setdefault(float(text), own)


def _squeezed(line: str) -> str:
    return " ".join(line.split())
