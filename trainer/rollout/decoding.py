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
    """What one row feeds in one pass."""

    tokens: list[int]
    guesses: list[int]
    samples: bool
    """Whether its next token is the model's."""


class Decoding:
    """One batch from its prompts to its last token."""

    def __init__(
        self,
        backend: Chunked,
        rows: list[Row],
        drafts: Drafts,
        temperature: float,
        limit: int,
        ends_turn: Callable[[Row, int], bool],
        end_turns: Callable[[list[Row]], None],
        cut: tuple[float, int] = (1.0, 0),
    ) -> None:
        """`limit`: tokens of a completion; `ends_turn(row, token)` after the token was appended; `end_turns(rows)`
        lets the environments answer: it marks rows as done or gives them tokens to hear; `cut`: top_p and top_k."""
        self.cut = cut
        self.backend, self.slots, self.drafts, self.temperature, self.limit = backend, rows, drafts, temperature, limit
        self.ends_turn, self.end_turns = ends_turn, end_turns

    def run(self) -> None:
        """Until every row is done."""
        backend = self.backend
        while True:
            feeds = self._feeds()
            width = max(len(f.tokens) + len(f.guesses) for f in feeds)
            tokens = torch.tensor(
                [[*f.tokens, *f.guesses, *([0] * (width - len(f.tokens) - len(f.guesses)))] for f in feeds]
            )
            wanted: list[int] = []
            uniforms: list[float] = []
            for slot, (row, feed) in enumerate(zip(self.slots, feeds, strict=True)):
                if feed.samples:
                    first = slot * width + len(feed.tokens) - 1
                    wanted += range(first, first + 1 + len(feed.guesses))
                    at = len(row.episode.completion_ids) - row.turn_start
                    numbers = row.uniforms[at : at + 1 + len(feed.guesses)].tolist()
                    uniforms += numbers + [1.0] * (1 + len(feed.guesses) - len(numbers))
            logits = backend.feed(tokens, wanted)
            if wanted:
                found = sample(logits, torch.tensor(uniforms, dtype=torch.float64), self.temperature, *self.cut)
                counts = self._take(feeds, *(part.tolist() for part in found))
            else:
                counts = [len(feed.tokens) for feed in feeds]
                for row in self.slots:
                    row.last = row.last if row.done else row.hear()
            backend.accept(torch.tensor(counts))
            living = [i for i, row in enumerate(self.slots) if not row.done]
            if not living:
                return
            if len(living) <= SHRINK_AT * len(self.slots):
                backend.keep(torch.tensor(living))
                self.slots = [self.slots[i] for i in living]

    def _feeds(self) -> list[_Feed]:
        """What each row feeds; a row that is done feeds one token that nobody looks at."""
        widest, guesses = self.backend.width, []
        if widest > 1:
            for row in self.slots:
                room = 0 if row.done else widest - 1 - len(row.forced)
                left = self.limit - len(row.episode.completion_ids) - len(row.forced) - 1
                count = min(room, left)
                guesses.append(self.drafts.guess(self._heard(row), row.group, count) if count > 0 else [])
            alive = [i for i, row in enumerate(self.slots) if not row.done]
            width = best_width(
                [1 + len(self.slots[i].forced) for i in alive],
                [len(guesses[i]) for i in alive],
                widest,
                self.backend.overhead,
            )
        else:
            width, guesses = 1, [[] for _ in self.slots]
        feeds = []
        for row, guessed in zip(self.slots, guesses, strict=True):
            if row.done:
                feeds.append(_Feed([row.last], [], False))
                continue
            tokens = [row.last, *(row.hear() for _ in range(min(len(row.forced), width - 1)))]
            samples = not row.forced
            feeds.append(_Feed(tokens, guessed[: width - len(tokens)] if samples else [], samples))
        return feeds

    def _heard(self, row: Row) -> tuple[int, ...]:
        """The last tokens of the conversation once what waits has been heard."""
        return (*row.context(), *row.forced)[-ORDER:]

    def _take(self, feeds: list[_Feed], tokens: list[int], logps: list[float], entropies: list[float]) -> list[int]:
        """Appends what was sampled up to the first wrong guess, ends turns; returns how many fed tokens stand."""
        counts, ended, at = [], [], 0
        for row, feed in zip(self.slots, feeds, strict=True):
            standing = len(feed.tokens)
            if feed.samples:
                for number in range(1 + len(feed.guesses)):
                    token = tokens[at + number]
                    if self._say(row, token, logps[at + number], entropies[at + number]):
                        ended.append(row)
                        break
                    if number == len(feed.guesses) or feed.guesses[number] != token:
                        break
                    standing += 1
                at += 1 + len(feed.guesses)
            elif not row.done:
                row.last = row.hear()
            counts.append(standing)
        if ended:
            self.end_turns(ended)
        return counts

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
