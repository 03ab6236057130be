"""Calling an environment: every exception is an answer or a recorded fault, every call has a time limit.

Tools and the environment's own functions (`reset`, `get_reward`, …) run in one thread, which is left behind when one of
them does not return.
"""

import json
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from trainer.envs.base import OWN_FUNCTION_S
from trainer.models.parsing import ToolCall

T = TypeVar("T")


class ToolTimeout(Exception):
    """A tool did not answer in time; the text says within which."""


class EnvironmentTimeout(Exception):
    """The environment's own function did not return in time; the text says within which and what to do."""


class Worker(Protocol):
    """Runs one call at a time. Raises what the call raises, and ToolTimeout. `name`: the function's."""

    def run(self, job: Callable[[], Any], timeout_s: float, name: str) -> Any: ...


class _Worker:
    """One daemon thread that runs one call at a time; abandoned when a call hangs."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[bool, Any]]]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._serve, name="tool-calls", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job, answer = self._jobs.get()
            try:
                answer.put((True, job()))
            except BaseException as error:
                answer.put((False, error))

    def run(self, job: Callable[[], Any], timeout_s: float, name: str) -> Any:
        answer: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._jobs.put((job, answer))
        try:
            good, value = answer.get(timeout=timeout_s)
        except queue.Empty:
            raise ToolTimeout(f"no answer within {timeout_s:g} s") from None
        if good:
            return value
        raise value


class ToolRunner:
    """Runs the calls of one engine. Not thread safe."""

    def __init__(
        self, timeout_s: float, timeouts: Mapping[str, float] | None = None, worker: Worker | None = None
    ) -> None:
        """`timeouts`: seconds for single functions, instead of `timeout_s`. `worker`: what runs the calls, instead of a
        thread that each of them is handed to."""
        self.timeout_s, self.timeouts = timeout_s, timeouts or {}
        self._worker = worker or _Worker()

    def call(self, environment: Any, allowed: tuple[str, ...], call: ToolCall) -> tuple[str, bool]:
        """(text for the model, whether the tool answered). Raises ToolTimeout; the hanging thread is left behind."""
        if call.name not in allowed:
            return f"Error: unknown tool {call.name}; allowed: {', '.join(allowed)}", False
        method = getattr(environment, call.name)
        try:
            limit = self.timeouts.get(call.name, self.timeout_s)
            result = self._worker.run(lambda: method(**call.arguments), limit, call.name)
        except ToolTimeout:
            self._worker = _Worker()
            raise
        except TypeError as error:
            return f"Error: wrong arguments: {error}".replace(f"{type(environment).__name__}.", ""), False
        except (Exception, SystemExit) as error:  # whatever a tool raises is the model's feedback
            return f"Error: {error}", False
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str), True

    def own(self, name: str, job: Callable[[], T]) -> T:
        """What the environment's own function gives. Raises what it raises, and EnvironmentTimeout; the hanging thread
        is left behind."""
        limit = self.timeouts.get(name, max(OWN_FUNCTION_S, self.timeout_s))
        try:
            result: T = self._worker.run(job, limit, name)
        except ToolTimeout:
            self._worker = _Worker()
            raise EnvironmentTimeout(
                f"no answer within {limit:g} s. Mend what it waits for; where it needs longer, give the class "
                f'tool_timeouts = {{"{name}": seconds}}, or the run a higher tool_timeout_s'
            ) from None
        return result
