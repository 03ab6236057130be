"""Talking to a model in a process of its own: start it, ask, close it. Free of torch."""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import IO, Self

from pydantic import ValidationError

from skill_bank.files import write_json_atomic
from skill_bank.policy import CompiledPolicy
from trainer.evaluation.chat_types import ChatAnswer, ChatPlan, ChatQuestion, ChatReply
from trainer.evaluation.plan import Wishes, plan_evaluation
from trainer.evaluation.types import EvaluationError
from trainer.models.catalog import resolve_model
from trainer.runs import processes
from trainer.runs.processes import ProcessIdentity
from trainer.runs.workspace import Workspace


def plan_chat(
    workspace: Workspace | None,
    target: str,
    wishes: Wishes,
    *,
    policy: CompiledPolicy | None = None,
    folder: Path | None = None,
) -> ChatPlan:
    """The plan for a run's trained model or for a model; `wishes` as for an evaluation.

    Raises EvaluationError, ConfigError, RunError.
    """
    plan = plan_evaluation(workspace, target, wishes, policy=policy, folder=folder)
    config = plan.config.model_copy(update={"seed": plan.seeds[0]})
    return ChatPlan(model=plan.subjects[-1].model, config=config, temperature=plan.temperature)


@dataclass
class ChatProcess:
    """A model that answers. Use as a context; leaving it ends the process."""

    folder: Path
    identity: ProcessIdentity
    _process: "Popen[bytes]"
    _replies: IO[str]
    device: str | None = None

    @classmethod
    def start(cls, workspace: Workspace, plan: ChatPlan) -> Self:
        """Starts the process and waits until the model is loaded. Raises EvaluationError, RunError, OSError."""
        processes.require_posix()
        parent = workspace.root / "evaluations"
        parent.mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".chat-", dir=parent))
        try:
            write_json_atomic(folder / "plan.json", plan.model_dump(mode="json"))
            chat = cls._spawn(workspace, plan, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            chat.device = chat._next().device
        except BaseException:
            chat.close()
            raise
        return chat

    @classmethod
    def _spawn(cls, workspace: Workspace, plan: ChatPlan, folder: Path) -> Self:
        reading, writing = os.pipe()
        try:
            identity, process = processes.spawn(
                (
                    sys.executable,
                    "-P",
                    "-m",
                    "trainer.chat_main",
                    str(folder / "plan.json"),
                    f"--protocol-fd={writing}",
                ),
                directory=folder,
                log_path=folder / "worker.log",
                environment=processes.child_environment(
                    more=workspace.config().child_environment,
                    tokens=resolve_model(plan.model).needs_network,
                    threads=plan.config.threads,
                ),
                stdin=PIPE,
                pass_handles=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(folder, identity, process, os.fdopen(reading, "r", encoding="utf-8", newline="\n"))

    def ask(self, question: ChatQuestion) -> ChatAnswer:
        """The model's answer. Raises EvaluationError where there is none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise EvaluationError(f"the model's process is gone. {self._last_words()}") from error
        reply = self._next()
        if reply.answer is None:
            raise EvaluationError("the model's process sent no answer.")
        return reply.answer

    def _next(self) -> ChatReply:
        line = self._replies.readline()
        if not line:
            raise EvaluationError(f"the model's process is gone. {self._last_words()}")
        try:
            reply = ChatReply.model_validate_json(line)
        except ValidationError as error:
            raise EvaluationError(f"the model's process sent something unreadable: {line[:200]!r}") from error
        if reply.failure is not None:
            raise EvaluationError(f"{reply.failure.message} ({reply.failure.kind})")
        return reply

    def _last_words(self) -> str:
        log = self.folder / "worker.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"Its last words: {' | '.join(lines[-3:])}" if lines else "It said nothing."

    def close(self) -> None:
        """Ends the process and removes its folder."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except OSError:  # it is dead and the pipe holds bytes nobody will read
                pass
        if not processes.wait_until_gone(self.identity, 1.0):
            processes.terminate(self.identity, term_grace_s=2.0)
        self._replies.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def message_lines(message: dict[str, object]) -> list[tuple[str, str]]:
    """(who, text) of one message for people: `model`, `call`, `tool`."""
    role, content = str(message.get("role")), message.get("content")
    lines = [("tool" if role == "tool" else "model" if role == "assistant" else role, str(content))] if content else []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", {}) if isinstance(call, dict) else {}
        arguments = function.get("arguments", {})
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items()) if isinstance(arguments, dict) else ""
        lines.append(("call", f"{function.get('name')}({shown})"))
    return lines
