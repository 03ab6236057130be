"""`mcp-evo skills policy`: the values that a skill sets in a situation, and who set each."""

from typing import Annotated, Any

import typer

from mcp_server.cli.context import CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, plain_table, print_json, print_table
from mcp_server.cli.skills_common import Bank, Skill, bank_of
from skill_bank.policy import describe_condition
from skill_bank.render import show


def policy_command(
    context: typer.Context,
    skill: Skill,
    situation: Annotated[
        str | None, typer.Option("--for", metavar="MODEL,ENV", help="For this model and environment: tiny,calculator.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="For this model, for instance tiny.")] = None,
    env: Annotated[str | None, typer.Option(help="For this environment, for instance calculator.")] = None,
    difficulty: Annotated[str | None, typer.Option(help="For this difficulty.")] = None,
    key: Annotated[str | None, typer.Option("--explain", metavar="KEY", help="Every rule about a key.")] = None,
    profile: Annotated[str | None, typer.Option(help="Under this profile.")] = None,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show the values that a skill's policy sets in a situation, and which patch set each."""
    policy = bank_of(context, bank).policy(skill, profile)
    if situation is not None:
        model, env = _situation(situation, model, env)
    known = _policy_context(model, env, difficulty)
    resolved = policy.resolve(known)
    console = console_for(as_json)
    if key is not None:
        rules = policy.explain(key)
        if not rules:
            raise CommandError(f"the policy of {skill} has no key {key!r}. It has: {', '.join(policy.keys)}.")
        here = {name: value for name, value in resolved.flat.items() if name == key or name.startswith(f"{key}.")}
        if as_json:
            origins = {name: resolved.provenance[name] for name in here}
            found = {"context": known, "values": here, "provenance": origins} if known else {}
            print_json({"skill": skill, "key": key, "rules": [one.as_dict() for one in rules], **found})
            return
        table = plain_table("key", "value", "when", "patch", "where", "holds" if known else "")
        for one in rules:
            where = f"{one.origin.file}:{one.origin.line}"
            holds = known and resolved.provenance.get(one.key, {}).get("line") == one.origin.line
            holds = holds and resolved.provenance[one.key]["file"] == one.origin.file
            condition = describe_condition(one.when)
            table.add_row(one.key, show(one.value), condition, one.origin.patch, where, "←" if holds else "")
        print_table(console, table)
        return
    if as_json:
        print_json({"skill": skill, "context": known, "values": resolved.values, "provenance": resolved.provenance})
        return
    table = plain_table("key", "value", "patch", "when")
    for name, value in resolved.flat.items():
        origin = resolved.provenance[name]
        table.add_row(name, show(value), str(origin["patch"]), describe_condition(origin["when"]))
    print_table(console, table)


def _situation(text: str, model: str | None, env: str | None) -> tuple[str | None, str | None]:
    """`model`, `model,env` or `,env`. Raises CommandError."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not any(parts):
        raise CommandError(f"--for is {text!r}: write MODEL, MODEL,ENV or ,ENV, for instance tiny,calculator.")
    given = (parts[0] or None, parts[1] or None if len(parts) == 2 else None)
    for name, first, second in (("--model", given[0], model), ("--env", given[1], env)):
        if first is not None and second is not None and first != second:
            raise CommandError(f"--for says {first}, {name} says {second}: give one of them.")
    return given[0] or model, given[1] or env


def _policy_context(model: str | None, env: str | None, difficulty: str | None) -> dict[str, Any]:
    from trainer.models.catalog import default_lora, resolve_model

    known: dict[str, Any] = {}
    if model is not None:
        info = resolve_model(model)
        known = {"model": info.name, "lora": default_lora(info.params)}
        known |= {} if info.params is None else {"params": info.params}
    known |= {} if env is None else {"env": env}
    return known | ({} if difficulty is None else {"difficulty": difficulty})
