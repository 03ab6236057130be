"""Values of arguments: JSON that is safe to keep, and text turned into what a tool's schema asks for.

Model text may hold what JSON allows and the rest of the program cannot carry: lone surrogates (they cannot be written
to a file), numbers that are not finite, nesting that overflows the stack of whoever writes it again. All are refused.
"""

import json
import math
from typing import Any

from trainer.models.parsing.types import ToolCall, Tools

MAX_DEPTH = 32
"""Deepest nesting of an argument. Tools' arguments have two or three levels; Python's own limit is near 1000."""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


DECODER = json.JSONDecoder(parse_constant=_refuse)


def read_json(text: str) -> Any:
    """The document in `text`. Raises ValueError for everything that cannot be read and kept."""
    try:
        document = DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check(document)
    return document


def check(value: Any, depth: int = 0) -> None:
    """Raises ValueError where a value cannot be written to a UTF-8 JSON file again."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError is a ValueError
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    elif isinstance(value, dict):
        for key, inner in value.items():
            check(key, depth)
            check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            check(inner, depth + 1)


def call_of(document: Any) -> ToolCall | str:
    """A call from `{"name": …, "arguments" or "parameters": …}`, or what is wrong with it."""
    if not isinstance(document, dict):
        return "a call is an object with name and arguments"
    name, arguments = document.get("name"), document.get("arguments", document.get("parameters", {}))
    if not isinstance(name, str) or not name:
        return "the call has no name"
    if isinstance(arguments, str):
        try:
            arguments = read_json(arguments)
        except ValueError:
            return "the arguments are not valid JSON"
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    return ToolCall(name, arguments)


def calls_of(text: str) -> list[ToolCall | str]:
    """The calls in a JSON text: an object, or a list of objects (SmolLM2, xLAM); at least one result."""
    try:
        document = read_json(text)
    except ValueError:
        return ["the call is not valid JSON"]
    several = document if isinstance(document, list) and document else [document]
    return [call_of(one) for one in several]


def parameters_of(tools: Tools, name: str) -> dict[str, dict[str, Any]]:
    """Schema by parameter of one tool, in the order of its signature; empty for an unknown tool."""
    for tool in tools:
        function = tool.get("function", {})
        if function.get("name") == name:
            properties = function.get("parameters", {}).get("properties", {})
            return {key: schema if isinstance(schema, dict) else {} for key, schema in properties.items()}
    return {}


def _types(schema: dict[str, Any]) -> list[str]:
    stated = schema.get("type")
    types = [stated] if isinstance(stated, str) else list(stated or [])
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, []):
            types += _types(option)
    if schema.get("nullable") and types:
        types.append("null")
    return types


_PYTHON_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def typed(text: str, schema: dict[str, Any]) -> Any:
    """Plain text as the value that the schema asks for; a schema without types, or with `string`, takes it as it is.

    Where several types are allowed the first one that fits wins, text last. Raises ValueError that names the type.
    """
    types = _types(schema)
    plain = text.strip()
    try:
        value = read_json(_PYTHON_CONSTANTS.get(plain, plain))
        readable = True
    except ValueError:
        value, readable = None, False
    for kind in types:
        if not readable or kind not in _KINDS:
            continue
        if isinstance(value, bool) and kind != "boolean":
            continue
        if isinstance(value, _KINDS[kind]):
            return value
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
    check(text)
    if not types or "string" in types:
        return text
    raise ValueError(f"{plain[:60]!r} is not of type {' or '.join(types)}")
