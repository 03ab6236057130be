"""Pins: skills that stay what they are until a person lets them go. `versions/pins.json`: skill → version."""

from collections.abc import Iterable
from pathlib import Path

from skill_bank.files import read_json, write_json_atomic
from skill_bank.types import BankError, Problem

PINS_SCHEMA = 1


class Pins:
    """The pins of a bank. Callers that write hold the bank's lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "pins.json"

    def read(self) -> dict[str, int]:
        """Skill → the version that it is held at. Raises BankError where the file is damaged."""
        if not self._path.exists():
            return {}
        try:
            document = read_json(self._path)
            return {str(skill): int(number) for skill, number in document["pins"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            damaged = Problem("versions/pins.json", 0, f"the pins cannot be read ({error})", "Restore or remove it")
            raise BankError([damaged]) from error

    def set(self, skill: str, number: int | None) -> None:
        """Pins a skill to a version, or lets it go (None)."""
        pins = {name: held for name, held in self.read().items() if name != skill}
        if number is not None:
            pins[skill] = number
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(self._path, {"schema_version": PINS_SCHEMA, "pins": dict(sorted(pins.items()))})

    def check(self, skills: Iterable[str]) -> None:
        """Raises BankError if one of the skills is pinned: then it may not change."""
        pins = self.read()
        held = [one for one in skills if one in pins]
        if held:
            raise BankError(
                [
                    Problem("versions/pins.json", 0, f"{one} is pinned to version {pins[one]}",
                            f"Let it go first: mcp-evo skills pin {one} --off")
                    for one in held
                ]
            )  # fmt: skip
