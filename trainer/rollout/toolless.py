"""Tools for models whose chat template knows none: the Hermes format, described in the system message."""

import json
from typing import Any


def describe_tools(tools: list[dict[str, Any]]) -> str:
    """The text that tells a model its tools and how to call them."""
    lines = [
        "You can call these functions:",
        *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools),
        "To call one, answer with only",
        '<tool_call>\n{"name": "the function", "arguments": {"its": "arguments"}}\n</tool_call>',
        "Its result comes in the next message.",
    ]
    return "\n".join(lines)
