"""Every tool, resource, prompt and skill of the server through the MCP Inspector's command line.

    python -P tests/conformance/run_inspector.py [--transport stdio|http] [--json]

Each call is a process of its own, as a person would type it: tools/list --strict, a tools/call for every tool, every
resource template, every prompt, skills/list --verify. Installs the Inspector with npm where it is not in the cache yet.
Exit codes: 0 all as expected, 1 not, 3 the Inspector cannot be had here.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from npm_tools import INSPECTOR, ToolsUnavailable
from served import ServeError, environment, serving, stdio_command

TRANSPORTS = ("stdio", "http")

LEGACY, MODERN = "legacy", "modern"
"""Protocol eras: 2025-11-25, 2026-07-28."""

TIMEOUT_S = 120.0

CONNECT_TIMEOUT_MS = "60000"
"""A server process on a machine that is busy with other tests may take long to start."""

MIN_SKILLS = 10
"""Skills that have to be verified."""

OK, PROTOCOL_ERROR, REFUSED = 0, 1, 5
"""Exit codes of the Inspector: a result, an error of the protocol, a result that is the tool's refusal."""

REQUEST = "train the tiny calculator agent on 64 mixed problems, 2 steps"


@dataclass(frozen=True)
class Answer:
    """What one call gave."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The result, raw."""
        return json.loads(self.out)

    @property
    def data(self) -> dict[str, Any]:
        """The structured answer of a tool."""
        return dict(self.result["structuredContent"])


@dataclass
class Report:
    """What was called over one transport."""

    transport: str
    calls: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Of tools/list --strict: advice that is no error."""


class Inspector:
    """Calls the Inspector on one server and notes what is not as expected."""

    def __init__(self, transport: str, target: Sequence[str], home: Path) -> None:
        self.report = Report(transport)
        self._target = list(target)
        self._home = home

    def call(self, method: str, *arguments: str, code: int = OK, era: str = LEGACY, says: str = "") -> Answer:
        """One call that must end with `code` and print `says` somewhere."""
        options = ["--protocol-era", era, "--connect-timeout", CONNECT_TIMEOUT_MS, "--method", method, *arguments]
        command = [*INSPECTOR.command, "--cli", *options, *self._target]  # a command to start comes last, behind `--`
        done = subprocess.run(
            command,
            env=INSPECTOR.environment(self._home),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self.report.calls += 1
        answer = Answer(done.returncode, done.stdout, done.stderr)
        shown = " ".join([era, method, *arguments])[:200]
        if answer.code != code:
            self.report.problems.append(f"{shown}: exit code {answer.code} instead of {code}: {_end(answer)}")
        elif says not in answer.out + answer.err:
            self.report.problems.append(f"{shown}: does not say {says!r}: {_end(answer)}")
        return answer

    def tool(self, name: str, code: int = OK, says: str = "", era: str = LEGACY, **arguments: Any) -> Answer:
        """A tools/call."""
        given = ("--tool-name", name, "--tool-args-json", json.dumps(arguments))
        return self.call("tools/call", *given, code=code, says=says, era=era)


def _end(answer: Answer) -> str:
    return (answer.err.strip() or answer.out.strip())[-600:]


def check(inspector: Inspector) -> Report:
    """Everything, in the order of the loop: later calls use what earlier ones made."""
    listed = inspector.call("tools/list", "--strict")
    inspector.report.warnings += [line for line in listed.err.splitlines() if line.strip()]
    tools = {tool["name"] for tool in listed.result["tools"]}
    inspector.call("tools/list", "--strict", era=MODERN)
    called = _tools(inspector)
    if called.keys() != tools:
        inspector.report.problems.append(f"not called: {tools - called.keys()}; unknown: {called.keys() - tools}")
    _resources(inspector, called)
    _prompts(inspector)
    verified = inspector.call("skills/list", "--verify", "--require-digests", era=MODERN)
    reports = [json.loads(line) for line in verified.out.splitlines() if line.startswith("{")]
    if len(reports) < MIN_SKILLS or not all(one["ok"] for one in reports):
        inspector.report.problems.append(f"skills/list --verify: {_end(verified)}")
    # 2025-11-25 has no place to declare an extension, and the Inspector calls none that is not declared
    inspector.call("skills/list", code=PROTOCOL_ERROR, says="does not declare")
    return inspector.report


def _tools(inspector: Inspector) -> dict[str, Answer]:
    """A call of every tool. Where a real one would train or evaluate for minutes, a call that has to be refused."""
    called: dict[str, Answer] = {}

    def tool(name: str, code: int = OK, says: str = "", **arguments: Any) -> dict[str, Any]:
        answer = inspector.tool(name, code, says, **arguments)
        called[name] = answer
        return answer.data if answer.code == OK else {}

    key = f"inspector-{inspector.report.transport}"
    run = tool("start_training", request=REQUEST, key=key).get("run_id", "none")
    tool("monitor_run", run_id=run, wait_s=45)
    tool("stop_run", run_id=run, says="finished")
    tool("list_runs", limit=2, says=run)
    tool("compare_runs", runs=[run], image=True, says="image/png")
    tool("analyze_run", run_id=run)
    tool("evaluate_model", REFUSED, "Next:", evaluation_id="no-such-evaluation")
    tool("try_model", REFUSED, "Next:", target="no-such-run", prompt="What is 2 + 2?")
    tool("segment_trajectories")
    tool("search_trajectories", tool="start_training", limit=2, says="start_training")
    tool("analyze_trajectories", layer="any")
    tool("load_skill", skill="rllm-run", says="name: rllm-run")
    sections = tool("skill_status", skill="rllm-run").get("skills", [{}])[0]
    free = [name for name in sections.get("sections", []) if name not in sections.get("protected", [])]
    patch = tool(
        "propose_patch",
        skill="rllm-run",
        section=free[0] if free else "none",
        body=f"Look twice ({inspector.report.transport}).",
        description=f"looks twice over {inspector.report.transport}",
        scope={"params": "<10M"},
    ).get("patch_id", "none")
    tool("try_patch", REFUSED, "Next:", patch_id=patch)
    tool("review_patch", patch_id=patch, says="NOT applied")
    tool("compile_skills", dry_run=True)
    tool("rollback_skill", skill="rllm-run", version=1, reason="a check of the protocol", says="rllm-run")
    tool("round_status")
    tool("evolve", REFUSED, "evolve needs")
    lesson = {"when_to_use": "a sum of x and y is asked", "content": "call the calculator with x + y"}
    tool("add_experience", **lesson, family="calculator")
    tool("search_experience", query="a sum")
    tool("distill_experience", REFUSED, "Next:", run_id=run, limit=2)  # the worker that trains nothing has no episodes
    return called


def _resources(inspector: Inspector, called: Mapping[str, Answer]) -> None:
    run = called["start_training"].data["run_id"]
    patch = called["review_patch"].data["patch_id"]
    hits = called["search_trajectories"].data["hits"]
    session = hits[0]["session"]
    inspector.call("resources/list", says="skill://rllm-train/SKILL.md")
    templates = inspector.call("resources/templates/list").result["resourceTemplates"]
    read = {
        "evo://runs/{run_id}": (f"evo://runs/{run}", OK, "last_step"),
        "evo://runs/{run_id}/metrics": (f"evo://runs/{run}/metrics", OK, "reward_mean"),
        "evo://runs/{run_id}/report": (f"evo://runs/{run}/report", OK, run),
        "evo://runs/{run_id}/plot.png": (f"evo://runs/{run}/plot.png", OK, "image/png"),
        "evo://trajectories/{session}": (f"evo://trajectories/{session}", OK, "events"),
        "evo://trajectories/{layer}/{session}": (f"evo://trajectories/other/{session}", OK, "newest"),
        "evo://rounds/{number}": ("evo://rounds/1", PROTOCOL_ERROR, "there is no round 1"),
        "evo://patches/{patch_id}": (f"evo://patches/{patch}", OK, "Look twice"),
        "evo://dashboard/{+path}": ("evo://dashboard/overview", OK, "in_force"),
        "skill://{skill}/{+path}": ("skill://rllm-config/policy.json", OK, "application/json"),
    }
    for template in {one["uriTemplate"] for one in templates} | read.keys():
        if template not in read:
            inspector.report.problems.append(f"no resource of template {template} is read")
            continue
        uri, code, says = read[template]
        for era in (LEGACY, MODERN):
            inspector.call("resources/read", "--uri", uri, code=code, says=says, era=era)
    inspector.call("resources/directory/read", "--uri", "skill://rllm-run", era=MODERN, says="inode/directory")


def _prompts(inspector: Inspector) -> None:
    for prompt in inspector.call("prompts/list").result["prompts"]:
        for era in (LEGACY, MODERN):
            inspector.call("prompts/get", "--prompt-name", prompt["name"], era=era, says="First call load_skill")
    given = ("--prompt-name", "traj-loop", "--prompt-args", "rounds=3", "request=tiny on 8 problems")
    inspector.call("prompts/get", *given, says="over 3 round(s)")
    inspector.call("prompts/get", "--prompt-name", "nobody", code=PROTOCOL_ERROR, says="there is no prompt")


def run(folder: Path, transports: Sequence[str] = TRANSPORTS) -> list[Report]:
    """The checks over each transport, each on a workspace of its own. Raises ToolsUnavailable, ServeError."""
    INSPECTOR.install()
    return [_over(transport, folder / transport) for transport in transports]


def _over(transport: str, folder: Path) -> Report:
    home, workspace = folder / "home", folder / "project" / ".mcp-evo"
    home.mkdir(parents=True)
    if transport == "stdio":
        variables = [part for name, value in environment().items() for part in ("-e", f"{name}={value}")]
        return check(Inspector(transport, [*variables, "--", *stdio_command(workspace)], home))
    with serving(workspace, folder / "server.log") as server:
        token = ["--header", f"Authorization: Bearer {server.token}"]
        return check(Inspector(transport, ["--server-url", server.url, "--transport", "http", *token], home))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=TRANSPORTS, help="only this one")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mcp-evo-inspector-") as folder:
        try:
            reports = run(Path(folder), [given.transport] if given.transport else TRANSPORTS)
        except ToolsUnavailable as error:
            print(error, file=sys.stderr)
            return 3
        except ServeError as error:
            print(error, file=sys.stderr)
            return 1
    if given.json:
        print(json.dumps([asdict(one) for one in reports], indent=1))
    else:
        for one in reports:
            print(f"{one.transport}: {one.calls} calls, {len(one.problems)} not as expected")
            for text in (*one.problems, *(f"(advice) {text}" for text in one.warnings)):
                print(f"  {text}")
    return 1 if any(one.problems for one in reports) else 0


if __name__ == "__main__":
    raise SystemExit(main())
