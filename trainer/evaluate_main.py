"""The child process of an evaluation: plays the plan of a folder and writes its result.

    python -P -m trainer.evaluate_main FOLDER

All subjects meet the same problems, the same grader and the same random streams; a subject is loaded, played on every
split and seed, and let go before the next one. Before anything is played it is checked that no problem belongs to two
splits, the training and validation problems of the runs that the subjects come from included.
"""

import argparse
import gc
import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in trainer.worker: read when torch is loaded

from skill_bank.files import write_text_atomic
from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentFault, Row, Split
from trainer.envs.problem import NOT_THE_PROBLEM
from trainer.evaluate import Evaluator
from trainer.evaluation.categories import category_of
from trainer.evaluation.folder import EvaluationFolder
from trainer.evaluation.scoring import compare_subjects, split_result
from trainer.evaluation.types import (
    Comparison,
    EpisodeScore,
    EvaluationPlan,
    EvaluationResult,
    SplitName,
    Subject,
    SubjectResult,
)
from trainer.models.catalog import resolve_model
from trainer.models.load import LoadedModel, load
from trainer.rollout.summary import SUCCESS
from trainer.rollout.types import Episode, EpisodeRequest
from trainer.tasks import DataFault, Tasks, requests
from trainer.world import World, open_world

PART = 256
"""Episodes played in one go; progress is told between two."""

Problems = dict[tuple[SplitName, int], list[Row]]
"""(split, seed) → rows."""


def identity_of(row: Row) -> str:
    """What makes a problem the problem it is, as a short hash: its prompt and what the environment is set up with."""
    kept = {key: value for key, value in row.items() if key not in NOT_THE_PROBLEM}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def problems_of(plan: EvaluationPlan, world: World) -> tuple[Problems, list[str]]:
    """The problems of every split and seed, and what is to be said about them.

    The splits of a file are drawn with the run's own seed, whatever the seeds of the evaluation: another one would put
    problems that were trained on into the test. Raises DataFault where a problem belongs to two splits.
    """
    found: Problems = {}
    warnings = []
    own = world.tasks(plan.config)
    for seed in plan.seeds:
        task_seed = seed if plan.config.data is None else plan.config.seed
        tasks = world.tasks(_sized(plan.config, plan.n, task_seed))
        for split in plan.splits:
            learned = split == "train" and task_seed == plan.config.seed  # generated tasks among them
            rows = (own if learned else tasks).of(Split(split))[: plan.n]
            if not rows:
                raise DataFault(f"{plan.config.env}: the {split} split is empty.")
            if len(rows) < plan.n:
                warnings.append(f"the {split} split has {len(rows)} problems, {plan.n} were asked for (seed {seed})")
            found[split, seed] = rows
    check_disjoint(own, found, learned_by(plan, world.folder))
    return found, warnings


def _sized(config: TrainingConfig, n: int, seed: int) -> TrainingConfig:
    """The same configuration with `n` validation and test problems (8 at least, which the format asks for).

    Without generated tasks: they were kept apart from the run's own problems, not from those of any seed and number.
    """
    sizes = {"test_problems": max(8, n), "validation_problems": max(8, n), "seed": seed}
    return config.on_originals().model_copy(update=sizes)


def learned_by(plan: EvaluationPlan, beside: Path) -> list[Tasks]:
    """What the subjects learned from and steered by, as far as it can be met here: same environment or same file."""
    known = []
    for config in plan.learned:
        if config.env == plan.config.env or (config.data is not None and config.data == plan.config.data):
            known.append(open_world(config, beside).tasks(config))
    return known


def check_disjoint(own: Tasks, found: Problems, learned: Sequence[Tasks] = ()) -> None:
    """Raises DataFault where a problem is in two splits, or where a subject learned from a problem it is tested on.

    `own`: the splits of the plan's own configuration. `learned`: those of the subjects' trainings, whose splits may
    lie elsewhere (a file is split by the seed of the run), so only what is tested must not be learned from.
    """
    owners: dict[str, SplitName] = {}
    known: tuple[tuple[SplitName, list[Row]], ...] = (("train", own.train), ("validation", own.validation))
    for split, rows in (*known, *((split, rows) for (split, _), rows in found.items())):
        for row in rows:
            owner = owners.setdefault(identity_of(row), split)
            if owner != split:
                raise DataFault(_two_splits(row, split, owner))
    for tasks in learned:
        trained = {identity_of(row) for row in tasks.train}
        steered = {identity_of(row) for row in tasks.validation}
        for (split, _), rows in found.items():
            for row in rows if split != "train" else ():
                if identity_of(row) in trained:
                    raise DataFault(_two_splits(row, split, "train"))
                if split == "test" and identity_of(row) in steered:
                    raise DataFault(_two_splits(row, split, "validation"))


def _two_splits(row: Row, split: SplitName, owner: SplitName) -> str:
    return (
        f"a problem of the {split} split is also in the {owner} split of what a model was trained with: "
        f"{str(row['prompt'])[:200]!r}. A test on it would measure memory. The environment's tasks(split, …) must give "
        "disjoint splits; runs on one file share them only with one seed."
    )


@dataclass
class Work:
    """An evaluation in progress."""

    folder: EvaluationFolder
    plan: EvaluationPlan
    world: World
    problems: Problems
    done: int = 0
    device: str | None = None
    scores: dict[str, list[EpisodeScore]] = field(default_factory=dict)
    """Subject → its episodes."""
    parameters: dict[str, int] = field(default_factory=dict)
    seconds: dict[tuple[str, SplitName], float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """Of episodes.jsonl."""

    def play(self, subject: Subject) -> None:
        """Plays one subject on everything. Raises ModelFault, EnvironmentFault."""
        config = self.plan.config
        loaded = load(resolve_model(subject.model, self.world.folder), config.device, config.dtype)
        self.device = str(loaded.device)
        self.parameters[subject.name] = loaded.parameters
        self.scores[subject.name] = []
        for (split, seed), rows in self.problems.items():
            doing = f"{subject.name} on {split}" + (f", seed {seed}" if len(self.plan.seeds) > 1 else "")
            self.folder.write_progress(self.done, len(self.problems) * len(self.plan.subjects), doing)
            began = time.perf_counter()
            self._play_split(subject, loaded, split, seed, rows)
            key = (subject.name, split)
            self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - began
            self.done += 1

    def _play_split(self, subject: Subject, loaded: LoadedModel, split: SplitName, seed: int, rows: list[Row]) -> None:
        config = self.plan.config.model_copy(update={"seed": seed})
        tasks = Tasks(rows, rows, rows)
        evaluator = Evaluator(config, loaded, self.world.spec, tasks, reward=self.world.reward)
        asked = [
            replace(one, generation=sample)
            for one in requests(rows, evaluator.system_prompt)
            for sample in range(self.plan.samples)
        ]
        valid = 0
        for at in range(0, len(asked), PART):
            episodes = evaluator.engine.run(asked[at : at + PART], self.plan.temperature)
            valid += sum(episode.valid for episode in episodes)
            for request, episode in zip(asked[at : at + PART], episodes, strict=True):
                self._keep(subject, split, seed, rows[request.task], request, episode)
        if valid == 0:
            raise EnvironmentFault(
                f"environment {config.env} failed in every one of {len(asked)} episodes; the last one said: "
                f"{episode.error}. Mend the environment (or the reward) and start again."
            )

    def _keep(
        self, subject: Subject, split: SplitName, seed: int, row: Row, request: EpisodeRequest, episode: Episode
    ) -> None:
        score = EpisodeScore(
            subject=subject.name,
            split=split,
            seed=seed,
            problem=identity_of(row),
            sample=request.generation,
            category=category_of(row),
            success=episode.valid and episode.reward > SUCCESS,
            turns=episode.turns,
            tool_calls=episode.tool_calls,
            tool_errors=episode.tool_errors,
            parse_errors=episode.parse_errors,
            attempted_calls=episode.attempted_calls,
            stop_reason=episode.stop_reason.value,
            tokens=len(episode.completion_ids),
        )
        self.scores[subject.name].append(score)
        line: dict[str, Any] = {**asdict(score), "reward": episode.reward, "error": episode.error}
        self.lines.append(json.dumps({**line, "messages": episode.messages}, ensure_ascii=False, default=str))

    def result(self, began: float, warnings: list[str]) -> EvaluationResult:
        """Everything together."""
        plan = self.plan
        return EvaluationResult(
            evaluation_id=plan.evaluation_id,
            target=plan.target,
            run_id=plan.run_id,
            env=plan.config.env,
            difficulty=plan.config.difficulty,
            n=plan.n,
            samples=plan.samples,
            seeds=list(plan.seeds),
            temperature=plan.temperature,
            device=self.device,
            data_fingerprint=_fingerprint(self.problems),
            seconds=round(time.perf_counter() - began, 3),
            subjects=[
                SubjectResult(
                    name=one.name,
                    model=one.model,
                    run_id=one.run_id,
                    parameters=self.parameters[one.name],
                    splits={
                        split: split_result(self._of(one.name, split), split, plan.ks, self.seconds[one.name, split])
                        for split in plan.splits
                    },
                )
                for one in plan.subjects
            ],
            comparisons=[
                self._comparison(plan.subjects[0].name, one.name, split)
                for one in plan.subjects[1:]
                for split in plan.splits
            ],
            warnings=warnings,
        )

    def _of(self, subject: str, split: SplitName) -> list[EpisodeScore]:
        return [one for one in self.scores[subject] if one.split == split]

    def _comparison(self, first: str, second: str, split: SplitName) -> Comparison:
        return compare_subjects(self._of(first, split), self._of(second, split), split, (first, second))


def _fingerprint(problems: Problems) -> str:
    text = json.dumps([[split, seed, [identity_of(row) for row in rows]] for (split, seed), rows in problems.items()])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def evaluate(folder: EvaluationFolder) -> EvaluationResult:
    """Plays the plan of a folder. Raises what the environment, the data or a model raise."""
    import torch
    import transformers

    began = time.perf_counter()
    plan = folder.read_plan()
    if plan.config.threads is not None:
        torch.set_num_threads(plan.config.threads)
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(plan.config.seed)
    world = open_world(plan.config, folder.path)
    problems, warnings = problems_of(plan, world)
    work = Work(folder, plan, world, problems)
    for subject in plan.subjects:
        work.play(subject)
        write_text_atomic(folder.episodes_path, "".join(f"{line}\n" for line in work.lines))
        gc.collect()  # one model in memory at a time
    return work.result(began, warnings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 with a result written, 1 with a failure written."""
    parser = argparse.ArgumentParser(prog="trainer.evaluate_main", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = EvaluationFolder(parser.parse_args(arguments).folder.absolute())
    try:
        folder.write_result(evaluate(folder))
    except Exception as error:
        from trainer.last_words import note_failure

        note_failure(folder, error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
