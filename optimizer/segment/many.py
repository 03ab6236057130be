"""A large backlog of sessions shared between processes: the first look at a history, or an import.

Sessions do not depend on each other and each is guarded by its own lock, so any process may do any of them. The caller
takes a share itself. A helper is `python -P -m optimizer.segment.many`: a job comes on its standard input, a line for
each session that is done goes to its standard output. What a helper leaves undone, the caller does.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from optimizer.segment.types import SegmentedSession

if TYPE_CHECKING:
    from optimizer.segment.store import SegmentStore
    from optimizer.skill_tree import SkillTree

SHARED_BYTES = 32_000_000
"""Backlog from which on further processes pay for their start (0.15 s each; one process does 100 MB in a second)."""

MAX_PROCESSES = 8


class _Job(msgspec.Struct):
    """What a helper does."""

    trajectories: str
    groups: dict[str, str]
    children: dict[str, list[str]]
    sessions: list[str]


def refreshed_by_many(
    store: "SegmentStore", tree: "SkillTree", sessions: Sequence[tuple[int, str]], processes: int
) -> Iterator[SegmentedSession]:
    """Brings the sessions, given with their sizes, up to date. Raises what bringing one up to date raises."""
    groups, children = tree.snapshot()
    own, *others = _shares(sessions, min(processes, MAX_PROCESSES, len(sessions)))
    declared = {name: sorted(them) for name, them in children.items() if them}
    jobs = [_Job(str(store.store.root.absolute()), groups, declared, share) for share in others]
    helpers = [_start(job) for job in jobs]
    try:
        for name in own:
            yield store.refresh_one(name)
        for job, helper in zip(jobs, helpers, strict=True):
            done = _answers(helper)
            yield from done
            for name in set(job.sessions) - {one.session for one in done}:
                yield store.refresh_one(name)
    finally:
        for helper in helpers:
            if helper is not None and helper.poll() is None:
                helper.kill()
                helper.wait()


def _shares(sessions: Sequence[tuple[int, str]], count: int) -> list[list[str]]:
    """The sessions in `count` parts of about the same size: the largest first, each to the smallest part."""
    shares: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for size, name in sorted(sessions, reverse=True):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(name)
        sizes[smallest] += size
    return shares


def _start(job: _Job) -> "subprocess.Popen[bytes] | None":
    """A helper at work; None where no process can be started."""
    try:
        helper = subprocess.Popen(
            [sys.executable, "-P", "-m", "optimizer.segment.many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError:
        return None
    if helper.stdin is not None:
        try:
            helper.stdin.write(msgspec.json.encode(job))
            helper.stdin.close()
        except BrokenPipeError:  # it is gone already: nothing of its share is done
            pass
    helper.stdin = None
    return helper


def _answers(helper: "subprocess.Popen[bytes] | None") -> list[SegmentedSession]:
    if helper is None:
        return []
    output, _ = helper.communicate()
    return [msgspec.json.decode(line, type=SegmentedSession) for line in output.splitlines()]


def main() -> None:
    """A helper: does a job."""
    from optimizer.segment.store import SegmentStore
    from optimizer.store import TrajectoryStore

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=_Job)
    children = {name: frozenset(them) for name, them in job.children.items()}
    store = SegmentStore(
        TrajectoryStore(Path(job.trajectories)), job.groups.get, lambda skill: children.get(skill, frozenset())
    )
    for name in job.sessions:
        sys.stdout.buffer.write(msgspec.json.encode(store.refresh_one(name)) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
