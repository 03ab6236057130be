"""Tool calls in model text, one file a format. Parsers never raise: what cannot be read is an error for the model to
see. `select.parser_for` chooses by measurement."""

from trainer.models.parsing.hermes import parse_hermes
from trainer.models.parsing.types import Format, ParsedTurn, ToolCall, Tools

__all__ = ["Format", "ParsedTurn", "ToolCall", "Tools", "parse_hermes"]
