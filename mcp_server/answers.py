"""What a tool answers: one line of text for people and small clients, compact data for the rest, and what to do next.

The data is not repeated as text: a client that shows both would pay twice for it.
"""

import json
import re
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field

MAX_ANSWER_BYTES = 8 * 1024
"""Size of one answer that lists aim at; a client's own limit is about three times as large."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class Next(BaseModel):
    """The most useful next step."""

    model_config = ConfigDict(extra="forbid")

    say: str
    """One sentence."""
    tool: str | None = None
    """Tool to call; None: nothing to call, a person acts or the work is done."""
    arguments: dict[str, Any] = Field(default_factory=dict)


class Part(BaseModel):
    """Base of the values inside an answer."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """Base of all structured answers."""

    model_config = ConfigDict(extra="forbid")

    next: Next


def answer(text: str, data: Answer) -> CallToolResult:
    """The result of a tool: `text` (one line) and `data`, values that are as by default left out."""
    line = visible_text(" ".join(text.split()))
    return CallToolResult(
        content=[TextContent(type="text", text=f"{line} Next: {next_text(data.next)}")],
        structured_content=compact(data),
    )


def compact(data: Answer) -> dict[str, Any]:
    """The data as JSON, without what is as by default: an empty list or an absent number costs nothing."""
    document = visible(data.model_dump(mode="json", exclude_defaults=True))
    assert isinstance(document, dict)
    return document


def visible(value: Any) -> Any:
    """A JSON value whose texts hold no character that a reader cannot see."""
    if isinstance(value, str):
        return visible_text(value)
    if isinstance(value, list):
        return [visible(one) for one in value]
    if isinstance(value, dict):
        return {key: visible(one) for key, one in value.items()}
    return value


def visible_text(text: str) -> str:
    """The text with a mark in the place of each control, bidirectional, zero-width and tag character.

    Recorded text comes from anywhere; such characters hide words from a person or turn them around.
    """
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def next_text(step: Next) -> str:
    """`say` with the call in a form that can be read back: `… → tool {"key": "value"}`."""
    if step.tool is None:
        return step.say
    return f"{step.say} → {step.tool} {json.dumps(step.arguments, ensure_ascii=False)}"


def clip(text: str, limit: int) -> str:
    """`text` on one line, at most `limit` characters long, without characters that cannot be seen."""
    line = visible_text(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
