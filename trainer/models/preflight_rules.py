"""The rules of the preflight (P1 to P6 of the anomaly catalogue), pure: measured numbers in, notices out.

A critical notice means that the run cannot work; a warning that it will probably waste its time; an info is worth
knowing. The numbers of a notice are those that its rule looked at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainer.rollout.summary import SUCCESS
from trainer.rollout.types import Episode, StopReason
from trainer.runs.detectors.types import Severity

Number = float | int | str | None


class Check(StrEnum):
    """Rows of the catalogue."""

    LENGTH = "P1"
    """Prompt, cap and context."""
    GRADER = "P2"
    """Parser and grader."""
    DIVERSITY = "P3"
    """Different completions in a group."""
    SIGNAL = "P4"
    """Groups whose rewards differ."""
    TEMPLATE = "P5"
    """Whether the template keeps earlier turns."""
    MEMORY = "P6"
    """What the run will need against what is free."""


@dataclass(frozen=True)
class Notice:
    """One thing that was seen before the first step."""

    id: Check
    severity: Severity
    text: str
    """One sentence with the numbers."""
    advice: str
    """What to change."""
    numbers: dict[str, Number]
    samples: tuple[str, ...] = ()
    """What the model said, where that is the evidence."""

    def fields(self) -> dict[str, Any]:
        """For an event."""
        shown = {"id": self.id.value, "severity": self.severity.value, "text": self.text, "advice": self.advice}
        return {**shown, "numbers": self.numbers, **({"samples": list(self.samples)} if self.samples else {})}


TRUNCATED_WARN = 0.15
"""Share of cut episodes from which the cap is too small (catalogue, P1)."""

TRUNCATED_MANY = 0.5
"""From here the lengths say little about what is needed, and twice the cap is proposed."""

DISTINCT = 2 / 7
"""(distinct - 1) / (G - 1) below which a group is too uniform: 3 of 8 in the catalogue (P3), for any group size."""

SIGNAL = 0.1
"""Share of groups with a spread of rewards below which there is nothing to learn from (P4)."""

FLAT = 1e-6
"""Rewards that differ by less are equal, as in the trainer."""

MEMORY_SHARE = 0.8
"""Share of free memory above which a run is close to its end (P6)."""


def round_up(tokens: float, step: int = 64) -> int:
    """To a whole multiple of `step`."""
    return math.ceil(tokens / step) * step


def quantile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def check_context(longest_prompt: int, context: int | None, cap: int) -> list[Notice]:
    """P1, before anything is played: prompt and cap (tokens) against the model's context."""
    if context is None:
        return []
    numbers: dict[str, Number] = {"prompt_tokens_max": longest_prompt, "max_completion_tokens": cap, "context": context}
    room = context - longest_prompt
    if room <= 0:
        return [
            Notice(
                Check.LENGTH,
                Severity.CRITICAL,
                f"The longest prompt has {longest_prompt} tokens, the model's context only {context}.",
                "Use a model with a longer context, fewer or shorter tool descriptions, or shorter problems.",
                numbers,
            )
        ]
    if cap > room:
        return [
            Notice(
                Check.LENGTH,
                Severity.WARN,
                f"The longest prompt ({longest_prompt} tokens) and max_completion_tokens ({cap}) exceed the model's "
                f"context of {context} tokens together; beyond it a model writes nonsense.",
                f"Set max_completion_tokens to at most {room}.",
                numbers,
            )
        ]
    return []


def check_length(episodes: Sequence[Episode], cap: int, room: int | None) -> list[Notice]:
    """P1, on the probe: share of episodes that the cap cut. `room`: tokens that the context leaves, if it is known."""
    lengths = [len(e.completion_ids) for e in episodes]
    if not lengths:
        return []
    share = sum(e.stop_reason is StopReason.MAX_TOKENS for e in episodes) / len(episodes)
    if share <= TRUNCATED_WARN:
        return []
    p95 = quantile(lengths, 0.95)
    proposal = round_up(2 * cap if share > TRUNCATED_MANY else max(1.25 * p95, cap + 1))
    proposal = proposal if room is None else min(proposal, room)
    if proposal > cap:
        advice = f"Set max_completion_tokens to {proposal}, or ask for shorter answers in the system prompt."
    else:
        advice = "The context leaves no more room: ask for shorter answers, or use fewer turns (max_turns)."
    return [
        Notice(
            Check.LENGTH,
            Severity.WARN,
            f"{share:.0%} of {len(episodes)} trial episodes were cut off at max_completion_tokens = {cap}.",
            advice,
            {
                "truncated": share,
                "episodes": len(episodes),
                "p95": p95,
                "max_completion_tokens": cap,
                "proposal": proposal,
            },
        )
    ]


def check_parser(readable: bool, parser: str, native: bool) -> list[Notice]:
    """P2: whether the parser reads a call in the form in which the model is shown it."""
    if readable:
        return []
    source = "the chat template writes" if native else "is described to the model"
    return [
        Notice(
            Check.GRADER,
            Severity.CRITICAL,
            f"The parser ({parser}) cannot read the tool call that {source}: no call would ever be understood.",
            "Leave out the parser that was set by hand, or use a model whose calls can be read.",
            {"parser": parser},
        )
    ]


def check_reference(reward: float | None) -> list[Notice]:
    """P2: what the grader gives for the known answer of a problem. None: not known."""
    if reward is None or reward > SUCCESS:
        return []
    return [
        Notice(
            Check.GRADER,
            Severity.WARN,
            f"The grader gives {reward:g} for a problem's own answer, so a right answer may never be rewarded.",
            "Compare get_reward (or the reward function) with the `answer` of the tasks: types, spaces, formats of "
            "numbers. If the task asks for more than the answer, this is in order.",
            {"reference_reward": reward},
        )
    ]


def check_format(episodes: Sequence[Episode], samples: Sequence[str]) -> list[Notice]:
    """P2, on the probe: no success, and no call or none that could be read. `samples`: what the model said."""
    if not episodes or any(_succeeded(e) for e in episodes):
        return []
    attempted = sum(e.attempted_calls for e in episodes)
    called = sum(e.tool_calls > 0 for e in episodes) / len(episodes)
    parsed = 1 - sum(e.parse_errors for e in episodes) / attempted if attempted else None
    if called > 0 and parsed != 0:
        return []
    what = "called a tool" if parsed is None or parsed > 0 else "wrote a tool call that could be read"
    return [
        Notice(
            Check.GRADER,
            Severity.WARN,
            f"None of {len(episodes)} trial episodes {what}, and none succeeded.",
            "Look at the samples. Worked examples in the prompt help most (examples=4, where the environment has a "
            "solution), then easier problems or a model that knows tools; learning from failures alone does not start.",
            {"episodes": len(episodes), "tool_call_rate": called, "parse_ok_rate": parsed, "success": 0.0},
            tuple(samples),
        )
    ]


def check_diversity(groups: Sequence[Sequence[Episode]], temperature: float) -> list[Notice]:
    """P3: distinct completions in a group of the probe."""
    sized = [group for group in groups if len(group) > 1]
    if not sized:
        return []
    distinct = [len({tuple(e.completion_ids) for e in group}) for group in sized]
    shares = [(n - 1) / (len(group) - 1) for n, group in zip(distinct, sized, strict=True)]
    if sum(shares) / len(shares) >= DISTINCT:
        return []
    mean, size = sum(distinct) / len(distinct), len(sized[0])
    return [
        Notice(
            Check.DIVERSITY,
            Severity.WARN,
            f"Of {size} episodes of one problem only {mean:.1f} differ on average at temperature {temperature:g}: "
            "there is little to prefer.",
            "Raise the temperature (1.0 is usual), or the group size num_generations.",
            {"distinct_mean": mean, "group_size": size, "temperature": temperature},
        )
    ]


def check_signal(groups: Sequence[Sequence[Episode]]) -> list[Notice]:
    """P4: share of groups whose rewards differ, so that some problems are neither too hard nor too easy."""
    graded = [rewards for group in groups if len(rewards := [e.reward for e in group if e.valid]) > 1]
    if not graded:
        return []
    flat = [rewards for rewards in graded if max(rewards) - min(rewards) < FLAT]
    signal = (len(graded) - len(flat)) / len(graded)
    if signal >= SIGNAL:
        return []
    easy = sum(rewards[0] > SUCCESS for rewards in flat)
    hard = len(flat) - easy
    if easy > hard:
        what, advice = "right", "Choose harder problems (difficulty), or stop here: the model can do this."
    else:
        what = "wrong"
        advice = "Choose easier problems (difficulty), a better model, or more generations per problem."
    return [
        Notice(
            Check.SIGNAL,
            Severity.WARN,
            f"In {len(flat)} of {len(graded)} trial groups all episodes got the same reward, mostly all {what}: such "
            "groups teach nothing.",
            advice,
            {"groups": len(graded), "with_signal": signal, "all_right": easy, "all_wrong": hard},
        )
    ]


def check_template(preserving: bool) -> list[Notice]:
    """P5: whether rendering one more message keeps the text before it."""
    if preserving:
        return []
    return [
        Notice(
            Check.TEMPLATE,
            Severity.INFO,
            "The chat template rewrites earlier turns when a conversation goes on (it drops their thinking).",
            "Nothing to do: turns stay as they were sampled and results are appended to them. Another program that "
            "renders the whole conversation again shows the model a slightly different history.",
            {"prefix_preserving": 0},
        )
    ]


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of one run, beyond what the loaded weights hold already."""

    gradients: int
    moments: int
    """Two per trained parameter (AdamW)."""
    copies: int
    """Best weights, reference model."""
    activations: int
    """Of one forward and backward pass."""
    logits: int
    cache: int
    """Keys and values of one batch of episodes."""
    weights: int = field(default=0)
    """Held already; for information."""

    @property
    def standing(self) -> int:
        """What is held all the time."""
        return self.gradients + self.moments + self.copies

    @property
    def peak(self) -> int:
        """Episodes and update take turns, so the larger of the two counts."""
        return self.standing + max(self.activations + self.logits, self.cache)


def check_memory(need: MemoryNeed, available: int) -> list[Notice]:
    """P6: the peak against free memory (bytes)."""
    if need.peak <= MEMORY_SHARE * available:
        return []
    giga = 2**30
    parts = {"gradients": need.gradients, "moments": need.moments, "copies": need.copies}
    parts |= {"activations": need.activations, "logits": need.logits, "cache": need.cache, "weights": need.weights}
    impossible = need.peak > available
    largest = max(("standing", need.standing), ("rollout", need.cache), ("pass", need.activations), key=lambda x: x[1])[
        0
    ]
    advice = {
        "standing": "Train adapters (lora=true) or a smaller model.",
        "rollout": "Play fewer episodes at once (batch_size, num_generations) or shorter ones (max_completion_tokens).",
        "pass": "Use smaller passes (micro_batch_tokens) or shorter episodes (max_completion_tokens).",
    }[largest]
    return [
        Notice(
            Check.MEMORY,
            Severity.CRITICAL if impossible else Severity.WARN,
            f"The run will need about {need.peak / giga:.1f} GB beside the loaded model; {available / giga:.1f} GB are "
            "free.",
            advice,
            {"needed_bytes": need.peak, "available_bytes": available, **{f"{k}_bytes": v for k, v in parts.items()}},
        )
    ]


def _succeeded(episode: Episode) -> bool:
    return episode.valid and episode.reward > SUCCESS
