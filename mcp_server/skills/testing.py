"""Carries the examples of a bank's skills out against the real tools, in a workspace that is thrown away.

A copy of the bank is what the server of that workspace serves, so an example sees the skills that are tested. Runs are
real and small (`tiny`); `$MCP_EVO_WORKER` puts another worker in the place of the real one, as everywhere. Whatever an
example left running is ended before the folder goes.
"""

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp import Client
from mcp_types import CallToolResult

from mcp_server.jobs.background import CHILD_NOTE
from mcp_server.server import build_server
from mcp_server.skills.examples import Example, ExampleError, Refused, examples_of, run_example
from mcp_server.skills.lint import chosen_skills
from mcp_server.skills.markdown import sources_of
from skill_bank.bank import SHIPPED, SkillBank
from skill_bank.files import read_json
from skill_bank.types import Problem
from trainer.runs import processes, supervise
from trainer.runs.registry import list_runs
from trainer.runs.workspace import Workspace, create_workspace

EXAMPLE_S = 300.0
"""An example that takes longer has failed: skills are tested while someone waits."""

FINISHED_RUN: dict[str, Any] = {
    "request": "train the tiny calculator agent on 16 simple problems, 2 steps, seed 1",
    "overrides": {"test_problems": 16},
}
"""The run that `finished_run()` stands for: small, and over in seconds."""

OVER = ("finished", "failed", "stopped", "lost")


@dataclass(frozen=True)
class Outcome:
    """What became of an example."""

    skill: str
    title: str
    file: str
    line: int
    """Where it failed, else where it begins."""
    passed: bool
    seconds: float
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


Told = Callable[[Outcome], None]


def collect(bank: SkillBank, target: str = "all") -> tuple[list[Example], list[Problem]]:
    """The examples of the skills of a target, and what is wrong with those that cannot be read. Raises BankError."""
    found: list[Example] = []
    wrong: list[Problem] = []
    for skill in chosen_skills(bank, target):
        for source in sources_of(bank, skill):
            examples, errors = examples_of(skill, source)
            found += examples
            fix = "Write calls, while and assert only"
            wrong += [Problem(source.file, one.line, f"an example {one}", fix) for one in errors]
    return found, wrong


def run_examples(bank: SkillBank, examples: Sequence[Example], told: Told = lambda one: None) -> list[Outcome]:
    """Carries examples out, one after the other, and tells each outcome when it is known. Raises BankError."""
    with tempfile.TemporaryDirectory(prefix="mcp-evo-skills-test-") as folder:
        root = Path(folder) / "project" / ".mcp-evo"
        workspace = create_workspace(root)
        _copy(bank, root / "skills")
        try:
            return anyio.run(_run_all, root, examples, told)
        finally:
            end_processes(workspace)


def _copy(bank: SkillBank, folder: Path) -> None:
    if bank.root.resolve() == SHIPPED.resolve():
        SkillBank.seed(folder)
        return
    shutil.copytree(bank.root, folder, dirs_exist_ok=True)
    SkillBank(folder).compile()


async def _run_all(root: Path, examples: Sequence[Example], told: Told) -> list[Outcome]:
    outcomes = []
    async with Client(build_server(root)) as client:
        actions = _RealActions(root, client)
        for example in examples:
            outcome = await _run_one(example, actions)
            told(outcome)
            outcomes.append(outcome)
    return outcomes


async def _run_one(example: Example, actions: "_RealActions") -> Outcome:
    began = time.monotonic()
    problem: str | None = None
    line = example.line
    try:
        with anyio.fail_after(EXAMPLE_S):
            await run_example(example, actions)
    except ExampleError as error:
        problem, line = str(error), error.line
    except TimeoutError:
        problem = f"took longer than {EXAMPLE_S:g} s"
    seconds = round(time.monotonic() - began, 2)
    return Outcome(example.skill, example.title, example.file, line, problem is None, seconds, problem)


class _RealActions:
    """Tools of a server in this process, commands as processes."""

    def __init__(self, root: Path, client: Client) -> None:
        self._root = root
        self._client = client
        self._finished: str | None = None

    async def tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool. Raises Refused."""
        result = await self._client.call_tool(name, arguments)
        assert isinstance(result, CallToolResult)
        if result.is_error:
            raise Refused(" ".join(part.text for part in result.content if part.type == "text"))
        return dict(result.structured_content or {})

    async def command(self, words: str) -> Any:
        """The JSON document of `mcp-evo WORDS --json`. Raises Refused."""
        command = [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(self._root)]
        command += [*shlex.split(words), *([] if "--json" in words else ["--json"])]
        done = await anyio.run_process(command, check=False, cwd=self._root, stdin=subprocess.DEVNULL)
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            raise Refused(done.stderr.decode("utf-8", "replace").strip() or text.strip())
        return json.loads(text)

    async def finished_run(self) -> str:
        """The run is made once, as an agent would: by the skill, watched to its end."""
        if self._finished is None:
            await self.tool("load_skill", {"skill": "rllm-run"})
            started = await self.tool("start_training", FINISHED_RUN)
            seen = started
            while seen["state"] not in OVER:
                seen = await self.tool("monitor_run", {"run_id": started["run_id"], "wait_s": 5})
            if seen["state"] != "finished":
                raise Refused(f"the run that finished_run() needs ended as {seen['state']}: {seen.get('failure')}")
            self._finished = str(started["run_id"])
        return self._finished


def end_processes(workspace: Workspace) -> None:
    """Ends what still runs for a workspace that is about to go: background commands first, which start runs."""
    for note in workspace.root.rglob(CHILD_NOTE):
        processes.terminate(processes.ProcessIdentity.from_note(read_json(note)))
    for run in list_runs(workspace):
        identity = None if run.document.state.is_final else supervise.identity_of(run.document)
        if identity is not None:
            processes.terminate(identity)
