"""The pool's benchmark: labels are consistent, the percentile is right, and finding does not get worse unnoticed."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    found = importlib.util.spec_from_file_location("pool_benchmark", BENCHMARKS / "pool.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_percentile_by_nearest_rank(benchmark: ModuleType) -> None:
    values = [float(n) for n in range(20, 0, -1)]
    assert benchmark.percentile(values, 0.95) == 19.0
    assert benchmark.percentile(values, 0.5) == 10.0
    assert benchmark.percentile([7.0], 0.95) == 7.0


def test_labels(benchmark: ModuleType) -> None:
    labelled = json.loads((BENCHMARKS / "pool_questions.json").read_text(encoding="utf-8"))
    ids = [one["id"] for one in labelled["lessons"]]
    assert len(set(ids)) == len(ids)
    assert {one["lesson"] for one in labelled["questions"]} <= set(ids)
    assert {one["language"] for one in labelled["questions"]} == {"en", "zh"}


def test_the_hybrid_finds_more_than_words_alone(benchmark: ModuleType, tmp_path: Path) -> None:
    ways = benchmark.quality(tmp_path, None)["ways"]
    recall = {way: {key: one["recall_at_3"] for key, one in values.items()} for way, values in ways.items()}
    assert recall["hybrid"]["all"] > recall["bm25"]["all"]
    assert recall["hybrid"]["en"] >= 0.75
    assert recall["hybrid"]["zh"] >= 0.9
    assert recall["hybrid"]["zh: short"] == 1.0
