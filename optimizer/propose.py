"""From a finding to scoped policy patches, by rule. What comes out still has to pass `optimizer.stage`.

The scope of a patch is the model class and the environment that the finding comes from: `{params, env}` (and `lora`
where adapters were trained). It changes nothing outside, so a learning rate proven on a small model never reaches a
large one.
"""

import json
from collections.abc import Mapping
from typing import Any

from optimizer.candidates import values_to_try
from optimizer.patch_store import Expectation, PatchError, PatchStore, PolicyChange, Stage, effect_hash
from optimizer.stage import Proposal
from optimizer.types import Direction, Finding
from skill_bank.policy import CompiledPolicy, parse_params

EXPECTED_GAIN = 0.10
"""What a patch by rule promises: the smallest gain worth a search."""


def model_class(policy: CompiledPolicy, params: int) -> str:
    """The narrowest range of model sizes that the policy itself distinguishes around `params`.

    Raises PatchError where the policy knows no range that holds it.
    """
    ranges = {
        one.when["params"]
        for one in policy.assignments
        if one.origin.patch == "base" and one.when is not None and "params" in one.when
    }
    holding = [text for text in ranges if params in parse_params(text)]
    if not holding:
        raise PatchError(f"the policy of {policy.skill} has no size class that holds a model of {params:,} parameters")
    return min(holding, key=lambda text: (parse_params(text).high - parse_params(text).low, text))


def scope_of(policy: CompiledPolicy, context: Mapping[str, Any]) -> dict[str, Any]:
    """The scope of patches for runs in this context. Raises PatchError for a model of unknown size."""
    params = context.get("params")
    if params is None:
        raise PatchError("the size of the model is not known, so no scope can be given: name a model of the catalog")
    scope: dict[str, Any] = {"params": model_class(policy, params), "env": context["env"]}
    if context.get("lora"):
        scope["lora"] = True
    return scope


def section_of(policy: CompiledPolicy, key: str) -> str:
    """The section whose base sets the key. Raises PatchError for a key that the policy does not have."""
    for one in policy.explain(key):
        if one.origin.patch == "base":
            return one.origin.section
    known = ", ".join(sorted({one.split(".")[0] for one in policy.keys}))
    raise PatchError(f"the policy of {policy.skill} has no key {key!r}. It has: {known}")


def proposals_for(
    finding: Finding,
    policy: CompiledPolicy,
    context: Mapping[str, Any],
    current: float,
    store: PatchStore,
    *,
    limit: int = 1,
    profile: str | None = None,
    layer: str = "traj",
    report_id: str | None = None,
    round_number: int | None = None,
) -> list[Proposal]:
    """Up to `limit` proposals for a finding with a lever, the most promising first.

    `policy` is the one the run was configured with, `current` the value it used. Values whose effect was rejected
    or tried before are passed over. Raises PatchError that says why where nothing can be proposed.
    """
    lever = finding.lever
    if lever is None:
        raise PatchError(f"finding {finding.id} ({finding.kind}) names no lever: a person or an agent has to decide")
    if finding.blocked is not None:
        raise PatchError(f"finding {finding.id}: {finding.blocked}")
    scope = scope_of(policy, context)
    section = section_of(policy, lever.key)
    resolved = policy.resolve(dict(context))
    low, high = resolved.get(f"{lever.key}.min"), resolved.get(f"{lever.key}.max")
    key = f"{lever.key}.default"
    found: list[Proposal] = []
    passed_over: list[str] = []
    for value in values_to_try(current, lever, low, high):
        change = PolicyChange(key=key, when=scope, before=current, after=value)
        effect = effect_hash(lever.skill, section, [change])
        known = _known(store, effect, profile)
        if known is not None:
            passed_over.append(f"{value:g} {known}")
            continue
        found.append(
            Proposal(
                skill=lever.skill,
                section=section,
                body=_body(finding, lever.key, lever.direction, value, scope),
                description=f"{lever.key} {current:g} → {value:g} for {_scope_text(scope)}: {finding.kind}",
                slug=f"{lever.direction}-{lever.key}".replace("_", "-"),
                layer=layer,
                scope=scope,
                profile=profile,
                context=context,
                finding=finding,
                expected=Expectation(change=EXPECTED_GAIN, because=finding.what),
                report_id=report_id,
                round=round_number,
                effect=effect,
            )
        )
        if len(found) == limit:
            break
    if not found:
        bounds = f"{'' if low is None else f'{low:g}'} … {'' if high is None else f'{high:g}'}".strip()
        why = "; ".join(passed_over) or f"{lever.key} {current:g} is at the end of its safe range ({bounds})"
        raise PatchError(f"nothing is left to try for {lever.key} ({lever.direction}): {why}")
    return found


def _known(store: PatchStore, effect: str, profile: str | None) -> str | None:
    """What became of a patch with this effect, where one is past being tried; None: it may be tried."""
    rejected = store.rejected_with(effect)
    if rejected is not None:
        return f"was rejected as {rejected.patch_id} ({rejected.why})"
    for record in store.all():
        past = record.stage in (Stage.TRIED, Stage.APPROVED, Stage.ACTIVE)
        if past and record.effect_hash == effect and record.profile == profile:
            return f"is {record.stage} as {record.patch_id}"
    return None


def _scope_text(scope: Mapping[str, Any]) -> str:
    return f"{scope['env']}, models {scope['params']}" + (" with LoRA" if scope.get("lora") else "")


def _body(finding: Finding, key: str, direction: Direction, value: float, scope: Mapping[str, Any]) -> str:
    """One sentence for an agent, one rule for the machine. The number stands in the rule alone."""
    moved = {Direction.UP: "raised", Direction.DOWN: "lowered", Direction.SET: "set"}[direction]
    rule = ", ".join(f"{name}: {json.dumps(one)}" for name, one in scope.items())
    text = f"{value:.1e}" if isinstance(value, float) and 0 < value < 0.01 else json.dumps(value)
    return (
        f"For {_scope_text(scope)}, `{key}` is {moved}: a run showed {finding.kind.replace('_', ' ')}.\n\n"
        f"```yaml policy\n{key}:\n  - {{when: {{{rule}}}, default: {text}}}\n```"
    )
