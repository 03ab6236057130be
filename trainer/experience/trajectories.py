"""Attempts as the distiller reads them: question, calls with results, reward. Made of the lines of an episode file.

An episode line may carry `plain_prompt`, the question without experience; without it the prompt is cut where the
experience block begins (`block.TEMPLATE`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.experience.block import TEMPLATE

ERROR_MARK = "Error:"
"""How the rollout engine begins the answer to a call that failed."""
_BLOCK_HEAD = TEMPLATE.split("{}")[0]


@dataclass(frozen=True)
class Call:
    """One tool call and its answer."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool


@dataclass(frozen=True)
class Trajectory:
    """One attempt."""

    question: str
    """The last user message, without experience."""
    calls: tuple[Call, ...]
    reward: float
    valid: bool = True
    """False: the environment failed, the reward is no evidence."""
    stop_reason: str = ""
    answer: str = ""
    """The right answer where the task's row names it: it must not get into a record."""
    group: str = ""
    """Attempts of one task at one step share it."""
    place: str = ""
    """`step/group/generation`."""
    guided: bool = False
    """It had experience in its prompt."""

    def won(self, threshold: float) -> bool:
        """Whether the reward reaches the threshold of success."""
        return self.valid and self.reward >= threshold


def trajectory_of(line: Mapping[str, Any]) -> Trajectory | None:
    """The attempt of an episode line, or None for a line that holds none."""
    messages, reward = line.get("messages"), line.get("reward")
    if not isinstance(messages, list) or isinstance(reward, bool) or not isinstance(reward, int | float):
        return None
    question = line.get("plain_prompt") or line.get("prompt")
    if isinstance(question, list):
        question = next((m.get("content") for m in reversed(question) if m.get("role") == "user"), None)
    if not isinstance(question, str) or not question.strip():
        return None
    row = line.get("row")
    answer = row.get("answer", "") if isinstance(row, Mapping) else ""
    group = f"{line.get('step', 0)}/{line.get('group', 0)}"
    head = question.find(_BLOCK_HEAD)
    return Trajectory(
        question=(question if head < 0 else question[:head]).strip(),
        calls=tuple(_calls(messages)),
        reward=float(reward),
        valid=bool(line.get("valid", True)),
        stop_reason=str(line.get("stop_reason", "")),
        answer=str(answer) if isinstance(answer, str | int | float) else "",
        group=group,
        place=f"{group}/{line.get('generation', 0)}",
        guided=head >= 0 or bool(line.get("injected")),
    )


def trajectories_of(lines: Iterable[Mapping[str, Any]]) -> list[Trajectory]:
    """The attempts of episode lines; lines without one are left out."""
    return [one for one in map(trajectory_of, lines) if one is not None]


def groups_of(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Attempts by group, in order of appearance."""
    groups: dict[tuple[str, str], list[Trajectory]] = {}
    for one in trajectories:
        groups.setdefault((one.group, one.question), []).append(one)
    return list(groups.values())


def _calls(messages: Sequence[Any]) -> Iterable[Call]:
    """Calls with their answers: the tool messages behind an assistant's turn answer its calls in order."""
    waiting: list[tuple[str, Mapping[str, Any]]] = []
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        if message.get("role") == "assistant":
            yield from (Call(tool, arguments, "", True) for tool, arguments in waiting)
            waiting = []
            for call in message.get("tool_calls") or ():
                function = call.get("function", call) if isinstance(call, Mapping) else {}
                arguments = function.get("arguments")
                if isinstance(function.get("name"), str) and isinstance(arguments, Mapping):
                    waiting.append((function["name"], arguments))
        elif message.get("role") == "tool" and waiting:
            (tool, arguments), result = waiting.pop(0), str(message.get("content", ""))
            yield Call(tool, arguments, result, result.startswith(ERROR_MARK))
    yield from (Call(tool, arguments, "", True) for tool, arguments in waiting)
