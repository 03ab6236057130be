"""Secrets that an agent lets slip: in arguments, prompts, results, reasons. None is on the disk of the workspace, in an
answer, a resource, a skill or a log."""

import json
import logging
import time
from pathlib import Path

import pytest
from server_helpers import Caller, in_memory

from mcp_server.access.over_http import token_of
from mcp_server.access.roles import Role
from mcp_server.access.tokens import Tokens
from optimizer.events import Event, EventKind, tool_call
from optimizer.store import TrajectoryStore
from trainer.runs.workspace import create_workspace

pytestmark = pytest.mark.anyio

SECRETS = {
    "anthropic": "sk-ant-api03-Qw3rTyUiOpAsDfGhJkLzXcVbNm1234567890abcdEFGH",
    "github": "ghp_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb7C",
    "aws": "AKIAQ3EGRVXZ7JTLPW2K",
    "hugging face": "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",
    "slack": "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "bearer": "Zx9Cv8Bn7Mq6Wl5Ek4Rj3Th2Yg1Uf0",
    "password": "correct-horse-7-battery",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
}

FORMS = {
    "bearer": "Authorization: Bearer {}",
    "password": "password={}",
}


def said(name: str) -> str:
    return FORMS.get(name, "{}").format(SECRETS[name])


def leaks(folder: Path) -> list[str]:
    """Where a secret lies."""
    return [
        f"{name} in {path.relative_to(folder)}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for name, secret in SECRETS.items()
        if secret.encode() in path.read_bytes()
    ]


async def let_slip(caller: Caller, root: Path) -> list[str]:
    """Every way in which a call may hold a secret; what was answered."""
    answers = []
    everything = " ".join(said(name) for name in SECRETS)
    for tool, arguments in (
        ("start_training", {"request": f"tiny, 1 step {everything}"}),
        ("start_training", {"request": "tiny, 1 step", "key": f"k {SECRETS['anthropic']}"}),
        ("start_training", {"request": "tiny", "overrides": {"nosuch": everything}}),
        ("monitor_run", {"run_id": SECRETS["github"]}),
        ("load_skill", {"skill": SECRETS["aws"]}),
        ("search_trajectories", {"text": SECRETS["anthropic"]}),
        ("propose_patch", {"skill": "none", "section": "x", "body": everything, "description": everything}),
        (
            "propose_patch",
            {"skill": "rllm-monitor", "section": "loop", "body": f"Use {everything}.", "description": "x"},
        ),
        ("propose_patch", {"skill": "rllm-monitor", "section": "loop", "body": "Say it.", "description": everything}),
        ("rollback_skill", {"skill": "rllm-monitor", "version": 1, "reason": everything}),
        ("add_experience", {"when_to_use": "calling the service", "content": f"Use {everything} to log in."}),
        ("evolve", {"request": everything, "rounds": 0}),
    ):
        answers.append((await caller.raw(tool, **arguments)).model_dump_json())
    return answers


async def test_what_a_client_lets_slip_is_not_kept(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with in_memory(root, "auto") as caller:
            await let_slip(caller, root)
            await caller.ok("segment_trajectories")
            shown = [
                (await caller.raw("search_trajectories", limit=50)).model_dump_json(),
                (await caller.raw("skill_status", skill="rllm-monitor")).model_dump_json(),
                (await caller.raw("round_status")).model_dump_json(),
                (await caller.raw("list_runs")).model_dump_json(),
                json.dumps([one.model_dump(mode="json") for one in (await caller.client.list_tools()).tools]),
            ]
    assert leaks(root) == []
    for name, secret in SECRETS.items():
        assert not [text[:80] for text in shown if secret in text], name


def test_what_hooks_and_transcripts_bring_is_not_kept(root: Path) -> None:
    store = TrajectoryStore(create_workspace(root).root / "trajectories")
    for name in SECRETS:
        text = said(name)
        store.append(Event(kind=EventKind.USER_PROMPT, session="s", time=time.time(), text=f"log in with {text}"))
        store.append(
            tool_call(
                "s",
                "Bash",
                {"command": f"curl -H '{text}'", "nested": [{"deep": {"er": text}}]},
                {"stdout": text, "stderr": f"failed: {text}"},
                time=time.time(),
                failed=True,
                reason=f"refused: {text}",
            )
        )
    assert leaks(root) == []
    assert "redacted" in store.file("s").read_text()


def test_our_own_secrets_stay_where_they_are(root: Path) -> None:
    root.mkdir(parents=True)
    plain = token_of(root)
    named = Tokens(root).add("alice", Role.VIEW, 600)
    found = [path.name for path in root.rglob("*") if path.is_file() and plain.encode() in path.read_bytes()]
    assert found == ["http-token"]
    assert not [path for path in root.rglob("*") if path.is_file() and named.encode() in path.read_bytes()]
    for path in (root / "http-token", root / "tokens.json"):
        assert path.stat().st_mode & 0o077 == 0
