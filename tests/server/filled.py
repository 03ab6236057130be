"""A workspace with much of everything: long lists, long texts, texts in Chinese, for answers that must stay short."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from server_helpers import FAKE_WORKER

from mcp_server.experience import add_record
from optimizer.home import Home
from optimizer.patch_store import PatchKind, PatchRecord, PolicyChange, Stage
from optimizer.round_store import RoundStore
from optimizer.round_types import EvolveRequest, RoundState, patch_outcome
from skill_bank.files import read_json, write_json_atomic
from trainer.experience.validation import record_of_form
from trainer.runs.launch import LocalLauncher, start_run, wait
from trainer.settings import resolve

RUNS, PATCHES, ROUNDS, SESSIONS, EVENTS, LESSONS = 30, 60, 12, 8, 100, 40

LONG = "长文本 with words and 数字 12345; " * 60

EVOLUTION = "evolution-1"

REQUEST = "train the tiny calculator agent on 64 mixed problems, 60 steps, seed 1"


def filled_workspace(root: Path) -> Home:
    """A copy of the workspace, which is made once."""
    root.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_template(), root)
    return Home.open(root)


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    home = Home.create(folder / ".mcp-evo")
    _runs(home)
    patches = _patches(home)
    _rounds(home, patches)
    _sessions(home)
    _lessons(home)
    home.index.refresh()
    return home.root


def _runs(home: Home) -> None:
    """One run of the worker that trains nothing, and copies of it under other names and requests."""
    resolved = resolve(REQUEST, policy=home.bank.policy("rllm-config"))
    launcher = LocalLauncher(tuple(FAKE_WORKER))
    first = start_run(home.workspace, resolved, launcher=launcher, run_id="run-000")
    wait(home.workspace, first, launcher=launcher, timeout_s=120)
    for number in range(1, RUNS):
        copied = home.workspace.runs / f"run-{number:03d}"
        shutil.copytree(first.path, copied)
        document = read_json(copied / "run.json")
        more = {"run_id": copied.name, "request": f"{LONG} {number}", "created_at": document["created_at"] + number}
        write_json_atomic(copied / "run.json", {**document, **more})


def _patches(home: Home) -> list[PatchRecord]:
    stages = (Stage.STAGED, Stage.TRIED, Stage.REJECTED, Stage.ACTIVE)
    made = []
    for number in range(PATCHES):
        stage = stages[number % len(stages)]
        key = f"learning_rate_{number}"
        record = PatchRecord(
            patch_id=f"patch-{number:03d}",
            skill="rllm-config",
            group="rllm",
            layer="traj",
            section="sampling",
            kind=PatchKind.POLICY,
            description=LONG,
            scope={"params": "<10M", "env": "calculator"},
            changes=[PolicyChange(key=key, when={"params": "<10M"}, before=1e-4, after=2e-4)],
            effect_hash=f"{number:016x}",
            finding={"id": f"finding-{number:012x}", "what": LONG, "kind": "slow"},
            base_digest="0" * 64,
            result_digest="1" * 64,
            stage=stage,
            verdict="better" if stage is Stage.TRIED else None,
            effect=0.25,
            ci95=(0.1, 0.4),
            pairs=16,
            created_at=1_790_000_000.0 + number,
        )
        home.patches.write(record)
        home.patches.write_texts(record.patch_id, "text", f"+{LONG}\n" * 10)
        made.append(record)
    return made


def _rounds(home: Home, patches: list[PatchRecord]) -> None:
    store = RoundStore(home.root)
    store.write_request(
        EvolveRequest(evolution=EVOLUTION, request=LONG, rounds=ROUNDS, folder=str(home.root.parent), seed=1)
    )
    for position in range(1, ROUNDS + 1):
        current = store.create(
            EVOLUTION, position, request=LONG, run_id=f"run-{position:03d}", trial_seed=position, lever=LONG, note=LONG
        )
        store.move(
            current,
            RoundState.CLOSED,
            findings=["slow", "flat", "unstable"],
            candidates=[one.patch_id for one in patches[:4]],
            outcome=[patch_outcome(one) for one in patches[:4]],
        )


def _sessions(home: Home) -> None:
    for session in range(SESSIONS):
        name = f"session-{session:02d}"
        path = home.trajectories.file(name)
        path.parent.mkdir(parents=True)
        with open(path, "a", encoding="utf-8") as stream:
            for number in range(EVENTS):
                stream.write(json.dumps(_event(name, session, number), ensure_ascii=False) + "\n")


def _event(session: str, offset: int, number: int) -> dict[str, Any]:
    """A line as `mcp-evo-hook` writes it: a skill is opened now and then, runs are watched, commands fail."""
    skills = ("rllm-run", "rllm-monitor", "traj-optimize")
    line: dict[str, Any] = {
        "received_at": 1_790_000_000.0 + 1000 * offset + number,
        "session_id": session,
        "hook_event_name": "PostToolUse",
        "tool_use_id": f"{session}-{number}",
    }
    if number % 10 == 0:
        skill = skills[number // 10 % len(skills)]
        answer = {"content": [{"type": "text", "text": f"---\nname: {skill}\n---"}]}
        return {**line, "tool_name": "mcp__evo__load_skill", "tool_input": {"skill": skill}, "tool_response": answer}
    if number % 3 == 0:
        failed = {"stdout": "", "stderr": LONG, "exit_code": 1}
        return {**line, "tool_name": "Bash", "tool_input": {"command": f"make {LONG}"}, "tool_response": failed}
    answer = {"content": [{"type": "text", "text": f"Run run-000 running, step {number}. {LONG}"}]}
    run = {"run_id": "run-000"}
    return {**line, "tool_name": "mcp__evo__monitor_run", "tool_input": run, "tool_response": answer}


def _lessons(home: Home) -> None:
    for number in range(LESSONS):
        form = {
            "when_to_use": f"situation {number}: {LONG}"[:490],
            "content": f"advice {number}, unlike {number * 7919}: {LONG}"[:990],
        }
        add_record(home.workspace, "default", record_of_form(form, family="calculator", author="agent"))
