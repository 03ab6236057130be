"""Launching a training agent for a round: its task, its environment, and a terminal window for it.

The agent is a client of its own on the same workspace (Claude Code by default). It trains by the skills of group
`rllm`; the optimiser, another process, reads nothing of it but its trajectory. Which terminal is opened depends on
where the command runs: a window of the tmux session it is in, iTerm or Terminal on a Mac, `x-terminal-emulator` under a
display. Elsewhere the command is printed.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_server.cli.context import CommandError

PLACEHOLDER = "{prompt}"


@dataclass(frozen=True)
class AgentTask:
    """What is launched."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    title: str

    def shell_line(self) -> str:
        """One line for a POSIX shell: folder, environment, command."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return f"cd {shlex.quote(str(self.folder))} && {' '.join(assignments)} {shlex.join(self.command)}"


def prompt_for(number: int, request: str, profile: str | None = None) -> str:
    """The task of a training agent in words that name the skill, the round and the profile."""
    with_profile = "" if profile is None else f', and give profile="{profile}"'
    return (
        f"Load the skill rllm-train with the tool load_skill and follow it for this request: round={number} | "
        f'{request}. Start the run with start_training, keep "round={number} | " at the beginning of its '
        f"request{with_profile}. Monitor it to its end, analyse it, and stop there: improving the skills is somebody "
        "else's task."
    )


def task_for(
    number: int, request: str, template: Sequence[str], root: Path, folder: Path, profile: str | None = None
) -> AgentTask:
    """The agent's command from its template. Raises CommandError for a template without `{prompt}`."""
    if not any(PLACEHOLDER in part for part in template):
        raise CommandError(
            f"the command of the training agent, {shlex.join(template)!r}, has no {PLACEHOLDER}: "
            "mend training_agent in config.yaml of the workspace"
        )
    prompt = prompt_for(number, request, profile)
    command = tuple(part.replace(PLACEHOLDER, prompt) for part in template)
    environment = {"MCP_EVO_HOME": str(root), "MCP_EVO_LAYER": "rllm"}
    return AgentTask(command, environment, folder, f"mcp-evo round {number}")


def opener(
    task: AgentTask, environment: Mapping[str, str], platform: str, which: Callable[[str], str | None]
) -> list[str] | None:
    """The command that opens a terminal window with the task; None where there is none to be had."""
    line = task.shell_line()
    if environment.get("TMUX") and which("tmux"):
        return ["tmux", "new-window", "-n", task.title, line]
    if platform == "darwin" and which("osascript"):
        quoted = line.replace("\\", "\\\\").replace('"', '\\"')
        if environment.get("TERM_PROGRAM") == "iTerm.app":
            script = (
                f'tell application "iTerm" to create window with default profile command "/bin/sh -c {_sh(quoted)}"'
            )
        else:
            script = f'tell application "Terminal" to do script "{quoted}"'
        return ["osascript", "-e", script]
    if (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")) and which("x-terminal-emulator"):
        return ["x-terminal-emulator", "-T", task.title, "-e", "sh", "-c", line]
    return None


def _sh(text: str) -> str:
    """The text as one word of a shell inside an AppleScript string, whose own quotes are escaped already."""
    return "'" + text.replace("'", "'\\\\''") + "'"
