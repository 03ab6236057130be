"""Micro-batches by token budget: one update in several passes, with the same gradient.

The parts of an update are sets of rows. Each part's loss, as TRL computes it over that part alone, is multiplied by a
weight so that the sum over the parts is the loss over all rows:

- dapo, cispo divide by the trained tokens of the whole update: weight 1
- grpo, gspo, dr_grpo average over rows: rows of the part / rows
- bnpo averages over tokens: trained tokens of the part / trained tokens

Axis names: B rows.
"""

from collections.abc import Sequence
from typing import Any

BY_SUM, BY_ROWS, BY_TOKENS = "sum", "rows", "tokens"

AGGREGATION = {
    "dapo": BY_SUM,
    "cispo": BY_SUM,
    "grpo": BY_ROWS,
    "gspo": BY_ROWS,
    "dr_grpo": BY_ROWS,
    "bnpo": BY_TOKENS,
}
"""Loss type → what its parts are weighted by."""


def split_rows(
    groups: Sequence[int], prompts: Sequence[int], rows: Sequence[int], header: int, budget: int
) -> list[int]:
    """(B,) part number of each row, ascending: as many rows in a part as fit into `budget` packed tokens, at least one.

    `groups` (B,) group number of each row, rows of a group side by side; `prompts` (B,) tokens of the row's prompt;
    `rows` (B,) tokens of its completion; `header`: tokens that all prompts share. A part costs the header once, the
    rest of each of its groups' prompts once, and its rows.
    """
    parts: list[int] = []
    part, spent, group = -1, 0, None
    for number, prompt, length in zip(groups, prompts, rows, strict=True):
        cost = length + (0 if number == group else prompt - header)
        if part < 0 or spent + cost > budget:
            part += 1
            spent = header
            cost = length + prompt - header
        spent += cost
        group = number
        parts.append(part)
    return parts


def part_weight(loss_type: str, rows: int, all_rows: float, tokens: int, all_tokens: float) -> float:
    """What a part's loss is multiplied by. Raises KeyError for an unknown loss type.

    With several processes whose gradients are averaged, `all_rows` and `all_tokens` are those of all of them divided
    by their number.
    """
    kind = AGGREGATION[loss_type]
    if kind == BY_SUM:
        return 1.0
    if kind == BY_ROWS:
        return rows / all_rows if all_rows else 0.0
    return tokens / all_tokens if all_tokens else 0.0


def merge_metrics(before: dict[str, int], metrics: dict[str, list[Any]], tokens: Sequence[int]) -> None:
    """Replaces what each part appended to TRL's metric lists by its mean, weighted with the parts' trained tokens.

    `before`: length of each list when the first part began. Lists that did not get one value from each part are left.
    """
    total = sum(tokens) or 1
    for name, values in metrics.items():
        start = before.get(name, 0)
        new = values[start:]
        if len(new) == len(tokens) > 1:
            values[start:] = [sum(value * n for value, n in zip(new, tokens, strict=True)) / total]
