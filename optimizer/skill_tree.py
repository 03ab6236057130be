"""What segmentation asks of the skill bank: the group of a skill, and which skills an orchestrator declares."""

import time

from skill_bank.bank import SkillBank
from skill_bank.types import BankError

REMEMBERED_S = 5.0
"""How long one reading of the bank's index counts: a skill changes its group when a person moves it."""


class SkillTree:
    """Groups and declared children of the skills of a bank; a bank that cannot be read has none."""

    def __init__(self, bank: SkillBank) -> None:
        self._bank = bank
        self._groups: dict[str, str] = {}
        self._children: dict[str, frozenset[str]] = {}
        self._read_at: float | None = None

    def group_of(self, skill: str) -> str | None:
        """Group of a skill; None for one that is not in the bank."""
        self._refresh()
        return self._groups.get(skill)

    def children_of(self, skill: str) -> frozenset[str]:
        """The skills that a skill orchestrates; none for one that is not in the bank."""
        self._refresh()
        return self._children.get(skill, frozenset())

    def _refresh(self) -> None:
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < REMEMBERED_S:
            return
        self._read_at = now
        try:
            skills = self._bank.index().skills
        except BankError:
            skills = {}
        self._groups = {name: entry.group for name, entry in skills.items()}
        self._children = {name: frozenset(entry.children) for name, entry in skills.items()}
