"""Classes written for TRL's `environment_factory` play unchanged, with TRL's reward functions and with ours."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.envs import registry
from trainer.envs.base import EnvironmentFault
from trainer.rollout.types import StopReason

FOREIGN = Path(__file__).parent / "foreign"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("trl_classes", None)


def load(name: str) -> Any:
    return registry.load(f"python:trl_classes:{name}", (FOREIGN,))


def function(name: str) -> Any:
    return registry.load_object(f"python:trl_classes:{name}", (FOREIGN,))


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


GUESSES = [call("guess", word="crown"), call("guess", word="crane"), "crane"]


def test_a_class_without_get_reward_plays_with_trls_reward_function(scripted) -> None:
    spec = load("WordGame")
    assert (spec.tools, spec.grades) == (("guess",), False)
    episodes, _ = scripted([GUESSES, ["I give up"]], spec, reward=function("reward_from_state"), level="easy")
    assert [e.reward for e in episodes] == [1.0, 0.0]
    assert [e.stop_reason for e in episodes] == [StopReason.COMPLETED] * 2
    messages = episodes[0].messages
    assert messages[0]["content"].endswith("Guess a word of 5 letters.")
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["GGXXX", "GGGGG"]


def test_the_error_of_a_tool_is_what_the_model_reads(scripted) -> None:
    turns = [call("guess", word="crane"), call("guess", word="again"), call("guess", word="crane"), "x"]
    (episode,), _ = scripted([turns], load("WordGame"), reward=function("reward_from_state"))
    assert [m["content"] for m in episode.messages if m["role"] == "tool"][1] == "Error: Game over."
    assert episode.tool_errors == 2


def test_without_any_reward_the_run_ends_before_the_first_episode(scripted) -> None:
    with pytest.raises(EnvironmentFault, match=r"no method `get_reward`.*set reward=python:module:function"):
        scripted([GUESSES], load("WordGame"))


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("reward_from_state", 1.0),
        ("slow_reward", 2.0),
        ("reward_from_text", 0.0),
        ("reward_without_kwargs", 1.0 + 5.0),  # one message in the prompt; two calls, two answers and the last word
    ],
)
def test_reward_functions_of_trls_kinds(scripted, name: str, reward: float) -> None:
    (episode,), _ = scripted([GUESSES], load("WordGame"), reward=function(name), level="easy")
    assert (episode.reward, episode.error) == (reward, None)


def test_a_column_of_the_row_reaches_the_reward_function(scripted) -> None:
    (episode,), _ = scripted([["that was easy"]], load("WordGame"), reward=function("reward_from_text"), level="easy")
    assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("name", "words"),
    [("forgetful_reward", "returned None"), ("greedy_reward", "must return one reward for each completion")],
)
def test_a_reward_function_that_gives_no_reward_costs_the_episode_only(scripted, name: str, words: str) -> None:
    (episode,), _ = scripted([GUESSES], load("WordGame"), reward=function(name))
    assert episode.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert words in episode.error


def test_our_own_reward_functions_see_the_users_object(scripted) -> None:
    seen = []

    def ours(episode, environment) -> float:
        seen.append(type(environment).__name__)
        return environment.calls / 10

    def of_the_episode(episode) -> float:
        return float(episode.turns)

    (episode,), _ = scripted([[call("read", door=2), "gold"]], load("AsyncLookup"), reward=ours)
    assert (episode.reward, seen) == (0.1, ["AsyncLookup"])
    (episode,), _ = scripted([GUESSES], load("WordGame"), reward=of_the_episode)
    assert episode.reward == 3.0
    (episode,), _ = scripted([GUESSES], load("WordGame"), reward=lambda e, env, weight=2: weight * env.reward)
    assert episode.reward == 2.0


def test_a_function_of_neither_kind_is_refused_with_both_forms(scripted) -> None:
    with pytest.raises(EnvironmentFault, match=r"function\(episode, environment\).*TRL's function"):
        scripted([GUESSES], load("WordGame"), reward=lambda a, b, c: 0.0)


def test_a_reset_that_names_the_prompt_gets_it(scripted) -> None:
    spec = load("Counter")
    assert spec.takes_prompt
    episodes, _ = scripted([[call("increment", amount=2), "2"], ["0"]], spec)  # the prompt is What is 2 + 3?
    assert [e.reward for e in episodes] == [1.0, 0.0]
    (episode,), _ = scripted([["3"]], spec, start=3)
    assert episode.reward == 1.0


def test_a_factory_is_as_good_as_a_class(scripted) -> None:
    spec = load("make_counter")
    (episode,), _ = scripted([[call("increment", amount=2), "2"]], spec)
    assert (spec.tools, episode.reward) == (("increment",), 1.0)


def test_asynchronous_tools_answer_in_the_order_of_the_calls(scripted) -> None:
    calls = [call("read", door=2), call("read_both"), call("read", door=9), call("read", door=1)]
    (episode,), _ = scripted([["\n".join(calls), "gold"]], load("AsyncLookup"))
    answers = [m["content"] for m in episode.messages if m["role"] == "tool"]
    assert answers == ["gold", "lead, gold", "Error: there is no door 9", "lead"]
    assert episode.reward == 5.0
    assert episode.messages[0]["content"].endswith("The vault has two doors.")


def test_the_descriptions_are_the_authors_own() -> None:
    from trainer.rollout.rendering import tool_schemas

    read, both = (schema["function"] for schema in tool_schemas(load("AsyncLookup")))
    assert (read["name"], both["name"]) == ("read", "read_both")
    assert read["description"] == "Read what stands on a door."
    assert read["parameters"]["properties"]["door"] == {
        "type": "integer",
        "description": "Number of the door, from 1.",
    }
    (guess,) = (schema["function"] for schema in tool_schemas(load("WordGame")))
    assert guess["parameters"]["required"] == ["word"]


def test_trl_finds_the_same_tools() -> None:
    """TRL's own rule: every public function of the class but reset and get_reward."""
    import inspect

    for name in ("WordGame", "Counter", "AsyncLookup"):
        members = dict(inspect.getmembers(function(name), inspect.isfunction))
        theirs = [m for m in members if not m.startswith("_") and m not in ("reset", "get_reward")]
        assert load(name).tools == tuple(theirs)


def test_the_examples_of_the_documentation_work(scripted) -> None:
    import re

    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"PRICES": {"tea": "3"}}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    from trainer.envs.base import EnvironmentSpec

    spec = EnvironmentSpec.of("shop", names["Shop"])
    turns = [call("price", item="tea"), call("finish", answer="5")]
    (episode,), _ = scripted([turns], spec)
    assert (episode.reward, episode.stop_reason) == (1.0, StopReason.FINISHED)

    class Till(names["Shop"]):
        sold, total = True, "5"

    for reward in (names["my_reward"], names["trl_reward"]):
        (episode,), _ = scripted([turns], EnvironmentSpec.of("till", Till), reward=reward)
        assert (episode.reward, episode.error) == (1.0, None)
