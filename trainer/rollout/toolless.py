"""Tools for models whose chat template knows none (or writes calls in a way that we cannot read): the Hermes format,
described in the system message; results come back in a user message, as Qwen renders them."""

import json
from collections.abc import Sequence
from typing import Any

EXAMPLE = '<tool_call>\n{"name": "the function", "arguments": {"its": "arguments"}}\n</tool_call>'


def describe_tools(tools: Sequence[dict[str, Any]]) -> str:
    """The text that tells a model its tools and how to call them."""
    lines = [
        "You can call these functions:",
        *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools),
        "To call one, answer with only",
        EXAMPLE,
        "Its result comes in the next message.",
    ]
    return "\n".join(lines)


def results_message(texts: Sequence[str]) -> dict[str, Any]:
    """The user message that carries tool results, in call order."""
    content = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
    return {"role": "user", "content": content}
