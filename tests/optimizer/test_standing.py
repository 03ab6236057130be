"""Standing approvals: bounded, audited, used once a patch, never for what nothing measured."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import say_later

from optimizer.approvals import ApprovalError, Channel
from optimizer.evolve import evolve, new_request
from optimizer.home import Home
from optimizer.patch_store import PatchKind, PatchRecord
from optimizer.standing import StandingApprovals, describe_grant, seconds_of
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher


def record_of(patch_id: str = "001-a", **fields: Any) -> PatchRecord:
    values: dict[str, Any] = {"kind": PatchKind.POLICY, "verdict": "better", "group": "rllm", **fields}
    return PatchRecord(
        patch_id=patch_id,
        skill="rllm-config",
        layer="traj",
        section="sizes",
        description="",
        effect_hash="0",
        base_digest="a",
        result_digest="b",
        **values,
    )


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def grants(home: Home, clock: list[float]) -> StandingApprovals:
    return StandingApprovals(home.root, lambda: clock[0])


def given(grants: StandingApprovals, most: int = 2, expires: str = "8h", layer: str = "rllm") -> str:
    draft = grants.draft(layer, most, expires)
    grants.grant(draft, Channel.TERMINAL)
    return draft.grant_id


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("8h", 28800), ("1.5d", 129600), (" 2H ", 7200)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "-1h", "0h", "31d", "8 weeks", "1e9h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ApprovalError, match="30d at most"):
        seconds_of(text)


def test_a_draft_grants_nothing_and_is_bounded(grants: StandingApprovals) -> None:
    grants.draft("rllm", 3, "1h")
    assert grants.all() == []
    assert grants.use_for(record_of()) is None
    for layer, most, verdict, message in (
        ("other", 1, "better", "one of: rllm, traj, meta"),
        ("rllm", 0, "better", "1 to 20"),
        ("rllm", 21, "better", "1 to 20"),
        ("rllm", 1, "inconclusive", "not 'inconclusive'"),
    ):
        with pytest.raises(ApprovalError, match=message):
            grants.draft(layer, most, "1h", verdict)


def test_only_so_many_patches_and_each_once(grants: StandingApprovals) -> None:
    grant_id = given(grants, most=2)
    assert grants.use_for(record_of("001-a")) is not None
    assert grants.use_for(record_of("001-a")) is not None  # the same patch keeps its place
    assert grants.use_for(record_of("002-b")) is not None
    assert grants.use_for(record_of("003-c")) is None
    assert grants.read(grant_id).used_for == ["001-a", "002-b"]


@pytest.mark.parametrize(
    "fields", [{"verdict": "inconclusive"}, {"verdict": None}, {"kind": PatchKind.PROSE}, {"group": "traj"}]
)
def test_what_it_is_not_for(grants: StandingApprovals, fields: dict[str, Any]) -> None:
    given(grants)
    assert grants.use_for(record_of(**fields)) is None


def test_it_expires_and_can_be_revoked(grants: StandingApprovals, clock: list[float], home: Home) -> None:
    given(grants, expires="1h")
    clock[0] += 3601
    assert grants.use_for(record_of()) is None
    second = given(grants, expires="1h")
    grants.revoke(second, Channel.UNATTENDED)
    assert grants.use_for(record_of()) is None
    assert not describe_grant(grants.read(second), clock[0])["in_force"]
    assert [one["kind"] for one in home.audit.entries()] == ["standing_granted", "standing_granted", "standing_revoked"]
    assert home.audit.verify().ok
    with pytest.raises(ApprovalError, match=f"There are: .*{second}"):
        grants.revoke("standing-nothing", Channel.TERMINAL)


def test_a_damaged_grant_is_one_clear_error(grants: StandingApprovals, home: Home) -> None:
    grant_id = given(grants)
    (home.root / "approvals" / f"{grant_id}.json").write_text("{", encoding="utf-8")
    with pytest.raises(ApprovalError, match="cannot be read"):
        grants.use_for(record_of())


def test_many_at_once_never_use_more_than_granted(grants: StandingApprovals) -> None:
    grant_id = given(grants, most=5)
    got: list[str] = []

    def take(number: int) -> None:
        if grants.use_for(record_of(f"{number:03d}-x")) is not None:
            got.append(f"{number:03d}-x")

    threads = [threading.Thread(target=take, args=(number,)) for number in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(got) == 5
    assert sorted(got) == sorted(grants.read(grant_id).used_for)


def test_an_automatic_round_uses_it_and_the_audit_says_so(
    home: Home, launcher: LocalLauncher, runners: Callable[[Path, bool], PooledArms]
) -> None:
    draft = home.standing.draft("rllm", 1, "1h")
    home.standing.grant(draft, Channel.TERMINAL)
    text = "train the tiny calculator agent on 64 mixed problems, seed 1"
    request = new_request(home, text, 2, "original", evolution="evolve-1", seed=5, plan="quick")
    document = evolve(home, request, say_later, lambda one: None, launcher=launcher, runners=runners)
    assert document["awaiting"] is None
    patch = document["rounds"][0]["patch_id"]
    approval = home.ledger.read(patch)
    assert approval is not None
    assert (approval.channel, approval.reason) == (Channel.STANDING, f"{draft.grant_id}, 1 of 1")
    kinds = [(one["kind"], one["channel"]) for one in home.audit.entries()]
    assert kinds == [("standing_granted", "terminal"), ("approved", "standing"), ("promoted", "standing")]


def test_the_command_needs_a_person(home: Home) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(home.root), "approve"]
    granted = subprocess.run(
        [*command, "--standing", "--max", "3", "--expires", "8h"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert granted.returncode == 1
    assert "needs a person at a terminal" in granted.stderr
    assert home.standing.all() == []
    listed = subprocess.run([*command, "--list", "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert json.loads(listed.stdout) == {"standing": [], "total": 0}
