"""ReAct as plain text: `Action: name` with `Action Input: …`, or `Action: name(arguments)`, also `Action: name[text]`.

A line that starts with `Action:` and does not name a tool that way is prose. What follows an `Observation:` line was
made up by the model and is left out.
"""

import ast
import re
import warnings
from typing import Any

from trainer.models.parsing.types import ParsedTurn, ToolCall, Tools
from trainer.models.parsing.values import check, parameters_of, read_json, typed

_OBSERVATION = re.compile(r"^[ \t]*Observation:", re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*(Thought|Action Input|Action|Final Answer):", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)

MAX_SOURCE = 4000
"""Longest argument list that is read as Python syntax: its parser is recursive."""


def parse_react(text: str, tools: Tools = ()) -> ParsedTurn:
    """Plain input goes to the tool's only parameter."""
    made_up = _OBSERVATION.search(text)
    said = text[: made_up.start()] if made_up else text
    labels = list(_LABEL.finditer(said))
    ends = [label.start() for label in labels[1:]] + [len(said)]
    sections = [(label[1], said[label.end() : end].strip()) for label, end in zip(labels, ends, strict=False)]
    content = [said[: labels[0].start()] if labels else said]
    calls: list[ToolCall] = []
    errors: list[str] = []
    for number, (label, body) in enumerate(sections):
        if label in ("Thought", "Final Answer"):
            content.append(body)
        if label != "Action":
            continue
        name = _NAME.match(body)
        rest = body[name.end() :].lstrip() if name else ""
        if name is None or (rest and rest[0] not in "(["):
            content.append(f"Action: {body}")
            continue
        next_label, given = sections[number + 1] if number + 1 < len(sections) else ("", "")
        parameters = parameters_of(tools, name[0])
        try:
            if rest:
                arguments = _inline(rest, parameters)
            else:
                arguments = _input(given, parameters) if next_label == "Action Input" else {}
            calls.append(ToolCall(name[0], arguments))
        except ValueError as error:
            errors.append(f"{name[0]}: {error}")
    return ParsedTurn("\n".join(part.strip() for part in content if part.strip()), calls, errors)


def _input(text: str, parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    fence = _FENCE.search(text)
    plain = fence[1].strip() if fence else text
    if plain.startswith("{"):
        try:
            arguments = read_json(plain)
        except ValueError:
            raise ValueError("Action Input is not valid JSON") from None
        return dict(arguments)
    return _only(plain, parameters) if plain else {}


def _only(text: str, parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A text as the one argument."""
    if len(parameters) != 1:
        raise ValueError(f"write the arguments as a JSON object ({', '.join(parameters) or 'names and values'})")
    key, schema = next(iter(parameters.items()))
    return {key: typed(text, schema)}


def _inline(text: str, parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`(…)` as Python's argument list, else the text inside as the one argument; `[…]` always the latter."""
    closing = {"(": ")", "[": "]"}[text[0]]
    if not text.endswith(closing):
        raise ValueError(f"the arguments were not closed with {closing}")
    inside = text[1:-1].strip()
    if not inside:
        return {}
    if text[0] == "[":
        return _only(inside, parameters)
    if inside.startswith("{"):
        return _input(inside, parameters)
    arguments = _python_arguments(inside, parameters)
    return _only(inside, parameters) if arguments is None else arguments


def _python_arguments(source: str, parameters: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """`a=1, b="x"` or `1, "x"` in the order of the signature; None where it is not an argument list."""
    call = _syntax(source)
    if call is None or len(call.args) > max(1, len(parameters)) or any(k.arg is None for k in call.keywords):
        return None
    names = list(parameters)
    if len(call.args) > len(names):
        return None
    nodes = dict(zip(names, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
    return {name: _value(node, f"f({source})", parameters.get(name, {})) for name, node in nodes.items()}


def _syntax(source: str) -> ast.Call | None:
    if len(source) > MAX_SOURCE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's "\d" is no business of ours
            body = ast.parse(f"f({source})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body if isinstance(body, ast.Call) and isinstance(body.func, ast.Name) else None


def _value(node: ast.expr, source: str, schema: dict[str, Any]) -> Any:
    """A quoted text as it is, anything else by the schema's type, else as the literal it is, else as its source."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        check(node.value)
        return node.value
    text = ast.get_source_segment(source, node) or ""
    if schema.get("type"):
        return typed(text, schema)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = text
    if not isinstance(value, bool | int | float | str | list | dict | None):
        value = text
    check(value)
    return value
