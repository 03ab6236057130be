"""Episodes on disk: JSON lines with ids, mask, log-probabilities, reward and the conversation for people."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skill_bank.files import write_text_atomic
from trainer.rollout.types import Episode


def write_episodes(path: Path, step: int, group_size: int, episodes: Sequence[Episode]) -> None:
    """One line an episode, written at once: the same run writes the same bytes, so no times are in it."""
    rows = (episode_line(step, number // group_size, episode) for number, episode in enumerate(episodes))
    write_text_atomic(path, "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows))


def episode_line(step: int, group: int, episode: Episode) -> dict[str, Any]:
    """What an episode's line holds."""
    return {
        "step": step,
        "group": group,
        "generation": episode.request.generation,
        "task": episode.request.task,
        "occurrence": episode.request.occurrence,
        "prompt": episode.request.messages[-1].get("content"),
        "row": episode.request.row,
        "messages": episode.messages,
        "completion_ids": episode.completion_ids,
        "mask": episode.mask,
        "logprobs": [round(v, 5) for v in episode.logprobs],
        "reward": episode.reward,
        "valid": episode.valid,
        "stop_reason": episode.stop_reason.value,
        "turns": episode.turns,
        "tool_calls": episode.tool_calls,
        "tool_errors": episode.tool_errors,
        "parse_errors": episode.parse_errors,
        "error": episode.error,
        **_experience(episode),
    }


def _experience(episode: Episode) -> dict[str, Any]:
    """Only for attempts for which lessons were found, so that other runs write what they always did.

    `messages` is the prompt as it was sampled; `prompt` the question without lessons.
    """
    guidance = episode.request.guidance
    if guidance is None:
        return {}
    plain = episode.plain_prompt_ids
    return {
        "injected": episode.injected,
        "stripped": episode.stripped,
        "experience_ids": list(guidance.record_ids),
        "prompt_ids": episode.prompt_ids,
        "plain_prompt_ids": episode.prompt_ids if plain is None else plain,
        "training_prompt_ids": episode.training_prompt_ids,
    }
