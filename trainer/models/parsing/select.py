"""Which parser reads a model's calls: the one that reads back what its own chat template writes.

Nothing is looked up by name. A probe call is rendered by the template and given to every parser; a template that
renders tools and whose call comes back exactly is spoken to in its own format. Any other model is told the Hermes
format in its system message (rollout/toolless.py) and read with the Hermes parser, or as ReAct where it falls back on
that.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from trainer.models import templates
from trainer.models.parsing.hermes import parse_hermes
from trainer.models.parsing.llama import parse_llama
from trainer.models.parsing.qwen_xml import parse_qwen_xml
from trainer.models.parsing.react import parse_react
from trainer.models.parsing.thinking import OPEN, split_thinking
from trainer.models.parsing.types import Format, ParsedTurn, Reader, ToolCall, Tools

NATIVE: dict[Format, Reader] = {
    Format.HERMES: parse_hermes,
    Format.QWEN_XML: parse_qwen_xml,
    Format.LLAMA_JSON: parse_llama,
}
"""Formats that templates write, the one with the clearest marks first."""

PROBE_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "probe_tool",
            "description": "A probe.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "A text."},
                    "count": {"type": "integer", "description": "A number."},
                },
                "required": ["text", "count"],
            },
        },
    }
]
PROBE_CALL = ToolCall("probe_tool", {"text": 'say "é"', "count": 3})

OBSERVATION = "\nObservation:"
"""A ReAct model that writes this makes up its tool's answer: the turn is over."""


def parse_hermes_or_react(text: str, tools: Tools = ()) -> ParsedTurn:
    """Hermes, and ReAct where there is no sign of it."""
    turn = parse_hermes(text, tools)
    return turn if turn.attempted else parse_react(text, tools)


@dataclass(frozen=True)
class Parser:
    """Reads the turns of one model."""

    format: Format
    read: Reader
    native: bool
    """The template renders tools and calls in this format; otherwise we describe tools and format to the model."""
    stops: tuple[str, ...] = ()
    """Texts that end a turn as an end token does."""
    opened: bool = False
    """The prompt ends with `<think>`: a turn starts inside its thinking."""

    def __call__(self, text: str, tools: Tools = ()) -> ParsedTurn:
        """Takes a turn's text (without its end token) apart. Never raises."""
        thinking, said = split_thinking(text, opened=self.opened)
        return replace(self.read(said, tools), thinking=thinking)


def parser_for(tokenizer: PreTrainedTokenizerBase) -> Parser:
    """The parser of a tokenizer's chat template, by measurement. Raises TemplateFault where there is no template."""
    opened = templates.render(tokenizer, templates.QUESTION, generate=True).rstrip().endswith(OPEN)
    if templates.shows_tools(tokenizer, PROBE_TOOLS):
        written = written_call(tokenizer, PROBE_CALL, PROBE_TOOLS)
        for name, read in NATIVE.items():
            parser = Parser(name, read, native=True, opened=opened)
            if written is not None and reads(parser, written, PROBE_CALL, PROBE_TOOLS):
                return parser
    stops = (OBSERVATION, *templates.made_up_turns(tokenizer))
    return Parser(Format.HERMES, parse_hermes_or_react, native=False, stops=stops, opened=opened)


def reads(parser: Parser, written: str, call: ToolCall, tools: Tools) -> bool:
    """Whether a parser finds exactly this call in a text."""
    turn = parser(written, tools)
    return turn.calls == [call] and not turn.errors


def written_call(tokenizer: PreTrainedTokenizerBase, call: ToolCall, tools: Tools) -> str | None:
    """The turn that the template writes for a call, without its end token; None where it writes no calls."""
    for arguments in (call.arguments, json.dumps(call.arguments, ensure_ascii=False)):
        function = {"name": call.name, "arguments": arguments}
        turn = {"role": "assistant", "content": "", "tool_calls": [templates.tool_call(function)]}
        try:
            start = templates.render(tokenizer, templates.QUESTION, tools, generate=True)
            whole = templates.render(tokenizer, [*templates.QUESTION, turn], tools, generate=False)
        except templates.TemplateFault:
            continue
        # a template may write more into a finished turn than into the prompt for one (an empty thinking block)
        text = whole[len(_common(start, whole)) :]
        if call.name in text:
            return templates.before_end(tokenizer, text)
    return None


def _common(a: str, b: str) -> str:
    """The longest text that both begin with."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return a[:length]
