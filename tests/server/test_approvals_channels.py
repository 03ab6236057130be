"""A decision reaches the server through a client that can ask its user, or not at all; in both eras."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ElicitRequestParams, ElicitResult
from server_helpers import FAKE_WORKER, REQUEST, Caller, events_of, in_memory, text_of
from terminal import approve_in_terminal
from test_loop import tried_patch

from optimizer.approvals import Channel
from optimizer.home import Home
from optimizer.patch_store import PatchError
from optimizer.promote import approve
from skill_bank.bank import SkillBank

pytestmark = pytest.mark.anyio

Answering = Callable[[Any, ElicitRequestParams], Awaitable[ElicitResult]]


def answering(asked: list[ElicitRequestParams], action: str, content: dict[str, Any] | None = None) -> Answering:
    """A client whose user always says the same."""

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    return answer


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A workspace with a patch whose trial said better, made once."""
    folder = tmp_path_factory.mktemp("tried") / ".mcp-evo"

    async def make() -> str:
        async with in_memory(folder, "auto") as caller:
            return await tried_patch(caller)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_EVO_WORKER", json.dumps(FAKE_WORKER))
        return folder, anyio.run(make)


@pytest.fixture
def patch_id(root: Path, tried: tuple[Path, str]) -> str:
    """Its id, in a copy of that workspace."""
    folder, made = tried
    shutil.copytree(folder, root)
    return made


def audit_of(root: Path) -> list[tuple[str, str]]:
    path = root / "audit.jsonl"
    if not path.exists():
        return []
    return [(one["kind"], one["channel"]) for one in map(json.loads, path.read_text().splitlines())]


async def review(root: Path, era: str, user: Answering | None, **arguments: Any) -> dict[str, Any]:
    async with in_memory(root, era, elicitation_callback=user) as caller:
        return await caller.ok("review_patch", **arguments)


async def test_the_user_of_a_client_approves(root: Path, era: str, patch_id: str) -> None:
    asked: list[ElicitRequestParams] = []
    found = await review(root, era, answering(asked, "accept", {"decision": "approve", "reason": "good"}))
    assert len(asked) == 1
    question = asked[0].message
    assert patch_id in question
    assert found["digest"][:12] in question
    assert "better" in question
    assert "learning_rate" in question
    assert found["applied"] is True
    assert found["decision"] == "approve"
    assert audit_of(root) == [("approved", "elicitation"), ("promoted", "elicitation")]
    assert SkillBank(root / "skills").source("rllm-config").manifest.profiles["original"].active[-1] == patch_id
    again = await review(
        root, era, answering(asked, "accept", {"decision": "approve", "reason": ""}), patch_id=patch_id
    )
    assert len(asked) == 1, "what is in force is not asked about again"
    assert again["applied"] is True
    assert len(audit_of(root)) == 2


async def test_the_user_of_a_client_rejects(root: Path, era: str, patch_id: str) -> None:
    found = await review(root, era, answering([], "accept", {"decision": "reject", "reason": "too bold"}))
    assert found["stage"] == "rejected"
    assert found["applied"] is False
    assert audit_of(root) == [("rejected", "elicitation")]
    async with in_memory(root, era) as caller:
        finding = (await caller.ok("analyze_run"))["findings"][0]["id"]
        other = await caller.ok("propose_patch", finding=finding)
        assert other["patch_id"] != patch_id
        assert other["changes"][0]["after"] != 3e-4, "what was rejected is not proposed again"


@pytest.mark.parametrize(
    ("action", "content"),
    [("decline", None), ("cancel", None), ("accept", {"decision": "later", "reason": ""})],
)
async def test_whatever_is_no_approval_applies_nothing(
    root: Path, era: str, patch_id: str, action: str, content: dict[str, Any] | None
) -> None:
    asked: list[ElicitRequestParams] = []
    found = await review(root, era, answering(asked, action, content))
    assert len(asked) == 1
    assert found["applied"] is False
    assert found["stage"] == "tried"
    assert patch_id in found["approve_command"]
    assert audit_of(root) == []


@pytest.mark.parametrize("content", [{}, {"decision": "yes"}, {"decision": True}, None])
async def test_a_malformed_answer_applies_nothing(
    root: Path, era: str, patch_id: str, content: dict[str, Any] | None
) -> None:
    async with in_memory(root, era, elicitation_callback=answering([], "accept", content)) as caller:
        result = await caller.raw("review_patch")
    if not result.is_error:  # an empty form is the form as it was shown: decided later
        assert result.structured_content is not None
        assert result.structured_content["applied"] is False
    assert audit_of(root) == []


async def test_without_a_client_that_asks_nothing_is_applied(root: Path, era: str, patch_id: str) -> None:
    async with in_memory(root, era) as caller:
        result = await caller.raw("review_patch", patch_id=patch_id)
    text = result.content[0].text  # type: ignore[union-attr]
    assert "NOT applied" in text
    assert f"--workspace {root} approve {patch_id}" in text
    assert audit_of(root) == []


@pytest.mark.parametrize("part", ["patch", "skill"])
async def test_what_changes_while_the_person_reads_is_not_applied(
    root: Path, era: str, patch_id: str, part: str
) -> None:
    questions: list[str] = []

    async def slow_user(context: Any, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        if len(questions) == 1:  # while the question stands
            if part == "patch":
                edit_patch(root, patch_id)
            else:
                base = root / "skills" / "rllm" / "rllm-config" / "base.md"
                base.write_text(base.read_text(encoding="utf-8").replace("# ", "# Other ", 1), encoding="utf-8")
            return ElicitResult(action="accept", content={"decision": "approve", "reason": ""})
        return ElicitResult(action="decline")

    async with in_memory(root, era, elicitation_callback=slow_user) as caller:
        result = await caller.raw("review_patch", patch_id=patch_id)
    if era == "legacy":  # the answer comes within the call, which then finds the change
        assert result.is_error
        assert "changed after it was shown" in text_of(result)
    elif part == "patch":  # the call comes again and finds a text that was never tried
        assert len(questions) == 1
        assert "NOT applied: the text of patch" in text_of(result)
    else:  # the question itself is another one now, so it is asked again
        assert len(questions) == 2
        assert questions[0] != questions[1]
        assert not result.is_error
    assert audit_of(root) == []
    active = SkillBank(root / "skills").source("rllm-config").manifest.profiles["original"].active
    assert patch_id not in active


def edit_patch(root: Path, patch_id: str) -> None:
    """Puts another value into a patch than the one that was tried."""
    path = root / "skills" / "rllm" / "rllm-config" / "patches" / f"{patch_id}.md"
    text = path.read_text(encoding="utf-8")
    changed = text.replace("default: 3.0e-04", "default: 2.9e-03")
    assert changed != text
    path.write_text(changed, encoding="utf-8")


async def test_a_text_that_was_not_tried_is_not_asked_about(root: Path, era: str, patch_id: str) -> None:
    edit_patch(root, patch_id)
    asked: list[ElicitRequestParams] = []
    user = answering(asked, "accept", {"decision": "approve", "reason": ""})
    found = await review(root, era, user, patch_id=patch_id)
    assert (asked, found["applied"], found["decision"]) == ([], False, "not_asked")
    home = Home.open(root)
    for channel in (Channel.TERMINAL, Channel.UNATTENDED):
        with pytest.raises(PatchError, match="not the one that was staged"):
            approve(home, patch_id, channel)
    assert audit_of(root) == []


async def test_the_difference_that_is_shown_is_of_what_would_come_into_force(
    root: Path, era: str, patch_id: str
) -> None:
    (root / "patches" / patch_id / "patch.diff").write_text("+nothing of importance\n", encoding="utf-8")
    asked: list[ElicitRequestParams] = []
    await review(root, era, answering(asked, "decline"), patch_id=patch_id)
    assert "nothing of importance" not in asked[0].message
    assert "3.0e-04" in asked[0].message or "0.0003" in asked[0].message


def test_what_changes_before_the_digest_is_typed_is_not_approved(root: Path, patch_id: str) -> None:
    base = root / "skills" / "rllm" / "rllm-config" / "base.md"

    def change() -> None:
        base.write_text(base.read_text(encoding="utf-8").replace("# ", "# Other ", 1), encoding="utf-8")

    code, shown = approve_in_terminal(root, patch_id, meanwhile=change)
    assert code == 1
    assert "changed after it was shown" in " ".join(shown.split())
    assert audit_of(root) == []


async def test_an_untried_patch_is_shown_and_not_asked_about(root: Path, era: str) -> None:
    asked: list[ElicitRequestParams] = []
    user = answering(asked, "accept", {"decision": "approve", "reason": ""})
    async with in_memory(root, era, elicitation_callback=user) as caller:
        patch_id = await staged_patch(caller)
        found = await caller.ok("review_patch", patch_id=patch_id)
        assert (found["applied"], found["decision"]) == (False, "not_asked")
        assert found["next"]["tool"] == "try_patch"
        assert "no patch waits for a person" in await caller.refused("review_patch")
        assert "nosuchpatch" in await caller.refused("review_patch", patch_id="nosuchpatch")
    assert asked == []


async def staged_patch(caller: Caller) -> str:
    await caller.ok("start_training", request=REQUEST, profile="original")
    await caller.until_over()
    analysis = await caller.ok("analyze_run")
    patch = await caller.ok("propose_patch", finding=analysis["findings"][0]["id"])
    return str(patch["patch_id"])


async def test_a_prose_patch_is_asked_about_and_marked_as_not_measured(root: Path, era: str) -> None:
    asked: list[ElicitRequestParams] = []
    user = answering(asked, "accept", {"decision": "approve", "reason": ""})
    async with in_memory(root, era, elicitation_callback=user) as caller:
        patch = await caller.ok(
            "propose_patch",
            skill="rllm-monitor",
            section="loop",
            body="Name the run id in the first line of every report.",
            description="Say which run a report is about",
        )
        assert patch["kind"] == "prose"
        assert patch["next"]["tool"] == "review_patch"
        assert "its effect is not measured" in await caller.refused("try_patch", patch_id=patch["patch_id"])
        found = await caller.ok("review_patch", patch_id=patch["patch_id"])
        assert found["applied"] is True
        loaded = await caller.raw("load_skill", skill="rllm-monitor")
        assert "Name the run id in the first line" in loaded.content[0].text  # type: ignore[union-attr]
    assert "Effect not measured" in asked[0].message


async def test_the_record_holds_each_reviewed_call_once(root: Path, era: str, patch_id: str) -> None:
    before = sum(one.get("tool") == "review_patch" for one in events_of(root))
    await review(root, era, answering([], "accept", {"decision": "later", "reason": ""}))
    events = [one for one in events_of(root) if one.get("tool") == "review_patch"]
    assert len(events) == before + 1
    assert events[-1]["kind"] == "tool_call"
