"""OpenEnv environments as they are: a client class (`EnvClient`), its synchronous form, or a server-side class.

OpenEnv's contract is `reset(seed=…)`, `step(action)` and `state()`, with typed actions and observations. Here

- the tool `step` has the fields of the action as its arguments, with their descriptions; a union of action types gives
  one tool for each, named after its class (`MoveAction`: `move`);
- the observation of `reset` is appended to the prompt, that of a step is the tool's answer: its only text field, or all
  its fields as JSON, without `done`, `reward` and `metadata`;
- the reward of an episode is the sum of its steps' rewards (`env_args.episode_reward: last` takes the last one), and
  `done` ends it;
- the seed of the task goes to `reset`, so that all episodes of a group begin alike, as do the columns of its row.

`env_args` are arguments of the class's constructor (`base_url` of a running server). An action that the server refuses
is the model's fault and is answered as an error; a lost connection spoils the episode.

Nothing here imports OpenEnv: the classes are recognised by what they are.
"""

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from trainer.envs.adapters import Facade, settle
from trainer.envs.base import EnvironmentFault, EnvironmentSpec, Row, Split, draw

NOT_SHOWN = frozenset({"done", "reward", "metadata"})
"""Fields of the base classes of actions and observations: control, not content."""
OWN_ARGS = ("prompt", "episode_reward")
PROMPT = "Complete the task with the tools."


@dataclasses.dataclass(frozen=True)
class _Field:
    """One argument of a tool."""

    name: str
    annotation: Any
    description: str
    default: Any = inspect.Parameter.empty


# ---- recognising the classes


def is_openenv(environment: type) -> bool:
    """Whether a class speaks OpenEnv's contract: `reset` and `step`, and an action that is a model of its own."""
    members = dir(environment)
    if not {"reset", "step", "state"} <= set(members):
        return False
    return bool(action_types(environment)) or _from_openenv(environment)


def _from_openenv(environment: type) -> bool:
    return any(base.__module__.split(".")[0] in ("openenv", "openenv_core") for base in environment.__mro__)


def action_types(environment: type) -> tuple[type, ...]:
    """The action classes of an environment, from its type arguments or from the annotation of `step`."""
    for base in environment.__mro__:
        for original in vars(base).get("__orig_bases__", ()):
            arguments = get_args(original)
            if arguments and {"reset", "step"} <= set(dir(get_origin(original))):
                found = _models(arguments[0])
                if found:
                    return found
    try:
        hints = typing.get_type_hints(environment.__dict__.get("step", None) or _member(environment, "step"))
    except (NameError, TypeError, AttributeError):  # a forward reference that only exists for type checkers
        return ()
    return _models(hints.get("action"))


def _member(environment: type, name: str) -> Any:
    return dict(inspect.getmembers(environment)).get(name)


def _models(annotation: Any) -> tuple[type, ...]:
    """The classes of an annotation: a model, a dataclass, or a union of them."""
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [_models(one) for one in get_args(annotation)]
        return tuple(one for part in parts for one in part) if all(parts) else ()
    is_model = isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)
    )
    return (annotation,) if is_model else ()


# ---- tools from actions


def _fields(action: type) -> list[_Field]:
    fields = []
    if issubclass(action, BaseModel):
        for name, info in action.model_fields.items():
            default = inspect.Parameter.empty if info.is_required() else info.default
            if default is PydanticUndefined:  # it has a factory
                default = None
            fields.append(_Field(name, info.annotation, info.description or "", default))
    else:
        hints = typing.get_type_hints(action)
        for one in dataclasses.fields(action):  # type: ignore[arg-type]
            has_factory = one.default_factory is not dataclasses.MISSING
            default = None if has_factory else one.default
            if default is dataclasses.MISSING:
                default = inspect.Parameter.empty
            fields.append(_Field(one.name, hints[one.name], "", default))
    return [field for field in fields if field.name not in NOT_SHOWN and not _is_tag(field)]


def _is_tag(field: _Field) -> bool:
    """A discriminator with one value: the tool's name says it already."""
    return get_origin(field.annotation) is Literal and get_args(field.annotation) == (field.default,)


def _describable(annotation: Any) -> Any:
    """The annotation in terms that a tool's JSON schema can express; a nested model is an object."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotation
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation if annotation in (str, int, float, bool, list, dict, tuple, type(None)) else dict
    if get_origin(annotation) is Annotated:
        return _describable(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(_describable(one) for one in get_args(annotation))]  # noqa: UP007 - built at run time
    if get_origin(annotation) in (list, set, tuple):
        return list
    return dict if get_origin(annotation) is dict else annotation


def _tool(name: str, action: type) -> Callable[..., Any]:
    """A method that takes the fields of an action."""
    fields = sorted(_fields(action), key=lambda field: field.default is not inspect.Parameter.empty)

    def call(self: "OpenEnvEpisode", /, **arguments: Any) -> str:
        return self._act(action, arguments)

    head = (inspect.getdoc(action) or f"Take the action {action.__name__}.").partition("\n\n")[0].replace("\n", " ")
    lines = [f"    {field.name}: {' '.join(field.description.split()) or field.name}" for field in fields]
    call.__name__, call.__qualname__ = name, f"OpenEnvEpisode.{name}"
    call.__doc__ = "\n".join([head, "", "Args:", *lines] if lines else [head])
    annotations = {field.name: _describable(field.annotation) for field in fields}
    call.__annotations__ = {**annotations, "return": str}
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("self", keyword),
            *(
                inspect.Parameter(field.name, keyword, default=field.default, annotation=annotations[field.name])
                for field in fields
            ),
        ],
        return_annotation=str,
    )
    return call


def tool_name(action: type, alone: bool) -> str:
    """`step` for the only action; else the class name without Action, in snake case."""
    if alone:
        return "step"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", action.__name__.removesuffix("Action") or "step")
    return words.lower()


# ---- one episode


class OpenEnvEpisode(Facade):
    """One episode of an OpenEnv environment. Subclasses add the tools and say how the reward is counted."""

    _last_only = False

    def __init__(self) -> None:
        built = type(self)._factory()
        self.inner = built.async_client if "async_client" in dir(type(built)) else built
        self.finished = False
        self._seed: int | None = None
        self._reward = 0.0
        self._broken: Exception | None = None

    def seed(self, value: int) -> None:
        """What the environment's reset is seeded with, unless the task's row says otherwise."""
        self._seed = value

    def reset(self, **row: Any) -> str:
        """Begins the episode and returns its first observation."""
        seeded = row if self._seed is None else {"seed": self._seed, **row}
        observation, _, done = _taken_apart(settle(self.inner.reset(**_accepted(self.inner.reset, seeded)), None))
        self.finished = done
        return shown(observation)

    def _act(self, action: type, arguments: dict[str, Any]) -> str:
        if self.finished:
            raise ValueError("the episode is over")
        try:
            taken = action(**arguments)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ValueError(f"wrong arguments: {problems}") from error
        try:
            observation, reward, done = _taken_apart(settle(self.inner.step(taken), None))
        except (ValueError, RuntimeError):  # the server's word about the action: the model reads it
            raise
        except Exception as error:  # the connection, the server, the client's own code: no evidence about the model
            self._broken = error
            self.finished = True
            raise
        self._reward = reward if type(self)._last_only else self._reward + reward
        self.finished = done
        return shown(observation)

    def get_reward(self) -> float:
        """The sum of the steps' rewards, or the last one. Raises what broke the episode."""
        if self._broken is not None:
            raise self._broken
        return self._reward

    def close(self) -> None:
        """Closes the session."""
        if "close" in dir(self.inner):
            settle(self.inner.close(), None)


def _taken_apart(result: Any) -> tuple[Any, float, bool]:
    """(observation, reward, done) of a client's StepResult or of a server's Observation."""
    match result:
        case object(observation=observation, reward=reward, done=done):
            pass
        case object(reward=reward, done=done):
            observation = result
        case _:
            raise TypeError(f"reset and step must return an observation with reward and done, not {result!r}")
    return observation, 0.0 if reward is None else float(reward), bool(done)


def _accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a function takes: a server's reset need not know the columns of a task file."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def shown(observation: Any) -> str:
    """An observation as text for the model."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, BaseModel):
        fields = observation.model_dump(mode="json")
    elif dataclasses.is_dataclass(observation) and not isinstance(observation, type):
        fields = dataclasses.asdict(observation)
    else:
        fields = dict(observation)
    fields = {name: value for name, value in fields.items() if name not in NOT_SHOWN}
    values = list(fields.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(fields, ensure_ascii=False, default=str)


# ---- the environment


def spec_of(name: str, environment: type, factory: Callable[[], Any], env_args: Mapping[str, Any]) -> EnvironmentSpec:
    """The environment that an OpenEnv class stands for. Raises EnvironmentFault."""
    actions = _actions_of(environment, factory)
    if not actions:
        raise EnvironmentFault(
            f"environment {name}: {environment.__name__} has no typed action, so there is nothing to describe to the "
            "model. Name the environment's own client class, or write a class whose methods call the client."
        )
    namespace: dict[str, Any] = {
        "_factory": staticmethod(_constructor(name, environment, factory, env_args)),
        "_last_only": _counts_last(name, env_args),
        **{
            attribute: inspect.getattr_static(environment, attribute)
            for attribute in ("system_prompt", "tool_timeouts", "call_timeout_s")
            if attribute in dir(environment)
        },
    }
    for action in actions:
        tool = tool_name(action, len(actions) == 1)
        namespace[tool] = _tool(tool, action)
    spec = EnvironmentSpec.of(name, type(environment.__name__, (OpenEnvEpisode,), namespace))
    return dataclasses.replace(spec, tasks=_tasks)


def _actions_of(environment: type, factory: Callable[[], Any]) -> tuple[type, ...]:
    """The action classes; a synchronous wrapper has those of the client that it wraps."""
    if "async_client" in dir(environment) and factory is not environment:
        return action_types(type(factory().async_client))
    return action_types(environment)


def _counts_last(name: str, env_args: Mapping[str, Any]) -> bool:
    how = env_args.get("episode_reward", "sum")
    if how not in ("sum", "last"):
        raise EnvironmentFault(f"environment {name}: env_args.episode_reward {how!r} is not allowed; use sum or last.")
    return bool(how == "last")


def _constructor(
    name: str, environment: type, factory: Callable[[], Any], env_args: Mapping[str, Any]
) -> Callable[[], Any]:
    """The factory with the constructor's arguments. Raises EnvironmentFault for missing and unknown ones."""
    given = {key: value for key, value in env_args.items() if key not in OWN_ARGS}
    parameters = inspect.signature(factory).parameters
    unknown = sorted(set(given) - set(parameters))
    if unknown and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        raise EnvironmentFault(
            f"environment {name}: env_args.{unknown[0]} is no argument of {environment.__name__}. Allowed: "
            f"{', '.join([*parameters, *OWN_ARGS])}."
        )
    missing = [
        key
        for key, parameter in parameters.items()
        if key not in given
        and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and (parameter.default is inspect.Parameter.empty or (key == "base_url" and parameter.default is None))
    ]
    if missing:
        example = "=http://localhost:8000" if missing[0] == "base_url" else "=…"
        raise EnvironmentFault(
            f"environment {name}: {environment.__name__} needs {', '.join(missing)}. "
            f"Set env_args.{missing[0]}{example}, or name a function without arguments that builds the client."
        )
    return lambda: factory(**given)


def _tasks(
    split: Split, n: int, seed: int, difficulty: str = "mixed", prompt: str = PROMPT, **env_args: Any
) -> list[Row]:
    """Rows with a prompt and the seed of the environment's reset; no seed stands in two splits."""

    def make(rng: Any) -> tuple[int, Row]:
        number = rng.randrange(2**31)
        return number, {"prompt": prompt, "seed": number}

    return draw(make, Split(split), n, seed, scope="openenv")
