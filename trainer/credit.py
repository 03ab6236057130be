"""Step credit in training: turns labelled by what the verifier saw, advantages of steps on their tokens.

A turn is bad where a tool refused its call, the call could not be read, or it repeats an earlier call of the episode;
and where it calls nothing although the episode did not succeed. Else it is good. A service may label the turns instead
(`experience.step_labels`), those of groups whose rewards differ. An episode whose turns and tokens do not match, or
for which the service gave no labels, keeps its ordinary advantage on all tokens, which is counted.
"""

import json
from collections.abc import Sequence
from itertools import groupby

from torch import Tensor

from trainer.algorithms.step_credit import step_advantages, step_values
from trainer.experience.step_labels import EndpointLabels
from trainer.rollout.types import Episode

SUCCESS = 0.5
ERROR_MARK = "Error:"
"""How the rollout engine begins the answer to a call that failed."""


class StepCredit:
    """The `Credit` of a trainer (see grpo.py), with counts."""

    def __init__(self, scheme: str, alpha: float, group_size: int, service: EndpointLabels | None = None) -> None:
        """`service`: labels turns instead of the verifier's signals."""
        self.scheme, self.alpha, self.group_size, self.service = scheme, alpha, group_size, service
        self.fallbacks = 0
        """Episodes of the present step that keep their ordinary advantage."""
        self.bad_turns = 0
        self.turns = 0

    def __call__(self, episodes: list[Episode], advantages: Tensor) -> Tensor:
        """(B, T) advantages of tokens; tokens of the environment keep the episode's, they are masked anyway."""
        width = max(len(one.completion_ids) for one in episodes)
        by_token = advantages[:, None].repeat(1, width).float()
        self.fallbacks = self.bad_turns = self.turns = 0
        given = self._given(episodes, advantages)
        for start in range(0, len(episodes), self.group_size):
            rows, labels = [], []
            for row in range(start, min(start + self.group_size, len(episodes))):
                if row not in given:
                    continue
                found = given[row]
                if found is None or len(found) != len(turns_of(episodes[row].mask)):
                    self.fallbacks += 1
                    continue
                rows.append(row)
                labels.append(found)
            self.turns += sum(map(len, labels))
            self.bad_turns += sum(not good for one in labels for good in one)
            values = step_values(self.scheme, labels, [episodes[row].reward > SUCCESS for row in rows])
            outcomes = [float(advantages[row]) for row in rows]
            for row, steps in zip(rows, step_advantages(values, outcomes, self.alpha), strict=True):
                for (begin, end), value in zip(turns_of(episodes[row].mask), steps, strict=True):
                    by_token[row, begin:end] = value
        return by_token

    def _given(self, episodes: list[Episode], advantages: Tensor) -> dict[int, list[bool] | None]:
        """Row → labels, None where there are none; of valid episodes."""
        valid = [row for row, one in enumerate(episodes) if one.valid]
        if self.service is None:
            return {row: labels_of(episodes[row]) for row in valid}
        size = self.group_size  # a group without signal is not asked about
        learns = [
            bool(advantages[row // size * size : row // size * size + size].any()) for row in range(len(episodes))
        ]
        asked = [row for row in valid if learns[row]]
        return dict(zip(asked, self.service([episodes[row] for row in asked]), strict=True))

    def metrics(self) -> dict[str, float]:
        """Of the present step."""
        share = {"bad_turn_rate": self.bad_turns / self.turns} if self.turns else {}
        return {**share, "credit_fallbacks": float(self.fallbacks)}


def turns_of(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Where the model's turns begin and end in the completion."""
    found, at = [], 0
    for own, run in groupby(mask):
        length = len(list(run))
        if own:
            found.append((at, at + length))
        at += length
    return found


def labels_of(episode: Episode) -> list[bool]:
    """Good or bad for each turn of the model."""
    said = episode.messages[len(episode.request.messages) :]
    labels: list[bool] = []
    seen: set[str] = set()
    for place, message in enumerate(said):
        if message["role"] != "assistant":
            continue
        answers = []
        for later in said[place + 1 :]:
            if later["role"] != "tool":
                break
            answers.append(str(later["content"]))
        calls = [json.dumps(call["function"], sort_keys=True, default=str) for call in message.get("tool_calls", ())]
        repeated = any(call in seen for call in calls)
        seen.update(calls)
        refused = any(answer.startswith(ERROR_MARK) for answer in answers)
        idle = not calls and episode.reward <= SUCCESS
        labels.append(not (repeated or refused or idle))
    return labels
