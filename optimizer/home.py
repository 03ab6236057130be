"""`Home`: the parts of a workspace that the optimiser works with, opened once and handed around."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from optimizer.analyze.levers import LeverTable
from optimizer.analyze.report import ReportStore
from optimizer.analyze.thresholds import thresholds_from
from optimizer.approvals import ApprovalLedger
from optimizer.audit import AuditLog
from optimizer.index.build import TrajectoryIndex
from optimizer.index.spans import spans_of
from optimizer.patch_store import PatchStore
from optimizer.segment.store import SegmentStore
from optimizer.skill_tree import SkillTree
from optimizer.standing import StandingApprovals
from optimizer.store import TrajectoryStore
from skill_bank.bank import SkillBank
from skill_bank.policy import ResolvedPolicy
from skill_bank.types import BankError
from trainer.runs.findings import Thresholds
from trainer.runs.workspace import Workspace, create_workspace, open_workspace


@dataclass(frozen=True)
class Home:
    """One workspace."""

    workspace: Workspace
    bank: SkillBank

    @classmethod
    def create(cls, root: Path) -> Self:
        """Opens a workspace, making it and seeding its skill bank where they are missing."""
        workspace = create_workspace(root)
        return cls(workspace, SkillBank.seed(workspace.root / "skills"))

    @classmethod
    def open(cls, root: Path) -> Self:
        """Opens an existing workspace. Raises WorkspaceError where there is none."""
        workspace = open_workspace(root)
        return cls(workspace, SkillBank.seed(workspace.root / "skills"))

    @property
    def root(self) -> Path:
        return self.workspace.root

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    @property
    def patches(self) -> PatchStore:
        return PatchStore(self.root)

    @property
    def ledger(self) -> ApprovalLedger:
        return ApprovalLedger(self.root)

    @property
    def standing(self) -> StandingApprovals:
        return StandingApprovals(self.root)

    @property
    def audit(self) -> AuditLog:
        return AuditLog(self.root)

    @property
    def reports(self) -> ReportStore:
        return ReportStore(self.root)

    @property
    def trajectories(self) -> TrajectoryStore:
        return TrajectoryStore(self.root / "trajectories")

    @property
    def segments(self) -> SegmentStore:
        tree = SkillTree(self.bank)
        return SegmentStore(self.trajectories, tree.group_of, tree.children_of)

    @property
    def index(self) -> TrajectoryIndex:
        """The search index over the trajectories; brought up to date by whoever uses it."""
        return TrajectoryIndex(self.trajectories, spans_of(self.segments))

    def group_of(self, skill: str) -> str | None:
        """Group of a skill; None for one that is not in the bank."""
        try:
            return self.bank.group_of(skill)
        except BankError:
            return None

    def policy_of(self, skill: str, context: dict[str, Any] | None = None) -> ResolvedPolicy:
        """The live policy of a skill in a context."""
        return self.bank.resolve(skill, context or {})

    def lever_table(self) -> LeverTable:
        """The decision table in force."""
        return LeverTable.from_policy(self.policy_of("rllm-analyze"))

    def thresholds(self) -> Thresholds:
        """The thresholds of the diagnosis in force."""
        return thresholds_from(self.policy_of("rllm-monitor"))
