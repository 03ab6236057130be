"""Steps of an orchestrating skill that were taken without it.

Rule: the session opened two or more skills that one orchestrator declares as its steps, and no skill that declares them
was opened before, by a call or by a prompt (`/name`).
Needs: a bank that declares steps. Where the source records no prompts, an orchestrator started by a slash command
leaves no trace; the finding says so and is half as sure.
Does not claim: that the result would have been another one with it.
"""

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

MIN_STEPS = 2
"""One skill opened by itself is a way to work; two steps of the same whole are the whole without its lead."""


def detect(view: View) -> list[Finding]:
    """One finding for each orchestrator that was passed over. The bank is asked for the names it declares."""
    found = []
    for orchestrator, steps in sorted(view.orchestrators.items()):
        taken = [(line, name) for line, name in view.skills if name in steps]
        if len({name for _, name in taken}) < MIN_STEPS or _was_opened(view, orchestrator):
            continue
        names = list(dict.fromkeys(name for _, name in taken))
        caveat = "" if view.prompts else "; prompts were not recorded, so a slash command would not show"
        found.append(
            finding(
                view,
                "orchestrator_skipped",
                orchestrator,
                f"{', '.join(names)} were opened and {orchestrator}, which leads them, was not{caveat}",
                [line for line, _ in taken],
                confidence=0.8 if view.prompts else 0.4,
                metrics=[Metric(name="steps_taken", value=len(names), n=len(steps))],
            )
        )
    return found


def _was_opened(view: View, orchestrator: str) -> bool:
    by_call = any(name == orchestrator for _, name in view.skills)
    return by_call or any(f"/{orchestrator}" in (prompt.text or "") for prompt in view.prompts)
