"""Values of a rollout: what is asked for, what bounds it, what comes back.

Axis names: B episodes of a step, T tokens of a completion, V vocabulary.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Message = dict[str, Any]


class StopReason(StrEnum):
    """Why an episode ended."""

    FINISHED = "finished"
    """The environment said so: an answer was submitted."""
    COMPLETED = "completed"
    """The model ended its turn without calling a tool."""
    MAX_TURNS = "max_turns"
    """The model had all its turns."""
    MAX_TOKENS = "max_tokens"
    """The completion reached its cap (also: the next observation would not fit)."""
    PARSE_ERRORS = "parse_errors"
    """Too many calls in a row that could not be read."""
    MAX_SECONDS = "max_seconds"
    """The episode took longer than it may."""
    TOOL_TIMEOUT = "tool_timeout"
    """A tool did not answer in time."""
    ENVIRONMENT_ERROR = "environment_error"
    """reset, get_reward or the reward function raised, or the reward is no finite number: no evidence, masked."""

    @property
    def is_truncation(self) -> bool:
        return self in (StopReason.MAX_TOKENS, StopReason.MAX_TURNS, StopReason.MAX_SECONDS)


@dataclass(frozen=True)
class Limits:
    """Bounds of one episode."""

    max_completion_tokens: int = 256
    """Tokens after the prompt, the environment's included."""
    max_turns: int = 4
    max_calls_per_turn: int = 8
    """Further calls of a turn are answered with an error, in order."""
    max_parse_errors: int = 2
    """Unreadable calls in a row before the episode ends."""
    tool_timeout_s: float = 10.0
    max_seconds: float = math.inf
    """From the start of the batch to the end of a turn: an episode that is over it gets no further turn."""
    max_observation_characters: int = 4000
    """Longer tool results are cut, with a note."""


@dataclass(frozen=True)
class Guidance:
    """Lessons for one attempt."""

    text: str
    """What stands in the experience block."""
    record_ids: tuple[str, ...]
    strip: bool
    """Train on the prompt without them."""


@dataclass(frozen=True)
class EpisodeRequest:
    """One attempt at one problem."""

    messages: list[Message]
    """The conversation before the model speaks, system message included."""
    row: dict[str, Any]
    """Arguments of the environment's reset."""
    task: int
    """Index of the problem in its split."""
    occurrence: int
    """How often this problem was drawn before (0: first time): part of the key of the random stream."""
    generation: int
    """Index in the group."""
    guidance: Guidance | None = None
    """Lessons that shall stand in the prompt."""


@dataclass
class Episode:
    """What happened. One for every request, in the same order, whatever failed."""

    request: EpisodeRequest
    prompt_ids: list[int]
    """As it was sampled."""
    plain_prompt_ids: list[int] | None = None
    """The same prompt without lessons, where it was sampled with some."""
    completion_ids: list[int] = field(default_factory=list)
    """(T,) ids as sampled and as appended; never decoded and encoded again."""
    mask: list[int] = field(default_factory=list)
    """(T,) 1: the model's token, 0: the environment's."""
    logprobs: list[float] = field(default_factory=list)
    """(T,) log-probability under the sampling distribution; 0 where the environment speaks."""
    entropy_sum: float = 0.0
    """Sum over the model's tokens of the entropy in nats of the sampling distribution."""
    reward: float = 0.0
    stop_reason: StopReason = StopReason.COMPLETED
    turns: int = 0
    tool_calls: int = 0
    """Calls that reached a tool and were answered without an error."""
    tool_errors: int = 0
    """Calls that a tool refused (wrong arguments, raised)."""
    parse_errors: int = 0
    """Turns whose call could not be read, or that called an unknown tool."""
    attempted_calls: int = 0
    """Turns that tried to call a tool, readable or not."""
    messages: list[Message] = field(default_factory=list)
    """The conversation for people; training uses the ids."""
    error: str | None = None
    """What failed, for ENVIRONMENT_ERROR and TOOL_TIMEOUT."""
    seconds: float = 0.0
    """From the first token to the reward."""

    @property
    def valid(self) -> bool:
        """Whether the reward is evidence about the policy."""
        return self.stop_reason is not StopReason.ENVIRONMENT_ERROR

    @property
    def injected(self) -> bool:
        """Whether lessons really stood in the prompt."""
        return self.plain_prompt_ids is not None

    @property
    def stripped(self) -> bool:
        """Whether it is trained on another prompt than it was sampled with."""
        return self.injected and self.request.guidance is not None and self.request.guidance.strip

    @property
    def training_prompt_ids(self) -> list[int]:
        """The prompt that is trained on."""
        plain = self.plain_prompt_ids
        return plain if plain is not None and self.stripped else self.prompt_ids

    @property
    def said_ids(self) -> list[int]:
        """The model's tokens."""
        return [token for token, own in zip(self.completion_ids, self.mask, strict=True) if own]

    @property
    def said_text(self) -> str:
        """What the model said, calls as their arguments' values."""
        said = [m for m in self.messages[len(self.request.messages) :] if m["role"] == "assistant"]
        calls = [call["function"]["arguments"] for m in said for call in m.get("tool_calls", ())]
        values = [str(value) for arguments in calls for value in arguments.values()]
        return "\n".join([*(m["content"] for m in said), *values])

    @property
    def heard_text(self) -> str:
        """What the model was told: the prompt and what tools answered."""
        count = len(self.request.messages)
        told = [*self.messages[:count], *(m for m in self.messages[count:] if m["role"] != "assistant")]
        return "\n".join(str(m["content"]) for m in told)

    @property
    def model_tokens(self) -> int:
        return sum(self.mask)
