"""Tools for models whose chat template knows none (or writes calls in a way that we cannot read): the Hermes format,
described in the system message; results come back in a user message, as Qwen renders them."""

import json
from collections.abc import Sequence
from typing import Any

from trainer.models.parsing.types import ToolCall


def hermes_text(call: ToolCall) -> str:
    """A call as the description asks for it."""
    document = {"name": call.name, "arguments": call.arguments}
    return f"<tool_call>\n{json.dumps(document, ensure_ascii=False)}\n</tool_call>"


def describe_tools(tools: Sequence[dict[str, Any]]) -> str:
    """The text that tells a model its tools and how to call them."""
    first = tools[0]["function"]
    arguments = dict.fromkeys(first.get("parameters", {}).get("properties", {}), "…")
    lines = [
        "You can call these functions:",
        *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools),
        "To call one, answer with only",
        hermes_text(ToolCall(first["name"], arguments)),
        "Its result comes in the next message.",
    ]
    return "\n".join(lines)


def spoken(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Earlier turns with calls and results (worked examples) as such a model says and reads them."""
    plain: list[dict[str, Any]] = []
    results: list[str] = []
    for message in [*messages, {}]:
        if message.get("role") == "tool":
            results.append(str(message["content"]))
            continue
        if results:
            plain.append(results_message(results))
            results = []
        if not message:
            break
        calls = [c["function"] for c in message.get("tool_calls", ())]
        texts = [hermes_text(ToolCall(c["name"], c["arguments"])) for c in calls]
        content = "\n".join(part for part in (message["content"], *texts) if part)
        plain.append({"role": message["role"], "content": content})
    return plain


def results_message(texts: Sequence[str]) -> dict[str, Any]:
    """The user message that carries tool results, in call order."""
    content = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
    return {"role": "user", "content": content}
