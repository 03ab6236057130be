"""Who sees lessons and who is trained with them: decided by seeds alone, so that a run can be played again. Pure."""

import random

from trainer.experience.manager import RolloutMode, SampleMode


def guided_rows(mode: RolloutMode, ratio: float, size: int, seed: int, task: int, occurrence: int) -> tuple[bool, ...]:
    """(G,) which attempts of a group see lessons: round(G · ratio) of them, drawn; at least one never does, and a
    ratio above 0 is at least one that does."""
    share = {RolloutMode.WOEXP: 0.0, RolloutMode.MIXED: ratio, RolloutMode.ALL: 1.0}[mode]
    count = min(max(round(size * share), share > 0), size - 1)
    chosen = set(random.Random(f"guided|{seed}|{task}|{occurrence}").sample(range(size), count))
    return tuple(number in chosen for number in range(size))


def kept_tasks(mode: SampleMode, ratio: float, tasks: int, seed: int, step: int) -> frozenset[int]:
    """Tasks of a step, by their place in it, whose guided attempts are trained on the prompt that was sampled.

    hybrid: int(N · ratio) of them, drawn for each step.
    """
    share = {SampleMode.ALLDISCARD: 0.0, SampleMode.ALLKEEP: 1.0, SampleMode.HYBRID: ratio}[mode]
    return frozenset(random.Random(f"kept|{seed}|{step}").sample(range(tasks), int(tasks * share)))


def guided_share(mode: RolloutMode, ratio: float, problems: int, seed: int) -> frozenset[int]:
    """Problems of the validation that are played with lessons the second time."""
    share = {RolloutMode.WOEXP: 0.0, RolloutMode.MIXED: ratio, RolloutMode.ALL: 1.0}[mode]
    return frozenset(random.Random(f"validated|{seed}").sample(range(problems), round(problems * share)))
