"""`trials/<id>/` on disk: plan.json, base.policy.json, patched.policy.json, pairs.jsonl, verdict.json.

plan.json and the two policies hold everything that decides the trial, so it can be repeated or taken up again after the
bank has changed. pairs.jsonl grows by one line a pair; a torn line costs its pair, which is run again.
"""

import hashlib
import time
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.trial.arms import TrialError
from optimizer.trial.plan import TrialPlan
from optimizer.trial.scenarios import Scenario
from optimizer.trial.types import Decision, Pair
from skill_bank.files import append_json, read_json, read_json_lines, write_json_atomic
from skill_bank.policy import CompiledPolicy

SCHEMA_VERSION = 1


class TrialSpec(BaseModel):
    """`plan.json`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_version: int = SCHEMA_VERSION
    trial_id: str
    patch_id: str
    skill: str
    kind: str = "training"
    """training: paired runs; replay: recorded runs judged under both policies (no scenarios, no pairs)."""
    attempt: int = 1
    """1, or 2 for a second trial on fresh seeds at half the level."""
    plan: TrialPlan
    scenarios: tuple[Scenario, ...]
    left_out: dict[str, str] = Field(default_factory=dict)
    """Scenario → why it is not used (both arms would be the same run)."""
    seed: int
    """All pair seeds follow from it."""
    scope: dict[str, Any] | None = None
    profile: str | None = None
    base_digest: str
    patched_digest: str
    created_at: float = Field(default_factory=time.time)

    def pair_at(self, index: int) -> tuple[Scenario, int]:
        """Scenario and seed of pair `index`: scenarios take turns, so that every look sees them evenly."""
        scenario = self.scenarios[index % len(self.scenarios)]
        return scenario, pair_seed(self.seed, scenario.name, index)

    @property
    def max_episodes(self) -> int:
        """Episodes of the whole plan, training and evaluation, both arms; none where nothing is trained."""
        if not self.scenarios:
            return 0
        arms = [self.pair_at(index)[0].episodes + self.plan.eval_tasks for index in range(self.plan.max_pairs)]
        return 2 * sum(arms)


def pair_seed(trial_seed: int, scenario: str, index: int) -> int:
    """Seed of one pair, in 0 … 2^31 - 1: SHA-256 of trial seed, scenario and index."""
    digest = hashlib.sha256(f"{trial_seed}/{scenario}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


class TrialFolder:
    """Reads and writes one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, trials: Path, spec: TrialSpec, base: CompiledPolicy, patched: CompiledPolicy) -> Self:
        """Makes the folder. plan.json comes last, so that a folder with a plan is complete."""
        path = trials / spec.trial_id
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        base.save(path / "base.policy.json")
        patched.save(path / "patched.policy.json")
        write_json_atomic(path / "plan.json", spec.model_dump(mode="json"))
        return folder

    @property
    def exists(self) -> bool:
        return (self.path / "plan.json").exists()

    def spec(self) -> TrialSpec:
        """The plan. Raises TrialError where there is none or it cannot be read."""
        try:
            return TrialSpec.model_validate(read_json(self.path / "plan.json"))
        except FileNotFoundError as error:
            raise TrialError(f"there is no trial {self.path.name!r}: start one with `patches try`") from error
        except (ValueError, ValidationError) as error:
            raise TrialError(f"{self.path / 'plan.json'} cannot be read: {error}") from error

    def policies(self) -> tuple[CompiledPolicy, CompiledPolicy]:
        """Policy of the base arm and of the patched arm."""
        return (
            CompiledPolicy.load(self.path / "base.policy.json"),
            CompiledPolicy.load(self.path / "patched.policy.json"),
        )

    def pairs(self, spec: TrialSpec) -> list[Pair]:
        """The pairs from the first one on, without a gap; lines that do not belong to the plan are passed over."""
        found: dict[int, Pair] = {}
        for _, row in read_json_lines(self.path / "pairs.jsonl").rows:
            try:
                pair = Pair.model_validate(row)
            except ValidationError:
                continue
            scenario, seed = spec.pair_at(pair.index)
            if (pair.scenario, pair.seed) == (scenario.name, seed):
                found.setdefault(pair.index, pair)
        pairs: list[Pair] = []
        while len(pairs) in found:
            pairs.append(found[len(pairs)])
        return pairs

    def add_pair(self, pair: Pair) -> None:
        append_json(self.path / "pairs.jsonl", pair.model_dump(mode="json"))

    def decision(self) -> Decision | None:
        """The verdict, where there is one."""
        try:
            return Decision.model_validate(read_json(self.path / "verdict.json"))
        except FileNotFoundError:
            return None

    def write_decision(self, decision: Decision) -> None:
        write_json_atomic(self.path / "verdict.json", decision.model_dump(mode="json"))
