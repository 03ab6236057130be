"""Approvals, audit chain and the patch store: what must be refused is refused, and the log says so."""

import json
from pathlib import Path

import pytest

from optimizer.approvals import ApprovalError, ApprovalLedger, Channel, check_terminal, digest_typed
from optimizer.audit import AuditLog
from optimizer.patch_store import PatchError, PatchKind, PatchRecord, PatchStore, PolicyChange, Stage, effect_hash

BASE, RESULT = "b" * 64, "c" * 64


@pytest.fixture
def ledger(tmp_path: Path) -> ApprovalLedger:
    return ApprovalLedger(tmp_path)


def approve(ledger: ApprovalLedger, channel: Channel = Channel.TERMINAL) -> None:
    ledger.record("001-x", "approve", channel, base_digest=BASE, result_digest=RESULT)


def refusals(ledger: ApprovalLedger) -> list[str]:
    return [entry["reason"] for entry in ledger.audit.entries() if entry["kind"] == "refused"]


def test_an_approval_is_used_once(ledger: ApprovalLedger) -> None:
    approve(ledger, Channel.UNATTENDED)
    used = ledger.use("001-x", base_digest=BASE, result_digest=RESULT)
    assert used.channel is Channel.UNATTENDED
    # a promotion that was killed after taking it may be finished
    ledger.use("001-x", base_digest=BASE, result_digest=RESULT)
    ledger.complete(used)
    with pytest.raises(ApprovalError, match="used already"):
        ledger.use("001-x", base_digest=BASE, result_digest=RESULT)
    assert refusals(ledger) == ["its approval was used already"]
    assert ledger.audit.entries()[0]["channel"] == "unattended"


@pytest.mark.parametrize(
    ("base", "result", "why"),
    [("x" * 64, RESULT, "the skill changed since"), (BASE, "x" * 64, "the patch changed since")],
)
def test_it_is_bound_to_what_was_seen(ledger: ApprovalLedger, base: str, result: str, why: str) -> None:
    approve(ledger)
    with pytest.raises(ApprovalError, match=why):
        ledger.use("001-x", base_digest=base, result_digest=result)
    assert len(refusals(ledger)) == 1


def test_it_expires(tmp_path: Path) -> None:
    now = [1000.0]
    ledger = ApprovalLedger(tmp_path, clock=lambda: now[0])
    approve(ledger)
    now[0] += 8 * 24 * 3600
    with pytest.raises(ApprovalError, match="expired"):
        ledger.use("001-x", base_digest=BASE, result_digest=RESULT)


def test_rejected_and_missing(ledger: ApprovalLedger) -> None:
    with pytest.raises(ApprovalError, match="nobody approved it"):
        ledger.use("001-x", base_digest=BASE, result_digest=RESULT)
    ledger.record("001-x", "reject", Channel.TERMINAL, base_digest=BASE, result_digest=RESULT, reason="too bold")
    with pytest.raises(ApprovalError, match="too bold"):
        ledger.use("001-x", base_digest=BASE, result_digest=RESULT)


def test_a_damaged_approval_is_none(ledger: ApprovalLedger) -> None:
    approve(ledger)
    ledger.path("001-x").write_text('{"decision": "approve"}')
    with pytest.raises(ApprovalError, match="cannot be read"):
        ledger.use("001-x", base_digest=BASE, result_digest=RESULT)


def test_only_a_person_at_a_terminal() -> None:
    check_terminal(True, {})
    with pytest.raises(ApprovalError, match="standard input is none"):
        check_terminal(False, {})
    with pytest.raises(ApprovalError, match="CLAUDECODE"):
        check_terminal(True, {"CLAUDECODE": "1"})
    digest = "0a1b2c" + "d" * 58
    assert digest_typed(" 0A1B2C\n", digest)
    assert not digest_typed("0a1b2", digest)
    assert not digest_typed("", digest)
    assert not digest_typed("0a1b2d", digest)


def test_chain_holds_and_every_kind_of_tampering_shows(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    assert log.verify().ok
    for kind in ("approved", "promoted", "rolled_back"):
        log.append(kind, channel="terminal", patch_id="001-x")
    assert log.verify().ok
    assert log.verify().entries == 3
    lines = log.path.read_bytes().splitlines(keepends=True)
    changed = [lines[0], lines[1].replace(b"promoted", b"approved"), lines[2]]
    for name, tampered in {
        "changed": changed,
        "taken out": [lines[0], lines[2]],
        "cut off": lines[:2],
        "swapped": [lines[1], lines[0], lines[2]],
        "put in": [lines[0], lines[1], lines[1], lines[2]],
        "garbage": [lines[0], b"\xff\n", lines[1], lines[2]],
        "emptied": [],
    }.items():
        log.path.write_bytes(b"".join(tampered))
        assert not log.verify().ok, name
    entry = json.loads(lines[1])
    entry["patch_id"] = "002-y"
    log.path.write_bytes(lines[0] + json.dumps(entry).encode() + b"\n" + lines[2])
    assert any("hash does not match" in one for one in log.verify().problems)
    log.path.write_bytes(b"".join(lines))
    assert log.verify().ok
    # a kill between entry and head is no break
    log.head_path.write_text(json.dumps({"seq": 2, "hash": json.loads(lines[1])["hash"]}))
    assert log.verify().ok


def record(patch_id: str = "001-x", after: float = 1e-4) -> PatchRecord:
    changes = [PolicyChange(key="learning_rate.default", when={"params": "<10M"}, before=1e-5, after=after)]
    return PatchRecord(
        patch_id=patch_id,
        skill="rllm-config",
        group="rllm",
        layer="traj",
        section="sizes",
        kind=PatchKind.POLICY,
        description="x",
        changes=changes,
        effect_hash=effect_hash("rllm-config", "sizes", changes),
        base_digest=BASE,
        result_digest=RESULT,
    )


def test_effect_hash_is_about_the_effect() -> None:
    def of(after: object, key: str = "learning_rate.default", text: str = "") -> str:
        return effect_hash("s", "sec", [PolicyChange(key=key, after=after)], text)

    assert of(1e-4) == of(1.01e-4, text="other words")
    assert of(1e-4) != of(2e-4)
    assert of(1e-4) != of(1e-4, key="temperature.default")
    assert effect_hash("s", "sec", [], "Do  THIS, now.") == effect_hash("s", "sec", [], "do this now")
    assert effect_hash("s", "sec", [], "do this") != effect_hash("s", "sec", [], "do that")


def test_store_and_rejected_memory(tmp_path: Path) -> None:
    store = PatchStore(tmp_path)
    with pytest.raises(PatchError, match="none yet"):
        store.read("001-x")
    store.write(record())
    moved = store.move("001-x", Stage.REJECTED, "worse", verdict="worse", effect=-0.2, ci95=(-0.3, -0.1), pairs=4)
    assert store.read("001-x") == moved
    assert moved.history[-1]["why"] == "worse"
    store.remember_rejected(moved, "worse")
    store.remember_rejected(moved, "worse")
    assert len(store.rejected()) == 1
    again = store.rejected_with(record("002-y").effect_hash)
    assert again is not None
    assert (again.patch_id, again.why, again.ci95) == ("001-x", "worse", (-0.3, -0.1))
    assert store.rejected_with(record(after=5e-4).effect_hash) is None
    assert PatchStore(tmp_path).ids() == ["001-x"]
