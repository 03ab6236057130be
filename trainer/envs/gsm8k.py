"""`gsm8k`: grade-school word problems, a calculator, and a grader that reads `$1,200` and `18 dollars` as numbers.

`env_args`:
- `file`: a .jsonl, .csv or .parquet file with `question` and `answer` (`… #### 42`, or the number alone);
- `test_file`: the official test file; without it the test split is drawn from `file`;
- `hub: true`: `openai/gsm8k` from the hub instead of a file. Nothing is fetched unless this is asked for.

`difficulty` counts the lines of the reference solution: simple at most 3, hard at least 5, mixed all of them. With
`data:` instead of `env_args` (columns: {prompt: question}) the file is split by the trainer.
"""

import functools
import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

from trainer.datafiles import DataFault, read_rows
from trainer.envs.base import Row, Split, split_of
from trainer.envs.number_task import NumberTask
from trainer.envs.numbers import names_number, number_in

HUB_DATASET = "openai/gsm8k"
HUB_FILES = {"train": "main/train-00000-of-00001.parquet", "test": "main/test-00000-of-00001.parquet"}
HUB_TIMEOUT_S = 5.0
"""For the first answer of the hub."""
SIMPLE_LINES, HARD_LINES = 3, 5


def final_number(answer: str) -> Fraction | None:
    """The number of a reference solution: what stands behind its last `####`, or the text itself."""
    return number_in(answer)


@functools.lru_cache(maxsize=8)
def _problems(path: Path, modified_ns: int) -> tuple[tuple[str, str, int], ...]:
    """(question, answer as text, lines of the solution) of a file; read once for the three splits."""
    problems: dict[str, tuple[str, str, int]] = {}
    for number, row in enumerate(read_rows(path, {"prompt": "question"}), start=1):
        answer = str(row.get("answer", ""))
        if "answer" not in row or final_number(answer) is None:
            said = f"is {answer[:60]!r}, which names no number" if "answer" in row else "is missing"
            raise DataFault(f"{path}: row {number}: `answer` {said}. Write `… #### 42` or the number alone.")
        question = str(row["prompt"])
        lines = [line for line in answer.rpartition("####")[0].splitlines() if line.strip()]
        problems[question] = (question, str(final_number(answer)), len(lines))
    return tuple(problems.values())


def _read(path: Path) -> tuple[tuple[str, str, int], ...]:
    if not path.is_file():
        raise DataFault(f"gsm8k: there is no file {path}. Give env_args.file=PATH, or env_args.hub=true.")
    return _problems(path, path.stat().st_mtime_ns)


def _from_hub(part: str) -> Path:
    """The hub's file, from the local cache where it is. Raises DataFault where the hub does not answer."""
    import huggingface_hub

    name = HUB_FILES[part]
    cached = huggingface_hub.try_to_load_from_cache(HUB_DATASET, name, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    try:
        # one question before the download, whose own retries take half a minute where there is no network
        url = huggingface_hub.hf_hub_url(HUB_DATASET, name, repo_type="dataset")
        huggingface_hub.get_session().head(url, timeout=HUB_TIMEOUT_S)
        return Path(huggingface_hub.hf_hub_download(HUB_DATASET, name, repo_type="dataset"))
    except Exception as error:  # the hub's client raises its own classes, its transport's and plain OSErrors
        raise DataFault(
            f"gsm8k: {HUB_DATASET} could not be fetched ({type(error).__name__}). Check the network, or fetch the "
            "files elsewhere and give env_args.file=PATH (and test_file)."
        ) from error


class Gsm8k(NumberTask):
    """Grade-school mathematics with a calculator."""

    system_prompt = "Solve the problem. Use the calculator for the arithmetic and submit the final number."

    @classmethod
    def tasks(
        cls,
        split: Split,
        n: int,
        seed: int,
        difficulty: str = "mixed",
        file: str | None = None,
        test_file: str | None = None,
        hub: bool = False,
        **env_args: Any,
    ) -> list[Row]:
        """Rows with `prompt` and `answer`; at most `n`, fewer where the file holds fewer."""
        if env_args:
            raise ValueError(f"gsm8k takes env_args file, test_file and hub; got {', '.join(sorted(env_args))}.")
        if (file is None) is not bool(hub) or (hub and test_file is not None):
            raise ValueError(
                "gsm8k needs its problems: env_args.file=gsm8k.jsonl (question, answer), or env_args.hub=true to fetch "
                f"{HUB_DATASET}; one of the two."
            )
        train = _read(_from_hub("train") if hub else Path(str(file)).expanduser())
        test = _read(_from_hub("test")) if hub else _read(Path(test_file).expanduser()) if test_file else None
        chosen = [p for p in _part(Split(split), train, test) if _is_level(p[2], difficulty)]
        if not chosen:
            raise ValueError(f"gsm8k: the file holds no {difficulty} problem for the {Split(split).value} split.")
        chosen.sort(key=lambda problem: hashlib.sha256(f"{seed}|{problem[0]}".encode()).digest())
        return [{"prompt": question, "answer": answer} for question, answer, _ in chosen[:n]]

    def reset(self, answer: str | float = "", **_: Any) -> None:
        """Takes the reference solution or its number."""
        super().reset(answer)
        expected = final_number(str(answer))
        if expected is None:
            raise ValueError(f"the expected answer {str(answer)[:60]!r} names no number")
        self._number = expected

    def _is_right(self, answer: str) -> bool:
        return names_number(answer, self._number)


def _is_level(lines: int, difficulty: str) -> bool:
    return {"simple": lines <= SIMPLE_LINES, "hard": lines >= HARD_LINES}.get(difficulty, True)


def _part(
    split: Split, train: tuple[tuple[str, str, int], ...], test: tuple[tuple[str, str, int], ...] | None
) -> list[tuple[str, str, int]]:
    """The problems of one split: by a hash of the question, so that no question stands on two sides."""
    if test is None:
        return [problem for problem in train if split_of(problem[0]) is split]
    if split is Split.TEST:
        return list(test)
    held = {question for question, _, _ in test}
    rest = [problem for problem in train if problem[0] not in held]
    return [p for p in rest if (split_of(p[0]) is Split.VALIDATION) is (split is Split.VALIDATION)]
