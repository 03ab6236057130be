"""Patches whose effect is known beforehand, taken through the product's own door and trial, each in its own workspace.

*Harmful* ones set a value that is known to ruin training. *Good* ones
mend a fault that was put into the base before (or the plain base's own, its learning rate). What is measured is what
the gate makes of them.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from optimizer.home import Home
from optimizer.stage import Proposal, stage
from optimizer.trial.folder import TrialFolder, pair_seed
from optimizer.trial.plan import TrialPlan
from optimizer.trial.pooled import PooledArms
from optimizer.trial.run import finish_trial
from optimizer.trial.scenarios import TINY_PARAMS
from optimizer.trial.types import Decision
from optimizer.tryout import CONFIG_SKILL, prepare_trial, try_patch

SIZE = "<10M"
"""Size class of `tiny` in the shipped policy."""


class Kind(StrEnum):
    """What is known about a planted patch."""

    HARMFUL = "harmful"
    GOOD = "good"


@dataclass(frozen=True)
class Planted:
    """One patch, and the base it is put on."""

    kind: Kind
    key: str
    value: float
    profile: str | None
    fault: tuple[str, float] | None = None
    """Key and bad value that the base has."""
    env: str = "calculator"
    attempt: int = 1
    """Number among patches that are the same but for their seeds."""

    @property
    def name(self) -> str:
        fault = "" if self.fault is None else f"-from-{self.fault[0]}"
        text = f"{self.kind}-{self.attempt}-{self.profile or 'default'}-{self.key}-{self.value:g}{fault}"
        return text.replace("_", "-").replace(".", "d").replace("+", "")[:63]


def rule(key: str, value: float, *, env: str | None = None, bounds: bool = False) -> str:
    """A policy block that sets a default for the bundled model's size."""
    place = f"params: '{SIZE}'" + ("" if env is None else f", env: {env}")
    more = f", min: {min(value, 1e-7)}, max: {max(value, 1e-1)}" if bounds and key == "learning_rate" else ""
    more = f", min: {value}" if bounds and key != "learning_rate" else more
    return f"```yaml policy\n{key}:\n  - {{when: {{{place}}}, default: {value}{more}}}\n```"


def put_fault(home: Home, key: str, value: float) -> None:
    """A bad default in the base of the workspace's own bank."""
    base = home.bank.root / "rllm" / CONFIG_SKILL / "base.md"
    text = base.read_text(encoding="utf-8")
    closing_mark = "<!-- /section:sizes -->"
    base.write_text(text.replace(closing_mark, f"\n{rule(key, value, bounds=True)}\n{closing_mark}"), encoding="utf-8")
    home.bank.compile(CONFIG_SKILL)


def decide_on(
    planted: Planted, work: Path, plan: TrialPlan, seed: int, say: Callable[[str], None]
) -> tuple[Decision, TrialFolder]:
    """The verdict of the patch's trial; a trial that was killed goes on, one that is decided is read."""
    home, folder = _prepared(planted, work / planted.name, plan, seed)
    known = folder.decision()
    if known is not None and known.final:
        return known, folder
    with PooledArms(home.trials / "workers") as runner, closing(try_patch(home, folder, runner)) as steps:  # type: ignore[type-var]
        decision = finish_trial(steps)
    say(f"{planted.name}: {decision.say}")
    return decision, folder


def _prepared(planted: Planted, root: Path, plan: TrialPlan, seed: int) -> tuple[Home, TrialFolder]:
    if (root / "trials").is_dir():
        found = sorted((root / "trials").glob("trial-*/plan.json"))
        if found:
            return Home.open(root), TrialFolder(found[0].parent)
    home = Home.create(root)
    if planted.fault is not None and not home.patches.ids():
        put_fault(home, *planted.fault)
    context = {"params": TINY_PARAMS, "model": "tiny", "env": planted.env, "difficulty": "mixed"}
    ids = home.patches.ids()
    if ids:
        patch_id = ids[0]
    else:
        proposal = Proposal(
            skill=CONFIG_SKILL,
            section="sizes",
            body=f"A planted patch.\n\n{rule(planted.key, planted.value, env=planted.env)}",
            description=f"planted: {planted.key} {planted.value:g}",
            slug=f"planted-{planted.key}".replace("_", "-"),
            scope={"params": SIZE, "env": planted.env},
            profile=planted.profile,
            context=context,
        )
        patch_id = stage(home.bank, home.patches, proposal).patch_id
    return home, prepare_trial(home, patch_id, plan, seed=pair_seed(seed, planted.name, 0) % 2**31)


def harmful_patches() -> list[Planted]:
    """Twenty: rates far too low or too high, cut-off episodes, one turn, a handful of giant steps; on both bases."""
    both = [("learning_rate", 1e-6), ("learning_rate", 3e-3), ("max_completion_tokens", 16)]
    both += [("max_completion_tokens", 24), ("max_completion_tokens", 32), ("max_turns", 1), ("batch_size", 64)]
    plain = [*both, ("learning_rate", 2e-6), ("learning_rate", 2.5e-3), ("max_completion_tokens", 20)]
    tuned = [*both, ("learning_rate", 3e-6), ("learning_rate", 1e-5), ("learning_rate", 3e-5)]
    return [Planted(Kind.HARMFUL, key, value, "original") for key, value in plain] + [
        Planted(Kind.HARMFUL, key, value, None) for key, value in tuned
    ]


def good_patches(each: int = 4) -> list[Planted]:
    """The plain base's learning rate, and two faults mended; `each` with its own seeds."""
    kinds: Sequence[tuple[str, float, str | None, tuple[str, float] | None]] = (
        ("learning_rate", 3e-4, "original", None),
        ("temperature", 1.0, None, ("temperature", 0.1)),
        ("max_completion_tokens", 160, None, ("max_completion_tokens", 24)),
    )
    return [
        Planted(Kind.GOOD, key, value, profile, fault, attempt=number + 1)
        for key, value, profile, fault in kinds
        for number in range(each)
    ]
