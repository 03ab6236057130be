"""Named tokens: made, kept as hashes, ended, taken away; what each role may call, and what stands in the record."""

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from http_helpers import HttpServer, over_http, serving
from mcp_types import ElicitRequestParams, ElicitResult
from server_helpers import Caller, events_of, in_memory, text_of

from mcp_server.access.roles import OWNER, Role, RoleGuard, outside, role_for
from mcp_server.access.tokens import MOST_TOKENS, PREFIX, TOKENS_FILE, TokenError, Tokens, seconds_of
from mcp_server.cli.main import run
from mcp_server.server import build_server
from optimizer.audit import AuditLog
from optimizer.redact import redact_text

pytestmark = pytest.mark.anyio

PROSE = {
    "skill": "rllm-monitor",
    "section": "loop",
    "body": "Name the run id in the first line of every report.",
    "description": "Say which run a report is about",
}


# ---- made, kept, ended


def test_a_token_is_kept_as_a_hash_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secret = Tokens(tmp_path).add("alice", Role.RUN, 3600)
    finally:
        os.umask(before)
    path = tmp_path / TOKENS_FILE
    assert secret.startswith(PREFIX)
    assert len(secret) >= len(PREFIX) + 43  # 32 bytes
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for one in tmp_path.rglob("*"):
        assert not one.is_file() or secret.encode() not in one.read_bytes(), one
    caller = Tokens(tmp_path).caller(secret)
    assert caller is not None
    assert (caller.name, caller.role) == ("alice", Role.RUN)
    for other in ("", secret[:-1], secret + "x", secret.upper(), PREFIX, "\ud800", caller.mark):
        assert Tokens(tmp_path).caller(other) is None
    entry = AuditLog(tmp_path).entries()[-1]
    assert (entry["kind"], entry["token"], entry["role"]) == ("token_added", "alice", "run")


def test_a_token_ends_and_is_taken_away_at_once(tmp_path: Path) -> None:
    now = [1000.0]
    tokens = Tokens(tmp_path, clock=lambda: now[0])
    short, lasting = tokens.add("short", Role.VIEW, 60), tokens.add("lasting", Role.VIEW, None)
    assert tokens.caller(short) is not None
    now[0] = 1060
    assert tokens.caller(short) is None
    assert tokens.caller(lasting) is not None
    other = Tokens(tmp_path)  # another process
    first = other.caller(lasting)
    other.remove("lasting")
    assert tokens.caller(lasting) is None
    again = tokens.add("lasting", Role.VIEW, None)
    second = other.caller(again)
    assert first is not None
    assert second is not None
    assert first.mark != second.mark, "who has the name now is somebody else"


@pytest.mark.parametrize("name", ["", "A", "owner", "-x", "a b", "../x", "a" * 33, "é", "a\n"])
def test_a_name_is_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenError, match="cannot name a token"):
        Tokens(tmp_path).add(name, Role.VIEW, None)


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(tmp_path)
    tokens.add("alice", Role.VIEW, None)
    with pytest.raises(TokenError, match="already"):
        tokens.add("alice", Role.RUN, None)
    with pytest.raises(TokenError, match="There are: alice"):
        tokens.remove("bob")
    for text in ("", "0d", "5y", "-1d", "400d", "1.5h"):
        with pytest.raises(TokenError, match="12h or 90d"):
            seconds_of(text)
    assert (seconds_of("30m"), seconds_of(" 2D "), seconds_of("never")) == (1800, 172800, None)
    monkeypatch.setattr("mcp_server.access.tokens.MOST_TOKENS", 1)
    with pytest.raises(TokenError, match="remove one first"):
        tokens.add("bob", Role.VIEW, None)
    assert MOST_TOKENS == 100


def test_a_file_that_others_could_have_written_lets_nobody_in(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    secret = tokens.add("alice", Role.APPROVE, None)
    path = tmp_path / TOKENS_FILE
    for mode in (0o660, 0o602, 0o640):
        path.chmod(mode)
        assert tokens.caller(secret) is None
        with pytest.raises(TokenError, match="nobody else can read"):
            tokens.read()
    path.chmod(0o600)
    assert tokens.caller(secret) is not None
    kept = path.read_bytes()
    for damaged in (b"", b"[]", b'{"tokens": [{"name": "x"}]}', kept.replace(b"approve", b"admin")):
        path.write_bytes(damaged)
        assert tokens.caller(secret) is None
        with pytest.raises(TokenError, match="damaged"):
            tokens.read()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(kept)
    assert tokens.caller(secret) is None


def test_a_token_in_a_transcript_is_redacted(tmp_path: Path) -> None:
    secret = Tokens(tmp_path).add("alice", Role.VIEW, None)
    for text in (secret, f"Authorization: Bearer {secret}", f"the token is {secret}.", f'{{"token": "{secret}"}}'):
        assert secret not in redact_text(text)


# ---- the command


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(["tokens", *arguments, "--workspace", str(root)])
        return code, *capsys.readouterr()

    code, out, err = command("add", "ci", "--role", "run", "--expires", "12h", "--json")
    assert code == 0, err
    secret = json.loads(out)["token"]
    caller = Tokens(root).caller(secret)
    assert caller is not None
    assert caller.role is Role.RUN
    _, listed, _ = command("list", "--json")
    found = json.loads(listed)
    assert [(one["name"], one["role"], one["expired"]) for one in found["tokens"]] == [("ci", "run", False)]
    assert secret not in listed
    assert "sha256" not in listed
    code, out, err = command("add", "boss", "--role", "approve")
    assert (code, out) == (1, "")
    assert "`mcp-evo tokens add` in a terminal of your own" in err
    assert command("add", "ci", "--role", "view")[0] == 1
    assert command("add", "boss", "--role", "king")[0] == 2
    code, out, err = command("add", "reader", "--role", "view", "--expires", "never")
    assert out.startswith(PREFIX)
    assert out.strip() not in err
    assert "reader" in command("list")[1]
    assert [command("remove", name)[0] for name in ("ci", "reader", "ci")] == [0, 0, 1]
    assert Tokens(root).caller(secret) is None
    assert "no named tokens" in command("list")[1]
    assert [one["kind"] for one in AuditLog(root).entries()] == ["token_added"] * 2 + ["token_removed"] * 2


# ---- roles


async def test_what_each_tool_takes(root: Path) -> None:
    """Written down by hand: a tool that is added has to be thought about."""
    server = build_server(root)
    guard = RoleGuard(server)
    found: dict[str, set[str]] = {"view": set(), "run": set(), "approve": set()}
    for tool in await server.list_tools():
        found[str(await guard.needed(tool.name))].add(tool.name)
    assert found["approve"] == {"rollback_skill"}
    assert {"monitor_run", "list_runs", "compare_runs", "load_skill", "skill_status", "round_status"} <= found["view"]
    assert {"search_trajectories", "search_experience"} <= found["view"]
    working = {"start_training", "stop_run", "propose_patch", "try_patch", "evolve", "compile_skills", "add_experience"}
    assert working | {"review_patch", "distill_experience", "evaluate_model", "try_model"} <= found["run"]
    assert await guard.needed("nosuch") is Role.RUN
    assert role_for("x", read_only=True) is Role.VIEW


def test_roles_are_steps() -> None:
    allowed = {(one, other) for one in Role for other in Role if one.includes(other)}
    assert allowed == {
        (Role.VIEW, Role.VIEW),
        (Role.RUN, Role.VIEW),
        (Role.RUN, Role.RUN),
        (Role.APPROVE, Role.VIEW),
        (Role.APPROVE, Role.RUN),
        (Role.APPROVE, Role.APPROVE),
    }


async def yes(context: Any, params: ElicitRequestParams) -> ElicitResult:
    """A client whose user approves whatever is asked."""
    return ElicitResult(action="accept", content={"decision": "approve", "reason": "fine"})


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def staged(server: HttpServer) -> str:
    async with over_http(server, "auto") as caller:
        return str((await caller.ok("propose_patch", **PROSE))["patch_id"])


async def test_roles_over_http(root: Path, tmp_path: Path, era: str) -> None:
    tokens = Tokens(tmp_path / "unused")
    with serving(root, tmp_path / "log") as server:
        tokens = Tokens(root)  # made while it serves
        secrets = {role: tokens.add(f"{role}er", role, 600) for role in Role}
        patch_id = await staged(server)
        async with over_http(server, era, bearer(secrets[Role.VIEW]), yes) as caller:
            await caller.ok("round_status")
            assert len((await caller.client.list_resources()).resources) > 0
            for tool, arguments in (
                ("start_training", {"request": "tiny"}),
                ("propose_patch", PROSE),
                ("review_patch", {"patch_id": patch_id}),
                ("rollback_skill", {"skill": "rllm-monitor", "version": 1, "reason": "x"}),
            ):
                said = await caller.refused(tool, **arguments)
                assert f"{tool} takes a token with role" in said
                assert "'viewer' has role view" in said
                assert "mcp-evo tokens add NAME --role" in said
        async with over_http(server, era, bearer(secrets[Role.RUN]), yes) as caller:
            foreign = {"request": "tiny", "overrides": {"data": str(tmp_path / "log")}}
            assert "outside of the project" in await caller.refused("start_training", **foreign)
            raw = await caller.raw("review_patch", patch_id=patch_id)
            assert "approving takes a token with role approve; token 'runer' has role run" in text_of(raw)
            assert raw.structured_content is not None
            assert raw.structured_content["decision"] == "not_asked"
            assert raw.structured_content["applied"] is False
            assert "role approve" in await caller.refused("rollback_skill", skill="rllm-monitor", version=1, reason="x")
        assert not [one for one in AuditLog(root).entries() if one["kind"] == "approved"]
        async with over_http(server, era, bearer(secrets[Role.APPROVE]), yes) as caller:
            assert (await caller.ok("review_patch", patch_id=patch_id))["applied"] is True
        tokens.remove("approveer")
        with pytest.raises(BaseExceptionGroup):  # what the SDK makes of a 401
            async with over_http(server, era, bearer(secrets[Role.APPROVE])) as caller:
                await caller.client.list_tools()
        log = server.log.read_text()
    for entry in AuditLog(root).entries():
        if entry["kind"] in ("approved", "promoted"):
            assert (entry["channel"], entry["token"]) == ("elicitation", "approveer")
            assert entry["client"].startswith("mcp")
    names = {(one.get("tool"), one.get("token")) for one in events_of(root) if one.get("tool")}
    assert {("propose_patch", OWNER), ("start_training", "viewer"), ("review_patch", "runer")} <= names
    assert ("review_patch", "approveer") in names
    for secret in secrets.values():
        assert secret not in log
        for path in root.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_paths_out_of_the_project(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / "tasks.jsonl").write_text("{}")
    (project / "link.jsonl").symlink_to(other / "tasks.jsonl")
    for inside in ("tasks.jsonl", "./tasks.jsonl", str(project / "tasks.jsonl"), "Qwen/Qwen3-0.6B", "and/or", "/",
                   "../project/tasks.jsonl", "/none/such", "x" * 5000 + "/", "~nobodyatall/x", "a\0/b"):  # fmt: skip
        assert outside(project, {"request": inside, "overrides": {"data": inside}}) is None or inside == "/"
    foreign = str(other / "tasks.jsonl")
    for path in (foreign, "../other/tasks.jsonl", "./link.jsonl", "~", "/etc/hosts", "../other"):
        for arguments in (
            {"target": path},
            {"overrides": {"data": path}},
            {"against": ["x", path]},
            {"overrides": {"env_args": {"files": [{"a": path}]}}},
            {"request": f"tiny on {path}, 2 steps"},
            {"request": f"data='{path}'"},
        ):
            if path != "~" or "request" not in arguments:  # there it is a word like any other
                assert outside(project, arguments) == path, arguments
    assert outside(project, {"body": f"see {foreign} for more"}) is None, "a text is no path"


async def test_on_stdio_nobody_needs_a_token(root: Path, era: str) -> None:
    async with in_memory(root, era, elicitation_callback=yes) as caller:
        patch_id = (await caller.ok("propose_patch", **PROSE))["patch_id"]
        assert (await caller.ok("review_patch", patch_id=patch_id))["applied"] is True
    assert "token" not in AuditLog(root).entries()[-1]
    assert isinstance(caller, Caller)
