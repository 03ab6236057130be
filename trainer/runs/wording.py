"""Amounts in sentences. Pure."""


def counted(amount: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`, `2,048 steps`; `plural` where an s does not make it."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"
