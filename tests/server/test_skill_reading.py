"""A reader who knows nothing but the skill: takes each call of its text, in order, as it is written, and makes it.

Where the text leaves a value out (`…`), the reader puts in what an earlier answer gave. A call that is refused, or
whose value nothing before could have given, is a fault of the skill. What has to be refused in a workspace without a
person's approval or an interrupted run is listed below, with the words of the refusal.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult
from server_helpers import Caller, in_memory, text_of

from mcp_server.skills.lint import balanced_call
from mcp_server.skills.markdown import SourceFile, blocks_of
from mcp_server.skills.testing import end_processes
from mcp_server.tools import all_specs
from trainer.runs.workspace import Workspace

pytestmark = pytest.mark.anyio

TOOLS = {spec.function.__name__ for spec in all_specs()}
REQUEST = "train the tiny calculator agent on 16 mixed problems, 8 steps, seed 1"
PATCH = '```yaml policy\ntemperature:\n  - {when: {params: "<10M", env: calculator}, default: 0.9}\n```'
SCOPE = {"params": "<10M", "env": "calculator"}

REFUSED = {
    ("start_training", "resume"): "finished",  # the run that there is came to its end
    ("start_training", "campaign.resume"): "no",  # nothing was interrupted
    ("rollback_skill", "version"): "version",  # nothing was promoted since version 1
    ("analyze_trajectories", "traj"): "traj",  # nobody has optimised yet
    ("try_patch", "more"): "patch",  # its trial has not asked for more
    ("try_patch", "patch_id"): "changes prose only",  # the text says where it goes then
    ("analyze_trajectories", "round"): "round",  # no evolution ran here
    ("distill_experience", "run_id"): "no episodes yet",  # a worker that trains nothing writes none
}
"""(tool, what is asked) → words of a refusal that the situation deserves."""

REAL_MODEL = {"try_model", "evaluate_model"}
"""Tools that load a model whatever the worker is: their examples run with real training."""


ABSENT = {"evolution"}
"""What the text asks about only where there is one."""


class Untold(Exception):
    """A value that nothing before could have told."""


class Reader:
    """Fills in what the text leaves open and remembers what the answers gave."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.known: dict[str, Any] = {
            "request": REQUEST, "profile": "original", "key": "mine", "overrides": {"seed": 2}, "seeds": [991],
            "wait_s": 1, "since_step": 0, "LAST": 0, "N": 1,
            "plan": "quick", "query": "adding two numbers", "text": "tiny",
            "skill": "rllm-config", "section": "sizes", "action": "append", "body": PATCH, "scope": SCOPE,
            "description": "Cooler sampling", "reason": "It did harm", "version": 1, "when_to_use": "x plus y is asked",
            "content": "Call the tool with x and y, then submit what it says", "problem": 0, "resume": "none-such",
            "campaign": {"max_runs": 1}, "limit": 30, "true": True,
            "claims": [{"text": "reward was above 0", "metric": "reward_mean"}],
        }  # fmt: skip

    def values(self, call: ast.Call) -> dict[str, Any]:
        """The arguments of a call as the reader would send them."""
        return {str(one.arg): self.value(str(one.arg), one.value) for one in call.keywords}

    def value(self, name: str, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._known(node.id)
        open_value = any(isinstance(one, ast.Constant) and one.value in (..., "...") for one in ast.walk(node))
        if open_value and isinstance(node, ast.Dict):
            return {ast.literal_eval(key): self.known["resume"] for key in node.keys if key is not None}
        if open_value:
            return self._known(name)
        if isinstance(node, ast.List):
            return [self.value(name, one) for one in node.elts]
        return ast.literal_eval(node)

    def _known(self, name: str) -> Any:
        if name not in self.known:
            raise Untold(name)
        return self.known[name]

    def learn(self, tool: str, answer: dict[str, Any]) -> None:
        """Takes note of ids, as an agent would."""
        for name in ("run_id", "patch_id", "evaluation_id", "session", "evolution"):
            if answer.get(name):
                self.known[name] = answer[name]
        if answer.get("campaign"):
            self.known["evolution"] = answer["campaign"]["campaign_id"]
        if tool == "start_training" and answer.get("run_id"):
            self.known.setdefault("first", answer["run_id"])
            self.known.setdefault("base", answer["run_id"])
            self.known["second"] = self.known["other"] = self.known["last"] = answer["run_id"]
            self.known["resume"] = answer["run_id"]
        if tool == "analyze_run":
            levers = [one["id"] for one in answer["findings"] if one.get("lever") and not one.get("blocked")]
            self.known.update({"finding": levers[0]} if levers else {})
        if tool == "segment_trajectories" and answer["sessions"]:
            self.known["session"] = answer["sessions"][-1]["session"]

    async def make(self, call: ast.Call) -> str | None:
        """Makes a call; the refusal that nothing excuses, or None."""
        assert isinstance(call.func, ast.Name)
        tool = call.func.id
        try:
            arguments = self.values(call)
        except Untold as error:
            if str(error) in ABSENT:
                return None
            return f"nothing before {ast.unparse(call)} tells {error}"
        result = await self.caller.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        if not result.is_error:
            self.learn(tool, result.structured_content or {})
            if tool == "monitor_run" and (result.structured_content or {}).get("check_again_s"):
                await self.caller.until_over(arguments.get("run_id"))  # "again and again until the run is over"
            return None
        text = text_of(result)
        excuses = [words for (name, about), words in REFUSED.items() if name == tool and _is_about(about, arguments)]
        if any(words in text for words in excuses):
            return None
        return f"{tool}({arguments}) was refused: {text}"


def _is_about(about: str, arguments: dict[str, Any]) -> bool:
    name, _, key = about.partition(".")
    if key:
        return key in (arguments.get(name) or {})
    return name in arguments or name in arguments.values()


def calls_of(text: str) -> Iterator[ast.Call]:
    """Every call of the prose of a skill, in order; examples are tested elsewhere."""
    for block in blocks_of(SourceFile("SKILL.md", text)):
        if block.info is not None:
            continue
        for line in block.text.split("\n"):
            for match in re.finditer(r"(?<![\w.])([a-z]+(?:_[a-z]+)+|evolve)\(", line):
                written = balanced_call(line, match.start(), match.end())
                assert written is not None
                node = ast.parse(written.replace("…", "..."), mode="eval").body
                assert isinstance(node, ast.Call)
                if match[1] in TOOLS:
                    yield node


async def read(caller: Caller, reader: Reader, skill: str, leave: frozenset[str] = frozenset()) -> list[str]:
    """Opens a skill and makes its calls; what was refused. The calls in `leave` are only looked at."""
    opened = await caller.raw("load_skill", skill=skill)
    assert not opened.is_error
    refused = []
    for call in calls_of(text_of(opened)):
        assert isinstance(call.func, ast.Name)
        if call.func.id in REAL_MODEL | leave:
            continue
        problem = await reader.make(call)
        refused += [] if problem is None else [problem]
    return refused


async def trained(caller: Caller, reader: Reader) -> None:
    """Two runs of the plain base that were watched to their end and analysed."""
    for seed in (1, 2):
        started = await caller.ok("start_training", request=REQUEST, profile="original", overrides={"seed": seed})
        reader.learn("start_training", started)
        await caller.until_over(started["run_id"])
    reader.learn("analyze_run", await caller.ok("analyze_run"))


async def follow(root: Path, skills: tuple[str, ...], leave: frozenset[str] = frozenset()) -> list[str]:
    """Works by skills, one after the other; what was refused or unclear."""
    problems: list[str] = []
    try:
        async with in_memory(root, "auto") as caller:
            reader = Reader(caller)
            await caller.raw("load_skill", skill="rllm-train")
            await trained(caller, reader)
            for skill in skills:
                if skill == "meta-loop":
                    reader.known |= {"skill": "traj-optimize", "section": "propose", "body": "Say why.", "scope": None}
                problems += [f"{skill}: {one}" for one in await read(caller, reader, skill, leave)]
    finally:
        end_processes(Workspace(root))
    return problems


@pytest.mark.slow  # a dozen runs of a worker that trains nothing
async def test_a_training_agent_that_follows_the_skills_to_the_letter_is_never_refused(root: Path) -> None:
    led = ("rllm-train", "rllm-clarify", "rllm-config", "rllm-run", "rllm-monitor", "rllm-analyze")
    problems = await follow(root, led, frozenset({"propose_patch", "try_patch"}))
    assert not problems, "\n".join(problems)


async def test_an_optimiser_that_follows_the_skills_to_the_letter_is_never_refused(root: Path) -> None:
    skills = ("traj-status", "traj-segment", "traj-analyze-rllm", "traj-optimize", "traj-train-optimize", "meta-loop")
    problems = await follow(root, skills)
    assert not problems, "\n".join(problems)
