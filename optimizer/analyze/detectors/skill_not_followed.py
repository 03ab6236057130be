"""A step that a skill declares and that was not taken while it was in force.

Rules: (1) the bank declares for an orchestrating skill the skills of its steps; the session opened the orchestrator and
at least one of those skills, and after it never one of the others. (2) The bank declares for a skill the tools that
working by it means to call; the skill was in force, that is over, and one of them was never called in its segment.
Needs: the orchestrator's own call or prompt, or the skill's segment, and a bank that declares its steps.
Does not claim: that the step was needed, or that its work was not done without the skill; a session that is still open
may take it yet. A segment that ran `mcp-evo` in a shell may have taken the step there and is passed over, and so is a
session that used none of the tools that any skill declares: its skills of the same name are somebody else's.
"""

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.view import View
from optimizer.segment.types import Segment, SegmentKind
from optimizer.types import Finding, Metric

COMMAND = "mcp-evo"
LOADS_SKILLS = "load_skill"


def detect(view: View) -> list[Finding]:
    """One finding for each orchestrator with missing steps, and one for each segment without its skill's tools."""
    found = _without_tools(view)
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


def _without_tools(view: View) -> list[Finding]:
    found: list[Finding] = []
    tools = {LOADS_SKILLS, *(tool for declared in view.steps.values() for tool in declared)}
    if not any((event.tool or "").rsplit("__", 1)[-1] in tools for event in view.calls):
        return found
    for segment in view.segments:
        declared = view.steps.get(segment.skill or "", ())
        if segment.kind is not SegmentKind.SKILL or segment.open or not declared:
            continue
        called, in_shell = _called(view, segment)
        missing = [tool for tool in declared if tool not in called]
        if not missing or in_shell:
            continue
        what = (
            f"{segment.skill} was in force over {segment.tool_calls} calls, and {', '.join(missing)}, which it "
            f"declares as {'its step' if len(declared) == 1 else 'steps'}, "
            f"{'was' if len(missing) == 1 else 'were'} not called"
        )
        share = Metric(name="declared_steps_taken", value=1 - len(missing) / len(declared), n=len(declared))
        lines = [segment.first_line, segment.last_line]
        found.append(finding(view, "skill_not_followed", segment.id, what, lines, confidence=0.6, metrics=[share]))
    return found


def _called(view: View, segment: Segment) -> tuple[set[str], bool]:
    """(tools called in the segment, by their own names; whether it ran our command in a shell)."""
    called: set[str] = set()
    in_shell = False
    for event in view.calls:
        inside = any(span.first_line <= event.line <= span.last_line for span in segment.spans)
        if event.agent == segment.agent and inside and event.tool is not None:
            called.add(event.tool.rsplit("__", 1)[-1])
            in_shell |= event.tool == "Bash" and COMMAND in view.inputs[event.line]
    return called, in_shell
