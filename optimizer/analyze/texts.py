"""What a call said and what it was told, as lines of text, whatever form its source recorded it in."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from optimizer.events import Event

MAX_TEXT = 400_000
"""Characters of one output that are read; a longer one is cut (a log of that size is shown in parts anyhow)."""

MAX_LINE = 20_000
"""Characters of one line that are read."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RAY = re.compile(r"\A(?:\([\w. ]+ pid=\d+(?:, ip=[\d.]+)?\)\s*)+")
"""What Ray puts before each line of a worker."""

_OUTPUT_KEYS = ("stdout", "output", "content", "text", "stderr", "result", "message", "error", "task", "file")
_DATA_KEYS = ("data", "structuredContent", "structured_content")

DOCUMENT_SUFFIXES = (".md", ".py", ".rst", ".tex", ".html", ".ipynb", ".js", ".ts")
"""Files that tell or compute something; numbers in them are no measurements."""


def output_text(event: Event) -> str:
    """The text of a call's response; empty where it has none."""
    return clean(_response_text(event.response))


def input_text(event: Event) -> str:
    """Everything that the agent wrote into a call."""
    return "\n".join(_strings(event.input))[:MAX_TEXT]


def lines_of(text: str) -> list[str]:
    """Lines without colour codes, carriage returns and the marks that Ray puts before them."""
    return [_RAY.sub("", line)[:MAX_LINE] for line in text.split("\n")]


def clean(text: str) -> str:
    """Without colour codes; a carriage return ends a line, as a terminal would show it."""
    return _ANSI.sub("", text[:MAX_TEXT]).replace("\r\n", "\n").replace("\r", "\n")


def read_path(event: Event) -> str | None:
    """The file that a reading call shows, by its own input."""
    if isinstance(event.input, dict):
        for key in ("file_path", "notebook_path", "path"):
            value = event.input.get(key)
            if isinstance(value, str) and value:
                return value
    return None


def command_of(event: Event) -> str:
    """The shell command of a call; empty where it is none."""
    if isinstance(event.input, dict):
        command = event.input.get("command")
        if isinstance(command, str):
            return command
    return ""


def _response_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, (_response_text(one) for one in value)))
    if isinstance(value, dict):
        data = [key for key in _DATA_KEYS if isinstance(value.get(key), dict | list) and value[key]]
        if data:  # what a tool of a server answers: a text for people, and the data
            shown = "\n".join(msgspec.json.encode(value[key]).decode("utf-8") for key in data)
            return "\n".join(filter(None, (_response_text(value.get("text")), shown)))
        known = [key for key in _OUTPUT_KEYS if key in value]
        if known and not any(isinstance(value[key], int | float) for key in value if "step" in key):
            return "\n".join(filter(None, (_response_text(value[key]) for key in known)))
        return msgspec.json.encode(value).decode("utf-8")
    return ""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, float):
        yield repr(value)
