"""Values of talking to a model: what the process is started with, one question, one answer."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainer.config import TrainingConfig
from trainer.runs.types import Failure

MAX_PROBLEM = 99_999
"""Highest number of a problem that can be asked."""


class ChatPlan(BaseModel):
    """Which model, in which environment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    config: TrainingConfig
    """Environment, limits, device, seed."""
    temperature: float = Field(default=1.0, gt=0, le=10)


class ChatQuestion(BaseModel):
    """What the model is to answer: a conversation, or a problem of the environment's test split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: list[dict[str, Any]] = Field(default_factory=list)
    """Without the system message, which the environment brings."""
    problem: int | None = Field(default=None, ge=0, le=MAX_PROBLEM)
    """Number of a test problem, from 0; its prompt is asked and its answer graded."""
    turn: int = Field(default=0, ge=0)
    """Makes the random numbers of a second try others."""


class ChatAnswer(BaseModel):
    """What happened."""

    prompt: list[dict[str, Any]]
    """The conversation as the model got it."""
    messages: list[dict[str, Any]]
    """What followed: the model's turns, tool calls included, and the tools' answers."""
    stop_reason: str
    turns: int
    tool_calls: int
    tokens: int
    reward: float | None = None
    """Of a problem of the environment; a free question has no right answer that is known."""
    error: str | None = None
    seconds: float


class ChatReply(BaseModel):
    """One line of the process."""

    ready: bool = False
    """The first line of a process that came up."""
    device: str | None = None
    answer: ChatAnswer | None = None
    failure: Failure | None = None
