"""From a plan to a set of tasks: explore, learn templates, fill them, verify, filter, write. Goes on where it was.

The journal holds each original that was explored, each template that was tried and each filling that was drawn; what
lies between is computed again. So a set that was killed at any moment ends with the same bytes as one that was not.
"""

import copy
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from skill_bank.files import encoded, write_bytes_atomic, write_json_atomic
from trainer.datafiles import Row
from trainer.envs.base import Split
from trainer.experience.trajectories import Call
from trainer.generation.folder import SetFolder
from trainer.generation.journal import Journal
from trainer.generation.learn import Learned, confirms, learn
from trainer.generation.play import EnvironmentTrouble, Played, Player, plain
from trainer.generation.profile import EnvironmentProfile, profile_of
from trainer.generation.screen import Guards, Screen
from trainer.generation.search import search, solved_by_class
from trainer.generation.templates import fill_row
from trainer.generation.types import (
    FULL_REWARD,
    Attempt,
    Explorer,
    FoundBy,
    GenerationError,
    GenerationPlan,
    Manifest,
    Reason,
    Task,
    call_document,
    call_of,
)
from trainer.generation.vary import CallRefused, Values, perform
from trainer.tasks import Tasks
from trainer.world import World

DRAWS_FOR_EACH = 60
"""Fillings tried for each task that is wanted, at most."""
BARREN = 400
"""Fillings in a row without a new task after which the templates are exhausted."""
BATCH = 16
"""Originals that a policy plays between two notes."""

Policy = Callable[[Sequence[int]], dict[int, list[Attempt]]]
"""policy(numbers of originals) -> what a model tried and won, each attempt with its calls."""
Tell = Callable[[str, int, int], None]
"""tell(what is being done, how much of it is done, of how much)."""


@dataclass
class _Explored:
    attempts: list[Attempt]
    dropped: Counter[Reason]
    solved: int
    troubles: list[str]


class Producer:
    """Makes one set."""

    def __init__(self, folder: SetFolder, plan: GenerationPlan, world: World, tell: Tell, policy: Policy | None = None):
        """Raises DataFault, EnvironmentFault."""
        self._folder, self._plan, self._world, self._tell, self._policy = folder, plan, world, tell, policy
        tasks = originals_of(plan, world)
        self.originals: list[Row] = tasks.train
        self._fingerprint = tasks.fingerprint
        self._held = {"validation": tasks.validation, "test": tasks.test}
        self._player = Player(
            world.spec,
            world.reward,
            timeout_s=plan.config.tool_timeout_s,
            system_prompt=plan.config.system_prompt,
        )
        self._profile: EnvironmentProfile = profile_of(world.spec, self.originals)
        self._journal = Journal(folder.journal_path)
        self._trouble: str | None = None
        """What the environment raised first while templates were filled."""

    def run(self) -> Manifest:
        """Makes what is missing and writes the set. Raises GenerationError, EnvironmentFault, OSError."""
        if self._journal.once("began", "", lambda: self._fingerprint) != self._fingerprint:
            raise GenerationError(
                "the problems are not those that this set was begun with: the data file has changed, or the "
                "environment's generator has. Put them back, or start a new set."
            )
        explored = self._explore()
        if not explored.attempts:
            raise GenerationError(self._nothing_solved(explored))
        learned, no_templates = learn(
            self._player,
            self.originals,
            explored.attempts,
            self._journal,
            needed_support=self._plan.support,
            seed=self._plan.seed,
            tell=lambda done, of: self._tell("reading templates", done, of),
        )
        if not learned:
            raise GenerationError(
                f"{explored.solved} of {len(self.originals)} originals were solved, but no template holds "
                f"({_told(no_templates)}). Explore more originals (--originals), use the other explorer, or give the "
                "environment a class method solution(row)."
            )
        answers = sorted({key for one in learned for key in one.template.answer_fields})
        guards = Guards(self._held, answers)
        tasks, draws, no_tasks = self._fill(learned, explored, guards, answers)
        if not tasks:
            raise GenerationError(
                f"{len(learned)} templates hold, but none of {draws} fillings became a task ({_told(no_tasks)})."
                f"{f' The environment said: {self._trouble}.' if self._trouble else ''}"
            )
        return self._write(tasks, learned, explored, answers, draws, no_templates, no_tasks, len(guards))

    # ---- explore

    def _explore(self) -> _Explored:
        numbers = range(len(self.originals))
        if self._policy is not None:
            missing = [number for number in numbers if not self._journal.has("explored", str(number))]
            for at in range(0, len(missing), BATCH):
                self._tell("playing originals", len(self.originals) - len(missing) + at, len(self.originals))
                part = missing[at : at + BATCH]
                found = self._policy(part)
                for number in part:
                    self._journal.note("explored", str(number), self._kept(number, found.get(number, [])))
        explored = _Explored([], Counter(), 0, [])
        for number in numbers:
            if self._policy is None:
                self._tell("exploring originals", number, len(self.originals))
            value = self._journal.once("explored", str(number), partial(self._searched, number))
            explored.dropped.update({Reason(name): count for name, count in value["dropped"].items()})
            explored.troubles += value["troubles"]
            explored.solved += bool(value["attempts"])
            for one in value["attempts"]:
                calls = tuple(call_of(call) for call in one["calls"])
                explored.attempts.append(Attempt(number, FoundBy(one["by"]), one["place"], calls))
        return explored

    def _searched(self, number: int) -> dict[str, Any]:
        """What the scripted explorer finds; the class's own solution only where the search finds nothing."""
        row = self.originals[number]
        try:
            found = self._player.guarded(
                lambda: (
                    search(self._player, self._profile, row, number, calls=self._plan.calls, seed=self._plan.seed)
                    or solved_by_class(self._player, row, number)
                )
            )
        except EnvironmentTrouble as trouble:
            return {"attempts": [], "dropped": {Reason.ENVIRONMENT.value: 1}, "troubles": [str(trouble)]}
        return self._kept(number, found)

    def _kept(self, number: int, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """Attempts that win again in two fresh instances, as JSON."""
        kept, dropped, troubles = [], Counter[str](), []
        for one in attempts:
            try:
                again = self._player.guarded(partial(self._twice, self.originals[number], one.calls))
            except EnvironmentTrouble as trouble:
                dropped[Reason.ENVIRONMENT.value] += 1
                troubles.append(str(trouble))
                continue
            if any(played.reward < FULL_REWARD or len(played.calls) < len(one.calls) for played in again):
                dropped[Reason.NOT_REPRODUCED.value] += 1
            elif again[0].results != again[1].results or any(call.failed for call in again[0].calls):
                dropped[Reason.NOT_DETERMINISTIC.value] += 1
            else:
                calls = [call_document(call) for call in again[0].calls]
                kept.append({"by": one.by.value, "place": one.place, "calls": calls})
        return {"attempts": kept, "dropped": dict(dropped), "troubles": troubles}

    def _twice(self, row: Row, calls: Sequence[Call]) -> list[Played]:
        """The calls in two fresh instances, of two seeds where the environment takes one. Raises EnvironmentTrouble."""
        return [self._player.play(row, plain(calls), self._plan.seed + number) for number in (0, 1)]

    def _nothing_solved(self, explored: _Explored) -> str:
        first = f" Left out: {_told(explored.dropped)}." if explored.dropped else ""
        first += f" The environment said: {explored.troubles[0]}." if explored.troubles else ""
        advice = (
            "Train the model further, raise --attempts, or use --explorer scripted"
            if self._plan.explorer is Explorer.POLICY
            else "Raise --calls, use --explorer policy with a trained run, or give the environment a class method "
            "solution(row)"
        )
        return f"none of {len(self.originals)} originals of {self._plan.config.env} was solved.{first} {advice}."

    # ---- fill

    def _fill(
        self, learned: Sequence[Learned], explored: _Explored, guards: Guards, answers: Sequence[str]
    ) -> tuple[list[Task], int, Counter[Reason]]:
        """(tasks, fillings drawn, why others were left out)."""
        values = Values([one.template for one in learned], [one.fillings for one in learned], explored.attempts)
        screen = Screen(self.originals, answers)
        for attempt in explored.attempts:
            screen.add_calls(self.originals[attempt.original], attempt.calls)
        tasks: list[Task] = []
        dropped: Counter[Reason] = Counter()
        draw, barren = 0, 0
        while len(tasks) < self._plan.count and draw < DRAWS_FOR_EACH * self._plan.count and barren < BARREN:
            self._tell("filling templates", len(tasks), self._plan.count)
            made = self._drawn(draw, learned, values, screen, guards)
            draw, barren = draw + 1, barren + 1
            if isinstance(made, Reason):
                dropped[made] += 1
                continue
            screen.add(made.row, made.calls)
            tasks.append(made)
            barren = 0
        return tasks, draw, dropped

    def _drawn(
        self, draw: int, learned: Sequence[Learned], values: Values, screen: Screen, guards: Guards
    ) -> Task | Reason:
        rng = random.Random(f"fill|{self._plan.seed}|{draw}")
        one = rng.choice(learned)
        number = rng.choice(one.solved)
        filled = values.draw(one.template, rng)

        def make() -> dict[str, Any]:
            try:
                made = self._player.guarded(lambda: self._made(one, self.originals[number], filled, screen, guards))
            except EnvironmentTrouble as trouble:
                return {"reason": Reason.ENVIRONMENT.value, "trouble": str(trouble)}
            except (CallRefused, ValueError):
                made = Reason.CALL_FAILED
            if isinstance(made, Reason):
                return {"reason": made.value}
            row, calls, confirmed = made
            return {"row": row, "calls": [call_document(call) for call in calls], "confirmed": confirmed}

        value = self._journal.once("drawn", str(draw), make)
        if "reason" in value:
            self._trouble = self._trouble or value.get("trouble")
            return Reason(value["reason"])
        attempt = one.template.attempt
        return Task(
            row=value["row"],
            calls=tuple(call_of(call) for call in value["calls"]),
            answers=one.template.answer_fields,
            template=one.template.text,
            attempt=f"{attempt.original}/{attempt.by.value}/{attempt.place}",
            world=number,
            support=len(one.solved),
            confirmed=value["confirmed"],
            number=draw,
        )

    def _made(
        self, one: Learned, world: Row, filled: Sequence[str], screen: Screen, guards: Guards
    ) -> tuple[Row, tuple[Call, ...], bool] | Reason:
        """(row, reference calls, whether the class confirms it), or why not. Raises CallRefused, EnvironmentTrouble."""
        template, seed = one.template, self._plan.seed
        asked = fill_row(template, world, filled, ())
        if screen.repeats_words(asked):
            return Reason.DUPLICATE
        if guards.leak(asked) is not None:
            return Reason.LEAK
        calls, _ = perform(self._player, template, filled, asked, seed)
        row = fill_row(template, world, filled, [call.result.strip() for call in calls])
        if self._owner(row) is not Split.TRAIN:
            return Reason.OTHER_SPLIT
        repeated = screen.repeats(row, calls)
        if repeated is not None:
            return repeated
        for played in self._twice(row, calls):
            if played.calls != calls:
                return Reason.NOT_DETERMINISTIC
            if played.reward < FULL_REWARD:
                return Reason.NOT_SOLVED
        if self._player.play(row, [], seed).reward >= FULL_REWARD:
            return Reason.TRIVIAL
        confirmed = confirms(self._player, row, template)
        if confirmed is False:
            return Reason.UNCONFIRMED
        return row, calls, bool(confirmed)

    def _owner(self, row: Row) -> Split:
        """The split that the class gives a row to; train where it does not say. Raises EnvironmentTrouble."""
        if self._player.spec.owner is None:
            return Split.TRAIN
        try:
            return Split(self._player.spec.owner(copy.deepcopy(row)))
        except (Exception, SystemExit) as error:
            raise EnvironmentTrouble(f"owner: {type(error).__name__}: {error}") from error

    # ---- write

    def _write(
        self,
        tasks: Sequence[Task],
        learned: Sequence[Learned],
        explored: _Explored,
        answers: Sequence[str],
        draws: int,
        no_templates: Counter[Reason],
        no_tasks: Counter[Reason],
        guarded: int,
    ) -> Manifest:
        lines = b"".join(_line(task.row) for task in tasks)
        told = b"".join(_line(task.provenance(number, self._plan.seed)) for number, task in enumerate(tasks))
        write_bytes_atomic(self._folder.tasks_path, lines)
        write_bytes_atomic(self._folder.provenance_path, told)
        manifest = Manifest(
            set_id=self._plan.set_id,
            env=self._plan.config.env,
            explorer=self._plan.explorer,
            model=self._plan.model,
            seed=self._plan.seed,
            asked=self._plan.count,
            kept=len(tasks),
            digest=hashlib.sha256(lines).hexdigest(),
            answers=list(answers),
            tools={tool.name: [one.name for one in tool.arguments] for tool in self._profile.tools},
            fields=list(self._profile.keys),
            originals=len(self.originals),
            solved=explored.solved,
            found_by=_counts(Counter(one.by for one in explored.attempts)),
            templates=len(learned),
            confirmed=sum(task.confirmed for task in tasks),
            draws=draws,
            dropped={
                "attempts": _counts(explored.dropped),
                "templates": _counts(no_templates),
                "tasks": _counts(no_tasks),
            },
            guarded=guarded,
        )
        write_json_atomic(self._folder.manifest_path, manifest.model_dump(mode="json"))
        return manifest


def originals_of(plan: GenerationPlan, world: World) -> Tasks:
    """The training problems to explore, with the validation and test problems to guard. Raises DataFault."""
    sizes = {"problems": plan.originals, "batch_size": 1, "examples": 0}
    return world.tasks(plan.config.on_originals().model_copy(update=sizes))


def _line(document: Any) -> bytes:
    return encoded(json.dumps(document, ensure_ascii=False, allow_nan=False, default=str)) + b"\n"


def _counts(counter: Counter[Any]) -> dict[str, int]:
    return {str(name.value): counter[name] for name in sorted(counter, key=str)}


def _told(dropped: Counter[Reason]) -> str:
    return ", ".join(f"{reason.value.replace('_', ' ')} {count}" for reason, count in dropped.most_common()) or "none"
