"""Building the index over recorded sessions, keeping it fresh, and searching it.

    python -P benchmarks/search.py --json

The sessions of the corpus ($MCP_EVO_CORPUS, else `../shared/corpus`), or the made-up ones of the tests, are repeated
until they fill `--megabytes`. Measured with real files in a temporary folder: the first refresh (segments included and
not), a refresh that finds nothing, one that finds one new event, and searches of several kinds, each with its own
connection and its own look for what is new, in random order.

Result: {build: {mb_per_s, with_segments_mb_per_s, seconds, megabytes, sessions, events, index_share, rss_mb},
refresh: {unchanged_ms, one_event_ms}, watch: {p50_ms, max_ms} from an appended event until a watcher has it segmented
and indexed, search: {p50_ms, p95_ms, max_ms, queries, by_kind: {kind: {p50_ms, p95_ms}}}}.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import psutil

from optimizer.home import Home
from optimizer.index.build import TrajectoryIndex
from optimizer.index.feed import Changes
from optimizer.index.query import Query
from optimizer.index.search import search
from optimizer.watcher import Watcher

REPOSITORY = Path(__file__).parent.parent

SESSION_BYTES = 1_000_000


def sources() -> list[Path]:
    """Files of events: real ones where they are, else made-up ones."""
    corpus = Path(os.environ.get("MCP_EVO_CORPUS") or REPOSITORY.parent / "shared" / "corpus")
    real = sorted(corpus.glob("sessions/*/events.jsonl")) if corpus.is_dir() else []
    return real or sorted((REPOSITORY / "tests" / "data" / "trajectories").glob("*.jsonl"))


def fill(raw: Path, megabytes: float) -> list[bytes]:
    """Sessions made of the sources' lines, together `megabytes` large; returns the lines of one round."""
    lines = [line for path in sources() for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    left, number, current = int(megabytes * 1e6), 0, bytearray()
    while left > 0:
        for line in lines:
            current += line
            left -= len(line)
            if len(current) >= SESSION_BYTES or left <= 0:
                path = raw / f"session-{number:05d}" / "events.jsonl"
                path.parent.mkdir(parents=True)
                path.write_bytes(current)
                number, current = number + 1, bytearray()
            if left <= 0:
                break
    return lines


def queries(lines: list[bytes], count: int, seed: int) -> list[tuple[str, Query]]:
    """(kind, query): words and parts that stand in the events, and what agents filter by."""
    rng = random.Random(seed)
    texts = [line.decode("utf-8", "replace") for line in rng.sample(lines, min(len(lines), 300))]
    words = sorted({word for text in texts for word in re.findall(r"[A-Za-z]{3,12}", text)})
    chinese = sorted({run for text in texts for run in re.findall("[\u4e00-\u9fff]{2,4}", text)}) or ["训练"]
    names = sorted({name for text in texts for name in re.findall(r"[a-z]+_[a-z]+(?:\.[a-z]+)?", text)}) or words
    kinds = {
        "word": lambda: Query(text=rng.choice(words)),
        "two words": lambda: Query(text=f"{rng.choice(words)} {rng.choice(words)}"),
        "name with signs": lambda: Query(text=rng.choice(names)),
        "one or two letters": lambda: Query(text=rng.choice(words)[: rng.choice((1, 2))]),
        "chinese": lambda: Query(text=rng.choice(chinese)),
        "one chinese character": lambda: Query(text=rng.choice(chinese)[0]),
        "signs only": lambda: Query(text=rng.choice(("&&", "=>", "--", "{}", "::"))),
        "inside of words": lambda: Query(text=rng.choice([word for word in words if len(word) > 5])[2:]),
        "nothing fits": lambda: Query(text=f"zq{rng.randrange(10**9)}"),
        "failed": lambda: Query(outcome="failed"),
        "tool and word": lambda: Query(tool="Bash", text=rng.choice(words)),
        "file": lambda: Query(file=rng.choice((".py", ".yaml", "config", "README"))),
    }
    found = [(kind, make()) for kind, make in kinds.items() for _ in range(max(1, count // len(kinds)))]
    rng.shuffle(found)
    return found


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(megabytes: float, count: int, seed: int) -> dict[str, Any]:
    """All figures."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        home = Home.create(Path(folder) / "workspace")
        lines = fill(home.trajectories.raw, megabytes)
        began = time.perf_counter()
        home.index.refresh()
        with_segments = time.perf_counter() - began
        plain = TrajectoryIndex(home.trajectories)
        plain.delete()
        began = time.perf_counter()
        done = plain.refresh()
        seconds = time.perf_counter() - began
        build = {
            "mb_per_s": round(done.bytes_read / 1e6 / seconds, 2),
            "with_segments_mb_per_s": round(done.bytes_read / 1e6 / with_segments, 2),
            "seconds": round(seconds, 2),
            "megabytes": round(done.bytes_read / 1e6, 1),
            "sessions": len(done.sessions),
            "events": done.events,
            "index_share": round(plain.path.stat().st_size / done.bytes_read, 2),
            "rss_mb": round(process.memory_info().rss / 1e6),
        }
        refreshes = _refreshes(plain, lines)
        searches = _searches(plain, lines, count, seed)
        home.index.refresh()
        watch = anyio.run(_watched, home, lines)
        return {"build": build, "refresh": refreshes, "watch": watch, "search": searches}


def _refreshes(index: TrajectoryIndex, lines: list[bytes]) -> dict[str, float]:
    unchanged: list[float] = []
    one_event: list[float] = []
    for _ in range(30):
        began = time.perf_counter()
        index.refresh()
        unchanged.append((time.perf_counter() - began) * 1e3)
        with open(index.store.file("session-00000"), "ab") as stream:
            stream.write(lines[0])
        began = time.perf_counter()
        index.refresh()
        one_event.append((time.perf_counter() - began) * 1e3)
    return {"unchanged_ms": round(quantile(unchanged, 0.5), 1), "one_event_ms": round(quantile(one_event, 0.5), 1)}


async def _watched(home: Home, lines: list[bytes]) -> dict[str, float]:
    async def tell(changes: Changes) -> None:
        pass

    def known(session: str) -> int:
        with home.index.reading() as connection:
            return int(connection.execute("SELECT line FROM sessions WHERE name=?", (session,)).fetchone()[0])

    watcher = Watcher(home, tell)
    taken: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await watcher.started.wait()
        await anyio.sleep(2.0)
        for number in range(20):
            session = f"session-{number % 5:05d}"
            before = known(session)
            began = time.perf_counter()
            with open(home.trajectories.file(session), "ab") as stream:
                stream.write(lines[number])
            while known(session) == before:
                await anyio.sleep(0.005)
            taken.append((time.perf_counter() - began) * 1e3)
            await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    return {"p50_ms": round(quantile(taken, 0.5), 1), "max_ms": round(max(taken), 1)}


def _searches(index: TrajectoryIndex, lines: list[bytes], count: int, seed: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {}
    for kind, query in queries(lines, count, seed):
        began = time.perf_counter()
        search(index, query, limit=20)
        taken.setdefault(kind, []).append((time.perf_counter() - began) * 1e3)
    every = [one for values in taken.values() for one in values]
    return {
        "p50_ms": round(quantile(every, 0.5), 1),
        "p95_ms": round(quantile(every, 0.95), 1),
        "max_ms": round(max(every), 1),
        "queries": len(every),
        "by_kind": {
            kind: {"p50_ms": round(quantile(values, 0.5), 1), "p95_ms": round(quantile(values, 0.95), 1)}
            for kind, values in sorted(taken.items())
        },
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=50.0)
    parser.add_argument("--queries", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    arguments = parser.parse_args()
    if not sources():
        sys.exit("no recorded sessions: neither $MCP_EVO_CORPUS nor tests/data/trajectories holds any")
    found = measure(arguments.megabytes, arguments.queries, arguments.seed)
    if arguments.json:
        print(json.dumps(found))
        return
    for part, figures in found.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:24} {value}")


if __name__ == "__main__":
    main()
