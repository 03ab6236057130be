"""`mcp-evo chat`: ask a model one question, or talk to it in the terminal; tool calls are shown."""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr, to_stdout
from mcp_server.policy_in_force import policy_in_force
from trainer.evaluation.chat import ChatProcess, message_lines, plan_chat
from trainer.evaluation.chat_types import MAX_PROBLEM, ChatAnswer, ChatQuestion
from trainer.evaluation.plan import Wishes
from trainer.evaluation.types import EvaluationError

HELP = "/new begins a new conversation, /problem N asks a test problem, /quit (or Ctrl-D) ends"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("chat")(chat)


def chat(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="Run (its trained model), alias, hub id, folder or file.")] = "tiny",
    prompt: Annotated[str | None, typer.Argument(help="One question; left out: a conversation.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment whose tools it has; of a run: its own.")] = None,
    problem: Annotated[
        int | None, typer.Option(min=0, max=MAX_PROBLEM, help="Ask this test problem of the environment instead.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed of problems and sampling.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field of the configuration.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as one JSON document on stdout.")] = False,
) -> None:
    """Ask a model, or talk to it; its tool calls are shown."""
    state: CliState = context.obj
    once = prompt is not None or problem is not None
    if as_json and not once:
        raise CommandError("--json answers one question: give a prompt or --problem N.")
    if prompt is not None and problem is not None:
        raise CommandError("a prompt and --problem are two questions. Keep one of them.")
    wishes = Wishes(
        env=env, seeds=None if seed is None else (seed,), temperature=temperature, overrides=overrides or ()
    )
    if not state.root.is_dir():  # refuse what is wrong before anything is written
        plan_chat(None, target, wishes)
    workspace = state.writable()
    plan = plan_chat(workspace, target, wishes, policy=policy_in_force(workspace).config)
    to_stderr().print(f"loading {target} …", markup=False)
    console = to_stdout()
    with ChatProcess.start(workspace, plan) as process:
        if not once:
            Conversation(process, console).run()
            return
        messages = [] if prompt is None else [{"role": "user", "content": prompt}]
        answer = process.ask(ChatQuestion(messages=messages, problem=problem))
    if as_json:
        print(json.dumps(answer.model_dump(mode="json"), ensure_ascii=False))
        return
    if problem is not None:
        show([one for one in answer.prompt if one.get("role") != "system"], console)
    show(answer.messages, console)
    console.print(ending(answer), style="dim", markup=False)


def show(messages: list[dict[str, Any]], console: Console) -> None:
    """Messages, a line for each text and each call."""
    styles = {"model": "", "call": "cyan", "tool": "green", "user": "bold"}
    for message in messages:
        for who, text in message_lines(message):
            console.print(f"{who:6} {text}", style=styles.get(who, ""), markup=False)


def ending(answer: ChatAnswer) -> str:
    """How it ended, in one line."""
    reward = "" if answer.reward is None else f", reward {answer.reward:g}"
    error = f": {answer.error}" if answer.error else ""
    return (
        f"({answer.stop_reason}{error}{reward}; {answer.turns} turns, {answer.tokens} tokens, {answer.seconds:.1f} s)"
    )


class Conversation:
    """Questions from the terminal or a pipe, one a line."""

    def __init__(self, process: ChatProcess, console: Console) -> None:
        self._process, self._console = process, console
        self._messages: list[dict[str, Any]] = []
        self._turn = 0

    def run(self) -> None:
        """Until the input ends or somebody says /quit."""
        interactive = sys.stdin.isatty()
        if interactive:
            self._console.print(HELP, style="dim", markup=False)
        while True:
            try:
                line = input("> ") if interactive else next(sys.stdin, None)
            except EOFError:
                return
            if line is None or line.strip() in ("/quit", "/exit"):
                return
            if line.strip():
                self._take(line.strip())

    def _take(self, line: str) -> None:
        if line == "/new":
            self._messages = []
        elif line.startswith("/problem"):
            number = line.removeprefix("/problem").strip()
            if not (number.isascii() and number.isdigit() and int(number[:9]) <= MAX_PROBLEM):
                self._console.print(f"write /problem and its number, 0 to {MAX_PROBLEM:,}", markup=False)
                return
            self._ask(ChatQuestion(problem=int(number), turn=self._turn))
        elif line.startswith("/"):
            self._console.print(HELP, style="dim", markup=False)
        else:
            self._ask(ChatQuestion(messages=[*self._messages, {"role": "user", "content": line}], turn=self._turn))

    def _ask(self, question: ChatQuestion) -> None:
        self._turn += 1
        try:
            answer = self._process.ask(question)
        except EvaluationError as error:
            self._console.print(str(error), style="red", markup=False)
            return
        shown = [one for one in answer.prompt if one.get("role") != "system"]
        if question.problem is not None:
            show(shown, self._console)
        show(answer.messages, self._console)
        self._console.print(ending(answer), style="dim", markup=False)
        self._messages = [*shown, *answer.messages]
