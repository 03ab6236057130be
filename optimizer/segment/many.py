"""A large backlog of sessions shared between processes: the first look at a history, or an import.

Sessions do not depend on each other and each is guarded by its own lock, so any process may do any of them. The caller
takes a share itself, its copies take the others. What a copy leaves undone (it was killed), the caller does. A process
with several threads is not copied (another thread may hold a lock), nor one outside of Linux (system libraries do not
bear it): there the caller works alone.
"""

import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec

from optimizer.segment.types import SegmentedSession

SHARED_BYTES = 16_000_000
"""Backlog from which on a copy pays: it costs some 10 ms, and one process does 100 MB in a second."""

MAX_PROCESSES = 8

Refresh = Callable[[str], SegmentedSession]
"""Brings one session up to date."""


def can_share() -> bool:
    """Whether this process may be copied."""
    return sys.platform == "linux" and threading.active_count() == 1


def refreshed_by_many(
    refresh: Refresh, sessions: Sequence[tuple[int, str]], processes: int
) -> Iterator[SegmentedSession]:
    """Brings the sessions, given with their sizes, up to date. Raises what bringing one up to date raises."""
    own, *others = _shares(sessions, min(processes, MAX_PROCESSES, len(sessions)))
    context = multiprocessing.get_context("fork")
    helpers: list[tuple[list[str], multiprocessing.process.BaseProcess, Connection]] = []
    for share in others:
        answers, end = context.Pipe(duplex=False)
        helper = context.Process(target=_work, args=(refresh, share, end), daemon=True)
        helper.start()
        end.close()
        helpers.append((share, helper, answers))
    try:
        for name in own:
            yield refresh(name)
        for share, _, answers in helpers:
            done = _received(answers)
            yield from done
            for name in set(share) - {one.session for one in done}:
                yield refresh(name)
    finally:
        for _, process, answers in helpers:
            answers.close()
            process.kill()
            process.join()


def _shares(sessions: Sequence[tuple[int, str]], count: int) -> list[list[str]]:
    """The sessions in `count` parts of about the same size: the largest first, each to the smallest part."""
    shares: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for size, name in sorted(sessions, reverse=True):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(name)
        sizes[smallest] += size
    return shares


def _work(refresh: Refresh, share: list[str], answers: Connection) -> None:
    """What a copy does. Its answers go in one piece, so it never waits for its caller."""
    done = [refresh(name) for name in share]
    answers.send_bytes(msgspec.json.encode(done))
    answers.close()


def _received(answers: Connection) -> list[SegmentedSession]:
    """What a copy did; nothing where it is gone without a word."""
    try:
        return msgspec.json.decode(answers.recv_bytes(), type=list[SegmentedSession])
    except (EOFError, OSError):
        return []
