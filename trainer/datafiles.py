"""The user's task file: rows of a .jsonl, .csv or .parquet file, and everything that can be wrong with one.

Free of torch, so that a mistake is found where the run is configured and not after a worker was started. Every fault
is a DataFault with the file, the line, what was wrong and what to do.

A row is a mapping with a `prompt` (text, or chat messages that end with the user's); its other keys are the arguments
of the environment's reset. Rows with the same prompt are one problem and stay in the same split.
"""

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

Row = dict[str, Any]

MIN_PROBLEMS = 5
"""Three splits of 60/20/20 need at least this many."""
CHECKED_ROWS = 20_000
"""A check before a run reads at most this many rows: under a second, and mistakes rarely begin later."""
MAX_CELL_CHARACTERS = 10_000_000
"""The csv module's own limit, 131,072, is shorter than a long prompt."""
_LIKELY_PROMPTS = ("question", "problem", "query", "instruction", "input", "task", "text", "问题", "题目")
_ROLES = ("system", "user", "assistant", "tool")


class DataFault(ValueError):
    """Tasks that cannot be used: names the file, the line, what is allowed."""


@dataclass(frozen=True)
class DataSummary:
    """What a task file holds."""

    rows: int
    problems: int
    """Different ones."""
    train: int
    validation: int
    test: int
    complete: bool
    """False: only the first rows were read, the numbers are lower bounds."""


@dataclass(frozen=True)
class Splits:
    """The rows of a file, each problem in exactly one part."""

    train: list[Row]
    validation: list[Row]
    test: list[Row]


def check_data(path: Path, columns: dict[str, str], seed: int) -> DataSummary:
    """Reads a task file as the worker will. Raises DataFault."""
    rows = list(islice(iterate_rows(path, columns), CHECKED_ROWS + 1))
    complete = len(rows) <= CHECKED_ROWS
    parts = split_rows(_some(rows, path), seed, path)
    train, validation, test = (
        len({identity(row) for row in part}) for part in (parts.train, parts.validation, parts.test)
    )
    return DataSummary(min(len(rows), CHECKED_ROWS), train + validation + test, train, validation, test, complete)


def read_rows(path: Path, columns: dict[str, str]) -> list[Row]:
    """All rows of a file with `columns` (our name → the file's) applied. Raises DataFault."""
    return _some(list(iterate_rows(path, columns)), path)


def _some(rows: list[Row], path: Path) -> list[Row]:
    if not rows:
        raise DataFault(f"data: {path} holds no rows.")
    return rows


def iterate_rows(path: Path, columns: dict[str, str]) -> Iterator[Row]:
    """The rows one by one. Raises DataFault, at the first row that cannot be used."""
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    if not path.is_file():
        raise DataFault(f"data: there is no file {path}. Give a .jsonl, .csv or .parquet file.")
    if path.suffix.lower() not in readers:
        raise DataFault(f"data: {path.name} ends in {path.suffix!r}; allowed: {', '.join(readers)}.")
    try:
        for where, row in readers[path.suffix.lower()](path):
            yield _checked(_mapped(row, columns, where), where, row)
    except OSError as error:
        raise DataFault(f"data: {path} cannot be read: {error.strerror or error}.") from error


# ---- one problem, one split


def identity(row: Row) -> str:
    """What makes two rows the same problem: the prompt."""
    return json.dumps(row["prompt"], sort_keys=True, ensure_ascii=False)


def _whole(row: Row) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)


def split_rows(rows: list[Row], seed: int, path: Path) -> Splits:
    """60/20/20 by a hash of the problem. Rows that are equal in everything count once.

    Where nearly all prompts are alike and the other columns tell the rows apart (an environment that writes its own
    first observation), the whole row is the problem.
    """
    different = list({_whole(row): row for row in rows}.values())
    key = identity if len({identity(row) for row in different}) >= MIN_PROBLEMS else _whole
    problems: dict[str, list[Row]] = {}
    for row in different:
        problems.setdefault(key(row), []).append(row)
    if len(problems) < MIN_PROBLEMS:
        raise DataFault(
            f"{path} holds {len(problems)} different problems; at least {MIN_PROBLEMS} are needed for three splits. "
            "Add rows; where every prompt is the same, add a column that makes each row a problem of its own (a seed)."
        )
    order = sorted(problems, key=lambda name: hashlib.sha256(f"{seed}|{name}".encode()).digest())
    count = max(1, len(order) // 5)
    parts = (order[2 * count :], order[count : 2 * count], order[:count])
    return Splits(*([row for name in part for row in problems[name]] for part in parts))


# ---- rows


def _mapped(row: Row, columns: dict[str, str], where: str) -> Row:
    for ours, theirs in columns.items():
        if theirs not in row:
            raise DataFault(f"{where}: no column {theirs!r} (columns says {ours}={theirs}); it has {_names(row)}.")
    taken = set(columns.values())
    return {name: value for name, value in row.items() if name not in taken} | {
        ours: row[theirs] for ours, theirs in columns.items()
    }


def _names(row: Row) -> str:
    return ", ".join(row) or "no columns"


def _checked(mapped: Row, where: str, row: Row) -> Row:
    if "prompt" not in mapped:
        near = [name for name in row if name.strip().lower() in _LIKELY_PROMPTS]
        hint = f"columns={{prompt: {near[0] if near else 'NAME'}}}"
        raise DataFault(f"{where}: no `prompt`. Name the column that holds it: {hint}; it has {_names(row)}.")
    prompt = mapped["prompt"]
    if isinstance(prompt, str):
        if not prompt.strip():
            raise DataFault(f"{where}: `prompt` is empty.")
    elif isinstance(prompt, list) and prompt:
        _check_messages(prompt, where)
    else:
        raise DataFault(f"{where}: `prompt` must be text or a list of chat messages, not {_shown(prompt)}.")
    return mapped


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:60] + ' …'}"


def _check_messages(messages: list[Any], where: str) -> None:
    for number, message in enumerate(messages, start=1):
        if (
            not isinstance(message, dict)
            or message.get("role") not in _ROLES
            or not isinstance(message.get("content"), str)
        ):
            raise DataFault(
                f"{where}: message {number} of `prompt` is {_shown(message)}; a message is an object with `role` "
                f"({', '.join(_ROLES)}) and `content` (text)."
            )
    if messages[-1]["role"] != "user":
        raise DataFault(
            f"{where}: the last message of `prompt` is the {messages[-1]['role']}'s; it must be the user's, since the "
            "model speaks next."
        )


# ---- formats


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, with or without BOM, LF or CRLF. Only these end a line: U+2028 does not."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            raw = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise DataFault(f"{path} is UTF-16, not UTF-8. {_save_as_utf8(path, 'UTF-16')}")
            if b"\x00" in raw:
                raise DataFault(f"{path}:{number}: a NUL byte: this is no text file.")
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataFault(
                    f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8. {_save_as_utf8(path, 'GBK')}"
                ) from error


def _save_as_utf8(path: Path, encoding: str) -> str:
    return (
        f"Save the file as UTF-8 (Excel: 'CSV UTF-8'), for instance: "
        f"iconv -f {encoding} -t UTF-8 {path.name} > utf8{path.suffix}"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _read_jsonl(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line, parse_constant=_refuse_constant)
        except RecursionError as error:
            raise DataFault(f"{where}: nested too deeply.") from error
        except ValueError as error:
            hint = " A .jsonl file has one JSON object a line, not one list over several lines."
            raise DataFault(f"{where}: not JSON: {error}.{hint if line.strip()[0] in '[{' else ''}") from error
        if not isinstance(row, dict):
            hint = " The file is one JSON list; write one object a line." if isinstance(row, list) else ""
            raise DataFault(f"{where}: a row is a JSON object, this is {type(row).__name__}.{hint}")
        yield where, row


_MESSAGES_IN_A_CELL = re.compile(r"\s*\[\s*\{\s*['\"](?:role|content)['\"]")


def _read_csv(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        _check_header(header, path)
        before = reader.line_num
        for cells in reader:
            where = f"{path}:{before + 1}"
            before = reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                raise DataFault(
                    f"{where}: {len(cells)} cells, but the header names {len(header)} columns ({', '.join(header)}). "
                    'Put cells that hold a comma or a line break into quotes ("…").'
                )
            yield where, {name: _cell(text, where) for name, text in zip(header, cells, strict=True)}
    except csv.Error as error:
        raise DataFault(f"{path}:{max(1, reader.line_num)}: not CSV: {error}.") from error


def _check_header(header: list[str], path: Path) -> None:
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise DataFault(f"{path}:1: the columns are separated by {name}. Save the file with commas.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice or not all(name.strip() for name in header):
        what = f"the column {twice[0]!r} stands twice" if twice and twice[0].strip() else "a column has no name"
        raise DataFault(f"{path}:1: {what} in the header. The first line names every column once.")


def _cell(text: str, where: str) -> Any:
    """A cell as text; one that holds chat messages as JSON becomes those."""
    if _MESSAGES_IN_A_CELL.match(text) is None:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataFault(
            f"{where}: a cell holds chat messages that are not JSON ({error}). CSV cannot nest values: write the cell "
            "with json.dumps, or use .jsonl or .parquet."
        ) from error


def _read_parquet(path: Path) -> Iterator[tuple[str, Row]]:
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", row
    except pyarrow.ArrowException as error:
        raise DataFault(f"{path} is not a readable parquet file: {' '.join(str(error).split())}") from error
