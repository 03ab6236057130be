"""Budgets: how long a skill may be and how much one patch may change, by the settings of the bank.

```yaml
settings:
  limits: {skill_lines: 500, skill_tokens: 8000, patch_lines: 120, patch_tokens: 3000}   # refused beyond
  warn: {skill_tokens: 5000}                                                            # warned beyond
```
Lines and tokens of a patch are those it adds and those it takes away.
"""

from skill_bank.index import BankIndex
from skill_bank.measure import Change
from skill_bank.types import Patch, Problem

_UNITS = {"lines": "lines", "tokens": "tokens (estimated)"}


def check_patch_size(
    index: BankIndex, patch: Patch, change: Change, problems: list[Problem], warnings: list[Problem]
) -> None:
    """Reports a patch that changes more than its budget."""
    names = [name for name in ("patch_lines", "patch_tokens") if name in index.limits or name in index.warn]
    for name in names:
        size = change.lines if name == "patch_lines" else change.tokens
        _check(index, name, size, patch.file, f"the patch changes {size}", "Shorten it or split it", problems, warnings)


def check_skill_size(
    index: BankIndex, skill: str, file: str, lines: int, tokens: int, problems: list[Problem], warnings: list[Problem]
) -> None:
    """Reports a skill that compiles to more than its caps."""
    for name, size in (("skill_lines", lines), ("skill_tokens", tokens)):
        fix = "Shorten it or move detail into another skill"
        _check(index, name, size, file, f"{skill} compiles to {size}", fix, problems, warnings)


def _check(
    index: BankIndex,
    name: str,
    size: int,
    file: str,
    what: str,
    fix: str,
    problems: list[Problem],
    warnings: list[Problem],
) -> None:
    for group, bounds, found in (("limits", index.limits, problems), ("warn", index.warn, warnings)):
        bound = bounds.get(name)
        if bound is not None and size > bound:
            unit = _UNITS[name.partition("_")[2]]
            found.append(Problem(file, 0, f"{what} {unit}, settings.{group}.{name} is {bound}", fix))
            return
