"""Problems of a run: order, files, splits, clear errors."""

import json
from pathlib import Path

import pytest

from trainer.config import TrainingConfig
from trainer.envs import registry
from trainer.tasks import DataFault, build_tasks, conversation, group_requests, read_rows, training_order


def test_the_order_is_whole_passes_and_depends_on_the_seed_alone() -> None:
    order = training_order(5, 12, seed=3)
    assert sorted(order[:5]) == [(p, 0) for p in range(5)]
    assert sorted(order[5:10]) == [(p, 1) for p in range(5)]
    assert training_order(5, 100, 3)[:12] == order
    assert training_order(5, 12, 4) != order
    assert [p for p, _ in order[:5]] != [p for p, _ in order[5:10]]


def test_a_group_shares_its_problem_and_numbers_its_attempts() -> None:
    group = group_requests({"prompt": "q", "answer": "7"}, "S", 4, 2, 3)
    assert [(r.task, r.occurrence, r.generation, r.row) for r in group] == [
        (4, 2, g, {"answer": "7"}) for g in range(3)
    ]
    assert group[0].messages == [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]


def test_a_conversation_keeps_its_own_system_message() -> None:
    own = [{"role": "system", "content": "mine"}, {"role": "user", "content": "q"}]
    assert conversation({"prompt": own}, "S") == own


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_files_are_read_alike(tmp_path: Path, suffix: str) -> None:
    rows = [{"question": f'第 {i} 题 \u2028, "x"', "answer": str(i)} for i in range(6)]
    path = tmp_path / f"tasks{suffix}"
    if suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n\n", encoding="utf-8")
    elif suffix == ".csv":
        import csv

        with open(path, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, ["question", "answer"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    read = read_rows(path, {"prompt": "question"})
    assert read == [{"answer": r["answer"], "prompt": r["question"]} for r in rows]


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("t.jsonl", "{}\n", {}, r"t.jsonl:1: no `prompt`"),
        ("t.jsonl", '{"prompt": "a"}\n{"prompt"\n', {}, r"t.jsonl:2: not JSON"),
        ("t.jsonl", "[1]\n", {}, r"t.jsonl:1: a row is a JSON object"),
        ("t.jsonl", '{"q": 1}\n', {"prompt": "question"}, r"no column 'question' .*it has q"),
        ("t.jsonl", '{"prompt": 7}\n', {}, r"`prompt` must be text or a list"),
        ("t.jsonl", "", {}, r"holds no rows"),
        ("t.txt", "x", {}, r"ends in '.txt'; allowed: .jsonl, .csv, .parquet"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, name: str, content: str, columns: dict[str, str], words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataFault, match=words):
        read_rows(tmp_path / name, columns)


def test_a_file_is_split_by_problem_so_that_no_problem_stands_on_two_sides(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"prompt": f"q{i % 30}", "answer": str(i)} for i in range(60)]  # every problem twice
    path.write_text("\n".join(json.dumps(r) for r in rows))
    config = TrainingConfig(data=str(path), env="calculator")
    tasks = build_tasks(config, registry.load("calculator"), tmp_path)
    prompts = [{r["prompt"] for r in part} for part in (tasks.train, tasks.validation, tasks.test)]
    assert [len(p) for p in prompts] == [18, 6, 6]
    assert not prompts[0] & prompts[1]
    assert not prompts[0] & prompts[2]
    assert not prompts[1] & prompts[2]


def test_too_few_problems_for_three_splits(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"q{i}"}) for i in range(4)))
    with pytest.raises(DataFault, match="4 different problems; at least 5"):
        build_tasks(TrainingConfig(data=str(path)), registry.load("calculator"), tmp_path)


def test_unknown_environment_arguments_are_named() -> None:
    config = TrainingConfig(env_args={"houses": "none"}, env="house_rules")
    with pytest.raises(DataFault, match="houses"):
        build_tasks(config, registry.load("house_rules"), Path())
