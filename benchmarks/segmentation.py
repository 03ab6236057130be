"""Parsing and segmenting recorded sessions, against a bare `msgspec.json.decode` of the same lines in the same run.

    python -P benchmarks/segmentation.py --json

The sessions of the corpus ($MCP_EVO_CORPUS, else `../shared/corpus`), or the made-up ones of the tests, are repeated
until they fill `--megabytes`, in sessions as large as the largest real one. Both sides read the same files from the
file system's cache, in turns; the best of the rounds counts. What is timed is `SegmentStore.refresh`, writing of the
segments included, into a fresh folder, as `mcp-evo trajectories segment` calls it: a backlog is shared between as many
processes as there are processors. The same in one process is told, too (`one_process_…`). The re-run is the same call
again.

Result: {mb_per_s, floor_mb_per_s, floor_fraction, rerun_speedup, processes, one_process_mb_per_s, one_process_fraction,
megabytes, sessions, seconds, rerun_seconds, rss_mb_one_process, rss_mb}: the most resident memory of all processes.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import msgspec
import psutil

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


def floor_seconds(files: list[Path]) -> float:
    """A bare decode of every line."""
    decode = msgspec.json.decode
    began = time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=1024 * 1024) as stream:
            for line in stream:
                try:
                    decode(line)
                except msgspec.DecodeError:  # a torn line is part of the data
                    continue
    return time.perf_counter() - began


class Memory:
    """The most memory that this process and its children hold together, looked at from a thread."""

    def __init__(self) -> None:
        self.mb = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(0.02):
            total = 0
            for process in (own, *own.children()):
                try:
                    total += process.memory_info().rss
                except psutil.Error:  # it has just ended
                    continue
            self.mb = max(self.mb, total / 1e6)


def timed(store: SegmentStore, processes: int) -> tuple[float, float]:
    """(seconds, most memory in MB) of segmenting what is new."""
    with Memory() as memory:
        began = time.perf_counter()
        store.refresh(processes=processes)
        seconds = time.perf_counter() - began
    return seconds, memory.mb


def measure(root: Path, megabytes: float, rounds: int, processes: int) -> dict[str, float | int]:
    """Times both sides in turns."""
    trajectories = TrajectoryStore(root / "trajectories")
    files = fill(trajectories.raw, megabytes)
    size = sum(path.stat().st_size for path in files) / 1e6
    tree = SkillTree(Home.create(root / "workspace").bank)
    floors: list[float] = []
    alone: list[float] = []
    shared: list[float] = []
    again: list[float] = []
    memory = memory_alone = 0.0
    for _ in range(rounds):
        floors.append(floor_seconds(files))
        for used, times in ((1, alone), (processes, shared)):
            store = SegmentStore.of_bank(trajectories, tree)
            shutil.rmtree(store.root, ignore_errors=True)
            seconds, peak = timed(store, used)
            times.append(seconds)
            if used == 1:
                memory_alone = max(memory_alone, peak)
            memory = max(memory, peak)
        began = time.perf_counter()
        looked_at = SegmentStore.of_bank(trajectories, tree).refresh()
        again.append(time.perf_counter() - began)
        if any(one.changed for one in looked_at):
            raise SystemExit("a session was read again that had not changed")
    best = min(shared)
    return {
        "mb_per_s": round(size / best, 1),
        "floor_mb_per_s": round(size / min(floors), 1),
        "floor_fraction": round(min(floors) / best, 3),
        "rerun_speedup": round(best / min(again), 1),
        "processes": processes,
        "one_process_mb_per_s": round(size / min(alone), 1),
        "one_process_fraction": round(min(floors) / min(alone), 3),
        "megabytes": round(size, 1),
        "sessions": len(files),
        "seconds": round(best, 3),
        "rerun_seconds": round(min(again), 5),
        "rss_mb_one_process": round(memory_alone, 1),
        "rss_mb": round(memory, 1),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--rounds", type=int, default=3)
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
