"""The experience pool: search time at 100,000 records, writers at once, and how well it finds what is meant.

    python benchmarks/pool.py [--records 100000] [--writers 8] [--inserts 1000] [--json] [--quick]

Search: questions as rollouts ask them (a record's own situation with new values, or a few words of one) against a
pool of lessons drawn by script, each timed with everything that a rollout waits for; the first one, which reads the
vectors, is reported apart; processor time beside the clock's tells what other work on the machine costs. Writers:
processes that add records to one pool at the same time, then a count. Quality: the labelled questions of
`pool_questions.json`, recall@3 of the hybrid, of BM25 alone, of the vectors alone, and of the hybrid with
sentence-transformers where that package and `--sentence-model` are there.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.experience.embed import Embedder
from trainer.experience.embed_remote import SentenceTransformerEmbedder
from trainer.experience.pool import OFFERED, ExperiencePool, embedded_text
from trainer.experience.problems import PoolError
from trainer.experience.records import ExperienceRecord, Polarity, Status
from trainer.experience.search import to_blob
from trainer.runs.statistics import wilson

LABELLED = Path(__file__).with_name("pool_questions.json")
TARGET_P95_MS = 20.0

_PLACES = ("house", "shop", "school", "tower", "garden", "harbour", "library", "station", "market", "museum")
_DOINGS = (
    "convert {a} to another unit", "find the average of x and y", "sort the names by age", "look up the owner of {a}",
    "add the prices of x and y", "count the days between x and y", "translate a short note about {a}",
    "find the shortest way to {a}", "compute the tax on x", "compare the weights of x and y",
)  # fmt: skip
_THINGS = (
    "apples",
    "silver",
    "letters",
    "lamps",
    "tickets",
    "maps",
    "stones",
    "books",
    "coins",
    "ropes",
    "paint",
    "salt",
)
_TOOLS = ("calculate", "look_up", "search", "convert", "list_files", "read_page", "query_table", "send_form")
_CHINESE = ("查询", "计算", "比较", "翻译", "统计", "检查", "整理", "搜索")
_CHINESE_THINGS = (
    "城市天气",
    "商品价格",
    "订单数量",
    "学生成绩",
    "火车时刻",
    "图书作者",
    "房屋面积",
    "会议时间",
    "汇率变化",
)


def lesson(rng: random.Random) -> ExperienceRecord:
    """A drawn lesson; one in five is Chinese."""
    number, tool = rng.randrange(100, 100_000), rng.choice(_TOOLS)
    if rng.random() < 0.2:
        what = f"{rng.choice(_CHINESE)}{rng.choice(_CHINESE_THINGS)}"
        situation = f"在第{number}号{rng.choice(('商店', '学校', '车站', '仓库'))}{what}时"
        advice = f"先用 {tool} 工具{rng.choice(_CHINESE)}{rng.choice(_CHINESE_THINGS)}，再给出结果"
    else:
        doing = rng.choice(_DOINGS).format(a=rng.choice(_THINGS))
        situation = f"In {rng.choice(_PLACES)} {number}, how do you {doing} with {rng.choice(_THINGS)}?"
        advice = f"use {tool} with {rng.choice(('x + y', 'x * y', 'x - y', 'y - x'))} and {rng.choice(_THINGS)}"
    return ExperienceRecord(
        situation, advice, polarity=rng.choice(list(Polarity)), status=Status.ACTIVE, created=0.0, modified=0.0
    )


def fill(pool: ExperiencePool, count: int, seed: int = 1) -> list[ExperienceRecord]:
    """Stores drawn lessons without comparing them with each other (an import), a thousand a transaction."""
    rng, made = random.Random(seed), []
    for start in range(0, count, 1000):
        part = [lesson(rng).changed(id=f"{seed:x}-{start + i:08x}") for i in range(min(1000, count - start))]
        blobs = to_blob(pool.embedder.embed([embedded_text(one) for one in part]))
        with pool.store.changing():
            for one, blob in zip(part, blobs, strict=True):
                pool.store.insert(one, blob, pool.embedder.id)
        made += part
    return made


def question_for(record: ExperienceRecord, rng: random.Random) -> str:
    """A question that the record is meant for, or a few words of it."""
    if rng.random() < 0.1:
        words = record.content.split()
        return rng.choice(words) if record.content.isascii() else record.content[-4:-2]
    return record.when_to_use.replace(" x", f" {rng.randrange(2, 99)}").replace(" y", f" {rng.randrange(2, 99)}")


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, -(-int(1000 * share) * len(values) // 1000) - 1)]


def search_times(folder: Path, records: int, questions: int = 400) -> dict[str, Any]:
    """Milliseconds of a search at a pool of this size, and how often the signatures find what all cosines would."""
    path = folder / "large.db"
    started = time.perf_counter()
    with ExperiencePool(path, create=True) as pool:
        made = fill(pool, records)
    filled_s = time.perf_counter() - started
    rng = random.Random(7)
    asked = [question_for(rng.choice(made), rng) for _ in range(questions)]
    with ExperiencePool(path) as pool:
        started = time.perf_counter()
        pool.search("warm", 3)
        first_s = time.perf_counter() - started
        times, processor = [], []
        for query in asked:
            started, used = time.perf_counter(), time.process_time()
            pool.search(query, 3)
            times.append(1000 * (time.perf_counter() - started))
            processor.append(1000 * (time.process_time() - used))
        near = all_ = 0
        for query in asked[:100]:
            vector = pool.embedder.embed([query])[0]
            exact = [n for n, _ in pool._vectors.search(vector, OFFERED, 3, exact=True)]
            found = {n for n, _ in pool._vectors.search(vector, OFFERED, 3)}
            near, all_ = near + len(found & set(exact)), all_ + len(exact)
    p95 = percentile(times, 0.95)
    return {
        "records": records,
        "questions": questions,
        "p50_ms": statistics.median(times),
        "p95_ms": p95,
        "max_ms": max(times),
        "p50_processor_ms": statistics.median(processor),
        "p95_processor_ms": percentile(processor, 0.95),
        "load": os.getloadavg()[0],
        "processors": os.cpu_count(),
        "target_p95_ms": TARGET_P95_MS,
        "met": p95 <= TARGET_P95_MS,
        "first_search_s": first_s,
        "fill_s": filled_s,
        "size_mb": path.stat().st_size / 1e6,
        "signature_recall_at_3": near / max(1, all_),
    }


def write_many(path: str, writer: int, count: int, start_at: float) -> None:
    """One writer: every record through all checks, in a transaction of its own."""
    rng = random.Random(1000 + writer)
    with ExperiencePool(Path(path)) as pool:
        time.sleep(max(0.0, start_at - time.time()))
        for number in range(count):
            one = lesson(rng)
            pool.add(one.changed(when_to_use=f"{one.when_to_use} (case {writer}-{number})", family=f"w{writer}"))


def writers_at_once(folder: Path, writers: int, inserts: int) -> dict[str, Any]:
    """Processes that add to one pool; what was there afterwards."""
    path = folder / "written.db"
    ExperiencePool(path, create=True).close()
    context = multiprocessing.get_context("spawn")
    start_at = time.time() + 3.0
    processes = [
        context.Process(target=write_many, args=(str(path), number, inserts, start_at)) for number in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.time() - start_at
    with ExperiencePool(path) as pool:
        by_writer = [sum(1 for _ in pool.store.iterate(family=f"w{number}")) for number in range(writers)]
        check = pool.store.check()
    expected = writers * inserts
    return {
        "writers": writers,
        "inserts_each": inserts,
        "expected": expected,
        "stored": sum(by_writer),
        "lost": expected - sum(by_writer),
        "failed_processes": sum(process.exitcode != 0 for process in processes),
        "file_check": check,
        "seconds": seconds,
        "inserts_per_s": expected / seconds,
    }


def quality(folder: Path, sentence_model: str | None) -> dict[str, Any]:
    """recall@3 over the labelled questions: the share whose lesson is among the first three."""
    labelled = json.loads(LABELLED.read_text(encoding="utf-8"))
    result = {"lessons": len(labelled["lessons"]), "ways": _ways(folder, labelled, None)}
    if sentence_model:
        try:
            embedder: Embedder = SentenceTransformerEmbedder(sentence_model)
        except PoolError as error:
            result["sentence_transformers"] = str(error)
        else:
            ways = _ways(folder, labelled, embedder)
            result["ways"] |= {f"{name}, {sentence_model}": value for name, value in ways.items() if name != "bm25"}
    return result


def _ways(folder: Path, labelled: dict[str, Any], embedder: Embedder | None) -> dict[str, Any]:
    name = "labelled" if embedder is None else "labelled-sentences"
    with ExperiencePool(folder / f"{name}.db", create=True, embedder=embedder) as pool:
        for one in labelled["lessons"]:
            record = ExperienceRecord(one["when_to_use"], one["content"], id=one["id"], status=Status.ACTIVE)
            pool.store.insert(record, to_blob(pool.embedder.embed([embedded_text(record)]))[0], pool.embedder.id)
        pool.search("warm", 3)
        ids = {row[0]: row[1] for row in pool.store.rows("SELECT number, id FROM records")}

        def hybrid(query: str) -> list[str]:
            return [hit.record.id for hit in pool.search(query, 3)]

        def text(query: str) -> list[str]:
            return [ids[n] for n in pool._text.search(query, OFFERED, 3)]

        def vectors(query: str) -> list[str]:
            vector = pool.embedder.embed([query])[0]
            return [ids[n] for n, _ in pool._vectors.search(np.asarray(vector), OFFERED, 3)]

        ways: dict[str, Callable[[str], list[str]]] = {"hybrid": hybrid, "bm25": text, "vectors": vectors}
        return {way: _recall(labelled["questions"], find) for way, find in ways.items()}


def _recall(questions: Sequence[dict[str, str]], find: Callable[[str], list[str]]) -> dict[str, Any]:
    found: dict[str, list[bool]] = {}
    for one in questions:
        hit = one["lesson"] in find(one["question"])
        for key in ("all", one["language"], f"{one['language']}: {one['kind']}"):
            found.setdefault(key, []).append(hit)
    return {
        key: {"recall_at_3": sum(hits) / len(hits), "n": len(hits), "ci95": list(wilson(sum(hits), len(hits)))}
        for key, hits in sorted(found.items())
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--inserts", type=int, default=1000)
    parser.add_argument("--sentence-model", help="folder or name of a sentence-transformers model")
    parser.add_argument("--part", action="append", choices=("quality", "search", "writers"), help="only this one")
    parser.add_argument("--quick", action="store_true", help="5,000 records, 4 writers of 50")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.records, arguments.writers, arguments.inserts = 5000, 4, 50
    parts = arguments.part or ["quality", "search", "writers"]
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "quality" in parts:
            report["quality"] = quality(folder, arguments.sentence_model)
        if "search" in parts:
            report["search"] = search_times(folder, arguments.records)
        if "writers" in parts:
            report["writers"] = writers_at_once(folder, arguments.writers, arguments.inserts)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _show(report)
    written = report.get("writers", {"lost": 0, "failed_processes": 0})
    return 0 if written["lost"] == 0 and written["failed_processes"] == 0 else 1


def _show(report: dict[str, Any]) -> None:
    if (one := report.get("search")) is not None:
        print(
            f"search in {one['records']:,} records: p50 {one['p50_ms']:.1f} ms, p95 {one['p95_ms']:.1f} ms (target "
            f"{one['target_p95_ms']:g}), of processor time {one['p95_processor_ms']:.1f} ms, load {one['load']:.1f}, "
            f"first {one['first_search_s']:.2f} s, signatures find {one['signature_recall_at_3']:.0%} of the nearest 3"
        )
    if (one := report.get("writers")) is not None:
        print(
            f"{one['writers']} writers of {one['inserts_each']}: {one['stored']} of {one['expected']} stored, "
            f"{one['inserts_per_s']:.0f} a second"
        )
    if (one := report.get("quality")) is not None:
        for way, values in one["ways"].items():
            told = ", ".join(f"{key} {value['recall_at_3']:.2f} (n {value['n']})" for key, value in values.items())
            print(f"recall@3 {way}: {told}")
        if "sentence_transformers" in one:
            print(one["sentence_transformers"])


if __name__ == "__main__":
    sys.exit(main())
