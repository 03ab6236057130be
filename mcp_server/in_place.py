"""Short work that is done where it is asked for: a thread costs more than the work, as long as that stays short."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_S = 0.1
"""Work that took so long was not short. Beside a busy thread a dozen system calls take up to 0.06 s: each of them lets
the interpreter's lock go, and gets it back after 5 ms at the latest."""

SLOW_TIMES = 3
"""So many times in a row, and the server must not wait for it any more. Once may be the processor's doing."""

SLOW_FOR_S = 10.0
"""So long it is done in threads then."""


class InPlace:
    """Whether a piece of work may be done in place, by how long it took before. The first time it may not."""

    def __init__(self) -> None:
        self._from = math.inf
        self._slow = 0

    @property
    def allowed(self) -> bool:
        """Whether it may be done in place now."""
        return time.monotonic() >= self._from

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around the work, wherever it is done."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self._slow = self._slow + 1 if ended - began > SLOW_S else 0
        if self._slow >= SLOW_TIMES:
            self._from = ended + SLOW_FOR_S
        elif self._from == math.inf:
            self._from = ended
