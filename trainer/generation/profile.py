"""What can be done in an environment, by its contract alone: tools, arguments, and values that its texts show."""

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.datafiles import Row
from trainer.envs.base import EnvironmentSpec
from trainer.experience.leaks import prompt_text
from trainer.experience.tokens import FUNCTION_WORDS

MAX_VALUE = 60
"""Characters of a value that may become an argument; longer ones are texts to read."""


@dataclass(frozen=True)
class Argument:
    """One argument of a tool."""

    name: str
    kind: type | None
    """str, int, float or bool; None: something else, which exploration leaves out."""
    choices: tuple[Any, ...] = ()
    """All there is, where the type names it (`Literal`, bool)."""
    required: bool = True


@dataclass(frozen=True)
class ToolProfile:
    """One tool."""

    name: str
    about: str
    """Its docstring."""
    arguments: tuple[Argument, ...]

    @property
    def callable(self) -> bool:
        """Whether exploration can make its required arguments."""
        return all(one.kind is not None for one in self.arguments if one.required)


@dataclass(frozen=True)
class EnvironmentProfile:
    """An environment and its originals, as an explorer sees them."""

    name: str
    tools: tuple[ToolProfile, ...]
    keys: tuple[str, ...]
    """Fields that the originals' rows have beside the prompt."""
    shown: tuple[str, ...]
    """Values that tool descriptions show: examples behind `e.g.` and words in quotes."""


def profile_of(spec: EnvironmentSpec, rows: Sequence[Row]) -> EnvironmentProfile:
    """Reads an environment class and its rows."""
    members: dict[str, Callable[..., Any]] = dict(inspect.getmembers(spec.factory, predicate=inspect.isfunction))
    tools = tuple(_tool(name, members[name]) for name in spec.tools)
    shown = dict.fromkeys(value for tool in tools for value in _examples(tool.about))
    return EnvironmentProfile(
        spec.name, tools, tuple(sorted({key for row in rows for key in row} - {"prompt"})), tuple(shown)
    )


def _tool(name: str, method: Callable[..., Any]) -> ToolProfile:
    try:
        hints = typing.get_type_hints(method)
    except (NameError, TypeError):  # a hint that names what is not there
        hints = {}
    arguments = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:  # without self
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        kind, choices = _kind(hints.get(parameter.name, str))
        required = parameter.default is inspect.Parameter.empty
        arguments.append(Argument(parameter.name, kind, choices, required))
    return ToolProfile(name, inspect.getdoc(method) or "", tuple(arguments))


def _kind(hint: Any) -> tuple[type | None, tuple[Any, ...]]:
    """(plain type, choices) of a type hint; `X | None` is X."""
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return type(choices[0]), choices
    options = [one for one in typing.get_args(hint) if one is not type(None)]
    if len(options) == 1 and type(None) in typing.get_args(hint):
        return _kind(options[0])
    if hint is bool:
        return bool, (False, True)
    return (hint, ()) if hint in (str, int, float) else (None, ())


_EXAMPLE = re.compile(r"(?:e\.g\.|for example|for instance|such as|z\. ?B\.|例如|比如)[,:]?\s*([^\n]+)", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“'`‘]([^\"”'`’\n]{1,60})[\"”'`’]")
_EDGES = " .,;:?!()[]\"'`“”‘’。，；：？！（）"


def _examples(text: str) -> list[str]:
    found = [match.group(1) for match in _QUOTED.finditer(text)]
    for match in _EXAMPLE.finditer(text):
        found += re.split(r",| or | and |、|或", match.group(1))
    return [value.strip(_EDGES) for value in found if value.strip(_EDGES) and _balanced(value.strip(_EDGES))]


def _balanced(text: str) -> bool:
    return text.count("(") == text.count(")")


_PIECE = re.compile(r"[^\W\d_]+(?:[-'_][^\W_]+)*\d*|\d+(?:[.,:/-]\d+)*|[^\w\s]|\S")
_FORMULA = re.compile(r"[(\d][\d\s.+*/%^()×÷-]*[\d)]")


def values_in(text: str) -> list[str]:
    """Values that a text shows, as arguments to try: formulas, quoted text, numbers, words, runs of up to three words.

    Function words begin and end none; a capital in the middle of a sentence makes a name of one (`Will`).
    """
    found = [match.group().strip() for match in _FORMULA.finditer(text)]
    found += [match.group(1) for match in _QUOTED.finditer(text)]
    words = [(m.group(), m.start(), m.end()) for m in _PIECE.finditer(text)]
    telling = [
        (w if at else w.casefold()) not in FUNCTION_WORDS and any(c.isalnum() for c in w)
        for at, (w, _, _) in enumerate(words)
    ]
    for size in (1, 2, 3):
        for at in range(len(words) - size + 1):
            if telling[at] and telling[at + size - 1]:
                found.append(text[words[at][1] : words[at + size - 1][2]])
    return list(dict.fromkeys(value for value in found if 0 < len(value) <= MAX_VALUE and "\n" not in value))


def question_of(row: Row) -> str:
    """The question of a row: its prompt, or the last user message of it."""
    return prompt_text(row["prompt"])
