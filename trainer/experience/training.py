"""Experience in a training run: lessons into prompts, outcomes into counters, attempts into lessons.

1. Nothing here raises into a step. A pool that fails gives no lessons: the row is played without, marked so, counted.
2. Only training problems make lessons. The run's validation and test problems guard the pool first; a training set that
   shares a problem with them is refused, and a pool that cannot be guarded gets no lessons.
3. A lesson in quarantine is tried before it is offered: when the pool is filled, in pairs of attempts; while training,
   alone in the prompt of a task that has no active lesson, against the control share of its group.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer.config import TrainingConfig
from trainer.experience.background import BackgroundDistiller
from trainer.experience.distil import distil
from trainer.experience.leaks import check_disjoint, guarded_rows, prompt_text
from trainer.experience.mixing import guided_rows, guided_share, kept_tasks
from trainer.experience.pool import Outcome
from trainer.experience.problems import ExperienceError, PoolError, PoolProblem
from trainer.experience.records import ExperienceRecord, Retrieval, SourcePolicy, Use
from trainer.experience.replay import Replayed, ReplayOptions, Trial, replay
from trainer.experience.run_pool import RunPool
from trainer.experience.trajectories import Trajectory, trajectory_of
from trainer.rollout.episode_file import episode_line
from trainer.rollout.types import Episode, EpisodeRequest, Guidance
from trainer.runs.statistics import difference_interval
from trainer.tasks import Tasks, group_requests

SUCCESS = 0.5
"""An episode has won when its reward is above this, as in evaluations."""
FIRST_INIT_OCCURRENCE = 1_000_000
"""Attempts that fill the pool have random streams that no training attempt has."""

Play = Callable[[list[EpisodeRequest]], list[Episode]]


@dataclass
class Told:
    """What became of lessons in prompts, of the whole run."""

    planned: int = 0
    """Attempts that were to see lessons."""
    injected: int = 0
    none_found: int = 0
    not_shown: int = 0
    """The prompt had no place for them."""
    problems: int = 0
    """Attempts without lessons because the pool failed."""
    guided_won: int = 0
    guided: int = 0
    control_won: int = 0
    control: int = 0
    """Attempts of the same groups without lessons."""

    def document(self) -> dict[str, Any]:
        """For the run document: counts, and the uplift with Newcombe's interval at 95 %."""
        values: dict[str, Any] = dict(vars(self))
        if self.guided and self.control:
            low, high = difference_interval(self.control_won, self.control, self.guided_won, self.guided)
            values["uplift"] = round(self.guided_won / self.guided - self.control_won / self.control, 4)
            values["uplift_ci95"] = [round(low, 4), round(high, 4)]
        return values


@dataclass
class Filled:
    """What filling the pool gave."""

    attempts: int = 0
    lessons: int = 0
    outcomes: dict[str, int] | None = None
    dropped: dict[str, int] | None = None
    tried: int = 0
    trials: int = 0
    """Attempts that trying took."""
    promoted: int = 0
    not_tried: dict[str, int] | None = None
    seconds: float = 0.0
    problem: str | None = None
    """What kept lessons from the pool; training goes on without them."""


class ExperienceRun:
    """The experience of one run."""

    def __init__(self, config: TrainingConfig, tasks: Tasks, pool: RunPool, run_id: str, system: str | None) -> None:
        """Guards the pool. Raises LeakError where training shares a problem with an evaluation."""
        assert config.experience is not None
        self.config, self.settings, self.tasks = config, config.experience, tasks
        self.pool, self.run_id, self._system = pool, run_id, system
        self.told = Told()
        self.filled: Filled | None = None
        held = {f"{run_id}:validation": tasks.validation, f"{run_id}:test": tasks.test}
        check_disjoint(tasks.train, held)
        guards = [one for origin, rows in held.items() for one in guarded_rows(rows, origin)]
        self.guard_problem: PoolProblem | None = pool.protect(guards)
        self._found: dict[tuple[int, int], Retrieval] = {}
        """Lessons of the present step, by (task, occurrence)."""
        self._failed: set[tuple[int, int]] = set()
        self._waiting: list[Trajectory] = []
        self._distiller: BackgroundDistiller | None = None
        if self.settings.updates and self.guard_problem is None:
            self._distiller = BackgroundDistiller(
                pool.sink(), self._lessons_of, deadline_s=self.settings.distil_deadline_s
            )

    # ---- lessons into prompts

    def guided(self, groups: Sequence[list[EpisodeRequest]], step: int) -> list[list[EpisodeRequest]]:
        """The groups of a step, those attempts that shall see lessons with them."""
        self._found, self._failed = {}, set()
        one = self.settings
        if not one.enable_context_generator:
            return list(groups)
        kept = kept_tasks(one.train_sample_mode, one.train_sample_keepratio, len(groups), self.config.seed, step)
        result = []
        for place, group in enumerate(groups):
            key = group[0].task, group[0].occurrence
            chosen = guided_rows(one.train_rollout_mode, one.rollout_ratio, len(group), self.config.seed, *key)
            if any(chosen):
                group = self._with_lessons(group, chosen, key, strip=place not in kept)
            result.append(group)
        return result

    def _with_lessons(
        self, group: list[EpisodeRequest], chosen: Sequence[bool], key: tuple[int, int], *, strip: bool
    ) -> list[EpisodeRequest]:
        found = self.pool.lessons(_question(group[0]), self.settings.retrieve_top_k, trials=True)
        count = sum(chosen)
        self.told.planned += count
        if found.problem is not None:
            self.told.problems += count
            self._failed.add(key)
        elif not found.hits:
            self.told.none_found += count
        if not found.hits:
            return group
        self._found[key] = found
        guidance = Guidance(rendered(found), tuple(one for one in found.ids if one), strip)
        return [replace(r, guidance=guidance) if see else r for r, see in zip(group, chosen, strict=True)]

    def for_validation(self, requests: list[EpisodeRequest]) -> list[EpisodeRequest]:
        """The validation with active lessons; nothing of it is fed back."""
        one = self.settings
        chosen = guided_share(one.val_rollout_mode, one.rollout_ratio, len(requests), self.config.seed)
        result = []
        for number, request in enumerate(requests):
            if number in chosen:
                found = self.pool.lessons(_question(request), one.retrieve_top_k, trials=False)
                if found.hits:
                    request = replace(request, guidance=Guidance(rendered(found), (), strip=False))
            result.append(request)
        return result

    # ---- outcomes into counters and lessons

    def settle(self, step: int, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Feeds outcomes back, hands attempts to the distiller, and gives the step's numbers."""
        uses: list[Use] = []
        for episode in episodes:
            request = episode.request
            found = self._found.get((request.task, request.occurrence))
            if found is None or (request.guidance is not None and not episode.injected):
                continue
            won = episode.reward > SUCCESS if episode.valid else None
            uses += [Use(one, won, control=not episode.injected) for one in found.ids if one]
        if uses:
            self.pool.record_uses(uses)
        if self.settings.updates and step % self.settings.updated_freq == 0:
            self._hand_over(step, episodes)
        return self._numbers(episodes)

    def _numbers(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        told = self.told
        groups: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        """Rewards of a group, (without lessons, with)."""
        planned = [one for one in episodes if one.request.guidance is not None]
        told.injected += sum(one.injected for one in planned)
        told.not_shown += sum(not one.injected for one in planned)
        for one in episodes:
            if one.valid:
                groups.setdefault((one.request.task, one.request.occurrence), ([], []))[one.injected].append(one.reward)
        both = [halves for halves in groups.values() if all(halves)]
        for control, guided in both:
            told.guided += len(guided)
            told.guided_won += sum(reward > SUCCESS for reward in guided)
            told.control += len(control)
            told.control_won += sum(reward > SUCCESS for reward in control)
        values: dict[str, Any] = {
            "guided": sum(one.injected for one in episodes),
            "guided_stripped": sum(one.stripped for one in episodes),
            "reward_guided": _mean([reward for _, guided in groups.values() for reward in guided]),
            "reward_unguided": _mean([reward for control, _ in groups.values() for reward in control]),
            "uplift": _mean([_average(guided) - _average(control) for control, guided in both]),
            "experience_failed": len(self._failed),
        }
        return {name: value for name, value in values.items() if value is not None}

    def _hand_over(self, step: int, episodes: Sequence[Episode]) -> None:
        size = self.config.num_generations
        lines = (episode_line(step, number // size, one) for number, one in enumerate(episodes))
        self._waiting += [found for found in map(trajectory_of, lines) if found is not None]
        if self._distiller is not None and len(self._waiting) >= self.settings.summary_batch_size:
            self._distiller.submit(self._waiting)
            self._waiting = []

    def _lessons_of(self, attempts: Sequence[Trajectory]) -> Sequence[ExperienceRecord]:
        if self.pool.service is not None:
            return self.pool.service.make(attempts, SUCCESS, self.settings.summary_batch_size)
        step = max((int(one.group.partition("/")[0]) for one in attempts), default=0)
        source = SourcePolicy(self.config.model, step)
        return distil(attempts, family=self.config.env, run_id=self.run_id, source=source).records

    # ---- filling the pool

    def fill(self, play: Play) -> Filled:
        """Plays training problems, makes lessons and tries them. A failing pool is a sentence in the result."""
        began = time.monotonic()
        deadline = began + self.settings.init_deadline_s
        result = self.filled = Filled()
        if self.guard_problem is not None:
            result.problem = f"the pool could not be guarded: {self.guard_problem.say}"
            return result
        attempts: list[Trajectory] = []
        size, batch = self.config.num_generations, self.config.batch_size
        for start in range(0, len(self.tasks.train), batch):
            if time.monotonic() > began + self.settings.init_deadline_s / 2:  # the other half is for trying
                break
            places = range(start, min(start + batch, len(self.tasks.train)))
            requests = [request for place in places for request in self._attempts_at(place, size)]
            lines = (episode_line(0, start + n // size, one) for n, one in enumerate(play(requests)))
            attempts += [found for found in map(trajectory_of, lines) if found is not None]
        result.attempts = len(attempts)
        try:
            self._store(attempts, result)
            if self.pool.service is None:
                self._try(play, result, deadline)
        except (PoolError, ExperienceError) as error:
            result.problem = str(error)
        result.seconds = round(time.monotonic() - began, 3)
        return result

    def _attempts_at(self, place: int, size: int, occurrence: int = FIRST_INIT_OCCURRENCE) -> list[EpisodeRequest]:
        return group_requests(self.tasks.train[place], self._system, place, occurrence, size)

    def _store(self, attempts: Sequence[Trajectory], result: Filled) -> None:
        if self.pool.service is not None:
            result.lessons = len(self.pool.service.make(attempts, SUCCESS, self.settings.summary_batch_size))
            return
        made = distil(attempts, family=self.config.env, run_id=self.run_id, source=SourcePolicy(self.config.model, 0))
        added, problem = self.pool.sink().add(made.records)
        result.lessons = len(made.records)
        result.outcomes = _plain(Counter(one.outcome for one in added))
        result.dropped = _plain(made.dropped)
        if problem is not None:
            result.problem = problem.say

    def _try(self, play: Play, result: Filled, deadline: float) -> None:
        drawn: Counter[int] = Counter()

        def trials(wanted: Sequence[Trial]) -> list[bool | None]:
            requests = []
            for one in wanted:
                drawn[one.task] += 1
                request = self._attempts_at(one.task, 1, FIRST_INIT_OCCURRENCE + drawn[one.task])[0]
                if one.lesson is not None:
                    request = replace(request, guidance=Guidance(one.lesson, (), strip=False))
                requests.append(request)
            return [
                None if not e.valid or (e.request.guidance is not None and not e.injected) else e.reward > SUCCESS
                for e in play(requests)
            ]

        questions = [prompt_text(row["prompt"]) for row in self.tasks.train]
        options = ReplayOptions(records=len(questions), deadline_s=max(1.0, deadline - time.monotonic()))
        with self.pool.opened() as pool:
            done: Replayed = replay(pool, questions, trials, family=self.config.env, options=options)
        result.tried, result.trials = len(done.tried), done.attempts
        result.promoted = sum(one.after == "active" for one in done.moved)
        result.not_tried = _plain(done.not_tried)

    # ---- the end

    def close(self) -> None:
        """Ends the distiller and writes what was counted, as far as that is possible."""
        if self._distiller is not None:
            self._distiller.close()
        self.pool.close()

    def troubles(self) -> list[str]:
        """What went wrong with the pool, a sentence each."""
        found = []
        if self.told.problems:
            kinds = ", ".join(f"{kind} {number} times" for kind, number in self.pool.problems().items())
            found.append(
                f"experience: {self.told.problems} of {self.told.planned} attempts that were to see lessons were "
                f"played without, because the pool {self.pool.name} failed ({kinds})"
            )
        if self.filled is not None and self.filled.problem is not None:
            found.append(f"experience: the pool {self.pool.name} was not filled: {self.filled.problem}")
        elif self.guard_problem is not None:
            found.append(f"experience: no lessons were made, the pool cannot be guarded: {self.guard_problem.say}")
        return found

    def document(self) -> dict[str, Any]:
        """What the run's document says of it."""
        values: dict[str, Any] = {
            "pool": self.pool.name,
            "told": self.told.document(),
            "problems": self.pool.problems(),
            "records": self.pool.records(),
        }
        if self.filled is not None:
            values["filled"] = {name: value for name, value in vars(self.filled).items() if value is not None}
        if self._distiller is not None:
            report = self._distiller.report()
            values["distilled"] = {
                "batches": report.batches,
                "attempts": report.attempts,
                "outcomes": _plain(report.outcomes),
                "dropped": _plain(report.dropped),
                "reasons": dict(report.reasons.most_common(5)),
                "unsaved": report.unsaved,
                "added": report.outcomes[Outcome.ADDED],
            }
        return values


def rendered(found: Retrieval) -> str:
    """Lessons as they stand in a prompt, a line each."""
    return "\n".join(hit.record.rendered() for hit in found.hits)


def _question(request: EpisodeRequest) -> str:
    return prompt_text(request.messages)


def _plain(counts: Counter[Any]) -> dict[str, int]:
    return {str(name): number for name, number in counts.items()}


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean(values: Sequence[float]) -> float | None:
    return _average(values) if values else None
