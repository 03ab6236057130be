"""Rounds on disk: `rounds/round-000001.json` and one `rounds/<evolution>.json` for each evolution.

Numbers count over the whole workspace and sort as numbers. A round's document changes only by moving it on.
"""

import re
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from optimizer.ids import check_id
from optimizer.round_types import EvolveRequest, Round, RoundError, RoundState
from skill_bank.files import lock_of, read_json, write_json_atomic

_NAME = re.compile(r"round-(\d{6,})\.json\Z")


class RoundStore:
    """Rounds of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / "rounds"

    def path(self, number: int) -> Path:
        return self.root / f"round-{number:06d}.json"

    def numbers(self) -> list[int]:
        """All rounds, ascending."""
        if not self.root.is_dir():
            return []
        return sorted(int(found[1]) for path in self.root.iterdir() if (found := _NAME.match(path.name)) is not None)

    def read(self, number: int) -> Round:
        """One round. Raises RoundError naming those there are."""
        try:
            return Round.model_validate(read_json(self.path(number)))
        except FileNotFoundError as error:
            known = ", ".join(str(one) for one in self.numbers()[-8:]) or "none yet"
            raise RoundError(f"there is no round {number}. There are: {known}") from error
        except (ValueError, ValidationError) as error:
            raise RoundError(f"{self.path(number)} cannot be read: {error}") from error

    def all(self) -> list[Round]:
        """All rounds in order."""
        return [self.read(number) for number in self.numbers()]

    def of(self, evolution: str) -> list[Round]:
        """The rounds of one evolution in order."""
        return [one for one in self.all() if one.evolution == evolution]

    def create(self, evolution: str, position: int, **fields: Any) -> Round:
        """A new round with the next free number; the one that is there already, where there is one."""
        self.root.mkdir(parents=True, exist_ok=True)
        with lock_of(self.root / "rounds"):
            for one in self.of(evolution):
                if one.position == position:
                    return one
            number = max(self.numbers(), default=0) + 1
            made = Round(round=number, evolution=evolution, position=position, **fields)
            write_json_atomic(self.path(number), made.model_dump(mode="json"))
        return made

    def move(self, current: Round, state: RoundState, **fields: Any) -> Round:
        """Writes the round in its next state."""
        entry = {"time": time.time(), "state": str(state)}
        moved = current.model_copy(update={**fields, "state": state, "history": [*current.history, entry]})
        write_json_atomic(self.path(moved.round), moved.model_dump(mode="json"))
        return moved

    # Evolutions

    def write_request(self, request: EvolveRequest) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f"{check_id(request.evolution, 'evolution')}.json"
        write_json_atomic(path, request.model_dump(mode="json"))

    def read_request(self, evolution: str) -> EvolveRequest:
        """The request of an evolution. Raises RoundError."""
        path = self.root / f"{check_id(evolution, 'evolution')}.json"
        try:
            return EvolveRequest.model_validate(read_json(path))
        except FileNotFoundError as error:
            raise RoundError(f"there is no evolution {evolution!r}: start one with `mcp-evo evolve`") from error
        except (ValueError, ValidationError) as error:
            raise RoundError(f"{path} cannot be read: {error}") from error

    def evolutions(self) -> list[str]:
        """All evolutions, oldest first."""
        return list(dict.fromkeys(one.evolution for one in self.all()))
