"""How a Python function becomes a tool of ours, and how its errors reach the agent.

1. The function's docstring is the description, its type hints are the schema. Generated titles are taken out of the
   schemas: they cost tokens in every session and say nothing.
2. Wrong arguments, unknown ones included, are refused before the function runs, with what is allowed.
3. An error of our domain becomes a `ToolError` with its own message and the call that helps. Anything else is a crash:
   the client reads no more than that, the log has the traceback.
"""

import difflib
import errno
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from mcp_server.answers import Next, clip, next_text
from skill_bank.visible import visible_text

REFUSALS_OF_THE_SYSTEM = frozenset(
    {
        *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE),
    }
)
"""Errors of the operating system that say something about the call or the machine, and are no fault of the program."""

logger = logging.getLogger(__name__)

MAX_ERROR_TEXT = 4000
"""Characters of an error message; clients cut at about 11,000."""


SEE_STATUS = Next(say="See where things stand.", tool="round_status")
"""What helps where nothing better is known."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as its module declares it."""

    function: Callable[..., Any]
    title: str
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    """It may reach the network (models of the hub)."""
    help_with: Next = field(default_factory=lambda: SEE_STATUS)
    """What helps after an error."""
    meta: dict[str, Any] | None = None


class EvoTool(Tool):
    """A tool with our manner of refusing."""

    help_with: Next = SEE_STATUS

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Checks the arguments, runs the function, turns errors of our domain into readable ones. Raises ToolError.

        Secrets are taken out of the arguments first: what a function does not know it cannot keep, show or log.
        """
        from optimizer.redact import redact

        arguments = {redact(name): redact(value) for name, value in arguments.items()}
        problem = self._problem_with(arguments)
        if problem is not None:
            raise ToolError(visible_text(problem))
        try:
            return await super().run(arguments, context, convert_result=convert_result)
        except UnexpectedToolError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in REFUSALS_OF_THE_SYSTEM:
                logger.warning("%s: %s", self.name, cause)  # with the path, which is nobody's business but ours
                raise ToolError(self._with_help(f"the system refused: {cause.strerror}")) from cause
            if not is_domain_error(cause):
                raise
            raise ToolError(visible_text(self._with_help(str(cause)))) from cause
        except ToolError as error:
            if isinstance(error.__cause__, ToolError):  # ours, wrapped by the SDK under the tool's name
                raise ToolError(visible_text(str(error.__cause__))) from error.__cause__
            raise

    def _with_help(self, message: str) -> str:
        return f"{_middle_out(message).rstrip().rstrip('.')}. Next: {next_text(self.help_with)}"

    def _problem_with(self, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments and what is allowed, or None."""
        properties: dict[str, Any] = self.parameters.get("properties", {})
        problems = [_unknown(name, properties) for name in arguments if name not in properties]
        problems += [
            f"{name} holds a null character, which no text does." for name in arguments if _has_null(arguments[name])
        ]
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            problems += [_invalid(one, properties, arguments) for one in error.errors(include_url=False)]
        if not problems:
            return None
        allowed = "; ".join(describe(name, schema) for name, schema in properties.items()) or "no arguments"
        return f"{self.name}: {' '.join(dict.fromkeys(problems))} It takes: {allowed}. Call {self.name} again."


def make_tool(spec: ToolSpec) -> EvoTool:
    """The tool of a spec, ready to be given to the server."""
    tool = EvoTool.from_function(
        spec.function,
        title=spec.title,
        description=" ".join((spec.function.__doc__ or "").split()),
        annotations=ToolAnnotations(
            read_only_hint=spec.read_only,
            destructive_hint=spec.destructive,
            idempotent_hint=spec.idempotent or spec.read_only,
            open_world_hint=spec.open_world,
        ),
        meta=spec.meta,
        structured_output=True,
    )
    assert isinstance(tool, EvoTool)
    tool.help_with = spec.help_with
    tool.parameters = {**without_titles(tool.parameters), "additionalProperties": False}
    if tool.fn_metadata.output_schema is not None:
        tool.fn_metadata.output_schema = shallow(tool.fn_metadata.output_schema)
        tool.fn_metadata.output_model = None  # an answer was checked when it was made: not once more on its way out
    return tool


def _middle_out(message: str) -> str:
    """At most `MAX_ERROR_TEXT` characters: first it says what was wrong, at its end what is allowed."""
    half = MAX_ERROR_TEXT // 2
    return message if len(message) <= 2 * half else f"{message[:half]} … {message[-half:]}"


def unknown_tool(name: str, known: list[str]) -> str:
    """What a caller of a tool that there is not is told."""
    near = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.5)
    step = Next(say="Call the one that is meant.", tool=near[0]) if near else SEE_STATUS
    return f"there is no tool {clip(name, 64)!r}. There are: {', '.join(known)}. Next: {next_text(step)}"


def without_titles(schema: Any) -> Any:
    """A JSON schema without generated titles and without `null` defaults; a property that is named title stays."""
    if isinstance(schema, list):
        return [without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if (key == "default" and value is None) or (key == "additionalProperties" and value is True):
            continue  # what holds anyhow
        if key in ("properties", "$defs") and isinstance(value, dict):
            kept[key] = {name: without_titles(one) for name, one in value.items()}
        elif key == "anyOf" and isinstance(value, list):
            kept.update(_without_null(value))
        else:
            kept[key] = without_titles(value)
    return kept


def shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """Of an output schema the names of what an answer always holds.

    Everything is checked when an answer is made, and an answer explains itself (its text, `next`); in the list of tools
    the rest would cost every session kilobytes.
    """
    return {"type": "object", "required": schema.get("required", [])}


def _without_null(options: list[Any]) -> dict[str, Any]:
    """`T or null` as T: what may be left out is left out, not sent as null (null is accepted all the same)."""
    rest = [without_titles(one) for one in options if one != {"type": "null"}]
    if len(rest) == 1 and isinstance(rest[0], dict):
        return dict(rest[0])
    return {"anyOf": rest}


def describe(name: str, schema: dict[str, Any]) -> str:
    """An argument and what it may be, in a few words."""
    if "enum" in schema:
        kind = " | ".join(json.dumps(one) for one in schema["enum"])
    else:
        kind = str(schema.get("type", "any"))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        kind += f" {'' if low is None else low} … {'' if high is None else high}"
    return f"{name} ({kind})"


def _has_null(value: Any) -> bool:
    """Whether a text inside a JSON value holds U+0000, which ends a file's name for the operating system."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_null(one) for pair in value.items() for one in pair)
    return isinstance(value, list) and any(_has_null(one) for one in value)


def _unknown(name: str, properties: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(properties), n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no argument {clip(name, 60)!r}{hint}."


def _invalid(error: Any, properties: dict[str, Any], arguments: dict[str, Any]) -> str:
    name = str(error["loc"][0]) if error["loc"] else "?"
    if error["type"] == "missing":
        return f"{name} is missing."
    given = clip(json.dumps(arguments.get(name), ensure_ascii=False, default=str), 80)
    allowed = describe(name, properties.get(name, {}))
    return f"{name} {given} is not allowed ({str(error['msg']).lower()}); allowed: {allowed}."


DOMAIN_ERRORS = frozenset(
    {
        "optimizer.analyze.claims.ClaimError",
        "optimizer.analyze.report.ReportError",
        "optimizer.approvals.ApprovalError",
        "optimizer.ids.BadId",
        "optimizer.index.query.SearchError",
        "optimizer.index.schema.IndexUnavailable",
        "optimizer.layers.LayerError",
        "optimizer.explain.ExplainError",
        "optimizer.patch_store.PatchError",
        "optimizer.round_types.RoundError",
        "optimizer.trial.arms.TrialCancelled",
        "optimizer.trial.arms.TrialError",
        "optimizer.trial.scenarios.ScenarioError",
        "skill_bank.policy.PolicyError",
        "skill_bank.types.BankError",
        "trainer.config.ConfigError",
        "trainer.experience.problems.ExperienceError",
        "trainer.experience.problems.PoolError",
        "trainer.runs.errors.RunError",
        "trainer.runs.errors.WorkspaceError",
    }
)
"""Errors whose message is written for whoever called. By name: importing all of their modules takes a second."""


def is_domain_error(error: BaseException | None) -> bool:
    """Whether the error, by its class or a base of it, is one whose message the caller shall read."""
    return any(f"{one.__module__}.{one.__qualname__}" in DOMAIN_ERRORS for one in type(error).__mro__)
