"""Parsing and segmenting recorded sessions, against a bare `msgspec.json.decode` of the same lines in the same run.

    python -P benchmarks/segmentation.py --json

The sessions of the corpus ($MCP_EVO_CORPUS, else `../shared/corpus`), or the made-up ones of the tests, are repeated
until they fill `--megabytes`, in sessions as large as the largest real one. Both sides read the same files from the
file system's cache, in turns; the median of the rounds counts. What is timed is `SegmentStore.refresh`, writing of the
segments included, into a fresh folder, as `mcp-evo trajectories segment` calls it: a backlog is shared between as many
processes as there are processors. `one_process_…` is the same in one process, by its processor time. The re-run is the
same call again.

Result: {mb_per_s, floor_mb_per_s, floor_fraction, rerun_speedup, processes, one_process_mb_per_s, one_process_fraction,
megabytes, sessions, seconds, rerun_seconds, rss_mb_before, rss_mb, rss_mb_helper}: the most resident memory of this
process before and after, and of the largest helper.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from optimizer.home import Home
from optimizer.segment.store import SegmentStore
from optimizer.skill_tree import SkillTree
from optimizer.store import TrajectoryStore

REPOSITORY = Path(__file__).parent.parent
SESSION_BYTES = 3_600_000
"""The largest recorded session."""


def sources() -> list[Path]:
    """Files of events: real ones where they are, else made-up ones."""
    corpus = Path(os.environ.get("MCP_EVO_CORPUS") or REPOSITORY.parent / "shared" / "corpus")
    real = sorted(corpus.glob("sessions/*/events.jsonl")) if corpus.is_dir() else []
    return real or sorted((REPOSITORY / "tests" / "data" / "trajectories").glob("*.jsonl"))


def fill(raw: Path, megabytes: float) -> list[Path]:
    """Sessions made of the sources' lines, together `megabytes` large."""
    texts = [data if data.endswith(b"\n") else data + b"\n" for data in (path.read_bytes() for path in sources())]
    files: list[Path] = []
    left = int(megabytes * 1e6)
    current = bytearray()
    turn = 0
    while left > 0:
        current += texts[turn % len(texts)][: None if left > len(texts[turn % len(texts)]) else left]
        left -= len(texts[turn % len(texts)])
        turn += 1
        if len(current) >= SESSION_BYTES or left <= 0:
            path = raw / f"session-{len(files):04d}" / "events.jsonl"
            path.parent.mkdir(parents=True)
            path.write_bytes(current)
            files.append(path)
            current = bytearray()
    return files


@dataclass(frozen=True)
class Seconds:
    """How long something took."""

    wall: float
    processor: float
    """Of this process alone: what another load on the machine does not change."""


def took(work: Callable[[], object]) -> Seconds:
    """Does it."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


def decode_all(files: list[Path]) -> None:
    """A bare decode of every line."""
    decode = msgspec.json.decode
    for path in files:
        with open(path, "rb", buffering=1024 * 1024) as stream:
            for line in stream:
                try:
                    decode(line)
                except msgspec.DecodeError:  # a torn line is part of the data
                    continue


def peak_mb(who: int) -> float:
    """The most memory that this process, or the largest of its children so far, held."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(who).ru_maxrss * unit / 1e6


def measure(root: Path, megabytes: float, rounds: int, processes: int) -> dict[str, float | int]:
    """Times both sides in turns."""
    trajectories = TrajectoryStore(root / "trajectories")
    files = fill(trajectories.raw, megabytes)
    size = sum(path.stat().st_size for path in files) / 1e6
    tree = SkillTree(Home.create(root / "workspace").bank)
    floors: list[Seconds] = []
    alone: list[Seconds] = []
    shared: list[Seconds] = []
    again: list[float] = []
    before = peak_mb(resource.RUSAGE_SELF)
    for _ in range(rounds):
        for used, times in ((1, alone), (processes, shared)):
            floors.append(took(lambda: decode_all(files)))
            store = SegmentStore(trajectories, tree.group_of, tree.children_of)
            shutil.rmtree(store.root, ignore_errors=True)
            times.append(took(partial(store.refresh, processes=used)))
        again.append(took(partial(_again, trajectories, tree)).wall)
    floor = median(one.wall for one in floors)
    ours = median(one.wall for one in shared)
    processor = median(one.processor for one in alone)
    return {
        "mb_per_s": round(size / ours, 1),
        "floor_mb_per_s": round(size / floor, 1),
        "floor_fraction": round(floor / ours, 3),
        "rerun_speedup": round(ours / median(again), 1),
        "processes": processes,
        "one_process_mb_per_s": round(size / processor, 1),
        "one_process_fraction": round(median(one.processor for one in floors) / processor, 3),
        "megabytes": round(size, 1),
        "sessions": len(files),
        "seconds": round(ours, 3),
        "rerun_seconds": round(median(again), 5),
        "rss_mb_before": round(before, 1),
        "rss_mb": round(peak_mb(resource.RUSAGE_SELF), 1),
        "rss_mb_helper": round(peak_mb(resource.RUSAGE_CHILDREN), 1),
    }


def _again(trajectories: TrajectoryStore, tree: SkillTree) -> None:
    looked_at = SegmentStore(trajectories, tree.group_of, tree.children_of).refresh()
    if any(one.changed for one in looked_at):
        raise SystemExit("a session was read again that had not changed")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-evo-segmentation-") as folder:
        result = measure(Path(folder), options.megabytes, options.rounds, options.processes)
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:>16}  {value}", file=sys.stdout)


if __name__ == "__main__":
    main()
