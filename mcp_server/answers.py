"""What a tool answers: one line of text for people and small clients, compact data for the rest, and what to do next.

The data is not repeated as text: a client that shows both would pay twice for it.
"""

import json
from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field

from skill_bank.visible import visible, visible_text

MAX_ANSWER_BYTES = 8 * 1024
"""Size of one answer that lists aim at; a client's own limit is about three times as large."""


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


def next_text(step: Next) -> str:
    """`say` with the call in a form that can be read back: `… → tool {"key": "value"}`."""
    if step.tool is None:
        return step.say
    return f"{step.say} → {step.tool} {json.dumps(step.arguments, ensure_ascii=False)}"


def clip(text: str, limit: int) -> str:
    """`text` on one line, at most `limit` characters long, without characters that cannot be seen."""
    line = visible_text(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
