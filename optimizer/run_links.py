"""From a run to the event that launched it, and back, by ids that both hold since the launch.

1. The event carries the run's id (`run_id`) and is a call of a tool that launches; `run.json` carries the session. Both
   are written by whoever launched the run, while it did.
2. Nothing is inferred from times, names or output: a run without a session, or whose session holds no such event, has
   no launching event.
"""

from optimizer.events import BadEvent, Event, glance, tool_call
from optimizer.ids import BadId
from optimizer.intents import LAUNCHES
from optimizer.store import TrajectoryStore
from skill_bank.files import iterate_lines


def launching_event(store: TrajectoryStore, session: str | None, run_id: str) -> Event | None:
    """The event of `session` (from `run.json`) that launched the run, the first where it was named again; or None."""
    if session is None:
        return None
    try:
        path = store.file(session)
    except BadId:
        return None
    if not path.exists():
        return None
    mark = run_id.encode("utf-8")
    for number, (_, line) in enumerate(iterate_lines(path)):
        if mark not in line:
            continue
        try:
            event = glance(line, number)
        except BadEvent:
            continue
        if event.run_id == run_id and not event.failed and is_launch(event):
            return event
    return None


def is_launch(event: Event) -> bool:
    """Whether the event is a call of a tool that launches runs."""
    return event.is_call and event.tool is not None and event.tool.rsplit("__", 1)[-1] in LAUNCHES


def record_launch(store: TrajectoryStore, session: str, run_id: str, request: str, time: float) -> None:
    """Records a launch from the command line in the session that its caller named. Raises BadId, OSError."""
    answer = {"run_id": run_id}
    store.append(
        tool_call(session, "start_training", {"request": request}, answer, time=time, source="cli", run_id=run_id)
    )
