"""What a skill may name: the tools of the live server with their arguments and answers, its resources, the commands of
`mcp-evo`, fields of a configuration, and the skills, sections and policy keys of the bank.

Nothing here is a list kept by hand: every name is asked of the thing that has it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

import anyio
import typer.core
import typer.main
from pydantic import BaseModel, ValidationError

from mcp_server.cli.main import build_app
from mcp_server.jobs.campaigning import CampaignWish
from mcp_server.server import build_server
from mcp_server.tooling import EvoTool, make_tool
from mcp_server.tools import all_specs
from optimizer.analyze.claims import Claim
from skill_bank.bank import SkillBank
from skill_bank.policy import CONTEXT_KEYS
from skill_bank.types import BankError
from trainer.config import TrainingConfig
from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.findings import FindingKind
from trainer.runs.types import Eval, RunDocument, RunState, Verdict

_WORD = re.compile(r"[a-z]+(?:_[a-z]+)+")


@dataclass(frozen=True)
class ToolWords:
    """A tool: what it takes and what it answers."""

    tool: EvoTool
    answers: frozenset[str]
    """Names of all fields of its answer, those of parts included."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.tool.parameters.get("properties", {}))

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(self.tool.parameters.get("required", ()))

    def problem_with(self, name: str, value: Any) -> str | None:
        """Why an argument may not have a value; None where it may."""
        model = self.tool.fn_metadata.arg_model
        try:
            model.__pydantic_validator__.validate_assignment(model.model_construct(), name, value)
        except ValidationError as error:
            return str(error.errors(include_url=False)[0]["msg"])
        return None


@dataclass(frozen=True)
class CommandWords:
    """A command or a group of them."""

    options: Mapping[str, bool]
    """Option → whether a value follows it."""
    places: int | None
    """How many words it takes; None: any number."""
    children: Mapping[str, "CommandWords"]
    """Commands of a group; a command has none."""


@dataclass(frozen=True)
class Words:
    """Everything that can be named."""

    tools: Mapping[str, ToolWords]
    resources: tuple[str, ...]
    """Resources and templates: `evo://runs/{run_id}`."""
    command: CommandWords
    """The command line `mcp-evo`."""
    skills: Mapping[str, frozenset[str]]
    """Skill → its sections, those of its patches included."""
    policy: Mapping[str, frozenset[str]]
    """Skill → paths of its policy keys, parents included."""
    mappings: Mapping[str, frozenset[str]]
    """Argument that holds a mapping → the keys it may have."""
    names: frozenset[str]
    """Every single name: tools, arguments, fields of answers, settings, policy keys, states."""

    @classmethod
    def of(cls, bank: SkillBank) -> "Words":
        """Asks the server, the command line and the bank. A skill that cannot be read has no sections and no policy."""
        tools = {tool.name: words for tool, words in _tools()}
        skills = {name: _sections(bank, name) for name in bank.skills()}
        policy = {name: _policy(bank, name) for name in bank.skills()}
        mappings = {
            "overrides": frozenset(TrainingConfig.model_fields),
            "campaign": frozenset(one.name for one in fields(CampaignWish)),
            "scope": frozenset(CONTEXT_KEYS),
            "claims": frozenset(Claim.model_fields),
        }
        names = {*tools, *(word for path in policy.values() for key in path for word in key.split("."))}
        names |= {word for one in tools.values() for word in (*one.arguments, *one.answers)}
        names |= {word for keys in mappings.values() for word in keys}
        for model in (RunDocument, Eval):
            names |= _fields(model)
        names |= {*RunState, *Verdict, *FindingKind, *_alerts(), *_spoken(tools.values())}
        return cls(tools, _resources(), _command(typer.main.get_command(build_app(None))), skills, policy, mappings,
                   frozenset(str(one) for one in names))  # fmt: skip


def _tools() -> list[tuple[EvoTool, ToolWords]]:
    found = []
    for spec in all_specs():
        tool = make_tool(spec)
        answer = spec.function.__annotations__["return"].__metadata__[0]
        found.append((tool, ToolWords(tool, frozenset(_fields(answer)))))
    return found


def _fields(model: type[BaseModel], seen: set[type] | None = None) -> set[str]:
    seen = set() if seen is None else seen
    if model in seen:
        return set()
    seen.add(model)
    found = set()
    for name, one in model.model_fields.items():
        found.add(name)
        for part in _models(one.annotation):
            found |= _fields(part, seen)
    return found


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _spoken(tools: Iterable[ToolWords]) -> set[str]:
    """Words that descriptions of answers give as values, and the values that arguments allow."""
    found: set[str] = set()
    for one in tools:
        for schema in one.tool.parameters.get("properties", {}).values():
            found |= {str(value) for value in schema.get("enum", ())}
    for spec in all_specs():
        answer = spec.function.__annotations__["return"].__metadata__[0]
        for part in answer.model_fields.values():
            found |= set(_WORD.findall(part.description or ""))
    return found


def _alerts() -> set[str]:
    """Detectors and what else their texts name: kinds of alerts, metrics."""
    return {word for one in CATALOGUE for word in (one.id, *_WORD.findall(f"{one.rule} {one.advice}"))}


def _command(node: Any) -> CommandWords:
    """A command of typer, which brings its own copy of click in some versions and uses click's in others."""
    options: dict[str, bool] = {"-h": False, "--help": False, "--workspace": True}
    places: int | None = 0
    for one in node.params:
        if isinstance(one, typer.core.TyperOption):
            takes = not (one.is_flag or one.count)
            options |= dict.fromkeys((*one.opts, *one.secondary_opts), takes)
        elif places is not None:
            places = None if one.nargs == -1 else places + one.nargs
    group = isinstance(node, typer.core.TyperGroup)
    children = {name: _command(one) for name, one in node.commands.items()} if group else {}
    return CommandWords(options, places, children)


def _resources() -> tuple[str, ...]:
    server = build_server(".")  # touches no disk

    async def ask() -> tuple[str, ...]:
        fixed = [str(one.uri) for one in await server.list_resources()]
        found = [*fixed, *(one.uri_template for one in await server.list_resource_templates())]
        return tuple(one for one in found if one.startswith("evo://"))

    return anyio.run(ask)


def _sections(bank: SkillBank, skill: str) -> frozenset[str]:
    try:
        source = bank.source(skill)
    except BankError:
        return frozenset()
    inserted = {one.new_section for one in source.patches.values() if one.new_section is not None}
    return frozenset({one.name for one in source.base.sections} | inserted)


def _policy(bank: SkillBank, skill: str) -> frozenset[str]:
    try:
        source = bank.source(skill)
        keys = () if source.schema is None else bank.policy(skill).keys
    except BankError:
        return frozenset()
    return frozenset(".".join(key.split(".")[:count]) for key in keys for count in range(1, key.count(".") + 2))
