"""What a filled pool does before any training: with lessons, without, and with equally long ones of another house.

For each seed four houses of its own. A run of the preset `init_only` fills a pool from training problems of these
houses: the shipped rules distil, the shipped trials promote. Then the untrained model plays the test problems (the same
houses, numbers that no training problem has) three times with the same random streams: plain, with the lessons that the
pool offers for the question, and with a placebo in their place. A pair is a seed.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.evolution import paired_interval
from benchmarks.kept_runs import KeptRuns, copy_pool, told_of_experience
from trainer.config import TrainingConfig
from trainer.experience.leaks import prompt_text
from trainer.experience.pool import ExperiencePool, Outcome, pool_path
from trainer.experience.records import ExperienceRecord
from trainer.experience.run_pool import RunPool
from trainer.experience.training import rendered
from trainer.rollout.types import EpisodeRequest, Guidance
from trainer.runs.rundir import RunDirectory

HOUSES = 4
PROBLEMS = 48
TEST_PROBLEMS = 256
LESSONS = 1
"""In a prompt. The bundled model was built on prompts with one lesson, and each lesson was tried alone; what several at
once do to it is told by `--lessons 3`, the default of runs."""
LENGTH_TOLERANCE = 0.1
"""Texts whose lengths differ by at most this share of the longer one count as equally long: the longest meaning of an
operator takes a few tokens more than the shortest, and exactly as long would mean: with the same meaning."""


@dataclass(frozen=True)
class Shown:
    """What stands in the prompt of one test problem."""

    house: int
    text: str
    """Empty where the pool offers nothing."""
    tokens: int
    advice: tuple[str, ...] = ()
    """What the lessons say to do, without the house."""


def fill_config(
    seed: int, houses: int = HOUSES, problems: int = PROBLEMS, tests: int = TEST_PROBLEMS
) -> TrainingConfig:
    """A run that fills the pool `fill-s<seed>` and ends."""
    return TrainingConfig(
        env="house_rules",
        env_args={"houses": "fixed", "count": houses, "shuffle": seed},
        problems=problems,
        test_problems=tests,
        batch_size=4,
        num_generations=8,
        seed=seed,
        validate_every=0,
        skip_eval_before=True,
        keep_episodes=False,
        threads=1,
        device="cpu",
        experience={"preset": "init_only", "pool": f"fill-s{seed}"},
    )


def uplift(
    runs: KeptRuns, seeds: Sequence[int], configs: Mapping[int, TrainingConfig], lessons: int = LESSONS
) -> dict[str, Any]:
    """Guided against plain and against placebo, over all test problems, those without a lesson included.

    `lessons`: in a prompt at most.
    """
    filled = runs.run({f"fill-s{seed}": configs[seed] for seed in seeds})
    benches = [Bench(filled[f"fill-s{seed}"], runs.work, lessons) for seed in seeds]
    others = list(dict.fromkeys(one for bench in benches for one in bench.shown if one.text))
    rows = []
    for seed, bench in zip(seeds, benches, strict=True):
        rows.append({"seed": seed, **bench.measure(others)})
        runs.say(f"uplift, seed {seed}: " + ", ".join(f"{way} {rows[-1][way]:.3f}" for way in WAYS))
    plain = paired_interval([row["guided"] - row["plain"] for row in rows])
    placebo = paired_interval([row["guided"] - row["placebo"] for row in rows])
    harmless = paired_interval([row["placebo"] - row["plain"] for row in rows])
    return {
        **effect_of(plain, len(rows)),
        "against_placebo": effect_of(placebo, len(rows)),
        "placebo_against_plain": effect_of(harmless, len(rows)),
        "success": {way: round(sum(row[way] for row in rows) / len(rows), 4) for way in WAYS},
        "coverage": round(sum(row["covered"] for row in rows) / len(rows), 4),
        "leaks": {key: sum(row["leaks"][key] for row in rows) for key in ("offered", "refused")},
        "lessons_in_a_prompt": lessons,
        "seeds": rows,
    }


def effect_of(interval: tuple[float, tuple[float, float]], pairs: int) -> dict[str, Any]:
    """As the report holds it."""
    mean, (low, high) = interval
    return {"effect": round(mean, 4), "ci95": [round(low, 4), round(high, 4)], "pairs": pairs}


WAYS = ("plain", "guided", "placebo")


class Bench:
    """The untrained model, the test problems of one seed and what its pool offers for each."""

    def __init__(self, run: RunDirectory, work: Path, lessons: int) -> None:
        from trainer.evaluate import Evaluator
        from trainer.models.catalog import resolve_model
        from trainer.models.load import load
        from trainer.world import open_world

        self.config = config = run.read_config()
        assert config.experience is not None
        self.pool_file = pool_path(work, config.experience.pool)
        self.filled: dict[str, Any] = told_of_experience(run)["filled"]
        world = open_world(config, run.path)
        self.tasks = world.tasks(config)
        loaded = load(resolve_model(config.model, world.folder), config.device, config.dtype)
        self.evaluator = Evaluator(config, loaded, world.spec, self.tasks, reward=world.reward)
        self.pool = RunPool(config.experience, run.path, config.env)
        words = loaded.tokenizer
        self.shown = self._offered(lessons, lambda text: len(words(text, add_special_tokens=False)["input_ids"]))

    def _offered(self, lessons: int, length: Callable[[str], int]) -> list[Shown]:
        found = []
        for row in self.tasks.test:
            hits = self.pool.lessons(prompt_text(row["prompt"]), lessons, trials=False)
            text = rendered(hits)
            advice = tuple(hit.record.content for hit in hits.hits)
            found.append(Shown(row["house"], text, length(text) if text else 0, advice))
        self.pool.close()
        return found

    def measure(self, others: Sequence[Shown]) -> dict[str, Any]:
        """Success of the three ways on the same problems with the same random streams."""
        from trainer.envs.base import Split

        draw = random.Random(f"placebo|{self.config.seed}")
        placebos = [placebo_for(one, others, draw) if one.text else None for one in self.shown]
        texts = {
            "plain": [""] * len(self.shown),
            "guided": [one.text for one in self.shown],
            "placebo": ["" if one is None else one.text for one in placebos],
        }
        values: dict[str, Any] = {}
        covered = [place for place, one in enumerate(self.shown) if one.text]
        for way, those in texts.items():
            result, episodes = self.evaluator.run(Split.TEST, lambda requests, t=those: with_texts(requests, t))
            values[way] = result.mean
            if covered:
                wins = sum(episodes[place].reward > 0.5 for place in covered)
                values[f"{way}_covered"] = round(wins / len(covered), 4)
        pairs = [(self.shown[place], placebos[place]) for place in covered]
        found = [(mine, other) for mine, other in pairs if other is not None]
        return {
            **values,
            "test_problems": len(self.shown),
            "covered": round(len(covered) / len(self.shown), 4),
            "houses_covered": len({self.shown[place].house for place in covered}),
            "without_placebo": len(pairs) - len(found),
            "tokens": _mean([mine.tokens for mine, _ in found]),
            "tokens_placebo": _mean([other.tokens for _, other in found]),
            "placebo_says_the_same": _mean([float(mine.advice == other.advice) for mine, other in found]),
            "filling": {key: self.filled.get(key) for key in ("attempts", "lessons", "tried", "promoted")},
            "leaks": leaks_refused(self.pool_file, self.tasks.test),
        }


def placebo_for(mine: Shown, others: Sequence[Shown], draw: random.Random) -> Shown | None:
    """An equally long text about another house, whatever it says to do; None where there is none. The house is drawn,
    then one of its texts.

    As many lessons as in the original, and at most `LENGTH_TOLERANCE` longer or shorter.
    """
    fitting: dict[int, list[Shown]] = {}
    for one in others:
        near = abs(one.tokens - mine.tokens) <= LENGTH_TOLERANCE * max(one.tokens, mine.tokens)
        if near and one.house != mine.house and len(one.advice) == len(mine.advice):
            fitting.setdefault(one.house, []).append(one)
    return draw.choice(fitting[draw.choice(sorted(fitting))]) if fitting else None


def with_texts(requests: Sequence[EpisodeRequest], texts: Sequence[str]) -> list[EpisodeRequest]:
    """The requests with a text each in the experience block; an empty one: no block."""
    return [
        replace(request, guidance=Guidance(text, (), strip=False)) if text else request
        for request, text in zip(requests, texts, strict=True)
    ]


def leaks_refused(pool_file: Path, tests: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Offers a copy of the pool two records for each test problem (`leaking`); all of them must be refused."""
    copy = pool_file.with_name(f"{pool_file.stem}-leaks.db")
    copy_pool(pool_file, copy)
    with ExperiencePool(copy) as pool:
        added = pool.add_all(one for row in tests for one in leaking(prompt_text(row["prompt"]), str(row["answer"])))
    copy.unlink()
    return {"offered": len(added), "refused": sum(one.outcome is Outcome.REFUSED for one in added)}


def leaking(question: str, answer: str) -> tuple[ExperienceRecord, ExperienceRecord]:
    """A record that holds a problem, and one that tells its answer."""
    turned = " ".join(reversed(question.rstrip("?.").partition(", ")[::2])).strip()
    return (
        ExperienceRecord(question, "use calculate, then finish with its result"),
        ExperienceRecord("Numbers that were asked for before", f"{turned} gave {answer}"),
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
