"""What a child process sees: allow-listed variables, no secret in its arguments, no handle of the server, a session of
its own."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_helpers import in_memory

from mcp_server.access.over_http import token_of
from mcp_server.jobs.background import start_child
from mcp_server.state import ServerState
from optimizer.ids import ID_PATTERN
from trainer.runs import processes
from trainer.runs.processes import ProcessIdentity, child_environment

pytestmark = pytest.mark.anyio

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-canary-1",
    "OPENAI_API_KEY": "sk-canary-2",
    "AWS_SECRET_ACCESS_KEY": "canary-3",
    "AWS_SESSION_TOKEN": "canary-4",
    "GITHUB_TOKEN": "ghp_canary5",
    "HF_TOKEN": "hf_canary6",
    "HUGGING_FACE_HUB_TOKEN": "hf_canary7",
    "HUGGINGFACE_TOKEN": "hf_canary8",
    "HF_API_TOKEN": "hf_canary9",
    "HF_ACCESS_KEY": "canary-10",
    "TRANSFORMERS_SECRET": "canary-11",
    "DATASETS_PASSWORD": "canary-12",
    "WANDB_API_KEY": "canary-13",
    "DATABASE_URL": "postgres://u:canary-14@h/d",
    "SSH_AUTH_SOCK": "/tmp/canary-15",
    "NPM_TOKEN": "canary-16",
    "MY_PASSWORD": "canary-17",
    "MCP_EVO_TOKEN": "canary-18",
    "PYTHONPATH": "/tmp/canary-19",
    "PYTHONSTARTUP": "/tmp/canary-20.py",
    "PYTHONHOME_CANARY": "canary-21",
    "CLAUDE_CODE_OAUTH_TOKEN": "canary-22",
    "GOOGLE_APPLICATION_CREDENTIALS": "/tmp/canary-23",
    "KUBECONFIG": "/tmp/canary-24",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        if not name.startswith("PYTHON"):
            monkeypatch.setenv(name, value)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads the handles of a process from /proc (Linux)")
async def test_a_worker_sees_no_secret_and_no_handle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = [sys.executable, "-P", str(Path(__file__).parent / "env_worker.py")]
    monkeypatch.setenv("MCP_EVO_WORKER", json.dumps(worker))
    root.mkdir(parents=True)
    token = token_of(root)
    with open(root / "opened-by-the-server", "w") as opened:
        os.set_inheritable(opened.fileno(), True)
        async with in_memory(root, "auto") as caller:
            run_id = (await caller.ok("start_training", request="tiny, 1 step"))["run_id"]
            path = root / "runs" / run_id / "seen.json"
            with anyio.fail_after(60):
                while not path.exists() or not path.read_text():
                    await anyio.sleep(0.1)
    seen: dict[str, Any] = json.loads(path.read_text())
    text = json.dumps(seen)
    assert "canary" not in text
    assert token not in text
    assert set(seen["environment"]) & set(SECRETS) == set()
    assert seen["session"] is True
    opened_files = {name: target for name, target in seen["handles"].items() if int(name) > 2}
    assert all("/proc/" in target for target in opened_files.values()), opened_files
    assert seen["handles"]["0"] == "/dev/null"
    assert seen["handles"]["1"] == seen["handles"]["2"] == str(root / "runs" / run_id / "worker.log")
    assert "" not in seen["path"]


def test_a_command_that_goes_on_by_itself_sees_only_the_hubs_tokens(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is this program again, and decides anew what its workers may see; a model may have to be fetched."""
    started: dict[str, Any] = {}

    def spawn(command: Sequence[str], *, environment: Mapping[str, str], **more: Any) -> tuple[ProcessIdentity, None]:
        started.update(command=list(command), environment=dict(environment))
        return ProcessIdentity(os.getpid(), 0.0), None

    monkeypatch.setattr(processes, "spawn", spawn)
    state = ServerState(root)
    start_child(state, ["evolve", "--resume", "x"], root / "folder")
    leaked = {name for name, value in started["environment"].items() if "canary" in value}
    assert leaked == {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HF_API_TOKEN", "HF_ACCESS_KEY",
                      "TRANSFORMERS_SECRET", "DATASETS_PASSWORD"}  # fmt: skip
    assert "canary" not in " ".join(started["command"])


def test_what_a_person_lists_is_passed_on() -> None:
    parent = {"A_KEY": "1", "B_KEY": "2", "HF_TOKEN": "3", "HF_API_TOKEN": "4", "PATH": "/bin"}
    assert "HF_TOKEN" not in child_environment(parent)
    assert (
        child_environment(parent, more=["A_KEY", "HF_API_TOKEN"]).items() >= {"A_KEY": "1", "HF_API_TOKEN": "4"}.items()
    )
    assert "B_KEY" not in child_environment(parent, more=["A_*"])
    assert child_environment(parent, tokens=True)["HF_TOKEN"] == "3"


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,20}\Z"), st.just("v"), max_size=30))
def test_only_what_is_listed(parent: dict[str, str]) -> None:
    found = child_environment(parent)
    assert set(found) - {"PYTHONSAFEPATH", "PYTHONUNBUFFERED"} <= set(parent)
    for name in found:
        assert not name.startswith(("PYTHONPATH", "AWS", "OPENAI", "ANTHROPIC", "GITHUB"))
        assert not name.endswith(("_TOKEN", "_SECRET", "_PASSWORD", "_KEY"))


async def test_no_text_of_a_client_stands_on_a_command_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client writes is in files; a command line names them by ids, which cannot be options."""
    commands: list[list[str]] = []

    def spawn(command: Sequence[str], **more: Any) -> tuple[ProcessIdentity, None]:
        assert not isinstance(command, str), "a shell would read it"
        commands.append(list(command))
        return ProcessIdentity(os.getpid(), 0.0), None

    monkeypatch.setattr(processes, "spawn", spawn)
    hostile = "tiny, 1 step --yes --unproven -o x; touch made `touch made` $(touch made)\n--yes"
    async with in_memory(root, "auto") as caller:
        await caller.raw("evolve", request=hostile, rounds=1)
        await caller.raw("start_training", request=hostile, campaign={"target": 0.5})
        for text in ("--yes", "-o", "--workspace=/x"):
            await caller.raw("evolve", resume=text)
            await caller.raw("try_patch", patch_id=text)
            await caller.raw("start_training", campaign={"resume": text})
            await caller.raw("start_training", resume=text)
    ours = [command[command.index("--workspace") + 2 :] for command in commands if "--workspace" in command]
    assert len(ours) >= 2
    for words in ours:
        for word in words:
            assert word in {"evolve", "train", "--auto", "--resume", "--json"} or ID_PATTERN.match(word), words
    assert not list(root.parent.rglob("made"))
