"""A step that a skill declares and that was not taken while it was in force.

Rule: the bank declares for an orchestrating skill the skills of its steps; the session opened the orchestrator and at
least one of those skills, and after it never one of the others.
Needs: the orchestrator's own call or prompt, and a bank that declares its steps.
Does not claim: that the step was needed, or that its work was not done without the skill; a session that is still open
may take it yet.
"""

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric


def detect(view: View) -> list[Finding]:
    """One finding for each orchestrator with missing steps."""
    found = []
    for line, skill in _opened(view):
        declared = view.children(skill)
        after = [(one, name) for one, name in view.skills if one > line]
        taken = {name for _, name in after if name in declared}
        missing = [name for name in declared if name not in taken]
        if not taken or not missing:
            continue
        lines = [line, *(one for one, name in after if name in taken)]
        what = (
            f"{skill} declares {len(declared)} steps; after it was opened, {', '.join(missing)} "
            f"{'was' if len(missing) == 1 else 'were'} not opened in this session"
        )
        share = Metric(name="declared_steps_taken", value=len(taken) / len(declared), n=len(declared))
        found.append(finding(view, "skill_not_followed", skill, what, lines, confidence=0.7, metrics=[share]))
    return found


def _opened(view: View) -> list[tuple[int, str]]:
    """First opening of each orchestrating skill, by a call or by a prompt that begins with `/name`."""
    first: dict[str, int] = {}
    for line, name in view.skills:
        if view.children(name):
            first.setdefault(name, line)
    for prompt in view.prompts:
        word = (prompt.text or "").strip().split(maxsplit=1)[0:1]
        if word and word[0].startswith("/") and view.children(word[0][1:]):
            first.setdefault(word[0][1:], prompt.line)
    return sorted((line, name) for name, line in first.items())
