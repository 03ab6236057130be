"""Generated tasks among the training problems of a run: how many, which, and none that the run is evaluated on. Pure.

The training set keeps its size; a share of it, rounded to whole problems, is generated. Since an epoch is one pass over
the training set, the share is exact over every epoch. Which tasks are taken is drawn by the run's seed.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skill_bank.files import read_json
from trainer.datafiles import DataFault, Row, read_rows
from trainer.generation.screen import Guards, Screen
from trainer.generation.types import Manifest, Reason


@dataclass(frozen=True)
class Mixture:
    """What a training set is mixed of."""

    file: str
    digest: str
    """SHA-256 of the file."""
    ratio: float
    generated: int
    originals: int
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason → generated tasks that were looked at and not taken."""

    def document(self) -> dict[str, Any]:
        """For the run document."""
        return asdict(self)


def shares(problems: int, originals: int, ratio: float) -> tuple[int, int]:
    """(generated, originals) of a training set of at most `problems`, of which `originals` are there."""
    if ratio < 1:
        problems = min(problems, math.floor(originals / (1 - ratio) + 1e-9))
    generated = round(problems * ratio)
    return generated, min(originals, problems - generated)


def mixed(
    train: Sequence[Row],
    held: Mapping[str, Sequence[Row]],
    path: Path,
    *,
    ratio: float,
    problems: int,
    seed: int,
) -> tuple[list[Row], Mixture]:
    """(training set, what it is mixed of). `held`: name of a split → problems that must not be trained on.

    Raises DataFault where the file cannot be read or has too few tasks that may be used.
    """
    rows = read_rows(path, {})
    wanted, kept = shares(problems, len(train), ratio)
    answers = answer_fields(path)
    # without a manifest nobody knows which fields hold answers: then the words alone decide, which refuses more
    known = answers if answers is not None else sorted({key for row in rows for key in row} - {"prompt"})
    guards, screen = Guards(held, known), Screen(train[:kept], known)
    order = list(range(len(rows)))
    random.Random(f"generated|{seed}").shuffle(order)
    taken: list[int] = []
    left_out: Counter[str] = Counter()
    for number in order:
        if len(taken) == wanted:
            break
        if guards.leak(rows[number]) is not None:
            left_out[Reason.LEAK.value] += 1
        elif screen.repeats_words(rows[number]):
            left_out[Reason.DUPLICATE.value] += 1
        else:
            screen.add(rows[number], ())
            taken.append(number)
    if len(taken) < wanted:
        told = ", ".join(f"{count} as {reason}" for reason, count in sorted(left_out.items()))
        raise DataFault(
            f"generated_tasks: {path} gives {len(taken)} tasks of {len(rows)}{f' (left out: {told})' if told else ''}; "
            f"a share of {ratio:g} of {wanted + kept} problems needs {wanted}. Generate more (mcp-evo tasks generate "
            f"--count), lower generated_ratio, or lower problems."
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    mixture = Mixture(str(path), digest, ratio, wanted, kept, dict(sorted(left_out.items())))
    return [*train[:kept], *(rows[number] for number in sorted(taken))], mixture


def answer_fields(path: Path) -> list[str] | None:
    """Fields of a file's rows that hold answers, by the manifest beside it; None where there is none for this file."""
    try:
        manifest = Manifest.model_validate(read_json(path.with_name("manifest.json")))
        same = manifest.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError, ValidationError):
        return None
    return manifest.answers if same else None
