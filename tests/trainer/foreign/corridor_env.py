"""An OpenEnv environment as its project's template lays one out: models, client, server-side class."""

import os
from typing import Annotated, Any, ClassVar, Literal

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class CorridorAction(Action):
    """Walk through the corridor."""

    direction: Literal["east", "west"] = Field(..., description="Where to go")
    steps: int = Field(default=1, ge=1, description="How many steps")


class CorridorObservation(Observation):
    text: str = Field(default="", description="What you see")


class CorridorEnv(EnvClient[CorridorAction, CorridorObservation, State]):
    """Client of the corridor."""

    def _step_payload(self, action: CorridorAction) -> dict:
        return {"direction": action.direction, "steps": action.steps}

    def _parse_result(self, payload: dict) -> StepResult[CorridorObservation]:
        data = payload.get("observation", {})
        observation = CorridorObservation(
            text=data.get("text", ""), done=payload.get("done", False), reward=payload.get("reward")
        )
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict) -> State:
        return State(episode_id=payload.get("episode_id"), step_count=payload.get("step_count", 0))


def connected() -> CorridorEnv:
    return CorridorEnv(base_url=os.environ["CORRIDOR_URL"])


def connected_sync() -> Any:
    return CorridorEnv(base_url=os.environ["CORRIDOR_URL"]).sync()


class OpenDoorAction(Action):
    """Open a door."""

    type: Literal["open_door"] = "open_door"
    door: int = Field(..., description="Number of the door")


class WaitAction(Action):
    """Do nothing."""

    type: Literal["wait"] = "wait"


DoorAction = Annotated[OpenDoorAction | WaitAction, Field(discriminator="type")]


class DoorObservation(Observation):
    open: int = 0
    closed: list[int] = Field(default_factory=list)


class Doors(Environment[DoorAction, DoorObservation, State]):
    """The server-side class, played in the process."""

    tool_timeouts: ClassVar[dict[str, float]] = {"open_door": 30}

    def __init__(self) -> None:
        self._state = State(episode_id="e", step_count=0)

    def reset(self, seed: int | None = None) -> DoorObservation:
        self._state = State(episode_id="e", step_count=0)
        self._closed = [1, 2] if (seed or 0) % 2 else [1, 2, 3]
        return DoorObservation(open=0, closed=self._closed)

    def step(self, action: DoorAction) -> DoorObservation:
        self._state.step_count += 1
        if isinstance(action, WaitAction):
            return DoorObservation(open=0, closed=self._closed, reward=-0.25)
        if action.door not in self._closed:
            raise ValueError(f"door {action.door} is not closed")
        self._closed = [door for door in self._closed if door != action.door]
        return DoorObservation(open=action.door, closed=self._closed, reward=0.5, done=not self._closed)

    @property
    def state(self) -> State:
        return self._state


class Untyped(EnvClient[dict[str, Any], dict[str, Any], dict[str, Any]]):
    def _step_payload(self, action: dict) -> dict:
        return action

    def _parse_result(self, payload: dict) -> StepResult[dict]:
        return StepResult(payload)

    def _parse_state(self, payload: dict) -> dict:
        return payload
