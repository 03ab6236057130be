"""From findings about the optimiser to patches of its policy, by rule, through the one door for patches.

What a finding suggests is ranked by a replay of the families that were analysed; the best value is staged with that
gain as its prediction. A value that gains nothing there is not proposed at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.home import Home
from optimizer.layers import Layer
from optimizer.meta.frozen import OPTIMIZE_SKILL
from optimizer.meta.judge import NAME, UNIT, ratio_of
from optimizer.meta.simulate import Replayer
from optimizer.meta.types import Opportunity, OptimizerPolicy
from optimizer.patch_store import Expectation, PatchError, PatchRecord
from optimizer.propose import section_of
from optimizer.stage import EditBudget, Proposal, stage
from optimizer.types import Finding
from skill_bank.policy import CompiledPolicy
from skill_bank.types import BankError

NEW_KEYS = {"lever_patience": "max_patches_per_round"}
"""Key that the base does not set → the key whose section it belongs to."""

_FIELDS = {
    "trial_plan.default": "plan",
    "screening_pairs": "screening_pairs",
    "max_patches_per_round": "candidates",
    "lever_patience": "lever_patience",
}

_WORDS = {
    "trial_plan.default": "The plan of a trial is another one",
    "screening_pairs": "A screening takes another number of pairs",
    "max_patches_per_round": "A round has another number of candidates",
    "lever_patience": "A lever is left alone in a scope after as many failed trials in a row as policy says",
}


@dataclass(frozen=True)
class Wish:
    """A value that a finding suggests, with what the analysed families say about it."""

    finding: Finding
    key: str
    value: int | str
    gain: float
    """Change of accepted gain for `UNIT` episodes in the replay of what was analysed."""


def wishes(findings: Sequence[Finding], analysed: Sequence[Opportunity], now: OptimizerPolicy, seed: int) -> list[Wish]:
    """What findings suggest, the largest gain in the replay first; nothing with fewer than two opportunities."""
    if len(analysed) < 2:
        return []
    replayer = Replayer(analysed, seed)
    base = replayer.outcomes(now)
    found: dict[tuple[str, int | str], Wish] = {}
    for finding in findings:
        move = (finding.model_extra or {}).get("move")
        if move is None:
            continue
        key = move["key"]
        for value in move["values"]:
            if (key, value) in found:
                continue
            changed = now.model_copy(update={_FIELDS[key]: value})
            gain = ratio_of(base, replayer.outcomes(changed)).effect
            found[key, value] = Wish(finding, key, value, gain)
    return sorted(found.values(), key=lambda one: -one.gain)


def stage_best(
    home: Home,
    wanted: Sequence[Wish],
    *,
    limit: int,
    budget: EditBudget,
    report_id: str | None,
) -> tuple[list[PatchRecord], list[str]]:
    """(staged patches, at most `limit`; why others were not), best wish first."""
    policy = home.bank.policy(OPTIMIZE_SKILL)
    records: list[PatchRecord] = []
    refusals: list[str] = []
    for wish in wanted:
        if len(records) == limit:
            break
        if wish.gain <= 0:
            refusals.append(f"{wish.key} {wish.value} gains nothing in what was analysed ({wish.gain:+.3f})")
            continue
        try:
            proposal = proposal_for(wish, policy, report_id)
            records.append(stage(home.bank, home.patches, proposal, budget))
        except (PatchError, BankError) as error:
            refusals.append(f"{wish.key} {wish.value}: {error}")
    return records, refusals


def proposal_for(wish: Wish, policy: CompiledPolicy, report_id: str | None) -> Proposal:
    """The patch of a wish. Raises PatchError for a key that the policy does not have."""
    section = section_of(policy, NEW_KEYS.get(wish.key, wish.key))
    before = policy.resolve({}).get(wish.key)
    first, _, rest = wish.key.partition(".")
    rule = f"{first}:\n  {rest}: {wish.value}" if rest else f"{first}: {wish.value}"
    seen = wish.finding.kind.replace("_", " ")
    return Proposal(
        skill=OPTIMIZE_SKILL,
        section=section,
        body=f"{_WORDS[wish.key]}: recorded trials showed {seen}.\n\n```yaml policy\n{rule}\n```",
        description=f"{wish.key} {'unset' if before is None else before} → {wish.value}: {wish.finding.kind}",
        slug=f"meta-{wish.key}".replace("_", "-").replace(".", "-"),
        layer=Layer.META,
        scope={},
        finding=wish.finding,
        expected=Expectation(
            metric=f"accepted gain for {UNIT:,} episodes", split=NAME, change=wish.gain, because=wish.finding.what
        ),
        report_id=report_id,
    )
