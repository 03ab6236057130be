"""Writes the reference pages from the code: `python docs/reference/build.py`; with `--check` it only compares.

Each page is a pure function of what is installed, so that the same code gives the same bytes. What a page says is said
where the thing is defined (docstrings, help texts, field descriptions, policy schemas): correct it there.
"""

import argparse
import json
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

import skill_bank
from mcp_server.cli.main import build_app
from mcp_server.tooling import describe, make_tool
from mcp_server.tools import all_specs
from skill_bank.policy import CompiledPolicy, describe_condition
from trainer.config import TrainingConfig

FOLDER = Path(__file__).resolve().parent

BANK = Path(skill_bank.__file__).resolve().parent / "bank"

MADE = "<!-- Made by docs/reference/build.py from the code: do not edit. -->"


def page(title: str, introduction: str, lines: list[str]) -> str:
    """A whole page."""
    return "\n".join([f"# {title}", "", MADE, "", introduction, "", *lines]).rstrip() + "\n"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A table; cells are one line each."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(_cell(one) for one in row) + " |" for row in rows]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "–"


def code(text: str) -> str:
    """`text` as code."""
    return f"`{text}`" if text else ""


# ---- tools


def tools_page() -> str:
    """Every tool with its arguments and annotations."""
    lines: list[str] = []
    for spec in all_specs():
        tool = make_tool(spec)
        lines += [f"## `{tool.name}`", "", tool.description or "", ""]
        marks = [spec.title, "reads only" if spec.read_only else "changes the workspace"]
        marks += ["destructive"] if spec.destructive else []
        marks += ["repeating it changes nothing more"] if spec.idempotent and not spec.read_only else []
        marks += ["may reach the network"] if spec.open_world else []
        marks += ["a person is asked"] if "anthropic/requiresUserInteraction" in (spec.meta or {}) else []
        lines += ["; ".join(marks) + ".", ""]
        required = set(tool.parameters.get("required", []))
        rows = [
            (
                code(name) + (" (required)" if name in required else ""),
                describe(name, schema).removeprefix(name).strip().removeprefix("(").removesuffix(")"),
                json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "",
                schema.get("description", ""),
            )
            for name, schema in tool.parameters.get("properties", {}).items()
        ]
        lines += [*table(("argument", "allowed", "default", "meaning"), rows), ""] if rows else ["No arguments.", ""]
    introduction = (
        f"The {len(all_specs())} tools of `mcp-evo serve`, as a client sees them. An id that is left out means the "
        "latest. Every answer is one line of text, compact data, and `next`: what to call then, with its arguments."
    )
    return page("Tools", introduction, lines)


# ---- command line


_OF_THE_SHELL = ("install_completion", "show_completion")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and group with its whole name; the kind of command depends on the release of typer."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        if isinstance(command, TyperGroup):
            for one in command.list_commands(typer.Context(command)):
                inner = command.get_command(typer.Context(command), one)
                if inner is not None and not inner.hidden:
                    yield from below(f"{name} {one}", inner)

    yield from below("mcp-evo", get_command(build_app(None)))


def cli_page() -> str:
    """Every command with its help."""
    lines: list[str] = []
    for name, command in commands():
        depth = min(len(name.split()), 3)
        lines += [f"{'#' * (depth + 1)} `{name}`", "", " ".join((command.help or "").split()), ""]
        if isinstance(command, TyperGroup) and name != "mcp-evo":
            inner = [f"`{one}`" for one in command.list_commands(typer.Context(command))]
            lines += [f"Commands: {', '.join(inner)}.", ""]
        rows = [_parameter(one) for one in command.params if one.name not in ("install_completion", "show_completion")]
        if rows:
            lines += [*table(("argument or option", "default", "meaning"), rows), ""]
    introduction = (
        "Every command, as `--help` tells it. `--workspace DIR` may stand anywhere; without it `$MCP_EVO_HOME` counts, "
        "then the nearest folder above that holds `.mcp-evo`. Exit codes: 0 the command did its work whatever the "
        "verdict, 1 it failed or was refused, 2 usage, 130 interrupted."
    )
    return page("Command line", introduction, lines)


def _parameter(one: TyperArgument | TyperOption) -> tuple[str, str, str]:
    if isinstance(one, TyperArgument):
        shown = one.metavar or (one.name or "").upper() + ("…" if one.nargs == -1 else "")
        name = code(shown if one.required or shown.startswith("[") else f"[{shown}]")
        return name, _default(one), one.help or ""
    names = ", ".join(one.opts) + (f" / {', '.join(one.secondary_opts)}" if one.secondary_opts else "")
    value = "" if one.is_flag else f" {one.metavar or _placeholder(one.type_descriptor.annotation)}"
    more = " (several)" if one.multiple else " (required)" if one.required else ""
    return code(names + value) + more, _default(one), one.help or ""


def _placeholder(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(one.value) for one in annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    inner = [one for one in get_args(annotation) if one is not type(None)]
    if inner:
        return _placeholder(inner[0])
    return {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}[annotation]


def _default(one: TyperArgument | TyperOption) -> str:
    value = one.default
    if not isinstance(value, str | int | float | Enum) or value is False:  # none, or worked out when it is asked for
        return ""
    if isinstance(value, bool):
        return "on"
    return code(str(value.value if isinstance(value, Enum) else value))


# ---- configuration


def config_page() -> str:
    """Every key of the training configuration."""
    lines: list[str] = []
    rows: list[tuple[str, ...]] = []
    nested: list[tuple[str, type[BaseModel]]] = []
    for name, info in TrainingConfig.model_fields.items():
        rows.append((code(name), kind_of(info), default_of(info), info.description or ""))
        nested += [(name, model) for model in _models(info.annotation)]
    lines += table(("key", "type", "default", "meaning"), rows)
    for name, model in nested:
        lines += ["", f"## `{name}`", "", " ".join((model.__doc__ or "").split()), ""]
        inner: list[tuple[str, ...]] = [
            (code(f"{name}.{key}"), kind_of(info), default_of(info), info.description or "")
            for key, info in model.model_fields.items()
        ]
        lines += table(("key", "type", "default", "meaning"), inner)
    introduction = (
        "Every key of a training configuration: what `--set KEY=VALUE` and `--config FILE` take, and what the "
        "`config.json` of a run holds. The defaults are those of the model; where neither the request nor an override "
        "says otherwise, the policy of the skill `rllm-config` comes before them ([policy.md](policy.md)). `null` as a "
        "default: it is worked out, as the meaning says."
    )
    return page("Configuration", introduction, lines)


def kind_of(info: FieldInfo) -> str:
    """Type and limits of a field."""
    limits = []
    for one in info.metadata:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if hasattr(one, attribute):
                limits.append(f"{sign} {_number(getattr(one, attribute))}")
    return ", ".join([_type(info.annotation), *limits])


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def _type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(code(str(one)) for one in inner)
    if origin in (Union, types.UnionType):
        named = [_type(one) for one in inner if one is not type(None)]
        return " or ".join(named)
    if origin is not None and hasattr(origin, "__name__") and origin.__name__ == "Annotated":
        return _type(inner[0])
    if origin in (list, tuple, set, frozenset):
        return "list of " + _type(inner[0]) if inner else "list"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(code(str(one.value)) for one in annotation)
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return names.get(annotation, str(annotation))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in get_args(annotation) for model in _models(one)]


def default_of(info: FieldInfo) -> str:
    """A field's default as YAML would have it."""
    value = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, BaseModel):
        return "see below"
    return code(json.dumps(value, ensure_ascii=False, default=list))


# ---- policy


def policy_page() -> str:
    """Every policy key of the shipped skills: meaning, what may stand there, what is in force."""
    lines: list[str] = []
    for path in sorted(BANK.glob("*/*/policy_schema.yaml")):
        skill = path.parent.name
        schema = yaml.safe_load(path.read_text(encoding="utf-8"))["keys"]
        policy = CompiledPolicy.load(BANK / "compiled" / skill / "policy.json")
        lines += [f"## `{skill}`", ""]
        rows = [
            (code(name), declared.get("description", ""), allowed_of(declared), in_force(policy, name))
            for name, declared in schema.items()
        ]
        lines += [*table(("key", "meaning", "allowed", "in force"), rows), ""]
    introduction = (
        "What the shipped skills decide by: every key that their policy blocks may hold. A value with a condition "
        "counts only in a run that the condition fits; of several that fit, the later one does. Patches change the "
        "values in force; `mcp-evo skills policy SKILL` shows those of a workspace, `mcp-evo explain SKILL:KEY` where "
        "one comes from."
    )
    return page("Policy of the shipped skills", introduction, lines)


def allowed_of(declared: Mapping[str, Any]) -> str:
    """What a schema lets stand there."""
    if "fields" in declared:
        return "; ".join(f"{name}: {allowed_of(one)}" for name, one in declared["fields"].items())
    parts = [str(declared.get("type", "anything"))]
    if "enum" in declared:
        parts = [" or ".join(code(json.dumps(one)) for one in declared["enum"])]
    for word, sign in (("min", "≥"), ("above", ">"), ("max", "≤"), ("below", "<")):
        if word in declared:
            parts.append(f"{sign} {_number(declared[word])}")
    if declared.get("nullable"):
        parts.append("or null")
    return " ".join(parts)


def in_force(policy: CompiledPolicy, name: str) -> str:
    """The values of a key, by what they are of and by condition."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in policy.assignments:
        if one.key == name or one.key.startswith(f"{name}."):
            rest = one.key.removeprefix(name).removeprefix(".")
            of, _, field = rest.rpartition(".")
            condition = "" if not one.when else describe_condition(one.when)
            value = code(json.dumps(one.value, ensure_ascii=False))
            groups.setdefault((of, condition), []).append(f"{field} {value}".strip())
    return "<br>".join(
        (f"{code(of)}: " if of else "") + ", ".join(values) + (f" ({condition})" if condition else "")
        for (of, condition), values in groups.items()
    )


PAGES: dict[str, Callable[[], str]] = {
    "tools.md": tools_page,
    "cli.md": cli_page,
    "config.md": config_page,
    "policy.md": policy_page,
}
"""File → what makes it."""


def stale() -> list[str]:
    """Pages that are not what the code says now."""
    found = []
    for name, make in PAGES.items():
        place = FOLDER / name
        if not place.is_file() or place.read_text(encoding="utf-8") != make():
            found.append(name)
    return found


def main() -> int:
    """The command; 1: a page is out of date."""
    parser = argparse.ArgumentParser(description="Write the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 where a page is out of date")
    if parser.parse_args().check:
        old = stale()
        for name in old:
            print(f"docs/reference/{name} is out of date: run python docs/reference/build.py", file=sys.stderr)
        return 1 if old else 0
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
