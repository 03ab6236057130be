"""A client that knows no order of tools: it calls what `next` names, and mends a refused call by the refusal's text."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp import Client
from mcp_types import CallToolResult

_CALL = re.compile(r"→ (\w+) (\{.*\})$", re.DOTALL)
_UNKNOWN = re.compile(r"there is no argument '([^']*)'(?: \(did you mean (\w+)\?\))?")
_MISSING = re.compile(r"(\w+) is missing")
_BAD = re.compile(r"[.:] (?!there\b)(\w+) (?:(?!\. ).)*? is not allowed \(.*?\); allowed: \w+ \((.*?)\)\.(?= |$)")
_AGAIN = re.compile(r"Call (\w+) again\.$")


@dataclass
class Call:
    """A call that was made."""

    tool: str
    arguments: dict[str, Any]
    refused: str | None
    answer: dict[str, Any]


@dataclass
class Driver:
    """Follows `next` from one call on.

    `wishes` are the user's: given to every tool that has an argument of that name. `spoil` makes a call wrong before it
    is sent, once for each tool and spoiler.
    """

    client: Client
    wishes: dict[str, Any] = field(default_factory=dict)
    spoil: list[Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]] = field(default_factory=list)
    """(schema, arguments) → wrong arguments, or None where it cannot spoil them."""
    calls: list[Call] = field(default_factory=list)
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def follow(
        self, tool: str, arguments: dict[str, Any], done: Callable[[list[Call]], bool], limit: int
    ) -> None:
        """Goes on until `done`. Raises AssertionError when `next` names nothing, or after `limit` calls."""
        self.schemas = {one.name: one.input_schema for one in (await self.client.list_tools()).tools}
        spoiled: set[tuple[str, int]] = set()
        for _ in range(limit):
            arguments = {**arguments, **self._wished(tool)}
            for number, spoiler in enumerate(self.spoil):
                wrong = spoiler(self.schemas[tool], arguments)
                if (tool, number) in spoiled or wrong is None:
                    continue
                spoiled.add((tool, number))
                arguments = await self._recovered(tool, wrong, arguments)
            call = await self._call(tool, arguments)
            assert call.refused is None, (tool, arguments, call.refused)
            if done(self.calls):
                return
            step = call.answer["next"]
            assert "tool" in step, (tool, step)
            tool, arguments = step["tool"], step.get("arguments", {})
        raise AssertionError(f"not done after {limit} calls: {[one.tool for one in self.calls]}")

    def _wished(self, tool: str) -> dict[str, Any]:
        known = self.schemas[tool].get("properties", {})
        return {name: value for name, value in self.wishes.items() if name in known}

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Call:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        text = "\n".join(part.text for part in result.content if part.type == "text")
        call = Call(tool, arguments, text if result.is_error else None, result.structured_content or {})
        self.calls.append(call)
        return call

    async def _recovered(self, tool: str, wrong: dict[str, Any], meant: dict[str, Any]) -> dict[str, Any]:
        """Sends a wrong call; the arguments to send instead, by what the refusal says.

        Either it says how to call the tool again, or it names the call that helps, which is made.
        """
        call = await self._call(tool, wrong)
        assert call.refused is not None, (tool, wrong)
        again = _AGAIN.search(call.refused)
        if again is not None:
            assert again.group(1) == tool, call.refused
            return mended(wrong, call.refused, meant)
        elsewhere = _CALL.search(call.refused)
        assert elsewhere is not None, call.refused
        helped = await self._call(elsewhere.group(1), json.loads(elsewhere.group(2)))
        assert helped.refused is None, (call.refused, helped.refused)
        return meant


def mended(arguments: dict[str, Any], refusal: str, meant: dict[str, Any]) -> dict[str, Any]:
    """The arguments changed as the refusal says, by its text alone.

    A value that was spoilt is put back from what the caller meant, where it meant one: a refusal cannot know it.
    """
    changed = dict(arguments)
    for name, near in _UNKNOWN.findall(refusal):
        value = changed.pop(name)
        if near:
            changed.setdefault(near, value)
    for name in _MISSING.findall(refusal):
        changed[name] = meant[name]
    for name, allowed in _BAD.findall(refusal):
        assert name in changed, (name, refusal)
        if name in meant:
            changed[name] = meant[name]
        elif (nearest := bound_of(allowed, changed[name])) is not None:
            changed[name] = nearest
        else:
            del changed[name]
    return changed


def bound_of(allowed: str, given: Any) -> int | None:
    """The bound nearest to a number outside `integer 1 … 20`; None where the refusal names no bounds."""
    found = re.fullmatch(r"(?:integer|number) (\S*) … (\S*)", allowed)
    if found is None or not isinstance(given, int | float):
        return None
    low, high = found.groups()
    if high and given > float(high):
        return int(high)
    return int(low) if low and given < float(low) else None
