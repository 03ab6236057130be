"""Lessons in prompts: two renderings, the control share, outcomes fed back, faults that cost nothing but lessons."""

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_grpo import make

from trainer.config import TrainingConfig
from trainer.envs import registry
from trainer.envs.house_rules import expression
from trainer.experience.block import TEMPLATE
from trainer.experience.leaks import LeakError
from trainer.experience.pool import ExperiencePool, pool_path
from trainer.experience.problems import ExperienceError, ProblemKind
from trainer.experience.records import SLOTTED, ExperienceRecord, Status
from trainer.experience.run_pool import RunPool
from trainer.experience.training import ExperienceRun
from trainer.models.load import LoadedModel
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.episode_file import episode_line
from trainer.rollout.types import Episode, EpisodeRequest, Guidance, Limits
from trainer.tasks import Tasks, build_tasks, group_requests

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")

HOUSES: dict[str, Any] = {
    "env": "house_rules",
    "env_args": {"houses": "fixed", "count": 2},
    "problems": 8,
    "batch_size": 2,
    "num_generations": 4,
    "test_problems": 8,
    "validation_problems": 8,
}
LESSON = "For a task like: In house 123, what is x @ y? use calculate with x + y, then finish with its result."


# ---- two renderings


def played(tiny: LoadedModel, messages: list[dict[str, Any]], guidance: Guidance | None) -> tuple[Episode, Any]:
    engine = RolloutEngine(
        tiny.model, tiny.tokenizer, registry.load("calculator"), Limits(max_completion_tokens=6), seed=1
    )
    request = EpisodeRequest(messages, {"answer": "5"}, 0, 0, 0, guidance)
    return engine.run([request], 1.0)[0], engine.renderer


@pytest.mark.parametrize("strip", [True, False])
def test_a_guided_attempt_has_two_renderings(tiny: LoadedModel, strip: bool) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 3?"}]
    episode, renderer = played(tiny, messages, Guidance(LESSON, ("a",), strip))
    plain = renderer.prompt_ids(messages)
    assert episode.injected
    assert episode.messages[1]["content"] == "What is 2 + 3?" + TEMPLATE.format(LESSON)
    assert messages[1]["content"] == "What is 2 + 3?"
    assert episode.prompt_ids == renderer.prompt_ids(episode.messages[:2]) != plain
    assert episode.plain_prompt_ids == plain
    assert episode.training_prompt_ids == (plain if strip else episode.prompt_ids)
    assert episode.stripped == strip
    line = episode_line(1, 0, episode)
    assert (line["injected"], line["stripped"], line["experience_ids"]) == (True, strip, ["a"])
    assert (line["prompt_ids"], line["plain_prompt_ids"]) == (episode.prompt_ids, plain)
    assert line["prompt"] == "What is 2 + 3?"


def test_marks_inside_a_lesson_do_no_harm(tiny: LoadedModel) -> None:
    """The published strip by a regular expression ends at the first </EXP>; here nothing is searched for."""
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    episode, renderer = played(tiny, messages, Guidance("a</EXP>b <EXP> c", (), strip=True))
    assert episode.training_prompt_ids == renderer.prompt_ids(messages)


def test_what_was_not_shown_is_not_injected(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    user = [{"role": "user", "content": "What is 2 + 3?"}]
    empty, _ = played(tiny, user, Guidance("", ("a",), strip=True))
    nobody, _ = played(tiny, [{"role": "system", "content": "2 + 3"}], Guidance(LESSON, ("a",), strip=True))
    shortens = lambda self, messages: "user: " + messages[-1]["content"][:20]  # noqa: E731
    monkeypatch.setattr("trainer.rollout.rendering.Renderer.prompt_text", shortens)
    cut, _ = played(tiny, user, Guidance(LESSON, ("a",), strip=True))
    for episode in (empty, nobody, cut):
        assert not episode.injected
        assert not episode.stripped
        assert episode.training_prompt_ids == episode.prompt_ids
        assert all("<EXP>" not in message["content"] for message in episode.messages)
        assert not episode_line(1, 0, episode)["injected"]


def test_an_attempt_without_lessons_writes_what_it_always_did(tiny: LoadedModel) -> None:
    episode, _ = played(tiny, [{"role": "user", "content": "What is 2 + 3?"}], None)
    assert not {"injected", "prompt_ids", "experience_ids"} & set(episode_line(1, 0, episode))


# ---- a run's lessons, without a model


def configured(tmp_path: Path, **section: Any) -> tuple[TrainingConfig, Tasks]:
    config = TrainingConfig.model_validate(HOUSES | {"experience": {"preset": "ei"} | section})
    return config, build_tasks(config, registry.load(config.env), tmp_path)


def opened(run: Path, config: TrainingConfig, tasks: Tasks) -> ExperienceRun:
    assert config.experience is not None
    return ExperienceRun(config, tasks, RunPool(config.experience, run, config.env), "run", None)


def recipe(row: dict[str, Any], **fields: Any) -> ExperienceRecord:
    """A right lesson for the house of a task."""
    meaning = expression(row["house"], 71, 73).replace("71", "x").replace("73", "y")
    return ExperienceRecord(
        f"In house {row['house']}, what is x @ y?",
        f"use calculate with {meaning}, then finish with its result",
        **{"status": Status.ACTIVE, "family": "house_rules", "tags": (SLOTTED,)} | fields,
    )


def teach(run: Path, rows: Sequence[dict[str, Any]], **fields: Any) -> dict[int, str]:
    """A pool with a lesson for each house; the ids by house."""
    ids = {}
    with ExperiencePool(pool_path(run, "default"), create=True) as pool:
        for row in rows:
            if row["house"] not in ids:
                ids[row["house"]] = pool.add(recipe(row, **fields)).record.id
    return ids


def groups_of(tasks: Tasks, count: int = 2, size: int = 4) -> list[list[EpisodeRequest]]:
    return [group_requests(tasks.train[task], None, task, 0, size) for task in range(count)]


def outcome(request: EpisodeRequest, reward: float, *, shown: bool = True) -> Episode:
    plain = [1, 2] if request.guidance is not None and shown else None
    return Episode(request, [1, 2, 3], plain, completion_ids=[4], mask=[1], logprobs=[-1.0], reward=reward)


def test_a_share_of_each_group_is_guided_and_outcomes_are_fed_back(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path)
    ids = teach(tmp_path, tasks.train)
    run = opened(tmp_path, config, tasks)
    groups = run.guided(groups_of(tasks), step=1)
    for task, group in enumerate(groups):
        house = tasks.train[task]["house"]
        guided = [one for one in group if one.guidance is not None]
        assert len(guided) == 2
        for one in guided:
            assert one.guidance is not None
            assert one.guidance.record_ids == (ids[house],)
            assert f"house {house}" in one.guidance.text
            assert one.guidance.strip
    # guided attempts win, of the unguided only the first of each group
    episodes, firsts = [], set()
    for one in (request for group in groups for request in group):
        first = one.guidance is None and one.task not in firsts
        firsts |= {one.task} if first else set()
        episodes.append(outcome(one, float(one.guidance is not None or first)))
    line = run.settle(1, episodes)
    assert line == {
        "guided": 4,
        "guided_stripped": 4,
        "reward_guided": 1.0,
        "reward_unguided": 0.5,
        "uplift": 0.5,
        "experience_failed": 0,
    }
    run.close()
    with ExperiencePool(pool_path(tmp_path, "default")) as pool:
        counters = [pool.find(one).counters for one in set(ids.values())]
    assert sum(one.used for one in counters) == sum(one.won for one in counters) == 4
    assert (sum(one.control_won for one in counters), sum(one.control_lost for one in counters)) == (2, 2)
    assert sum(one.lost for one in counters) == 0
    told = run.document()["told"]
    assert (told["planned"], told["injected"], told["guided"], told["control"]) == (4, 4, 4, 4)
    assert told["uplift"] == 0.5
    assert told["uplift_ci95"][0] < 0.5 < told["uplift_ci95"][1]


def test_an_attempt_that_did_not_show_its_lesson_counts_for_nobody(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path)
    ids = teach(tmp_path, tasks.train)
    run = opened(tmp_path, config, tasks)
    requests = [one for group in run.guided(groups_of(tasks), 1) for one in group]
    line = run.settle(1, [outcome(one, 1.0, shown=False) for one in requests])
    assert "uplift" not in line
    assert "reward_guided" not in line
    assert line["guided"] == 0
    run.close()
    assert run.told.not_shown == 4
    with ExperiencePool(pool_path(tmp_path, "default")) as pool:
        assert sum(pool.find(one).counters.used for one in set(ids.values())) == 0


def test_hybrid_keeps_the_lessons_of_a_share_of_the_tasks(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path, preset="het")
    teach(tmp_path, tasks.train)
    run = opened(tmp_path, config, tasks)
    groups = run.guided(groups_of(tasks, 8), 1)
    strips = [{one.guidance.strip for one in group if one.guidance is not None} for group in groups]
    assert all(len(one) == 1 for one in strips)
    assert sum(one == {False} for one in strips) == 4
    run.close()


def test_a_lesson_on_trial_is_alone_and_can_leave_quarantine(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path, train_sample_mode="alldiscard")
    ids = teach(tmp_path, tasks.train, status=Status.QUARANTINED)
    run = opened(tmp_path, config, tasks)
    for step in range(1, 4):
        groups = run.guided(groups_of(tasks), step)
        requests = [one for group in groups for one in group]
        guided = [one for one in requests if one.guidance is not None]
        assert all(one.guidance is not None and len(one.guidance.record_ids) == 1 for one in guided)
        assert guided
        run.settle(step, [outcome(one, float(one.guidance is not None)) for one in requests])
    assert run.for_validation(groups_of(tasks)[0]) == groups_of(tasks)[0]  # val_rollout_mode woexp
    run.close()
    with ExperiencePool(pool_path(tmp_path, "default")) as pool:
        tried = {pool.find(ids[tasks.train[task]["house"]]).status for task in (0, 1)}
    assert tried == {Status.ACTIVE}


def test_the_validation_with_lessons_uses_active_ones_only(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path, val_rollout_mode="all")
    teach(tmp_path, tasks.train[:1])
    run = opened(tmp_path, config, tasks)
    house = tasks.train[0]["house"]
    requests = [group_requests(row, None, i, 0, 1)[0] for i, row in enumerate(tasks.validation)]
    for row, request in zip(tasks.validation, run.for_validation(requests), strict=True):
        assert (request.guidance is not None) == (row["house"] == house)
    run.close()


# ---- where lessons come from


def wins(requests: Sequence[EpisodeRequest]) -> list[Episode]:
    """Attempts by the book: the first of a group and guided ones are right, others multiply."""
    episodes = []
    for one in requests:
        right = (one.generation == 0 and one.occurrence == 1_000_000) or one.guidance is not None
        found = re.search(r"(\d+) @ (\d+)", one.messages[-1]["content"])
        assert found is not None
        a, b = int(found[1]), int(found[2])
        written = expression(one.row["house"], a, b) if right else f"{a} * {b} - {a}"
        value = one.row["answer"] if right else str(a * b - a)
        messages = [*one.messages]
        for tool, arguments, result in (
            ("calculate", {"expression": written}, value),
            ("finish", {"answer": value}, "done"),
        ):
            function = {"name": tool, "arguments": arguments}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
                {"role": "tool", "content": result},
            ]
        episodes.append(replace(outcome(one, float(value == one.row["answer"])), messages=messages))
    return episodes


def test_the_pool_is_filled_from_training_problems_and_lessons_are_tried(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path)
    run = opened(tmp_path, config, tasks)
    asked: list[EpisodeRequest] = []

    def play(requests: list[EpisodeRequest]) -> list[Episode]:
        asked.extend(requests)
        return wins(requests)

    filled = run.fill(play)
    training = {row["prompt"] for row in tasks.train}
    assert {one.messages[-1]["content"] for one in asked} <= training
    assert filled.problem is None
    assert filled.attempts == 8 * 4
    assert filled.lessons > 0
    assert filled.tried > 0
    assert filled.promoted > 0
    run.close()
    with ExperiencePool(pool_path(tmp_path, "default")) as pool:
        active = list(pool.store.iterate((Status.ACTIVE,)))
        assert len(active) >= filled.promoted
        known = {one.prompt for one in pool.store.guards()}
        assert len(known) == len({row["prompt"].lower().strip(".?") for row in (*tasks.validation, *tasks.test)})


def test_a_training_set_that_shares_a_problem_with_an_evaluation_is_refused(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path)
    shared = replace(tasks, validation=[*tasks.validation, tasks.train[3]])
    with pytest.raises(LeakError, match="training problem"):
        opened(tmp_path, config, shared)


def test_a_pool_that_must_exist_is_asked_for_before_training(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path, preset="existing_train")
    with pytest.raises(ExperienceError, match="no pool 'default'"):
        opened(tmp_path, config, tasks)


def test_lessons_are_made_beside_the_steps_and_never_hold_one_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, tasks = configured(tmp_path, preset="init_train_update", updated_freq=2)
    go, taken = threading.Event(), threading.Event()
    original = ExperienceRun._lessons_of

    def slow(self: ExperienceRun, attempts: Sequence[Any]) -> Any:
        taken.set()
        go.wait(600)
        return original(self, attempts)

    monkeypatch.setattr(ExperienceRun, "_lessons_of", slow)
    run = opened(tmp_path, config, tasks)
    episodes = wins([one for group in groups_of(tasks, 8) for one in group])
    for step in range(1, 21):  # ten batches; one is worked on, four wait; no step waits for them
        run.settle(step, episodes)
        assert step == 1 or taken.wait(600)
    told = run.document()["distilled"]
    assert (told["batches"], told["dropped"]) == (0, {"queue_full": 5})
    go.set()
    run.close()
    told = run.document()["distilled"]
    assert told["batches"] + sum(told["dropped"].values()) == 10
    assert told["batches"] >= 1
    assert told["attempts"] == told["batches"] * 32


# ---- faults


def test_a_pool_that_breaks_costs_lessons_and_nothing_else(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path)
    teach(tmp_path, tasks.train)
    run = opened(tmp_path, config, tasks)
    path = pool_path(tmp_path, "default")
    good = path.read_bytes()
    path.write_bytes(b"not a database" * 1000)
    groups = run.guided(groups_of(tasks), 1)
    requests = [one for group in groups for one in group]
    assert all(one.guidance is None for one in requests)
    line = run.settle(1, [outcome(one, 1.0) for one in requests])
    assert (line["guided"], line["experience_failed"]) == (0, 2)
    assert run.told.problems == 4
    assert run.document()["problems"] == {str(ProblemKind.CORRUPT): 2}
    (trouble,) = run.troubles()
    assert "4 of 4 attempts" in trouble
    assert "corrupt 2 times" in trouble
    path.write_bytes(good)  # put right: used again with the next question
    assert any(one.guidance for group in run.guided(groups_of(tasks), 2) for one in group)
    run.close()


def test_a_service_that_is_down_costs_lessons_and_nothing_else(tmp_path: Path) -> None:
    config, tasks = configured(tmp_path, reme={"base_url": "http://127.0.0.1:9"})
    run = opened(tmp_path, config, tasks)
    filled = run.fill(wins)
    assert filled.problem is not None
    requests = [one for group in run.guided(groups_of(tasks), 1) for one in group]
    assert all(one.guidance is None for one in requests)
    assert run.settle(1, [outcome(one, 1.0) for one in requests])["experience_failed"] == 2
    run.close()
    assert run.document()["problems"][str(ProblemKind.UNREACHABLE)] == 2


# ---- with the trainer


def test_a_step_trains_stripped_rows_on_the_prompt_without_lessons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = {"preset": "ei", "experience_old_logps": "behaviour"}
    trainer, record = make(tmp_path, **HOUSES | {"max_steps": 1, "experience": section, "beta": 0.01})
    teach(tmp_path, trainer.tasks.train)
    trainer.experience = opened(tmp_path, trainer.settings, trainer.tasks)
    batches: list[dict[str, Any]] = []
    original = type(trainer)._without_dead_rows

    def seen(self: Any, output: dict[str, Any]) -> dict[str, Any]:
        batches.append({"ids": output["prompt_ids"].clone(), "mask": output["prompt_mask"].clone()})
        return original(self, output)

    monkeypatch.setattr(type(trainer), "_without_dead_rows", seen)
    trainer.train()
    (line,), (episodes,) = record.lines, record.episodes
    assert line["guided"] == line["guided_stripped"] == 4
    assert {"clip_on", "clip_off", "ratio_used", "ratio_behaviour", "ess_stripped"} <= set(line)
    assert line["ratio_used"] == line["ratio_behaviour"] != 1
    for row, episode in enumerate(episodes):
        ids = batches[0]["ids"][row][batches[0]["mask"][row].bool()].tolist()
        assert ids == episode.training_prompt_ids
        assert ids == (episode.plain_prompt_ids if episode.injected else episode.prompt_ids)
    trainer.experience.close()
