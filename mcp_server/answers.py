"""What a tool answers: one line of text for people and small clients, compact data for the rest, and what to do next.

The data is not repeated as text: a client that shows both would pay twice for it.
"""

import json
from typing import Any, ClassVar

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field

from skill_bank.visible import visible, visible_text

MAX_ANSWER_BYTES = 8 * 1024
"""Size of one answer that lists aim at; a client's own limit is about three times as large."""

MAX_REPEATED_BYTES = 2000
"""Of a text of the caller's own in the next call's arguments; a longer one is not sent back to whoever has it."""


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

    elastic: ClassVar[tuple[str, ...]] = ()
    """Lists, mappings and texts that are shortened where the answer would be longer than `MAX_ANSWER_BYTES`, the most
    dispensable first. Pages whose length the caller chose are none of them."""

    next: Next
    cut: dict[str, int] = Field(default_factory=dict)
    """What was shortened, with its full length."""


def answer(text: str, data: Answer) -> CallToolResult:
    """The result of a tool: `text` (one line) and `data`, values that are as by default left out."""
    line = visible_text(f"{' '.join(text.split())} Next: {next_text(data.next)}")
    return CallToolResult(
        content=[TextContent(type="text", text=line)], structured_content=shortened(compact(data), data.elastic)
    )


def compact(data: Answer) -> dict[str, Any]:
    """The data as JSON, without what is as by default: an empty list or an absent number costs nothing."""
    document = visible(data.model_dump(mode="json", exclude_defaults=True))
    assert isinstance(document, dict)
    return document


def shortened(document: dict[str, Any], elastic: tuple[str, ...]) -> dict[str, Any]:
    """The document with as much of its elastic parts as fits, at least the first of each; `cut` says of which."""
    cut: dict[str, int] = {}
    for name in elastic:
        whole = document.get(name, ())
        while size_of({**document, "cut": cut}) > MAX_ANSWER_BYTES and len(document.get(name, ())) > 1:
            cut[name] = len(whole)
            document = {**document, name: _half(document[name])}
    return {**document, "cut": cut} if cut else document


def _half(value: Any) -> Any:
    """The first half of a list, a mapping or a text."""
    keep = len(value) // 2
    return dict(list(value.items())[:keep]) if isinstance(value, dict) else value[:keep]


def size_of(document: Any) -> int:
    """Bytes as compact JSON."""
    return len(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def next_text(step: Next) -> str:
    """`say` with the call in a form that can be read back: `… → tool {"key": "value"}`."""
    if step.tool is None:
        return step.say
    return f"{step.say} → {step.tool} {json.dumps(step.arguments, ensure_ascii=False)}"


def clip(text: str, limit: int) -> str:
    """`text` on one line, at most `limit` characters long, without characters that cannot be seen."""
    line = visible_text(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
