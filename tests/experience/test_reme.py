"""ReMe's two kinds of file without loss, and what an import does with the rest of the world's lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pool_helpers import lesson

from trainer.experience.leaks import guarded_rows
from trainer.experience.pool import ExperiencePool
from trainer.experience.problems import ExperienceError
from trainer.experience.records import (
    COUNTERS,
    Counters,
    Evidence,
    ExperienceRecord,
    Kind,
    Polarity,
    SourcePolicy,
    Status,
)
from trainer.experience.reme import RemeFormatError, Shape, export_file, from_reme, import_file, shape_of, to_reme

FLAT: dict[str, Any] = {
    "workspace_id": "appworld", "memory_id": "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "memory_type": "task",
    "when_to_use": "When a song list has several pages", "content": "Ask for page after page until one is empty.",
    "score": 0.85, "time_created": "2025-11-20 10:11:12", "time_modified": "2025-11-21 08:00:00",
    "author": "qwen3-32b", "metadata": {"tags": ["paging"], "confidence": 0.8, "freq": 3, "utility": 2,
    "task_query": "How many songs …", "category": "success"},
}  # fmt: skip
LIVE: dict[str, Any] = {
    "unique_id": FLAT["memory_id"], "workspace_id": "appworld", "content": FLAT["when_to_use"],
    "vector": [0.25, -0.5, 0.125],
    "metadata": {"memory_type": "task", "content": FLAT["content"], "score": 0.85, "time_created":
    "2025-11-20 10:11:12", "time_modified": "2025-11-21 08:00:00", "author": "qwen3-32b",
    "metadata": json.dumps(FLAT["metadata"])},
}  # fmt: skip
LIBRARY: dict[str, Any] = {
    "memory_id": "m1", "when_to_use": "w", "content": "c", "created_time": "2025-01-02 03:04:05", "modified_time":
    "2025-01-02 03:04:06", "metadata": json.dumps({"tags": ["a"], "extra_info": {"generalized_query": "g"}}),
}  # fmt: skip


@pytest.mark.parametrize("line", [FLAT, LIVE])
def test_what_a_memory_says(line: dict[str, Any]) -> None:
    record = from_reme(line)
    assert record.id == FLAT["memory_id"]
    assert (record.when_to_use, record.content) == (FLAT["when_to_use"], FLAT["content"])
    assert (record.quality, record.author, record.pool) == (0.85, "qwen3-32b", "appworld")
    assert (record.counters.retrieved, record.counters.won) == (3, 2)
    assert (record.tags, record.status, record.kind) == (("paging",), Status.ACTIVE, Kind.TASK)
    assert record.created == 1763633472.0  # 2025-11-20 10:11:12 UTC
    assert record.modified == 1763712000.0


def test_other_names_of_times_and_metadata_as_text() -> None:
    record = from_reme(LIBRARY)
    assert record.created == 1735787045.0
    assert record.tags == ("a",)


@pytest.mark.parametrize("line", [FLAT, LIVE, LIBRARY])
def test_an_unchanged_memory_goes_back_as_it_came(line: dict[str, Any], tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with ExperiencePool(tmp_path / "p.db", create=True) as pool:
        assert import_file(pool, source).added == 1
        assert export_file(pool, target, shape_of(line)) == 1
    assert json.loads(target.read_text(encoding="utf-8")) == line


def test_a_used_memory_goes_back_with_its_counters_and_its_own_fields(tmp_path: Path) -> None:
    record = from_reme(LIVE)
    used = record.changed(counters=record.counters + Counters(retrieved=4, used=4, won=3, lost=1))
    flat, live = to_reme(used, Shape.FLAT), to_reme(used, Shape.LIVE)
    assert flat["metadata"]["freq"] == 7
    assert flat["metadata"]["utility"] == 5
    assert flat["metadata"]["confidence"] == 0.8
    assert "vector" not in flat
    assert live["vector"] == [0.25, -0.5, 0.125]
    assert json.loads(live["metadata"]["metadata"])["freq"] == 7
    assert from_reme(flat) == used
    assert from_reme(live) == used


texts = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
times = st.floats(0, 4e9)
records = st.builds(
    ExperienceRecord,
    when_to_use=texts,
    content=texts,
    id=st.text("0123456789abcdef", min_size=1, max_size=32),
    pool=st.sampled_from(["default", "other"]),
    kind=st.sampled_from(Kind),
    polarity=st.sampled_from(Polarity),
    status=st.sampled_from(Status),
    status_reason=texts,
    quality=st.floats(0, 1),
    family=texts,
    author=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    evidence=st.lists(st.builds(Evidence, texts, texts, texts), max_size=2).map(tuple),
    source=st.builds(SourcePolicy, texts, st.none() | st.integers(0, 99), texts),
    supersedes=st.lists(texts, max_size=2).map(tuple),
    contradicts=st.lists(texts, max_size=2).map(tuple),
    counters=st.builds(Counters, **{name: st.integers(0, 10**6) for name in COUNTERS}),
    created=times,
    modified=times,
    foreign=st.none(),
)


@settings(max_examples=120, deadline=None)
@given(records, st.sampled_from(Shape))
def test_ours_through_reme_and_back(record: ExperienceRecord, shape: Shape) -> None:
    line = json.loads(json.dumps(to_reme(record, shape)))
    assert from_reme(line) == record
    assert json.loads(json.dumps(to_reme(from_reme(line), shape))) == line


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metadata = st.dictionaries(texts.filter(lambda key: key != "mcp_evo"), values, max_size=4)
common = {
    "memory_type": st.sampled_from(["task", "personal", "tool", ""]),
    "score": st.floats(-1, 1) | st.integers(0, 1) | st.none(),
    "time_created": st.sampled_from(["2025-11-20 10:11:12", "", "soon"]),
    "author": texts,
    "a_field_of_later": values,
}
flat_lines = st.fixed_dictionaries(
    {"when_to_use": texts, "content": texts | values},
    optional={**common, "memory_id": texts, "workspace_id": texts, "metadata": metadata | metadata.map(json.dumps)},
)
live_lines = st.fixed_dictionaries(
    {
        "unique_id": texts,
        "content": texts,
        "metadata": st.fixed_dictionaries(
            {"content": texts}, optional={**common, "metadata": metadata.map(json.dumps)}
        ),
    },
    optional={"vector": st.none() | st.lists(st.floats(-1, 1), max_size=3), "workspace_id": texts},
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(flat_lines, max_size=3), st.lists(live_lines, max_size=3), st.randoms())
def test_theirs_through_a_pool_and_back(
    tmp_path_factory: pytest.TempPathFactory, flat: list[Any], live: list[Any], order: Any
) -> None:
    lines = {from_reme(line).id: line for line in [*flat, *live]}  # an id is there once
    folder = tmp_path_factory.mktemp("reme")
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    shuffled = list(lines.values())
    order.shuffle(shuffled)
    source.write_text("".join(json.dumps(line) + "\n" for line in shuffled), encoding="ascii")
    with ExperiencePool(folder / "p.db", create=True) as pool:
        found = import_file(pool, source)
        assert (found.added, found.existing, found.refused) == (len(lines), 0, [])
        export_file(pool, target, Shape.FLAT)
        written = [json.loads(text) for text in target.read_bytes().split(b"\n") if text]
        for came, went in zip(shuffled, written, strict=True):
            assert went == came if shape_of(came) is Shape.FLAT else from_reme(went).content == from_reme(came).content
        export_file(pool, target, Shape.LIVE)
        written = [json.loads(text) for text in target.read_bytes().split(b"\n") if text]
        for came, went in zip(shuffled, written, strict=True):
            assert went == came if shape_of(came) is Shape.LIVE else from_reme(went).content == from_reme(came).content


def test_a_file_with_everything_in_it(tmp_path: Path, pool: ExperiencePool) -> None:
    pool.protect(guarded_rows([{"prompt": "What is 3 + 4?", "answer": "7"}], "run:test"))
    source = tmp_path / "in.jsonl"
    leak = {"memory_id": "leak", "when_to_use": "What is 3 + 4?", "content": "seven"}
    lines = [json.dumps(FLAT), json.dumps(LIVE | {"unique_id": "other"}), "{broken", json.dumps({"a": 1}), "[]",
             json.dumps(FLAT), json.dumps(leak), json.dumps(LIBRARY)]  # fmt: skip
    source.write_text("\n".join(lines), encoding="utf-8")  # no line feed at the end
    found = import_file(pool, source, status=Status.QUARANTINED)
    assert (found.added, found.existing, found.bad_lines) == (3, 1, [3])
    assert [line for line, _ in found.refused] == [4, 5, 7]
    assert "it has a" in found.refused[0][1]
    assert "run:test" in found.refused[2][1]
    assert found.shapes == {Shape.FLAT, Shape.LIVE}
    assert {record.status for record in pool.store.iterate()} == {Status.QUARANTINED}
    assert pool.search("song list with pages", statuses=tuple(Status))
    with pytest.raises(ExperienceError, match="cannot be read"):
        import_file(pool, tmp_path / "missing.jsonl")
    with pytest.raises(ExperienceError, match="cannot be written"):
        export_file(pool, tmp_path / "no" / "folder.jsonl", Shape.FLAT)
    with pytest.raises(RemeFormatError, match="JSON object"):
        from_reme([1])


def test_a_pool_exported_and_read_again_is_the_same(tmp_path: Path, pool: ExperiencePool) -> None:
    for number in range(5):
        pool.add(lesson(f"Task {number} of somebody", f"use tool {number}", family="f", tags=("slotted",)))
    ids = [record.id for record in pool.store.iterate()]
    pool.count({ids[0]: Counters(retrieved=9, used=3, won=2, lost=1, control_lost=1)})
    for shape in Shape:
        export_file(pool, tmp_path / f"{shape}.jsonl", shape)
        with ExperiencePool(tmp_path / f"{shape}.db", create=True) as again:
            import_file(again, tmp_path / f"{shape}.jsonl")
            assert [one.changed(pool="") for one in again.store.iterate()] == [
                one.changed(pool="") for one in pool.store.iterate()
            ]
