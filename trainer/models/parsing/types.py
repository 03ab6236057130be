"""What a parser gives back, and what it is told of the tools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Tools = Sequence[dict[str, Any]]
"""JSON schemas of the tools, `{"type": "function", "function": {"name": …, "parameters": …}}`."""


@dataclass(frozen=True)
class ToolCall:
    """A call that could be read."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ParsedTurn:
    """One model turn, taken apart."""

    content: str
    """Text outside the calls."""
    calls: list[ToolCall] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """One for each call that could not be read."""
    thinking: str = ""
    """Text inside `<think>` tags; nothing in it counts as a call."""

    @property
    def attempted(self) -> bool:
        """Whether the model tried to call a tool."""
        return bool(self.calls or self.errors)


class Format(StrEnum):
    """How a call is written."""

    HERMES = "hermes"
    """`<tool_call>` JSON `</tool_call>`: Hermes, Qwen 2.5, Qwen 3, and models that are told so by us."""
    QWEN_XML = "qwen_xml"
    """`<tool_call><function=name><parameter=key>` …: Qwen 3.5, Qwen 3 Coder."""
    LLAMA_JSON = "llama_json"
    """`{"name": …, "parameters": …}`: Llama 3."""
    REACT = "react"
    """Lines `Action: name` and `Action Input: …`, from models that were taught plain text."""


Reader = Callable[[str, Tools], ParsedTurn]
"""Text without thinking and the tools' schemas → the turn. Never raises."""
