"""Documents about episodes: which steps kept some, those of a step, one of them turn by turn and token by token."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.answers import clip
from mcp_server.dashboard.shaping import NotThere, number_from
from mcp_server.dashboard.source import Source

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from trainer.runs.rundir import RunDirectory

MAX_STEP_BYTES = 32 * 2**20
"""A file of episodes larger than this is not read while a person waits."""

MAX_EPISODES = 256
"""Episodes of one step that are listed."""

MAX_TOKENS = 4_000
"""Tokens of an episode that are shown one by one."""

MAX_TOKENIZER_BYTES = 64 * 2**20

BRIEF = ("group", "generation", "task", "reward", "stop_reason", "turns", "tool_calls", "tool_errors", "parse_errors")


def episode_steps(source: Source, run_id: str) -> dict[str, Any]:
    """Steps whose episodes were kept, with their mean reward."""
    directory = source.run(run_id).directory
    rewards = {row["step"]: row.get("reward_mean") for row in source.rows(directory)}
    return {"steps": [{"step": step, "reward": rewards.get(step)} for step in directory.episode_steps()]}


def episode_list(source: Source, run_id: str, step: str) -> dict[str, Any]:
    """The episodes of a step, each in a line."""
    directory = source.run(run_id).directory
    found = _episodes(directory, number_from(step, "step"))
    rows = [
        {
            "place": place,
            **{name: one.get(name) for name in BRIEF},
            "valid": one.get("valid") is not False,
            "prompt": clip(str(one.get("prompt", "")), 160),
            "tokens": len(one["completion_ids"]) if isinstance(one.get("completion_ids"), list) else None,
            "guided": bool(one.get("guided")),
        }
        for place, one in enumerate(found[:MAX_EPISODES])
    ]
    return {"step": int(step), "episodes": rows, "total": len(found)}


def episode_page(source: Source, run_id: str, step: str, place: str) -> dict[str, Any]:
    """One episode: its turns, and its completion token by token with the mask of training."""
    directory = source.run(run_id).directory
    found = _episodes(directory, number_from(step, "step"))
    position = number_from(place, "episode")
    if position >= len(found):
        raise NotThere(f"step {step} has {len(found)} episodes")
    one = found[position]
    return {
        "step": int(step),
        "place": position,
        "count": len(found),
        **{name: one.get(name) for name in BRIEF},
        "valid": one.get("valid") is not False,
        "prompt": str(one.get("prompt", "")),
        "answer": _answer(one),
        "error": one.get("error"),
        "messages": _messages(one.get("messages")),
        "tokens": _tokens(one, directory),
    }


def _episodes(directory: "RunDirectory", step: int) -> list[dict[str, Any]]:
    path = directory.episode_path(step)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise NotThere(f"no episodes of step {step} were kept") from None
    if size > MAX_STEP_BYTES:
        raise NotThere(f"the episodes of step {step} take {size // 2**20} MB: too many to show")
    return directory.episodes(step)


def _answer(one: dict[str, Any]) -> str | None:
    row = one.get("row")
    found = row.get("answer") if isinstance(row, dict) else None
    return None if found is None else str(found)


def _messages(messages: Any) -> list[dict[str, Any]]:
    """Role, text and tool calls of each message; whatever else it holds is not shown."""
    shown = []
    for one in messages if isinstance(messages, list) else []:
        if not isinstance(one, dict):
            continue
        content = one.get("content")
        text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
        calls = one.get("tool_calls")
        shown.append(
            {
                "role": str(one.get("role", "?")),
                "text": text,
                "calls": [_call(call) for call in calls] if isinstance(calls, list) else [],
            }
        )
    return shown


def _call(call: Any) -> dict[str, str]:
    function = call.get("function", call) if isinstance(call, dict) else {}
    if not isinstance(function, dict):
        function = {}
    arguments = function.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"name": str(function.get("name", "?")), "arguments": text}


def _tokens(one: dict[str, Any], directory: "RunDirectory") -> dict[str, Any] | None:
    """Pieces of the completion, whether each was trained on (mask 1: the model's own), its log probability."""
    ids, mask, logprobs = one.get("completion_ids"), one.get("mask"), one.get("logprobs")
    if not isinstance(ids, list) or not isinstance(mask, list) or len(ids) != len(mask):
        return None
    kept = [one for one in ids[:MAX_TOKENS] if isinstance(one, int)]
    if len(kept) != min(len(ids), MAX_TOKENS):
        return None
    return {
        "total": len(ids),
        "pieces": _pieces(kept, directory),
        "mask": [bool(one) for one in mask[:MAX_TOKENS]],
        "logprobs": logprobs[:MAX_TOKENS] if isinstance(logprobs, list) and len(logprobs) == len(ids) else None,
    }


def _pieces(ids: Sequence[int], directory: "RunDirectory") -> list[str]:
    """Each token as text; by its number where the run's tokenizer is not at hand."""
    tokenizer = _tokenizer_of(directory)
    if tokenizer is None:
        return [f"#{one}" for one in ids]
    return [tokenizer.decode([one], skip_special_tokens=False) if one >= 0 else f"#{one}" for one in ids]


def _tokenizer_of(directory: "RunDirectory") -> "Tokenizer | None":
    """The tokenizer that the run saved with its model, else the one of its model's folder, where that is local."""
    for folder in (directory.model_folder, _folder_of_model(directory)):
        path = None if folder is None else folder / "tokenizer.json"
        if path is not None and path.is_file() and path.stat().st_size <= MAX_TOKENIZER_BYTES:
            return _load_tokenizer(path, path.stat().st_mtime_ns)
    return None


def _folder_of_model(directory: "RunDirectory") -> Path | None:
    from trainer.config import ConfigError
    from trainer.models.catalog import resolve_model
    from trainer.runs.errors import RunError

    try:
        return Path(resolve_model(directory.read_config().model).location)
    except (RunError, ConfigError):
        return None


@lru_cache(maxsize=4)
def _load_tokenizer(path: Path, changed: int) -> "Tokenizer | None":
    """Raises nothing: a file that is no tokenizer is none."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # the library raises plain Exception for whatever it cannot read
        return None
