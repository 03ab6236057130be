"""Calls that failed: the same again and again, and the rest by tool.

Rule: a call counts as failed on the evidence that its event carries (`optimizer.outcome`). Repeated: the same tool with
the same input failed again without having worked in between, which is where an agent loses time.
Needs: outcomes. A call whose outcome is unknown counts for neither side.
Does not claim: whose fault a failure was.
"""

from optimizer.analyze.trajectories import analyse_events
from optimizer.analyze.view import View
from optimizer.types import Finding


def detect(view: View) -> list[Finding]:
    """Findings of every segment of the view."""
    return analyse_events(view.segments, view.events)
