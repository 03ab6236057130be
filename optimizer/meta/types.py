"""Values of the meta layer: recorded trials, opportunities made of them, the part of policy that a replay can vary."""

from typing import Self

from pydantic import BaseModel, ConfigDict

from optimizer.trial.folder import TrialSpec
from optimizer.trial.screen import ScreenRow
from optimizer.trial.types import Decision, Pair
from skill_bank.policy import ResolvedPolicy

META = "meta"
"""Kind of a trial that replays recorded trials under two policies of the optimiser."""

REPLAYED_KEYS = ("trial_plan.default", "screening_pairs", "max_patches_per_round", "lever_patience")
"""Policy keys whose effect a replay can measure."""


class RecordedTrial(BaseModel):
    """A trial of a training patch that ended with a verdict, with its pairs."""

    model_config = ConfigDict(frozen=True)

    trial_id: str
    patch_id: str
    attempt: int
    created_at: float
    round: int | None = None
    plan: str
    family: str
    """Environments of its scenarios: what one family teaches about the optimiser has to hold in another."""
    lever: str | None = None
    """Key and direction (optimizer/meta/levers.py); None where the patch moves none."""
    place: str = ""
    """Scope and profile of its patch."""
    value: float | None = None
    """The number that its patch sets."""
    arm_episodes: int
    """Episodes of one arm, training and evaluation."""
    decision: Decision
    rejected: bool
    """The verdict took the patch out of the running."""
    pairs: tuple[Pair, ...]
    fresh: tuple[Pair, ...] = ()
    """Pairs of the fresh look after its promotion."""

    @property
    def episodes(self) -> int:
        """What its pairs cost."""
        return 2 * self.arm_episodes * len(self.pairs)


class Candidate(BaseModel):
    """A patch that may be tried, with the pairs its outcome is resampled from."""

    model_config = ConfigDict(frozen=True)

    patch_id: str
    pairs: tuple[Pair, ...]

    @property
    def gain(self) -> float:
        """Mean difference of its pairs: what accepting it is worth in the replay."""
        return sum(pair.difference for pair in self.pairs) / len(self.pairs)


class Opportunity(BaseModel):
    """One moment at which the optimiser could spend trial budget: the candidates of a round, or a patch by hand."""

    model_config = ConfigDict(frozen=True)

    id: str
    created_at: float
    family: str
    lever: str | None = None
    place: str = ""
    arm_episodes: int
    candidates: tuple[Candidate, ...]
    """In the order in which they were proposed."""
    screening: tuple[ScreenRow, ...] = ()


class OptimizerPolicy(BaseModel):
    """The part of `traj-optimize` that a replay varies."""

    model_config = ConfigDict(frozen=True)

    plan: str
    candidates: int
    screening_pairs: int
    lever_patience: int | None = None

    @classmethod
    def of(cls, policy: ResolvedPolicy) -> Self:
        """From the policy of `traj-optimize`."""
        return cls(
            plan=policy.require("trial_plan.default"),
            candidates=policy.require("max_patches_per_round"),
            screening_pairs=policy.require("screening_pairs"),
            lever_patience=policy.get("lever_patience"),
        )


class Outcome(BaseModel):
    """What one policy makes of one opportunity, over all repetitions."""

    model_config = ConfigDict(frozen=True)

    id: str
    family: str
    gain: float
    """Accepted gain, summed."""
    episodes: float
    """Trial budget spent, summed."""
    accepted: int
    harmful: int
    """Repetitions in which a patch whose pairs lose on average was accepted."""


class MetaSpec(TrialSpec):
    """`plan.json` of a meta trial; `recorded.jsonl` beside it holds the opportunities it replays."""

    recorded: int
    """Recorded trials when it began."""
    needed: int
    """Fewer than this are not enough evidence."""
    analysed: tuple[str, ...]
    """Families that findings rest on."""
    reserve: tuple[str, ...]
    """Families it is decided on."""
    repetitions: int
    recorded_digest: str
    """SHA-256 of `recorded.jsonl`."""
