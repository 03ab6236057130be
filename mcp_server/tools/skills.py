"""Tools for the skills that agents work by: open one, see how they stand, compile them, go back."""

from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
from mcp_types import CallToolResult, TextContent
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip, compact
from mcp_server.state import ServerState
from mcp_server.tooling import ToolSpec
from mcp_server.tools.training import EXAMPLE_REQUEST, EvoContext, state_of, train_with

if TYPE_CHECKING:
    from skill_bank.bank import CompileReport, SkillBank
    from skill_bank.types import SkillInfo

MAX_PROBLEMS = 10


class SkillAnswer(Answer):
    """The skill that is in force now; its text is the answer's text."""

    skill: str
    group: str
    version: str | None = None
    digest: str | None = None
    children: list[str] = Field(default_factory=list, description="Open them in their phase.")


async def load_skill(
    ctx: EvoContext,
    skill: Annotated[str, Field(description="rllm-train (to train), traj-loop (to improve skills), …")],
    args: Annotated[str | None, Field(max_length=2000, description="The user's words.")] = None,
) -> Annotated[CallToolResult, SkillAnswer]:
    """Use before each phase of training (rllm-…) or improving (traj-…, meta-…): answers with the skill to work by;
    calls from here on are recorded under it. Start with rllm-train."""

    def read(state: ServerState) -> tuple[str, SkillAnswer]:
        bank = state.home().bank
        text = bank.load_compiled(skill)
        record = bank.version(skill)
        children = list(bank.children(skill))
        say = "Follow the skill" + (f"; open {children[0]} when its phase begins." if children else ".")
        data = SkillAnswer(
            skill=skill,
            group=bank.group_of(skill),
            version=None if record is None else record.label,
            digest=None if record is None else record.digest,
            children=children,
            next=_first_call(say, first_step(bank, skill), args),
        )
        return text, data

    text, data = await anyio.to_thread.run_sync(read, state_of(ctx))
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=compact(data),
    )


def first_step(bank: "SkillBank", skill: str) -> str | None:
    """The first tool among the steps a skill declares, else that of the first skill it opens which declares one."""
    own = bank.steps(skill)
    if own:
        return own[0]
    return next((step for child in bank.children(skill) if (step := first_step(bank, child)) is not None), None)


def _first_call(say: str, tool: str | None, args: str | None) -> Next:
    """How a skill begins. A tool that needs what only the skill's work brings is left to the skill."""
    if tool == "start_training":
        return Next(say=say, tool=tool, arguments={"request": args or EXAMPLE_REQUEST})
    return Next(say=say, tool=None if tool == "propose_patch" else tool)


class SkillView(Part):
    """A skill at a glance."""

    name: str
    group: str
    version: str | None = None
    active: list[str] = Field(default_factory=list, description="Patches in force.")
    waiting: dict[str, str] = Field(default_factory=dict, description="Patches that are draft or staged.")
    stale: bool = Field(False, description="Its sources changed since it was compiled.")
    problems: list[str] = Field(default_factory=list)
    description: str | None = None
    sections: list[str] = Field(default_factory=list)
    profiles: dict[str, list[str]] = Field(default_factory=dict, description="Profile → patches in force under it.")
    protected: list[str] = Field(default_factory=list, description="Sections that no patch may touch.")
    pinned: int | None = Field(None, description="Held at this version.")


class SkillsAnswer(Answer):
    """How the skills stand."""

    elastic = ("skills",)

    skills: list[SkillView]
    total: int


async def skill_status(
    ctx: EvoContext,
    skill: Annotated[str | None, Field(description="One in detail, with sections and profiles.")] = None,
    group: Annotated[str | None, Field(description="rllm, traj or meta.")] = None,
) -> Annotated[CallToolResult, SkillsAnswer]:
    """Use to see the skills, their versions, patches in force or waiting, and what is stale or broken; with skill, one
    in detail, for instance before writing a patch of a section."""
    data = await anyio.to_thread.run_sync(_status, state_of(ctx), skill, group)
    broken = [one.name for one in data.skills if one.problems]
    stale = [one.name for one in data.skills if one.stale]
    text = f"{data.total} skills"
    text += f", broken: {', '.join(broken)}" if broken else ", all whole"
    text += f", stale: {', '.join(stale)}." if stale else ", all compiled."
    return answer(text, data)


def _status(state: ServerState, skill: str | None, group: str | None) -> SkillsAnswer:
    bank = state.home().bank
    if skill is not None:
        bank.group_of(skill)  # refuses an unknown one, naming those there are
    if group is not None and group not in bank.groups():
        raise _unknown_group(group, list(bank.groups()))
    chosen = [one for one in bank.status() if skill in (None, one.name) and group in (None, one.group)]
    views = [_skill_view(one, detailed=skill is not None) for one in chosen]
    if skill is not None:
        source = bank.source(skill)
        views[0].sections = [section.name for section in source.base.sections]
        views[0].protected = list(bank.index().skills[skill].protected)
        views[0].profiles = {name: list(one.active) for name, one in sorted(source.manifest.profiles.items())}
    stale = next((one.name for one in views if one.stale and not one.problems), None)
    if stale is not None:
        step = Next(say="Compile what is stale.", tool="compile_skills", arguments={"target": stale})
    elif skill is not None:
        step = Next(say="Open it to work by it.", tool="load_skill", arguments={"skill": skill})
    else:
        step = Next(say="See where the rounds stand.", tool="round_status")
    return SkillsAnswer(skills=views, total=len(views), next=step)


def _unknown_group(group: str, known: list[str]) -> Exception:
    from skill_bank.types import BankError, Problem

    return BankError(
        [Problem("bank.yaml", 0, f"there is no group '{clip(group, 60)}'", f"There are: {', '.join(known)}")]
    )


def _skill_view(info: "SkillInfo", *, detailed: bool) -> SkillView:
    return SkillView(
        name=info.name,
        group=info.group,
        version=None if info.version is None else f"{info.name}@{info.version}",
        active=list(info.active),
        waiting={one: status for one, status in info.patches.items() if status in ("draft", "staged")},
        stale=info.stale,
        pinned=info.pinned,
        problems=[clip(str(one), 300) for one in info.problems[:MAX_PROBLEMS]],
        description=clip(info.description, 1024) if detailed else None,
    )


class CompileAnswer(Answer):
    """What was compiled."""

    elastic = ("warnings", "versions")

    written: list[str] = Field(description="With dry_run: would be.")
    unchanged: list[str]
    versions: dict[str, str] = Field(default_factory=dict, description="Of each that changed.")
    folder: str | None = None
    warnings: list[str] = Field(default_factory=list)


async def compile_skills(
    ctx: EvoContext,
    target: Annotated[str, Field(description="A skill, a group or all.")] = "all",
    dry_run: Annotated[bool, Field(description="Check only.")] = False,
) -> Annotated[CallToolResult, CompileAnswer]:
    """Use when skill_status says stale or skill files were edited by hand: builds what agents and start_training
    read. Problems come with file and line, and nothing is written. Promoting a patch compiles by itself."""

    def run(state: ServerState) -> "CompileReport":
        return state.home().bank.compile(target, dry_run=dry_run)

    report = await anyio.to_thread.run_sync(run, state_of(ctx))
    written = list(report.written)
    data = CompileAnswer(
        written=written,
        unchanged=list(report.unchanged),
        versions={name: one.label for name, one in report.versions.items() if name in written},
        folder=None if report.out is None else str(report.out),
        warnings=[clip(str(one), 300) for one in report.warnings[:MAX_PROBLEMS]],
        next=await anyio.to_thread.run_sync(train_again, state_of(ctx)),
    )
    if dry_run:
        return answer(f"{len(report.skills)} skills compile; nothing was written.", data)
    return answer(f"{len(written)} skills written, {len(report.unchanged)} unchanged.", data)


def train_again(state: ServerState) -> Next:
    """The training to repeat: the latest run's request, by the skills as they are now."""
    from trainer.runs.registry import list_runs
    from trainer.runs.workspace import Workspace

    for run in list_runs(Workspace(state.root)):
        if run.document.request:
            profile = {"profile": run.document.profile} if run.document.profile else {}
            return train_with("Train again by what is in force now", run.document.request, **profile)
    return Next(say="Train by them.", tool="load_skill", arguments={"skill": "rllm-train"})


class RollbackAnswer(Answer):
    """What is in force again."""

    skill: str
    version: str = Field(description="The new one.")
    restored: int


async def rollback_skill(
    ctx: EvoContext,
    skill: str,
    version: Annotated[int, Field(ge=1, description="To go back to; skill_status names the newest.")],
    reason: Annotated[str, Field(max_length=500)],
) -> Annotated[CallToolResult, RollbackAnswer]:
    """Use when a promoted patch did harm: makes the skill what it was in a version, byte for byte, as a new version.
    It only takes patches out of force; bringing one back is for a person."""

    def run(state: ServerState) -> tuple[str, Next]:
        from optimizer.approvals import Channel
        from optimizer.promote import check_only_takes_away, roll_back

        home = state.home()
        check_only_takes_away(home, skill, version)
        label = roll_back(home, skill, version, channel=Channel.AGENT, reason=reason)
        return label, train_again(state)

    label, step = await anyio.to_thread.run_sync(run, state_of(ctx))
    data = RollbackAnswer(skill=skill, version=label, restored=version, next=step)
    return answer(f"{skill} is as in version {version} again: now {label}.", data)


_SEE_SKILLS = Next(say="See which skills there are and what is wrong.", tool="skill_status")

SPECS = [
    ToolSpec(
        load_skill, title="Open a skill", read_only=True, help_with=_SEE_SKILLS, meta={"anthropic/alwaysLoad": True}
    ),
    ToolSpec(skill_status, title="Show skills", read_only=True, help_with=_SEE_SKILLS),
    ToolSpec(compile_skills, title="Compile skills", idempotent=True, help_with=_SEE_SKILLS),
    ToolSpec(rollback_skill, title="Roll a skill back", destructive=True, help_with=_SEE_SKILLS),
]
