"""Task files: every mistake is one clear error with its place, found without torch and before a worker starts."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import ConfigError
from trainer.datafiles import CHECKED_ROWS, DataFault, check_data, read_rows, split_rows
from trainer.settings import resolve

FIVE = "".join(f'{{"prompt": "q{i}", "answer": "{i}"}}\n' for i in range(5))
MESSAGES = [{"role": "user", "content": "\u4f60\u597d, 1 + 1?"}]


def faulty(path: Path, columns: dict[str, str] | None = None) -> str:
    with pytest.raises(DataFault) as caught:
        check_data(path, columns or {}, 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        # what is there
        ("t.jsonl", b"", {}, "holds no rows"),
        ("t.jsonl", b"\n \n\t\n", {}, "holds no rows"),
        ("t.csv", b"", {}, "holds no rows"),
        ("t.csv", b"prompt,answer\r\n", {}, "holds no rows"),
        ("t.json", b"[]", {}, "ends in '.json'; allowed: .jsonl, .csv, .parquet"),
        ("t.parquet", b"PAR1 not really", {}, "not a readable parquet file"),
        ("t.jsonl", FIVE.encode()[: len(FIVE) * 4 // 5], {}, "4 different problems; at least 5"),
        # lines
        ("t.jsonl", FIVE.encode() + b'{"prompt": "q"\n', {}, "t.jsonl:6: not JSON"),
        ("t.jsonl", b'[\n{"prompt": "q"}\n]', {}, "t.jsonl:1: not JSON.*one JSON object a line, not one list"),
        ("t.jsonl", b'[{"prompt": "q"}]', {}, "a row is a JSON object, this is list. The file is one JSON list"),
        ("t.jsonl", b'"just text"\n', {}, "t.jsonl:1: a row is a JSON object, this is str"),
        ("t.jsonl", b'{"prompt": "q", "answer": NaN}\n', {}, "t.jsonl:1: not JSON: NaN is not a JSON value"),
        ("t.jsonl", b"[" * 100_000, {}, "t.jsonl:1: "),
        # encodings
        ("t.jsonl", '{"prompt": "\u95ee\u9898"}\n'.encode("gbk"), {}, "t.jsonl:1: byte 13 .*not UTF-8.*-f GBK"),
        ("t.csv", "prompt,answer\na,1\n\u95ee\u9898,2\n".encode("gbk"), {}, "t.csv:3: byte 1 of the line is not UTF-8"),
        ("t.csv", "prompt,answer\nq,1\n".encode("utf-16"), {}, "is UTF-16, not UTF-8.*iconv -f UTF-16"),
        # columns
        ("t.jsonl", b'{"question": "q"}\n', {}, r":1: no `prompt`.*columns=\{prompt: question\}; it has question"),
        ("t.jsonl", b'{"q": "x"}\n', {}, r"columns=\{prompt: NAME\}; it has q"),
        ("t.jsonl", b'{"q": "x"}\n', {"prompt": "quest"}, ":1: no column 'quest' .columns says prompt=quest.; it"),
        ("t.jsonl", FIVE.encode() + b'{"answer": "1"}\n', {}, "t.jsonl:6: no `prompt`"),
        ("t.jsonl", b"{}\n", {}, "it has no columns"),
        # prompts
        ("t.jsonl", b'{"prompt": 7}\n', {}, "t.jsonl:1: `prompt` must be text or a list of chat messages, not int 7"),
        ("t.jsonl", b'{"prompt": null}\n', {}, "not NoneType None"),
        ("t.jsonl", b'{"prompt": {"a": 1}}\n', {}, "not dict"),
        ("t.jsonl", b'{"prompt": "  "}\n', {}, "t.jsonl:1: `prompt` is empty"),
        ("t.jsonl", b'{"prompt": []}\n', {}, r"not list \[\]"),
        ("t.jsonl", b'{"prompt": ["hello"]}\n', {}, "message 1 of `prompt` is str 'hello'"),
        ("t.jsonl", b'{"prompt": [{"role": "boss", "content": "x"}]}\n', {}, "message 1 .*system, user, assistant"),
        ("t.jsonl", b'{"prompt": [{"role": "user", "content": 3}]}\n', {}, "message 1"),
        (
            "t.jsonl",
            b'{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n',
            {},
            "last message of `prompt` is the assistant's; it must be the user's",
        ),
        # CSV
        ("t.csv", b"prompt;answer\nq;1\n", {}, "t.csv:1: the columns are separated by semicolons"),
        ("t.csv", b"prompt\tanswer\nq\t1\n", {}, "t.csv:1: the columns are separated by tabs"),
        ("t.csv", b"prompt,prompt\nq,1\n", {}, "t.csv:1: the column 'prompt' stands twice"),
        ("t.csv", b"prompt,\nq,1\n", {}, "t.csv:1: a column has no name"),
        ("t.csv", b"prompt,answer\nq,1\nq, with a comma,2\n", {}, "t.csv:3: 3 cells, but the header names 2 columns"),
        ("t.csv", b'prompt,answer\n"two\nlines",1\nq\n', {}, "t.csv:4: 1 cells"),
        ("t.csv", b'prompt,answer\n"never closed,1\nq,2\n', {}, "not CSV: unexpected end of data"),
        ("t.csv", b"prompt,answer\nq\x00,1\n", {}, "t.csv:2: a NUL byte"),
        (
            "t.csv",
            b"prompt,answer\n\"[{'role': 'user', 'content': 'q'}]\",1\n",
            {},
            "t.csv:2: a cell holds chat messages that are not JSON.*CSV cannot nest values",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_error_with_its_place(
    tmp_path: Path, name: str, content: bytes, columns: dict[str, str], words: str
) -> None:
    import re

    path = tmp_path / name
    path.write_bytes(content)
    said = faulty(path, columns)
    assert re.search(words, said, re.DOTALL), said
    assert str(path) in said or "ends in" in said
    assert len(said) < 500
    assert "\n" not in said


def test_a_folder_and_a_missing_file_are_said_not_to_be_files(tmp_path: Path) -> None:
    assert "there is no file" in faulty(tmp_path)
    assert "there is no file" in faulty(tmp_path / "t.jsonl")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_bom_line_endings_and_chinese_text_are_read_as_meant(
    tmp_path: Path, suffix: str, mark: str, ending: str
) -> None:
    prompts = [f"\u7b2c {i} \u9898: \u4e24\u6570\u4e4b\u548c? \u2028 \u00e9" for i in range(6)]
    if suffix == ".csv":
        text = f"prompt,answer{ending}" + "".join(f'"{p}",{i}{ending}' for i, p in enumerate(prompts))
    else:
        rows = [{"prompt": p, "answer": str(i)} for i, p in enumerate(prompts)]
        text = "".join(json.dumps(row, ensure_ascii=False) + ending for row in rows)
    path = tmp_path / f"t{suffix}"
    path.write_bytes((mark + text).encode("utf-8"))
    rows = read_rows(path, {})
    assert [(row["prompt"], row["answer"]) for row in rows] == [(p, str(i)) for i, p in enumerate(prompts)]


def test_chat_messages_in_a_csv_cell_are_messages_when_they_are_json(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("prompt", "answer"), (json.dumps(MESSAGES), "2"), ("[see above]", "3")])
    assert [row["prompt"] for row in read_rows(path, {})] == [MESSAGES, "[see above]"]


def test_nested_values_of_jsonl_and_parquet_are_kept(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"prompt": MESSAGES, "facts": {"a": [1, 2]}, "answer": i} for i in range(3)]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert read_rows(tmp_path / "t.jsonl", {}) == rows == read_rows(tmp_path / "t.parquet", {})


def test_a_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "a"}, {"prompt": None}]), tmp_path / "t.parquet")
    assert "t.parquet: row 2: `prompt` must be text" in faulty(tmp_path / "t.parquet")


def test_a_column_map_may_swap_and_repeat_columns(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"a": "one", "b": "two", "c": 3}\n')
    assert read_rows(tmp_path / "t.jsonl", {"prompt": "a", "a": "b", "b": "a"}) == [
        {"prompt": "one", "a": "two", "b": "one", "c": 3}
    ]


@given(
    st.lists(
        st.fixed_dictionaries({"prompt": st.text(min_size=1).filter(str.strip), "answer": st.text()}),
        min_size=1,
        max_size=8,
    )
)
def test_csv_and_jsonl_agree_on_every_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    rows = [{k: v.replace("\x00", "").replace("\r", "") or "x" for k, v in row.items()} for row in rows]
    rows = [{k: v.encode("utf-8", "ignore").decode() for k, v in row.items()} for row in rows]
    rows = [row for row in rows if row["prompt"].strip() and not row["prompt"].lstrip().startswith("[")]
    if not rows:
        return
    folder = tmp_path_factory.mktemp("files")
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["prompt", "answer"])
    writer.writeheader()
    writer.writerows(rows)
    (folder / "t.csv").write_bytes(stream.getvalue().encode())
    (folder / "t.jsonl").write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode())
    assert read_rows(folder / "t.csv", {}) == read_rows(folder / "t.jsonl", {}) == rows


# ---- splits


def test_rows_of_one_prompt_stay_on_one_side_and_equal_rows_count_once() -> None:
    rows = [{"prompt": f"q{i % 20}", "answer": str(i)} for i in range(60)] * 2
    parts = split_rows(rows, 1, Path("t.jsonl"))
    everything = [*parts.train, *parts.validation, *parts.test]
    assert sorted(row["answer"] for row in everything) == sorted(str(i) for i in range(60))
    prompts = [{row["prompt"] for row in part} for part in (parts.train, parts.validation, parts.test)]
    assert [len(p) for p in prompts] == [12, 4, 4]
    assert not prompts[0] & prompts[1]
    assert not (prompts[0] | prompts[1]) & prompts[2]


def test_where_every_prompt_is_the_same_the_whole_row_is_the_problem() -> None:
    rows = [{"prompt": "Play the game.", "seed": i} for i in range(10)]
    parts = split_rows(rows, 1, Path("t.jsonl"))
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [6, 2, 2]
    with pytest.raises(DataFault, match=r"1 different problems.*add a column that makes each row a problem of its own"):
        split_rows([{"prompt": "Play the game."}] * 64, 1, Path("t.jsonl"))


@given(st.integers(5, 60), st.integers(0, 2**31 - 1), st.randoms())
def test_the_split_depends_on_seed_and_rows_but_not_on_their_order(n: int, seed: int, order) -> None:
    rows = [{"prompt": f"q{i}"} for i in range(n)]
    shuffled = rows[:]
    order.shuffle(shuffled)
    assert split_rows(rows, seed, Path("t")) == split_rows(shuffled, seed, Path("t"))
    parts = split_rows(rows, seed, Path("t"))
    assert len(parts.train) + len(parts.validation) + len(parts.test) == n
    assert len(parts.test) == len(parts.validation) == max(1, n // 5)


# ---- before a worker starts


def test_settings_refuse_the_file_with_the_same_words(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(FIVE + "{broken\n")
    with pytest.raises(ConfigError, match=r"t.jsonl:6: not JSON"):
        resolve(overrides=[f"data={path}"])
    path.write_text(FIVE.replace("prompt", "question"))
    with pytest.raises(ConfigError, match=r"columns=\{prompt: question\}"):
        resolve(overrides=[f"data={path}"])
    assert resolve(overrides={"data": str(path), "columns": {"prompt": "question"}}).config.data == str(path)


def test_settings_warn_where_epochs_would_count_problems_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"prompt": "q{i}"}}\n' for i in range(20)))
    resolved = resolve(overrides=[f"data={path}", "epochs=2"])
    assert [w for w in resolved.warnings if "Set problems=12" in w and "20 different problems" in w]
    assert not [w for w in resolve(overrides=[f"data={path}"]).warnings if "problems" in w]
    assert not [w for w in resolve(overrides=[f"data={path}", "epochs=2", "problems=12"]).warnings if "problems" in w]


def test_files_of_env_args_become_absolute_and_must_exist(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(30)]
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = resolve(overrides={"env": "gsm8k", "env_args": {"file": "g.jsonl"}}, folder=tmp_path).config
    assert config.env_args == {"file": str(tmp_path / "g.jsonl")}
    with pytest.raises(ConfigError, match=r"env_args.test_file 'no.jsonl': there is no file"):
        resolve(overrides={"env": "gsm8k", "env_args": {"test_file": "no.jsonl"}}, folder=tmp_path)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"env": "gsm8k"}, r"env gsm8k: gsm8k needs its problems: env_args.file=.*env_args.hub=true"),
        ({"env": "gsm8k", "env_args": {"pth": "x"}}, r"got pth"),
        ({"env": "house_rules", "env_args": {"houses": "old"}}, r"env house_rules: .*'new' or 'fixed'"),
        ({"env": "house_rules", "env_args": {"houses": "fixed", "count": "many"}}, r"env house_rules: "),
        ({"env": "calculator", "env_args": {"digits": 3}}, r"env calculator: .*takes no env_args; got digits"),
        ({"env": "reasoning_gym"}, r"got no dataset"),
    ],
)
def test_arguments_that_an_environment_refuses_cost_no_worker_start(overrides: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(overrides=overrides)


def test_a_general_word_is_not_a_misspelt_environment() -> None:
    assert resolve("train a reasoning model").config.env == "calculator"
    with pytest.raises(ConfigError, match="Did you mean gsm8k"):
        resolve("train on gsm8")


def test_only_the_beginning_of_a_long_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"prompt": "q{i}"}}\n' for i in range(CHECKED_ROWS + 10)) + "{broken")
    summary = check_data(path, {}, 1)
    assert (summary.rows, summary.complete) == (CHECKED_ROWS, False)
    with pytest.raises(DataFault, match=rf"t.jsonl:{CHECKED_ROWS + 11}: not JSON"):
        read_rows(path, {})


def test_the_check_needs_no_torch() -> None:
    code = (
        "import sys, trainer.datafiles, trainer.settings, trainer.envs.registry, trainer.tasks\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
