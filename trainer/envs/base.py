"""The environment contract: what TRL's `environment_factory` asks of a class, and a few optional members more.

An environment is one class, built once per episode and then thrown away:

- `reset(**row)` receives the task's row and returns an observation that is appended to the last user message, or None;
- every other public method with type hints and a Google-style docstring is a tool;
- `get_reward() -> float` grades the episode when it is over; it may be missing where the run names a reward function.

Optional: `finished` (attribute or property; True ends the episode after the current turn), `close()`, `seed(value)`,
the class attributes `system_prompt`, `tool_timeouts` (tool name → seconds; `reset`, `get_reward`, `close` and
`finished` may be named too) and `call_timeout_s` (seconds, all tools),
and the class methods `tasks(split, n, seed, difficulty, **env_args)`, which makes rows for users who bring no file of
their own, `solution(row)`, the calls of a good episode, and `owner(row)`, the split that a problem belongs to. A row
has a `prompt` (text or chat messages); its other keys go to `reset`, and the prompt too where `reset` has an argument
of that name. The three splits must be disjoint; the shipped environments draw the split of a problem from a hash of it.
Methods may be `async` (`adapters`), and OpenEnv clients are played as they are (`openenv`).

A bad episode is data, not a crash: whatever an environment raises is recorded on that episode and nowhere else.
"""

import hashlib
import inspect
import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from trainer.datafiles import Row

NOT_TOOLS = frozenset({"reset", "get_reward", "close", "seed", "finished", "tasks"})
"""Public members of an environment class that the model must not see as tools."""

OWN_FUNCTIONS = ("reset", "get_reward", "close", "finished")
"""What is called without the model's doing, and limited in time like a tool."""

OWN_FUNCTION_S = 60.0
"""Seconds that each of them may take; more where the run's `tool_timeout_s` is more."""

MAX_CALL_TIMEOUT_S = 3600.0
"""The longest time one call may be given: `tool_timeout_s` of a configuration has the same bound."""


class Split(StrEnum):
    """Which problems: to learn from, to steer by, to report."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@runtime_checkable
class Environment(Protocol):
    """One episode's world."""

    def reset(self, **row: Any) -> str | None: ...

    def get_reward(self) -> float: ...


class EnvironmentFault(Exception):
    """An environment that cannot be used: names the class, what is missing and what to add."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment class, looked at once."""

    name: str
    factory: Callable[[], Any]
    tools: tuple[str, ...]
    """Names of the tool methods in alphabetical order (the order in which TRL shows them to the model)."""
    system_prompt: str | None = None
    tasks: Callable[..., list[Row]] | None = None
    """tasks(split, n, seed, difficulty, **env_args) -> rows, where the class makes its own."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds that a call of these tools, or of `OWN_FUNCTIONS`, may take, instead of the run's limits."""
    grades: bool = True
    """Whether the class has `get_reward`."""
    takes_prompt: bool = False
    """Whether `reset` has an argument `prompt`."""
    solution: Callable[[Row], list[tuple[str, dict[str, Any]]]] | None = None
    """solution(row) -> the calls of a good episode, one a turn, where the class can be shown."""
    owner: Callable[[Row], str] | None = None
    """owner(row) -> the split that its problem belongs to, where the class can tell: a generated task is of train."""

    @classmethod
    def of(cls, name: str, environment: type) -> "EnvironmentSpec":
        """Inspects a class. Raises EnvironmentFault where the contract is not met."""
        if not isinstance(environment, type):
            raise EnvironmentFault(f"{name}: {environment!r} is not a class; name a class with reset and get_reward.")
        members = dict(inspect.getmembers(environment, predicate=inspect.isfunction))
        if "reset" not in members:
            raise EnvironmentFault(
                f"environment {name}: class {environment.__name__} has no method `reset`. An environment needs "
                "reset(**row), get_reward() -> float and at least one public method with a docstring as a tool."
            )
        tools = tuple(sorted(m for m in members if not m.startswith("_") and m not in NOT_TOOLS))
        if not tools:
            raise EnvironmentFault(
                f"environment {name}: class {environment.__name__} has no public method to use as a tool."
            )
        for tool in tools:
            if not inspect.getdoc(members[tool]):
                raise EnvironmentFault(
                    f"environment {name}: tool `{tool}` has no docstring. Say in one line what it does and describe "
                    "each argument under `Args:`; the model reads it."
                )
        return cls(
            name=name,
            factory=environment,
            tools=tools,
            system_prompt=inspect.getattr_static(environment, "system_prompt", None),
            tasks=dict(inspect.getmembers(environment, inspect.ismethod)).get("tasks"),
            timeouts=_timeouts(name, environment, tools),
            grades="get_reward" in members,
            takes_prompt="prompt" in inspect.signature(members["reset"]).parameters,
            solution=dict(inspect.getmembers(environment, inspect.ismethod)).get("solution"),
            owner=dict(inspect.getmembers(environment, inspect.ismethod)).get("owner"),
        )

    def check_graded(self) -> None:
        """Raises EnvironmentFault where nothing grades an episode: no `get_reward`, and the caller has no reward."""
        if not self.grades:
            raise EnvironmentFault(
                f"environment {self.name}: the class has no method `get_reward`, and the run names no reward function. "
                "Add get_reward(self) -> float, or set reward=python:module:function."
            )

    def reset_arguments(self, messages: list[dict[str, Any]], row: Row) -> Row:
        """What `reset` is called with."""
        return {"prompt": messages, **row} if self.takes_prompt else row


def _timeouts(name: str, environment: type, tools: tuple[str, ...]) -> dict[str, float]:
    """Seconds by function, of the class attributes `call_timeout_s` and `tool_timeouts`. Raises EnvironmentFault."""
    general = inspect.getattr_static(environment, "call_timeout_s", None)
    own = inspect.getattr_static(environment, "tool_timeouts", {})
    if not isinstance(own, Mapping):
        raise EnvironmentFault(f"environment {name}: tool_timeouts must be a mapping of tool name to seconds.")
    unknown = sorted(set(own) - set(tools) - set(OWN_FUNCTIONS))
    if unknown:
        raise EnvironmentFault(
            f"environment {name}: tool_timeouts names {unknown[0]!r}, which is no tool. Tools: {', '.join(tools)}; "
            f"allowed beside them: {', '.join(OWN_FUNCTIONS)}."
        )
    timeouts = ({} if general is None else dict.fromkeys(tools, general)) | dict(own)
    for tool, seconds in timeouts.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_CALL_TIMEOUT_S:
            raise EnvironmentFault(
                f"environment {name}: the time-out of {tool} is {seconds!r}; it must be a number of seconds above 0 "
                f"and at most {MAX_CALL_TIMEOUT_S:g}."
            )
    return {tool: float(seconds) for tool, seconds in timeouts.items()}


SPLIT_SHARES = {Split.TRAIN: 0.6, Split.VALIDATION: 0.2, Split.TEST: 0.2}
"""Share of the problem space that belongs to each split."""


def split_of(identity: Hashable) -> Split:
    """The split that owns a problem: a hash of the problem itself, so that no seed can mix the splits."""
    digest = hashlib.sha256(repr(identity).encode("utf-8")).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    for split, share in SPLIT_SHARES.items():
        if position < share:
            return split
        position -= share
    return Split.TEST


def draw(
    make: Callable[[random.Random], tuple[Hashable, Row]], split: Split, n: int, seed: int, *, scope: str
) -> list[Row]:
    """`n` different problems of one split: the sequence depends on (scope, split, seed) alone and a longer one begins
    with the shorter one.

    `make(rng)` returns (identity, row). Raises ValueError when the space holds too few problems.
    """
    stream: Iterator[int] = iter(range(2**62))
    seen: set[Hashable] = set()
    rows: list[Row] = []
    misses = 0
    while len(rows) < n:
        rng = random.Random(f"{scope}|{split.value}|{seed}|{next(stream)}")
        identity, row = make(rng)
        if split_of(identity) is not split or identity in seen:
            misses += 1
            if misses > 5000:
                raise ValueError(
                    f"{scope} has about {len(rows)} different {split.value} problems, {n} were asked for. Ask for at "
                    "most that many or choose a harder difficulty, whose space is larger."
                )
            continue
        misses = 0
        seen.add(identity)
        rows.append(row)
    return rows
