"""What looks like an agent or a session but is a copy: harness forks and forked transcripts.

1. *Harness fork*: the client copies the conversation for a purpose of its own (a suggestion, a summary, a title) and
   tells `SubagentStop` when it is done. It has an `agent_id`, but no `agent_type`, no `SubagentStart` and no call; in
   recorded use nine of ten such ends are forks. Its end is an event like any other (it is counted under its own
   conversation), but it is no sub-agent.
2. *Forked session*: `--fork-session`, `/branch` and older `--resume` begin a new session file with copies of the
   parent's lines. A copy carries `forkedFrom` with another session's id, or the id of a call that is already known
   from another session. A copy counts once, in the session where it happened.
3. Hooks copy nothing: a forked session's hooks tell only what happened after the fork.
"""

from collections.abc import Iterable, Mapping
from typing import Any


def is_harness_fork(agent_type: object, *, started: bool, calls: int) -> bool:
    """Whether the end of a conversation beside the main one is a harness fork's and no sub-agent's.

    `agent_type` as the event says it (absent: None), `started`: a start of this agent was seen, `calls`: its calls so
    far.
    """
    return not agent_type and not started and calls == 0


class HarnessForks:
    """Tells forks from sub-agents while the events of one session go by, in file order."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._calls: dict[str, int] = {}

    def start(self, agent: str) -> None:
        """A `SubagentStart` went by."""
        self._started.add(agent)

    def call(self, agent: str) -> None:
        """A call of the agent went by."""
        self._calls[agent] = self._calls.get(agent, 0) + 1

    def end(self, agent: str, agent_type: object) -> bool:
        """A `SubagentStop` went by; whether it was a fork's."""
        return is_harness_fork(agent_type, started=agent in self._started, calls=self._calls.get(agent, 0))


def copied_from(line: Mapping[str, Any], session: str) -> str | None:
    """The session that a transcript line was copied from, or None for a line of `session` itself."""
    origin = line.get("forkedFrom")
    parent = origin.get("sessionId") if isinstance(origin, Mapping) else None
    return parent if isinstance(parent, str) and parent != session else None


def first_sessions(seen: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Call id → the session that counts it, from (call id, session) in the order in which sessions began."""
    owners: dict[str, str] = {}
    for call_id, session in seen:
        owners.setdefault(call_id, session)
    return owners
