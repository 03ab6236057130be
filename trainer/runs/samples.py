"""Episodes worth a look: a failure of the start, and of the last quarter the best, the worst and the oddest one.

An episode is odd by what it is among its like, not by its text: rewarded although it lacks what rewarded ones have,
alone in its group with its outcome, or of quite another length. The reason stands in its label.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.runs.rundir import RunDirectory
from trainer.runs.statistics import median, robust_sigma

MAX_TEXT = 300
"""Characters of one message shown."""

MAX_STEPS_READ = 16
"""Steps whose episodes are looked through, evenly spread over the last quarter."""

ODD_LENGTH = 6.0
"""Robust standard deviations from the median length, from which an episode is of another kind."""

USUAL = 0.8
"""Share of the rewarded episodes that call a tool, from which one without a call is odd."""


@dataclass(frozen=True)
class SampleEpisode:
    """One episode to look at."""

    label: str
    step: int
    reward: float | None
    stop_reason: str | None
    messages: tuple[tuple[str, str], ...]
    """(role, text), tool calls written as text."""


def sample_episodes(directory: RunDirectory) -> list[SampleEpisode]:
    """Up to four episodes of a run; none where it kept none."""
    steps = directory.episode_steps()
    if not steps:
        return []
    late = _spread(steps[len(steps) - max(1, len(steps) // 4) :])
    episodes = [episode for step in late for episode in _rated(directory.episodes(step), step)]
    first = [one for one in _rated(directory.episodes(steps[0]), steps[0]) if one["reward"] <= 0.5]
    chosen: list[tuple[str, dict[str, Any] | None]] = []
    if steps[0] not in late:
        chosen.append(("a failure at the start", first[0] if first else None))
    best, worst = _best(episodes), _worst(episodes)
    if best is not None and worst is not None and best["reward"] == worst["reward"]:
        worst = None  # all are alike: one is enough
    chosen += [("best", best), ("worst", worst)]
    label, odd = _oddest([one for one in episodes if one is not best and one is not worst])
    chosen.append((f"odd: {label}", odd))
    return [_sample(name, episode) for name, episode in chosen if episode is not None]


def _spread(steps: Sequence[int]) -> list[int]:
    if len(steps) <= MAX_STEPS_READ:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (MAX_STEPS_READ - 1))] for place in range(MAX_STEPS_READ)]


def _rated(episodes: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    """Episodes with a reward that counts, with their step."""
    return [
        {**one, "step": step}
        for one in episodes
        if isinstance(one.get("reward"), (int, float)) and one.get("valid", True) is not False
    ]


def _best(episodes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The highest reward; of equals the one with the fewest turns and tokens."""
    return min(episodes, key=lambda one: (-one["reward"], one.get("turns") or 0, _tokens(one)), default=None)


def _worst(episodes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The lowest reward; of equals one that ended as most of them did."""
    if not episodes:
        return None
    lowest = min(one["reward"] for one in episodes)
    failures = [one for one in episodes if one["reward"] == lowest]
    ends = Counter(str(one.get("stop_reason")) for one in failures)
    return max(failures, key=lambda one: ends[str(one.get("stop_reason"))])


def _tokens(episode: dict[str, Any]) -> int:
    ids = episode.get("completion_ids")
    return len(ids) if isinstance(ids, list) else 0


def _oddest(episodes: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """(why it is odd, the episode)."""
    rewarded = [one for one in episodes if one["reward"] > 0.5]
    callers = sum(1 for one in rewarded if one.get("tool_calls"))
    calls_usual = len(rewarded) >= 5 and callers >= USUAL * len(rewarded)
    groups: dict[tuple[int, Any], list[float]] = {}
    for one in episodes:
        groups.setdefault((one["step"], one.get("group")), []).append(one["reward"])
    lengths = [float(_tokens(one)) for one in episodes if _tokens(one)]
    middle = median(lengths) if lengths else 0.0
    spread = robust_sigma(lengths) if lengths else 0.0
    best: tuple[int, str, dict[str, Any] | None] = (0, "", None)
    for one in episodes:
        score, why = _oddity(one, calls_usual, groups[(one["step"], one.get("group"))], middle, spread)
        if score > best[0]:
            best = (score, why, one)
    return best[1], best[2]


def _oddity(
    one: dict[str, Any], calls_usual: bool, group: list[float], middle: float, spread: float
) -> tuple[int, str]:
    """(how odd, why); 0: not at all. What may be a fault of the reward comes first."""
    good = one["reward"] > 0.5
    if good and calls_usual and not one.get("tool_calls"):
        return 5, "rewarded without a tool call"
    if good and one.get("stop_reason") in ("max_tokens", "max_turns", "parse_errors", "tool_timeout"):
        return 4, f"rewarded although it ended by {one['stop_reason']}"
    if good and one.get("parse_errors"):
        return 3, f"rewarded in spite of {one['parse_errors']} unreadable call(s)"
    if spread > 0 and abs(_tokens(one) - middle) > ODD_LENGTH * spread:
        return 2, f"{_tokens(one)} tokens where {middle:.0f} are usual"
    alike = sum(1 for reward in group if (reward > 0.5) == good)
    if len(group) >= 3 and alike == 1:
        return 1, f"the only {'success' if good else 'failure'} of its group"
    return 0, ""


def _sample(label: str, episode: dict[str, Any]) -> SampleEpisode:
    messages = episode.get("messages")
    if isinstance(messages, list):
        messages = own_conversation(messages, episode.get("prompt"))
    shown = tuple(_message(one) for one in messages if isinstance(one, dict)) if isinstance(messages, list) else ()
    stop = episode.get("stop_reason")
    return SampleEpisode(
        label,
        episode["step"],
        float(episode["reward"]),
        str(stop) if stop is not None else None,
        tuple(one for one in shown if one[0] != "system"),
    )


def own_conversation(messages: list[Any], question: Any) -> list[Any]:
    """From the question on: worked examples, which stand before it, are the same in every episode."""
    asked = [
        at
        for at, one in enumerate(messages)
        if isinstance(one, dict) and one.get("role") == "user" and isinstance(question, str)
        if str(one.get("content", "")).startswith(question)
    ]
    return messages[asked[-1] :] if asked else messages


def _message(message: dict[str, Any]) -> tuple[str, str]:
    parts = [str(message["content"])] if message.get("content") else []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, dict) else {}
        arguments = function.get("arguments", {})
        if isinstance(arguments, dict):
            shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        else:
            shown = str(arguments)
        parts.append(f"{function.get('name')}({shown})")
    text = " ".join(" ".join(parts).split())
    return str(message.get("role", "?")), text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
