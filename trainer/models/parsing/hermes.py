"""Hermes, Qwen 2.5 and Qwen 3: `<tool_call>` JSON `</tool_call>`, any number of them."""

from trainer.models.parsing.tags import take_apart
from trainer.models.parsing.types import ParsedTurn, ToolCall, Tools
from trainer.models.parsing.values import calls_of


def parse_hermes(text: str, tools: Tools = ()) -> ParsedTurn:
    """JSON carries its own types, so the schemas are not needed."""
    tagged = take_apart(text)
    found = [call for body in tagged.bodies for call in calls_of(body.strip())]
    calls = [call for call in found if isinstance(call, ToolCall)]
    errors = [call for call in found if isinstance(call, str)]
    return ParsedTurn(tagged.outside, calls, errors + tagged.errors)
