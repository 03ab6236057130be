"""Prompts: one for each skill that leads others. A client shows them as commands (`/mcp__evo__rllm-train …`).

A prompt says what is wanted and which skill to open first; the skill's own text comes from `load_skill`, so that the
record knows from where on it was worked by. Every argument may be left out or empty; arguments are few, in the order
of their importance, because clients fill them by position. Text of the person is quoted as data of the one call it
belongs to.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import PromptArgument
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from mcp_server.answers import clip

DEFAULT_REQUEST = "train the tiny calculator agent on 64 mixed problems, reward >= 0.9"
"""What is trained where nothing is said: small enough for any machine."""

DEFAULT_ROUNDS = "2"

MAX_ROUNDS = 100

MAX_REQUEST = 2000
"""Characters; `load_skill` takes no more."""

APPROVAL = "Only a person approves a patch or a plan: show it with its numbers and the command in the answer, and wait."


def rllm_train(request: str = "") -> str:
    """Train a small tool-using language agent from one request to a judged result."""
    wanted = _request(request)
    return _work(
        "rllm-train",
        wanted,
        f"Train a small tool-using language agent: {wanted}",
        "Leave out values that I did not ask for: the skills choose them.",
    )


def traj_train_optimize(session: str = "") -> str:
    """Turn finished training sessions into a patch with a verdict: segment, analyse, propose, try, hand over."""
    named = clip(session, 64)
    which = "every recorded session" if named == "all" else f"session {named}" if named else "the newest session"
    return _work(
        "traj-train-optimize",
        named or "the newest session",
        f"Improve the training skills by what {which} shows.",
        "A pass that finds nothing worth changing is a good one: say what was looked at.",
        APPROVAL,
    )


def traj_loop(request: str = "", rounds: str = "") -> str:
    """Run improvement rounds in a row: train, analyse, patch, paired trial, approval."""
    wanted, count = _request(request), _rounds(rounds)
    return _work(
        "traj-loop",
        f"{wanted}; {count} round(s)",
        f"Improve the training skills over {count} round(s). What every round trains: {wanted}",
        APPROVAL,
    )


def meta_loop(rounds: str = "") -> str:
    """Improve the optimiser itself by the record of its own rounds and trials."""
    count = _rounds(rounds)
    return _work(
        "meta-loop",
        f"{count} round(s)",
        f"Improve the optimiser's own skills over {count} round(s), by what the recorded rounds and trials show.",
        "Where too little is recorded, stop and say how much there is.",
        APPROVAL,
    )


def traj_status(evolution: str = "") -> str:
    """Show where training, trajectories, patches and rounds stand, and the next step. Changes nothing."""
    named = clip(evolution, 64)
    return _work(
        "traj-status",
        named or "everything",
        f"Show me where evolution {named} stands." if named else "Show me where training, patches and rounds stand.",
        "Start nothing and change nothing.",
    )


_REQUEST = {"request": f"What to train, English or Chinese. Default: {DEFAULT_REQUEST}"}

_ROUNDS = {"rounds": f"How many rounds, 1 to {MAX_ROUNDS}. Default: {DEFAULT_ROUNDS}"}


@dataclass(frozen=True)
class PromptSpec:
    """A prompt: its description is the function's docstring."""

    name: str
    title: str
    function: Callable[..., str]
    arguments: Mapping[str, str]
    """Argument of the function → what it is, in the order in which clients fill them."""


PROMPTS = (
    PromptSpec("rllm-train", "Train an agent", rllm_train, _REQUEST),
    PromptSpec(
        "traj-train-optimize",
        "Improve the skills by a session",
        traj_train_optimize,
        {"session": "Recorded session, or all. Default: the newest"},
    ),
    PromptSpec("traj-loop", "Improve the skills in rounds", traj_loop, {**_REQUEST, **_ROUNDS}),
    PromptSpec("meta-loop", "Improve the optimiser", meta_loop, _ROUNDS),
    PromptSpec(
        "traj-status",
        "Show where things stand",
        traj_status,
        {"evolution": "Evolution or campaign. Default: the latest"},
    ),
)


def add_prompts(server: MCPServer[Any]) -> None:
    """Registers the prompts. They are put together here: making their schemas from type hints would cost a server's
    start more than all of them are worth."""
    for spec in PROMPTS:
        prompt = Prompt(
            name=spec.name,
            title=spec.title,
            description=" ".join((spec.function.__doc__ or "").split()),
            arguments=[PromptArgument(name=name, description=text) for name, text in spec.arguments.items()],
            fn=spec.function,
            context_kwarg=None,
        )
        server.add_prompt(prompt)


def check_prompt(name: str, arguments: Iterable[str]) -> None:
    """Raises MCPError, naming what there is, for a prompt or an argument that is not there."""
    known = {spec.name: spec.arguments for spec in PROMPTS}
    if name not in known:
        raise MCPError(
            code=INVALID_PARAMS, message=f"there is no prompt {clip(name, 60)!r}. There are: {', '.join(known)}"
        )
    for argument in arguments:
        if argument not in known[name]:
            raise MCPError(
                code=INVALID_PARAMS,
                message=f"prompt {name} has no argument {clip(argument, 60)!r}. It takes: {', '.join(known[name])}",
            )


def _work(skill: str, words: str, *sentences: str) -> str:
    arguments = json.dumps({"skill": skill, "args": words}, ensure_ascii=False)
    return "\n".join(
        [
            *sentences,
            "",
            f"First call load_skill {arguments} and work by what it answers, phase by phase; follow the `next` of each "
            "answer. Quote numbers with their split, n and interval.",
        ]
    )


def _request(text: str) -> str:
    return clip(text, MAX_REQUEST) or DEFAULT_REQUEST


def _rounds(text: str) -> int:
    given = text.strip() or DEFAULT_ROUNDS
    if not (given.isascii() and given.isdigit() and len(given) <= 3 and 1 <= int(given) <= MAX_ROUNDS):
        raise MCPError(
            code=INVALID_PARAMS, message=f"rounds {clip(given, 40)!r} is not a number from 1 to {MAX_ROUNDS}"
        )
    return int(given)
