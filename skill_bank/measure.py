"""How large texts and changes are: estimated tokens, changed lines."""

import math
import re
from dataclasses import dataclass

_WIDE = re.compile(r"[^\x00-\x7f]")

BYTES_PER_TOKEN = 4
"""English prose and code take about four characters a token in the tokenizers of large models; a character outside
ASCII counts as a token of its own, which is what Chinese comes to. An estimate: budgets must not depend on a model."""


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated: the same for every reader, and never below one for text that is not empty."""
    wide = len(_WIDE.findall(text)) if not text.isascii() else 0
    return wide + math.ceil((len(text) - wide) / BYTES_PER_TOKEN)


@dataclass(frozen=True)
class Change:
    """What a patch changes in the skill it applies to."""

    added: str
    """Text that it writes, policy blocks included."""
    removed: str
    """Prose that it takes away."""

    @property
    def lines(self) -> int:
        """Lines added and removed, blank ones not counted."""
        return sum(1 for text in (self.added, self.removed) for line in text.split("\n") if line.strip())

    @property
    def tokens(self) -> int:
        """Tokens added and removed, estimated."""
        return estimate_tokens(self.added.strip()) + estimate_tokens(self.removed.strip())
