"""Rounds of the meta layer on disk: `meta/round-000001.json`, apart from rounds that train."""

import re
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.round_types import RoundError, RoundState
from skill_bank.files import lock_of, read_json, write_json_atomic

_NAME = re.compile(r"round-(\d{6,})\.json\Z")


class MetaRound(BaseModel):
    """One round: analyse, propose, try, ask. Each state names what is complete."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = 1
    round: int
    session: str
    """Where its own steps are recorded."""
    state: RoundState = RoundState.CREATED
    layer: str = "meta"
    optimizer_version: str
    """Version of traj-optimize when it began."""
    trial_seed: int
    report_id: str | None = None
    findings: list[str] = Field(default_factory=list)
    recorded: int = 0
    needed: int = 0
    analysed: list[str] = Field(default_factory=list)
    reserve: list[str] = Field(default_factory=list)
    """Families that findings rest on, and families that decide."""
    candidates: list[str] = Field(default_factory=list)
    trial_id: str | None = None
    verdict: str | None = None
    reason: str | None = None
    say: str | None = None
    next_step: str | None = None
    promoted: str | None = None
    version_after: str | None = None
    note: str | None = None
    outcome: list[dict[str, Any]] | None = None
    created_at: float = Field(default_factory=time.time)
    history: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def chosen(self) -> str | None:
        """The patch of this round."""
        return self.candidates[0] if self.candidates else None


class MetaRounds:
    """Meta rounds of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / "meta"

    def _path(self, number: int) -> Path:
        return self.root / f"round-{number:06d}.json"

    def numbers(self) -> list[int]:
        """All rounds, ascending."""
        if not self.root.is_dir():
            return []
        return sorted(int(found[1]) for path in self.root.iterdir() if (found := _NAME.match(path.name)) is not None)

    def read(self, number: int) -> MetaRound:
        """One round. Raises RoundError."""
        try:
            return MetaRound.model_validate(read_json(self._path(number)))
        except FileNotFoundError as error:
            known = ", ".join(map(str, self.numbers()[-8:])) or "none yet"
            raise RoundError(f"there is no meta round {number}. There are: {known}") from error
        except (ValueError, ValidationError) as error:
            raise RoundError(f"{self._path(number)} cannot be read: {error}") from error

    def open_or_new(self, optimizer_version: str, trial_seed: int) -> MetaRound:
        """The round that is not closed yet, else a new one with the next number."""
        self.root.mkdir(parents=True, exist_ok=True)
        with lock_of(self.root / "rounds"):
            numbers = self.numbers()
            if numbers:
                last = self.read(numbers[-1])
                if last.state is not RoundState.CLOSED:
                    return last
            number = max(numbers, default=0) + 1
            made = MetaRound(
                round=number,
                session=f"meta-round-{number:06d}",
                optimizer_version=optimizer_version,
                trial_seed=trial_seed,
            )
            write_json_atomic(self._path(number), made.model_dump(mode="json"))
        return made

    def move(self, current: MetaRound, state: RoundState, **fields: Any) -> MetaRound:
        """Writes the round in its next state."""
        entry = {"time": time.time(), "state": str(state)}
        moved = current.model_copy(update={**fields, "state": state, "history": [*current.history, entry]})
        write_json_atomic(self._path(moved.round), moved.model_dump(mode="json"))
        return moved
