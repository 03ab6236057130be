"""Llama 3: a turn that is JSON, `{"name": …, "parameters": …}`, optionally after `<|python_tag|>`; several calls are
separated by `;` or line feeds."""

from trainer.models.parsing.types import ParsedTurn, ToolCall, Tools
from trainer.models.parsing.values import DECODER, call_of, check

TAG = "<|python_tag|>"


def parse_llama(text: str, tools: Tools = ()) -> ParsedTurn:
    """Without the tag, JSON that has no `name` is an answer and not a call."""
    before, tagged, after = text.partition(TAG)
    rest = (after if tagged else text).strip()
    content = before.strip() if tagged else ""
    if not tagged and not rest.startswith(("{", "[")):
        return ParsedTurn(rest)
    calls: list[ToolCall] = []
    errors: list[str] = []
    while rest:
        if not rest.startswith(("{", "[")):
            break
        try:
            document, end = DECODER.raw_decode(rest)
            check(document)
        except (ValueError, RecursionError):
            if tagged or calls or '"name"' in rest:
                errors.append("the call is not valid JSON")
                rest = ""
            break
        several = document if isinstance(document, list) and document else [document]
        if not tagged and not calls and not any(isinstance(one, dict) and "name" in one for one in several):
            break
        for found in map(call_of, several):
            if isinstance(found, str):
                errors.append(found)
            else:
                calls.append(found)
        rest = rest[end:].lstrip(" \t\r\n;").removeprefix(TAG).lstrip()
    if tagged and not calls and not errors:
        errors.append(f"no call follows {TAG}")
    return ParsedTurn(f"{content}\n{rest}".strip(), calls, errors)
