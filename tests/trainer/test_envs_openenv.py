"""OpenEnv's classes load and play unchanged: with the installed package where there is one, and with a stand-in."""

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trainer.envs import openenv, registry
from trainer.envs.base import EnvironmentFault, Split
from trainer.rollout.rendering import tool_schemas
from trainer.rollout.types import StopReason

FOREIGN = Path(__file__).parent / "foreign"
INSTALLED = find_spec("openenv") is not None
MINE = ("corridor_env", "corridor_server", "openenv")


def _forget() -> None:
    for name in [n for n in sys.modules if n.split(".")[0] in MINE]:
        del sys.modules[name]


@pytest.fixture(
    params=[
        "stand-in",
        pytest.param(
            "installed",
            marks=pytest.mark.skipif(
                not INSTALLED, reason="OpenEnv is not installed (pip install 'mcp-evo[openenv]', about 200 MB)"
            ),
        ),
    ]
)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which `openenv` the environment's own code imports."""
    _forget()
    first = [str(FOREIGN / "openenv_stub")] if request.param == "stand-in" else []
    monkeypatch.setattr(sys, "path", [*first, *sys.path, str(FOREIGN)])
    yield request.param
    _forget()


@pytest.fixture
def server(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(url, messages that came) of a running server."""
    import corridor_server

    log: list[dict[str, Any]] = []
    with (corridor_server.json_lines if library == "stand-in" else corridor_server.web_socket)(log) as url:
        monkeypatch.setenv("CORRIDOR_URL", url)
        yield url, log


def load(name: str, **env_args: Any) -> Any:
    return registry.load(f"python:corridor_env:{name}", (FOREIGN,), env_args)


def step(**arguments: object) -> str:
    return call("step", **arguments)


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def answers(episode: Any) -> list[str]:
    return [m["content"] for m in episode.messages if m["role"] == "tool"]


# the seed of the task is 1 in `scripted` (run seed 1, task 0), so the treasure is two steps away
WALK = [step(direction="east"), step(direction="west", steps=1), step(direction="east", steps=2), "never said"]


@pytest.mark.parametrize("form", ["CorridorEnv", "connected", "connected_sync"])
def test_a_client_plays_whole_episodes(scripted, server, form: str) -> None:
    url, log = server
    spec = load(form, **({"base_url": url} if form == "CorridorEnv" else {}))
    assert spec.tools == ("step",)
    log.clear()
    episodes, _ = scripted([WALK, ["I stay here."]], spec, level="low")
    assert answers(episodes[0]) == ["You are at 1.", "You are at 0.", "gold"]
    assert episodes[0].reward == pytest.approx(0.1 + 0.1 + 1.0)
    assert [e.stop_reason for e in episodes] == [StopReason.FINISHED, StopReason.COMPLETED]
    assert episodes[0].messages[0]["content"].endswith("The treasure is 2 steps to the east.")
    assert episodes[1].reward == 0.0
    resets = [message["data"] for message in log if message["type"] == "reset"]
    assert resets == [{"seed": 1, "answer": "5", "level": "low"}] * 2  # a group begins alike; columns reach the server
    assert next(m["data"] for m in log if m["type"] == "step") == {"direction": "east", "steps": 1}


def test_the_last_reward_can_count_alone(scripted, server) -> None:
    (episode,), _ = scripted([WALK], load("connected", episode_reward="last"))
    assert episode.reward == 1.0


def test_refused_actions_are_answered_and_a_lost_connection_spoils_the_episode(scripted, server) -> None:
    turns = [
        [step(direction="up"), step(direction="east", steps=9), step(direction="east", steps=2)],
        [step(direction="east", steps=13), "what was that?"],
    ]
    episodes, _ = scripted(turns, load("connected"))
    wrong, refused, found = answers(episodes[0])
    assert wrong.startswith("Error: wrong arguments: direction: ")
    assert "the corridor is short" in refused
    assert (found, episodes[0].reward) == ("gold", 1.0)
    assert episodes[1].stop_reason is StopReason.ENVIRONMENT_ERROR  # masked: no evidence about the model
    assert not episodes[1].valid


def test_a_server_that_is_not_there_costs_the_episode_quickly(scripted, library) -> None:
    (episode,), _ = scripted([WALK], load("CorridorEnv", base_url="http://127.0.0.1:9"))
    assert episode.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert episode.error.startswith("reset: Connection")


def test_the_tool_describes_the_action(library) -> None:
    (schema,) = tool_schemas(load("CorridorEnv", base_url="http://127.0.0.1:9"))
    assert schema["function"]["description"] == "Walk through the corridor."
    parameters = schema["function"]["parameters"]
    assert parameters["required"] == ["direction"]
    assert parameters["properties"]["direction"]["enum"] == ["east", "west"]
    assert parameters["properties"]["steps"] == {"type": "integer", "description": "How many steps"}


def test_a_server_side_class_with_several_actions_plays_in_the_process(scripted, library) -> None:
    spec = load("Doors")
    assert spec.tools == ("open_door", "wait")
    assert spec.timeouts == {"open_door": 30.0}
    turns = [call("wait"), call("open_door", door=3), call("open_door", door=2), call("open_door", door=1)]
    (episode,), _ = scripted([turns], spec)
    assert answers(episode) == [
        '{"open": 0, "closed": [1, 2]}',
        "Error: door 3 is not closed",
        '{"open": 2, "closed": [1]}',
        '{"open": 1, "closed": []}',
    ]
    assert (episode.reward, episode.stop_reason) == (0.75, StopReason.FINISHED)
    assert {s["function"]["name"]: s["function"]["parameters"]["properties"] for s in tool_schemas(spec)} == {
        "open_door": {"door": {"type": "integer", "description": "Number of the door"}},
        "wait": {},
    }


def test_problems_are_seeds_and_no_seed_stands_in_two_splits(library) -> None:
    spec = load("Doors", prompt="Open all doors.")
    parts = [spec.tasks(split, 50, 3, "mixed", prompt="Open all doors.") for split in Split]
    assert {row["prompt"] for part in parts for row in part} == {"Open all doors."}
    assert len({row["seed"] for part in parts for row in part}) == 150


@pytest.mark.parametrize(
    ("name", "env_args", "words"),
    [
        ("CorridorEnv", {}, r"needs base_url. Set env_args.base_url=http"),
        ("CorridorEnv", {"base_url": "http://x", "port": 3}, r"env_args.port is no argument of CorridorEnv"),
        ("CorridorEnv", {"base_url": "http://x", "episode_reward": "mean"}, r"'mean' is not allowed; use sum or last"),
        ("Untyped", {"base_url": "http://x"}, r"no typed action"),
    ],
)
def test_what_is_missing_is_said(library, name: str, env_args: dict, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        load(name, **env_args)


def test_a_class_with_a_step_of_its_own_is_no_openenv_environment() -> None:
    class Walker:
        state = "any"

        def reset(self, **row: object) -> None: ...

        def step(self, action: str) -> str:
            """Step."""
            return action

    assert not openenv.is_openenv(Walker)
