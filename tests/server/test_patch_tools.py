"""Proposing and trying patches, skills and rounds: what works, and what is refused with which words."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from server_helpers import FAKE_WORKER, REQUEST, Caller, in_memory
from terminal import command

from optimizer.audit import AuditLog
from optimizer.home import Home
from optimizer.patch_store import Stage
from optimizer.trial.folder import TrialFolder
from optimizer.trial.plan import QUICK
from optimizer.trial.pooled import PooledArms
from optimizer.trial.run import Budget, finish_trial, run_trial
from optimizer.trial.types import Reason, TrialVerdict
from optimizer.tryout import prepare_trial, resolver
from skill_bank.bank import SkillBank

pytestmark = pytest.mark.anyio

BLOCK = "Warmer.\n\n```yaml policy\ntemperature:\n  - {when: {params: '<10M', env: calculator}, default: 0.9}\n```"
SCOPE = {"params": "<10M", "env": "calculator"}
CONFIG = {"skill": "rllm-config", "section": "sampling", "body": BLOCK, "scope": SCOPE}


def sections(root: Path, skill: str) -> list[str]:
    return [one.name for one in SkillBank.seed(root / "skills").source(skill).base.sections]


async def test_an_agents_own_patch_is_checked_and_staged(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        detail = await caller.ok("skill_status", skill="rllm-config")
        (view,) = detail["skills"]
        assert "sizes" in view["sections"]
        assert view["profiles"] == {"original": ["000-original-defaults"]}
        patch = await caller.ok("propose_patch", **{**CONFIG, "section": view["sections"][1]})
        assert patch["kind"] == "policy"
        assert patch["changes"][0]["after"] == 0.9
        assert patch["changes"][0]["when"] == SCOPE
        assert "+" in patch["diff"]
        assert patch["next"] == {
            "say": "Try it against the skill without it.",
            "tool": "try_patch",
            "arguments": {"patch_id": patch["patch_id"]},
        }
        status = await caller.ok("skill_status", skill="rllm-config")
        assert status["skills"][0]["waiting"] == {patch["patch_id"]: "staged"}
        where = await caller.ok("round_status")
        assert where["open"][0]["patch_id"] == patch["patch_id"]
        assert where["next"]["tool"] == "try_patch"


def policy(**rule: Any) -> str:
    return f"Text.\n\n```yaml policy\n{json.dumps(rule)}\n```"


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no finding", {"finding": "finding-000000000000"}, ["finding-000000000000", "analyse"]),
    ("nothing said", {}, ["finding, or skill, section and body", "missing: skill, section, body"]),
    ("no such skill", {**CONFIG, "skill": "rllm-cfg"}, ["rllm-cfg", "rllm-config"]),
    ("no such section", {**CONFIG, "section": "nowhere"}, ["nowhere", "sizes"]),
    ("no text", {**CONFIG, "body": "   "}, ["no text"]),
    ("too long", {**CONFIG, "body": "line\n" * 60}, ["60 lines", "40"]),
    ("no schema", {**CONFIG, "body": policy(nonsense={"default": 1})}, ["nonsense"]),
    (
        "out of scope",
        {**CONFIG, "body": policy(temperature=[{"default": 0.9}])},
        ["scope"],
    ),
    (
        "two levers too many",
        {
            **CONFIG,
            "body": policy(
                **{
                    key: [{"when": SCOPE, "default": value}]
                    for key, value in {"temperature": 0.9, "max_turns": 5, "num_generations": 16}.items()
                }
            ),
        },
        ["3 policy keys", "allowed are 2"],
    ),
    ("marker inside", {**CONFIG, "body": "<!-- section:x -->\nmore"}, ["marker"]),
    ("other run", {**CONFIG, "run_id": "nosuchrun"}, ["nosuchrun"]),
]


@pytest.mark.parametrize(("case", "arguments", "words"), REFUSED, ids=[one[0] for one in REFUSED])
async def test_a_patch_that_fails_a_check_is_refused_and_leaves_nothing(
    root: Path, case: str, arguments: dict[str, Any], words: list[str]
) -> None:
    if arguments.get("section") == "sampling":
        arguments = {**arguments, "section": sections(root, "rllm-config")[1]}
    async with in_memory(root, "auto") as caller:
        text = await caller.refused("propose_patch", **arguments)
        for word in words:
            assert word in text
        assert "Next: " in text
        assert (await caller.ok("round_status")).get("patches", {}) == {}
    assert not (root / "patches").exists() or not list((root / "patches").glob("*/patch.json"))


async def test_a_session_fixed_to_a_layer_writes_only_below_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EVO_LAYER", "rllm")
    async with in_memory(root, "auto") as caller:
        text = await caller.refused("propose_patch", skill="rllm-monitor", section="loop", body="Look twice.")
        assert "layer rllm" in text
        monkeypatch.setenv("MCP_EVO_LAYER", "traj")
        await caller.ok("propose_patch", skill="rllm-monitor", section="loop", body="Look twice.")
        text = await caller.refused("propose_patch", skill="traj-loop", section="procedure", body="Look twice.")
        assert "layer traj" in text
        text = await caller.refused("propose_patch", skill="meta-loop", section="procedure", body="Look twice.")
        assert "meta" in text


async def test_what_the_request_fixed_is_no_lever(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("start_training", request=REQUEST + ", learning rate 1e-5", profile="original")
        await caller.until_over()
        found = await caller.ok("analyze_run")
        (finding,) = [one for one in found["findings"] if one["kind"] == "learning_rate_too_low"]
        assert "the request text fixed it" in finding["blocked"]
        assert found["next"]["tool"] != "propose_patch"
        assert "the request text fixed it" in await caller.refused("propose_patch", finding=finding["id"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"patch_id": "nosuchpatch"}, ["nosuchpatch", "round_status"]),
        ({"patch_id": "../x"}, ["'../x'", "not an id"]),
    ],
)
async def test_a_patch_that_is_not_there_is_not_tried(
    root: Path, era: str, arguments: dict[str, Any], words: list[str]
) -> None:
    async with in_memory(root, era) as caller:
        for tool in ("try_patch", "review_patch"):
            text = await caller.refused(tool, **arguments)
            for word in words:
                assert word in text


async def staged(caller: Caller) -> str:
    await caller.ok("start_training", request=REQUEST, profile="original")
    await caller.until_over()
    analysis = await caller.ok("analyze_run")
    return str((await caller.ok("propose_patch", finding=analysis["findings"][0]["id"]))["patch_id"])


async def test_a_trial_that_a_terminal_runs_is_not_started_twice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial is held by this process, as a command in a terminal would; the tool waits instead of interfering."""
    async with in_memory(root, "auto") as caller:
        patch_id = await staged(caller)
        folder = prepared(root, patch_id)
        with held(folder):
            seen = await caller.ok("try_patch", patch_id=patch_id)
            assert seen["state"] == "running"
            assert not (folder.path / "process.json").exists()
        seen = await caller.ok("try_patch", patch_id=patch_id)
        assert (folder.path / "process.json").exists()
        assert seen["trial_id"] == folder.path.name


def prepared(root: Path, patch_id: str) -> TrialFolder:
    return prepare_trial(Home.open(root), patch_id, QUICK)


def held(folder: TrialFolder) -> FileLock:
    return FileLock(str(folder.path / "running.lock"), mode=0o600)


async def test_a_verdict_whose_process_died_is_entered(root: Path) -> None:
    """verdict.json is there, the patch does not know it yet: killed in between."""
    async with in_memory(root, "auto") as caller:
        patch_id = await staged(caller)
        folder = prepared(root, patch_id)
        home = Home.open(root)
        with PooledArms(home.trials / "workers", command=tuple(FAKE_WORKER)) as arms:
            decision = finish_trial(run_trial(folder, resolver(folder.spec().plan), arms, budget=Budget()))
        assert decision.verdict is TrialVerdict.BETTER
        assert home.patches.read(patch_id).stage is Stage.STAGED
        seen = await caller.ok("try_patch", patch_id=patch_id)
        assert (seen["state"], seen["verdict"]) == ("decided", "better")
        assert home.patches.read(patch_id).stage is Stage.TRIED
        review = await caller.ok(seen["next"]["tool"], **seen["next"]["arguments"])
        assert review["approve_command"]


async def test_a_patch_without_gain_is_rejected_by_its_trial(
    root: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda n: 11)  # with drawn seeds luck would decide one trial in twenty
    async with in_memory(root, era) as caller:
        section = sections(root, "rllm-config")[1]
        patch = await caller.ok("propose_patch", **{**CONFIG, "section": section})
        trial: dict[str, Any] = {"state": "running"}
        for _ in range(60):
            trial = await caller.ok("try_patch", patch_id=patch["patch_id"], wait_s=3)
            if trial["state"] == "decided":
                break
        assert (trial["verdict"], trial.get("reason")) == ("inconclusive", Reason.NO_WORTHWHILE_GAIN)
        assert trial["effect"] < 0.1
        review = await caller.ok("review_patch", patch_id=patch["patch_id"])
        assert review["stage"] == "rejected"
        assert "approve_command" not in review
        again = await caller.refused("propose_patch", **{**CONFIG, "section": section})
        assert "rejected before" in again


async def test_skills_are_shown_compiled_and_checked(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        everything = await caller.ok("skill_status")
        assert everything["total"] == 15
        assert (await caller.ok("skill_status", group="meta"))["total"] == 1
        assert "rllm, traj, meta" in await caller.refused("skill_status", group="none")
        assert "rllm-train" in await caller.refused("skill_status", skill="none")
        assert "rllm-train" in await caller.refused("compile_skills", target="none")
        base = root / "skills" / "rllm" / "rllm-run" / "base.md"
        text = base.read_text(encoding="utf-8")
        base.write_text(text.replace("exactly one run", "just one run"), encoding="utf-8")
        stale = await caller.ok("skill_status")
        assert stale["next"] == {
            "say": "Compile what is stale.",
            "tool": "compile_skills",
            "arguments": {"target": "rllm-run"},
        }
        dry = await caller.ok("compile_skills", dry_run=True)
        assert dry["written"] == []
        compiled = await caller.ok("compile_skills", **stale["next"]["arguments"])
        assert compiled["written"] == ["rllm-run"]
        assert compiled["versions"] == {"rllm-run": "rllm-run@2"}
        assert (await caller.ok("compile_skills"))["written"] == []
        base.write_text(text.replace("<!-- /section:intro -->", ""), encoding="utf-8")
        broken = await caller.refused("compile_skills")
        assert "rllm/rllm-run/base.md:" in broken
        loaded = await caller.raw("load_skill", skill="rllm-run")
        assert "just one run" in loaded.content[0].text  # type: ignore[union-attr]  # the last good version works on


async def test_rollback_takes_out_of_force_and_brings_nothing_back(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("skill_status")
        bank = SkillBank(root / "skills")
        text = bank.render_patch(
            "rllm-monitor",
            id="001-sure",
            target_section="loop",
            body="Say how sure you are.",
            description="sure",
            source="test",
            created="2026-01-01",
        )
        bank.add_patch(text)
        bank.activate("rllm-monitor", "001-sure")
        before = bank.version_files("rllm-monitor", 1)
        done = await caller.ok("rollback_skill", skill="rllm-monitor", version=1, reason="no better")
        assert (done["version"], done["restored"]) == ("rllm-monitor@3", 1)
        assert bank.load_compiled("rllm-monitor").encode() == before["SKILL.md"]
        refused = await caller.refused("rollback_skill", skill="rllm-monitor", version=2, reason="again")
        assert "only a person can" in refused
        assert "001-sure" in refused
        assert "There are: 1 to 3" in await caller.refused(
            "rollback_skill", skill="rllm-monitor", version=9, reason="x"
        )
        assert bank.patches("rllm-monitor")["001-sure"].status == "archived"
    entry = AuditLog(root).entries()[-1]
    assert (entry["kind"], entry["channel"], entry["reason"]) == ("rolled_back", "agent", "no better")


async def test_a_terminal_sees_what_the_tools_did(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        patch_id = await staged(caller)
    listed = json.loads(command(root, "patches", "list", "--json").stdout)
    assert [one["patch_id"] for one in listed["patches"]] == [patch_id]
    shown = command(root, "runs", "list", "--json")
    assert json.loads(shown.stdout)["total"] == 1
    segmented = command(root, "trajectories", "segment", "--json")
    assert segmented.returncode == 0, segmented.stderr
