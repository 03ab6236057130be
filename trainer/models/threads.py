"""One thread where a second one would only be waited for.

Waking a sleeping thread costs about 30 µs (OMP_WAIT_POLICY=PASSIVE, without which two runs on the same cores slow each
other down ten times and more, see worker.py), as much as a whole operation of `tiny` on a few dozen tokens. So small
operations run on the calling thread alone: it makes sampling with `tiny` 1.15 times faster on two cores. The operations
of an update are larger and gain nothing.
"""

import torch

SMALL = 3e6
"""Floating point operations of one call below which it runs on one thread: about 50 µs on one core."""


class Threads:
    """Within the block, `for_work` switches between one thread and as many as there were before it."""

    def __enter__(self) -> "Threads":
        self._all = self._now = torch.get_num_threads()
        return self

    def for_work(self, operations: float) -> None:
        """Prepares for calls of that size each."""
        wanted = 1 if operations < SMALL else self._all
        if wanted != self._now:
            torch.set_num_threads(wanted)
            self._now = wanted

    def __exit__(self, *_: object) -> None:
        if self._now != self._all:
            torch.set_num_threads(self._all)
