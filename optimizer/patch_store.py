"""`patches/<patch_id>/`: a proposed patch with everything known about it, and the memory of rejected ones.

patch.json is the record, patch.md the patch as it stands in the skill bank, patch.diff what it changes in the compiled
skill, trial.json the trial's verdict, approval.json a person's decision. `patches/rejected.jsonl` remembers what was
rejected and why, so that it is not proposed again.
"""

import json
import math
import re
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.ids import ID_PATTERN, check_id, content_id
from skill_bank.files import append_json, lock_of, read_json, read_json_lines, write_json_atomic, write_text_atomic

SCHEMA_VERSION = 1


class PatchError(ValueError):
    """A patch that cannot be proposed, tried or changed: says what is wrong and what to do."""


class Stage(StrEnum):
    """Where a patch is on its way."""

    STAGED = "staged"
    """Passed every check; may be tried."""
    TRIED = "tried"
    """Has a verdict."""
    APPROVED = "approved"
    """A person agreed; not yet in force."""
    ACTIVE = "active"
    """In force: compiled into the skill."""
    REJECTED = "rejected"
    """By its trial or by a person; remembered."""
    ARCHIVED = "archived"
    """Was in force and was taken back."""


class PatchKind(StrEnum):
    """How a patch can be measured."""

    POLICY = "policy"
    """Changes values that the machine reads: tried in pairs."""
    PROSE = "prose"
    """Changes text for agents: structure is checked, its effect is not measured."""


class PolicyChange(BaseModel):
    """One value that a patch sets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    when: dict[str, Any] | None = None
    before: Any = None
    """The value in force in the situation of the finding."""
    after: Any = None


class Expectation(BaseModel):
    """What a patch is expected to change, checked again in the next round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str = "success"
    split: str = "test"
    change: float
    """Expected difference, patched minus base."""
    because: str


class PatchRecord(BaseModel):
    """`patch.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    patch_id: str
    skill: str
    group: str
    layer: str
    """The layer that proposed it."""
    section: str
    kind: PatchKind
    description: str
    scope: dict[str, Any] | None = None
    changes: list[PolicyChange] = Field(default_factory=list)
    effect_hash: str
    """What it does, normalised: the same effect has the same hash whatever its words."""
    expected: Expectation | None = None
    profile: str | None = None
    """Profile of the skill it is made for; None: the manifest's own lists."""
    finding: dict[str, Any] | None = None
    """The finding it answers, as it was."""
    report_id: str | None = None
    source: str = "rule"
    """rule | agent."""
    round: int | None = None
    base_digest: str
    """Digest of the compiled skill without it, when it was proposed."""
    result_digest: str
    """Digest of the compiled skill with it."""
    stage: Stage = Stage.STAGED
    verdict: str | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    pairs: int | None = None
    trials: list[str] = Field(default_factory=list)
    attempts: int = 0
    fresh: dict[str, Any] | None = None
    """The fresh look at it after its promotion (optimizer/recheck.py)."""
    created_at: float = Field(default_factory=time.time)
    history: list[dict[str, Any]] = Field(default_factory=list)

    def moved(self, stage: Stage, why: str, **fields: Any) -> "PatchRecord":
        """The record in another stage, with a line of history."""
        entry = {"time": time.time(), "stage": str(stage), "why": why}
        return self.model_copy(update={"stage": stage, "history": [*self.history, entry], **fields})


def effect_hash(skill: str, section: str, changes: list[PolicyChange], text: str = "") -> str:
    """Hash of what a patch does: skill, section and its values (to two significant digits), or its words without case,
    punctuation and spacing. Two proposals with the same hash would do the same."""
    if changes:
        values = sorted(json.dumps([one.key, one.when, _rounded(one.after)], sort_keys=True) for one in changes)
        return content_id(skill, section, *values)
    words = re.sub(r"[\W_]+", " ", text.casefold()).strip()
    return content_id(skill, section, words)


def _rounded(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value == 0 or not math.isfinite(value):
        return value
    return float(f"{value:.1e}")


class RejectedEdit(BaseModel):
    """A line of the rejected memory."""

    model_config = ConfigDict(extra="allow")

    effect_hash: str
    patch_id: str
    skill: str
    section: str
    changes: list[PolicyChange] = Field(default_factory=list)
    why: str
    verdict: str | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    time: float


class PatchStore:
    """Patches of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / "patches"

    def folder(self, patch_id: str) -> Path:
        return self.root / check_id(patch_id, "patch")

    def write(self, record: PatchRecord) -> None:
        """Writes patch.json."""
        folder = self.folder(record.patch_id)
        folder.mkdir(parents=True, exist_ok=True)
        write_json_atomic(folder / "patch.json", record.model_dump(mode="json"))

    def write_texts(self, patch_id: str, text: str, diff: str) -> None:
        """Writes patch.md and patch.diff."""
        folder = self.folder(patch_id)
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomic(folder / "patch.md", text)
        write_text_atomic(folder / "patch.diff", diff)

    def text(self, patch_id: str) -> str:
        """The patch as it was staged. Raises PatchError where it is missing."""
        path = self.folder(patch_id) / "patch.md"
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise PatchError(f"{path} cannot be read ({error}): propose the patch again") from error

    def write_diff(self, patch_id: str, diff: str) -> None:
        """Replaces patch.diff."""
        write_text_atomic(self.folder(patch_id) / "patch.diff", diff)

    def read(self, patch_id: str) -> PatchRecord:
        """One patch. Raises PatchError naming those that exist."""
        path = self.folder(patch_id) / "patch.json"
        try:
            return PatchRecord.model_validate(read_json(path))
        except FileNotFoundError as error:
            known = ", ".join(self.ids()[-8:]) or "none yet"
            raise PatchError(f"there is no patch {patch_id!r}. There are: {known}") from error
        except (ValueError, ValidationError) as error:
            raise PatchError(f"{path} cannot be read: {error}") from error

    def move(self, patch_id: str, stage: Stage, why: str, **fields: Any) -> PatchRecord:
        """Changes the stage of a stored patch."""
        with lock_of(self.folder(patch_id) / "patch.json"):
            record = self.read(patch_id).moved(stage, why, **fields)
            self.write(record)
        return record

    def ids(self) -> list[str]:
        """All patches, in order of their ids."""
        if not self.root.is_dir():
            return []
        return sorted(
            path.name for path in self.root.iterdir() if ID_PATTERN.match(path.name) and (path / "patch.json").exists()
        )

    def all(self) -> list[PatchRecord]:
        """All patches, oldest first."""
        return sorted((self.read(one) for one in self.ids()), key=lambda record: record.created_at)

    # Rejected memory

    @property
    def _memory(self) -> Path:
        return self.root / "rejected.jsonl"

    def remember_rejected(self, record: PatchRecord, why: str) -> None:
        """Adds the patch's effect to the rejected memory, once."""
        self.root.mkdir(parents=True, exist_ok=True)
        if any(one.patch_id == record.patch_id for one in self.rejected()):
            return
        edit = RejectedEdit(
            effect_hash=record.effect_hash,
            patch_id=record.patch_id,
            skill=record.skill,
            section=record.section,
            changes=record.changes,
            why=why,
            verdict=record.verdict,
            effect=record.effect,
            ci95=record.ci95,
            time=time.time(),
        )
        append_json(self._memory, edit.model_dump(mode="json"))

    def rejected(self) -> list[RejectedEdit]:
        """The rejected memory, oldest first."""
        return [RejectedEdit.model_validate(row) for _, row in read_json_lines(self._memory).rows]

    def rejected_with(self, digest: str) -> RejectedEdit | None:
        """The rejected edit with this effect, if there is one."""
        return next((one for one in self.rejected() if one.effect_hash == digest), None)
