"""Records what `evolve` does as a trajectory, so that automatic rounds can be segmented and explained like an agent's.

Each event has a call id made of what it is for; recording it again after a restart adds nothing.
"""

import time
from typing import Any

from optimizer.events import Event, EventKind
from optimizer.home import Home
from optimizer.outcome import Outcome


class Recorder:
    """Appends to one session."""

    def __init__(self, home: Home, session: str) -> None:
        self.store = home.trajectories
        self.session = session
        self._seen = {event.call_id for event in self.store.read(session).events if event.call_id is not None}

    def _append(self, key: str, **fields: Any) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        self.store.append(Event(session=self.session, time=time.time(), source="evolve", call_id=key, **fields))

    def prompt(self, key: str, text: str) -> None:
        """What was asked."""
        self._append(key, kind=EventKind.USER_PROMPT, text=text)

    def skill(self, key: str, name: str, version: str) -> None:
        """A skill comes into force."""
        self._append(
            key,
            kind=EventKind.TOOL_CALL,
            tool="load_skill",
            input={"name": name},
            response={"name": name, "version": version},
            outcome=Outcome.OK,
        )

    def call(
        self,
        key: str,
        tool: str,
        call_input: dict[str, Any],
        response: dict[str, Any],
        *,
        run_id: str | None = None,
        failed: str | None = None,
        duration_s: float | None = None,
    ) -> None:
        """A step that an agent would take through a tool; `failed` is its error, where it ended in one."""
        self._append(
            key,
            kind=EventKind.TOOL_CALL if failed is None else EventKind.TOOL_FAILURE,
            tool=tool,
            input=call_input,
            response=response,
            outcome=Outcome.OK if failed is None else Outcome.FAILED,
            reason=failed,
            run_id=run_id,
            duration_s=duration_s,
        )

    def turn_end(self, key: str) -> None:
        """The actor is done for now."""
        self._append(key, kind=EventKind.TURN_END)
