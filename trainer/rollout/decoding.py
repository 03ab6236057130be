"""The sampling loop: rows of one batch say and hear token after token until each is done.

A row feeds the model its last token, then environment text that waits (certain to stand) and guesses (`drafts.py`), as
many as the backend takes; it samples behind the last certain token and behind every guess that was right.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from trainer.rollout.backends import Chunked
from trainer.rollout.drafts import ORDER, Drafts, best_width
from trainer.rollout.sampler import sample
from trainer.rollout.types import Episode

SHRINK_AT = 0.75
"""The batch is shrunk when at most this share of its rows is alive: shrinking copies the cache."""


@dataclass
class Row:
    """One living row of the batch."""

    episode: Episode
    environment: Any
    uniforms: np.ndarray
    turn_start: int = 0
    forced: deque[int] = field(default_factory=deque)
    """Environment tokens that the model has not seen yet."""
    parse_errors_in_a_row: int = 0
    done: bool = False
    began: float = 0.0
    group: int = 0
    """Which of the batch's prompts it continues."""
    last: int = 0
    """The token that is fed next."""

    def context(self) -> tuple[int, ...]:
        """The last tokens of the conversation."""
        ids = self.episode.completion_ids[-ORDER:]
        if len(ids) < ORDER:
            ids = [*self.episode.prompt_ids[len(ids) - ORDER :], *ids]
        return tuple(ids)

    def hear(self) -> int:
        """Takes the next environment token into the episode."""
        token = self.forced.popleft()
        episode = self.episode
        episode.completion_ids.append(token)
        episode.mask.append(0)
        episode.logprobs.append(0.0)
        if not self.forced:
            self.turn_start = len(episode.completion_ids)
        return token


@dataclass
class _Feed:
    """What one slot feeds in one pass."""

    tokens: list[int]
    """Certain to stand."""
    guesses: list[int]
    samples: bool
    """Whether the model speaks next."""


class Decoding:
    """One batch from its prompts to its last token.

    A slot is a row of the backend: rows of one prompt that have said and heard the same so far, which a backend that
    can copy its rows computes once. It holds living rows only; an empty one waits to be dropped.
    """

    def __init__(
        self,
        backend: Chunked,
        slots: list[list[Row]],
        drafts: Drafts,
        temperature: float,
        limit: int,
        ends_turn: Callable[[Row, int], bool],
        end_turns: Callable[[list[Row]], None],
        cut: tuple[float, int] = (1.0, 0),
    ) -> None:
        """`slots`: from `slots_of`; `limit`: tokens of a completion; `ends_turn(row, token)` after the token was
        appended; `end_turns(rows)` lets the environments answer: it marks rows as done or gives them tokens to hear;
        `cut`: top_p and top_k."""
        self.cut = cut
        self.backend, self.drafts, self.temperature, self.limit = backend, drafts, temperature, limit
        self.ends_turn, self.end_turns = ends_turn, end_turns
        self.slots = slots

    def run(self) -> None:
        """Until every row is done."""
        while self.slots:
            feeds = self._feeds()
            width = max(len(f.tokens) + len(f.guesses) for f in feeds)
            padded = [[*f.tokens, *f.guesses, *([0] * (width - len(f.tokens) - len(f.guesses)))] for f in feeds]
            wanted, which, uniforms = self._samples(feeds, width)
            logits = self.backend.feed(torch.tensor(padded), wanted)
            drawn: list[list[Any]] = [[], [], []]
            if wanted:
                if len(which) > len(wanted):
                    logits = logits[torch.tensor(which, device=logits.device)]
                found = sample(logits, torch.tensor(uniforms, dtype=torch.float64), self.temperature, *self.cut)
                drawn = [part.tolist() for part in found]
            self._part(self._take(feeds, *drawn))

    def _samples(self, feeds: list[_Feed], width: int) -> tuple[list[int], list[int], list[float]]:
        """(places whose logits are wanted, which of these each draw is made from, its random number)."""
        wanted: list[int] = []
        which: list[int] = []
        uniforms: list[float] = []
        for slot, (rows, feed) in enumerate(zip(self.slots, feeds, strict=True)):
            if not feed.samples:
                continue
            first, count = slot * width + len(feed.tokens) - 1, 1 + len(feed.guesses)
            for row in rows:
                at = len(row.episode.completion_ids) - row.turn_start
                numbers = row.uniforms[at : at + count].tolist()
                uniforms += numbers + [1.0] * (count - len(numbers))
                which += range(len(wanted), len(wanted) + count)
            wanted += range(first, first + count)
        return wanted, which, uniforms

    def _feeds(self) -> list[_Feed]:
        """What each slot feeds; an empty one feeds a token that nobody looks at."""
        widest = self.backend.width
        guesses = [self._guesses(rows[0], widest) if rows and widest > 1 else [] for rows in self.slots]
        width = 1
        if widest > 1:
            alive = [i for i, rows in enumerate(self.slots) if rows]
            certain = [1 + len(self.slots[i][0].forced) for i in alive]
            width = best_width(certain, [len(guesses[i]) for i in alive], widest, self.backend.overhead)
        feeds = []
        for rows, guessed in zip(self.slots, guesses, strict=True):
            if not rows:
                feeds.append(_Feed([0], [], False))
                continue
            heard = [[row.hear() for _ in range(min(len(row.forced), width - 1))] for row in rows]
            tokens = [rows[0].last, *heard[0]]
            samples = not rows[0].forced
            feeds.append(_Feed(tokens, guessed[: width - len(tokens)] if samples else [], samples))
        return feeds

    def _guesses(self, row: Row, widest: int) -> list[int]:
        """What the model may say once the row has heard what waits."""
        left = self.limit - len(row.episode.completion_ids) - len(row.forced) - 1
        count = min(widest - 1 - len(row.forced), left)
        heard = (*row.context(), *row.forced)[-ORDER:]
        return self.drafts.guess(heard, row.group, count) if count > 0 else []

    def _take(
        self, feeds: list[_Feed], tokens: list[int], logps: list[float], entropies: list[float]
    ) -> list[list[int]]:
        """Appends what was sampled up to the first wrong guess and ends turns. For each row of each slot: how many of
        the fed tokens stand."""
        standing: list[list[int]] = []
        ended: list[Row] = []
        at = 0
        for rows, feed in zip(self.slots, feeds, strict=True):
            counts = [len(feed.tokens)] * len(rows)
            for number, row in enumerate(rows):
                if not feed.samples:
                    row.last = row.hear()
                    continue
                for place in range(1 + len(feed.guesses)):
                    token = tokens[at + place]
                    if self._say(row, token, logps[at + place], entropies[at + place]):
                        ended.append(row)
                        break
                    if place == len(feed.guesses) or feed.guesses[place] != token:
                        break
                    counts[number] += 1
                at += 1 + len(feed.guesses)
            standing.append(counts)
        if ended:
            self.end_turns(ended)
        return standing

    def _part(self, standing: list[list[int]]) -> None:
        """Rows that no longer say the same get slots of their own; slots without rows leave when it pays."""
        slots: list[list[Row]] = []
        source: list[int] = []
        accepted: list[int] = []
        for slot, (rows, counts) in enumerate(zip(self.slots, standing, strict=True)):
            alike: dict[tuple[Any, ...], list[Row]] = {}
            kept: dict[tuple[Any, ...], int] = {}
            for row, count in zip(rows, counts, strict=True):
                if not row.done:
                    key = (count, row.last, *row.forced)
                    alike.setdefault(key, []).append(row)
                    kept[key] = count
            for key, members in alike.items() if alike else [((), [])]:
                slots.append(members)
                source.append(slot)
                accepted.append(kept.get(key, 0))
        living = [i for i, rows in enumerate(slots) if rows]
        if len(slots) > len(self.slots) or len(living) <= SHRINK_AT * len(slots):
            slots = [slots[i] for i in living]
            source, accepted = [source[i] for i in living], [accepted[i] for i in living]
            if slots and source != list(range(len(self.slots))):
                self.backend.keep(torch.tensor(source))
        self.slots = slots
        if slots:
            self.backend.accept(torch.tensor(accepted))

    def _say(self, row: Row, token: int, logp: float, entropy: float) -> bool:
        """Appends the model's next token; whether its turn is over."""
        episode = row.episode
        self.drafts.learn(row.context(), token)
        episode.completion_ids.append(token)
        episode.mask.append(1)
        episode.logprobs.append(logp)
        episode.entropy_sum += entropy
        row.last = token
        return len(episode.completion_ids) >= self.limit or self.ends_turn(row, token)


def slots_of(rows: list[Row], copies: bool) -> list[list[Row]]:
    """The slots at the beginning: one for each prompt (rows of `group` g in slot g), or one for each row."""
    if not copies:
        return [[row] for row in rows]
    slots: list[list[Row]] = [[] for _ in range(1 + max(row.group for row in rows))]
    for row in rows:
        slots[row.group].append(row)
    return slots
