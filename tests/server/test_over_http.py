"""Streamable HTTP: a whole session in both eras, and every way in which a request must be refused."""

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from http_helpers import HttpServer, over_http, serving, statuses, umask_of_others
from server_helpers import PROTOCOL, REQUEST, events_of
from terminal import command

from mcp_server.access import over_http as product
from mcp_server.access.over_http import Address, HttpError, token_of

pytestmark = pytest.mark.anyio

INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """One server for all tests that only knock."""
    folder = tmp_path_factory.mktemp("http")
    with serving(folder / ".mcp-evo", folder / "log", "--allow-origin", "https://app.example") as found:
        yield found


def knock(
    server: HttpServer, method: str = "POST", path: str | None = None, body: str = INITIALIZE, **headers: str
) -> int:
    """The status of one request; an empty value leaves a header out."""
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    sent = {
        "host": parts.netloc,
        "authorization": f"Bearer {server.token}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.putrequest(method, path or parts.path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body.encode())
        return connection.getresponse().status
    finally:
        connection.close()


async def test_a_whole_session(root: Path, tmp_path: Path, era: str) -> None:
    with serving(root, tmp_path / "log") as found:
        async with over_http(found, era) as caller:
            assert caller.client.protocol_version == PROTOCOL[era]
            assert len((await caller.client.list_tools()).tools) >= 15
            started = await caller.ok("start_training", request=REQUEST + ", 4 steps")
            assert (await caller.until_over())["state"] == "finished"
            assert "no argument" in await caller.refused("monitor_run", run="x")
        async with over_http(found, era) as caller:  # another client of the same server
            assert [one["run_id"] for one in (await caller.ok("list_runs"))["runs"]] == [started["run_id"]]
        token = found.token
        assert token not in " ".join(psutil.Process(found.process.pid).cmdline())
        assert found.stop() == 130
        log = found.log.read_text()
    assert "Traceback" not in log
    assert token not in log
    for path in root.rglob("*"):
        if path.is_file() and path.name != product.TOKEN_FILE:
            assert token.encode() not in path.read_bytes(), path
    assert [one["kind"] for one in events_of(root)][-1] == "session_end"


async def refusal(server: HttpServer, era: str, headers: dict[str, str]) -> str:
    """What an SDK client is told that must not get in."""
    try:
        async with over_http(server, era, headers) as caller:
            await caller.client.list_tools()
    except Exception as error:  # the SDK raises groups of its own errors
        return " ".join(statuses(error))
    raise AssertionError("it got in")


async def test_both_eras_at_once(server: HttpServer) -> None:
    async with over_http(server, "auto") as new, over_http(server, "legacy") as old:
        assert (await new.ok("round_status"))["next"] == (await old.ok("round_status"))["next"]


@pytest.mark.parametrize(
    "token", ["", "Bearer ", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer x{token}"]
)
async def test_a_wrong_token_is_refused(server: HttpServer, era: str, token: str) -> None:
    header = token.format(token=server.token)
    assert knock(server, authorization=header) == 401
    assert knock(server, "GET", authorization=header) == 401
    assert knock(server, "DELETE", authorization=header) == 401
    said = await refusal(server, era, {"Authorization": header} if header else {})
    assert server.token not in said


def test_the_token_in_other_places_does_not_help(server: HttpServer) -> None:
    assert knock(server, path=f"/mcp?token={server.token}", authorization="") == 401
    assert knock(server, path=f"/mcp?access_token={server.token}", authorization="") == 401
    assert knock(server, authorization="", cookie=f"token={server.token}") == 401
    assert knock(server, authorization=f"bearer {server.token}") == 200  # the scheme is case-insensitive (RFC 9110)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{port}",
             "127.0.0.1:{port}.evil.example", "127.0.0.2:{port}", "0.0.0.0:{port}", "[::2]:{port}", ""],
)  # fmt: skip
def test_a_wrong_host_is_refused(server: HttpServer, host: str) -> None:
    port = urlsplit(server.url).port
    assert knock(server, host=host.format(port=port)) in ((400, 421) if host == "" else (421,))


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_our_own_names_are_served(server: HttpServer, host: str) -> None:
    status = knock(server, host=host.format(port=urlsplit(server.url).port))
    assert status == 200 or (host.startswith("LOCAL") and status == 421)  # the SDK compares letter by letter


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("https://127.0.0.1:{port}", 403),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:1", 403),
        ("http://localhost:{port}.evil.example", 403),
        ("https://app.example.evil.example", 403),
        ("file://", 403),
        ("http://127.0.0.1:{port}", 200),
        ("http://localhost:{port}", 200),
        ("https://app.example", 200),
    ],
)
def test_origins(server: HttpServer, origin: str, status: int) -> None:
    assert knock(server, origin=origin.format(port=urlsplit(server.url).port)) == status


def test_other_paths_and_bodies(server: HttpServer) -> None:
    for path in ("/", "/mcp/../etc", "/.well-known/oauth-protected-resource", "/docs", "//evil.example/mcp", "/mcp%00"):
        assert knock(server, "GET", path=path) in (400, 404, 307), path
        assert knock(server, "GET", path=path, authorization="") in (400, 401), path
    assert knock(server, content_type="text/plain") == 400
    assert knock(server, body="{") == 400
    assert knock(server, body=json.dumps({"x": "y" * 5_000_000})) == 413
    assert knock(server, "PUT") == 405


async def test_ending_it_leaves_its_runs_alone(root: Path, tmp_path: Path) -> None:
    root.mkdir(parents=True)
    (root / "config.yaml").write_text("child_environment: [FAKE_STEP_S]\n")
    with serving(root, tmp_path / "log", FAKE_STEP_S="0.2") as found:
        async with over_http(found, "auto") as caller:
            run_id = (await caller.ok("start_training", request=REQUEST + ", 20 steps"))["run_id"]
        assert found.stop(signal.SIGTERM) in (-signal.SIGTERM, 0)
    document = json.loads((root / "runs" / run_id / "run.json").read_text())
    assert document["state"] in ("starting", "running")
    assert psutil.pid_exists(document["pid"])
    assert command(root, "runs", "stop", run_id).returncode == 0


# ---- the token


def test_the_token_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    before = umask_of_others()
    try:
        token = token_of(tmp_path)
    finally:
        os.umask(before)
    path = tmp_path / product.TOKEN_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 43  # 32 bytes
    assert token_of(tmp_path) == token
    assert token_of(tmp_path, renew=True) != token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "short", "x" * 31, "with space " * 5, "x" * 300, "é" * 40])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / product.TOKEN_FILE
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(HttpError, match="holds no token"):
        token_of(tmp_path)


def test_a_token_that_others_can_read_or_have_put_there_is_refused(tmp_path: Path) -> None:
    token_of(tmp_path)
    path = tmp_path / product.TOKEN_FILE
    for mode in (0o640, 0o604, 0o620, 0o666):
        path.chmod(mode)
        with pytest.raises(HttpError, match="nobody else"):
            token_of(tmp_path)
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HttpError, match="cannot be read"):
        token_of(tmp_path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(HttpError, match="must be a file"):
        token_of(tmp_path)


# ---- the address


def test_addresses_that_others_reach_need_leave_and_names() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "myhost", "example.org"):
        for halfway in ({}, {"allow_hosts": ("evo.example",)}, {"allow_remote": True}):
            with pytest.raises(HttpError, match="--allow-remote and --allow-host"):
                Address(host, **halfway)
        assert Address(host, allow_hosts=("evo.example",), allow_remote=True)
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert Address(host).allow_hosts == ()


@pytest.mark.parametrize("name", ["*", "*:*", "a b", "http://x", "x:*", "", "x/y", "-x", "x:123456", "user@x"])
def test_a_name_is_a_name_and_no_pattern(name: str) -> None:
    with pytest.raises(HttpError, match="is no host"):
        Address(allow_hosts=(name,))
    with pytest.raises(HttpError, match="is no origin"):
        Address(allow_origins=(name,) if name != "http://x" else ("http://x/y",))


def test_the_lists_are_exact() -> None:
    names = ("Evo.example", "other:80", "[fe80::1]")
    address = Address("0.0.0.0", allow_hosts=names, allow_origins=("https://A.example",), allow_remote=True)
    assert address.hosts(7) == [
        "127.0.0.1:7", "localhost:7", "[::1]:7", "evo.example", "evo.example:7", "other:80", "[fe80::1]", "[fe80::1]:7",
    ]  # fmt: skip
    assert address.origins(7)[-1] == "https://a.example"
    assert address.origins(7)[:-1] == [f"http://{host}" for host in address.hosts(7)]
    assert "127.1.2.3:7" in Address("127.1.2.3").hosts(7)
    assert not [one for one in (*address.hosts(7), *address.origins(7)) if "*" in one]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--http", "--host", "0.0.0.0"], 2, "--allow-remote"),
        (["--http", "--host", "0.0.0.0", "--allow-remote"], 2, "--allow-host"),
        (["--http", "--host", "0.0.0.0", "--allow-host", "evo.example"], 2, "--allow-remote"),
        (["--allow-remote"], 2, "--http"),
        (["--http", "--allow-host", "*"], 2, "is no host"),
        (["--http", "--port", "70000"], 2, "65535"),
        (["--host", "127.0.0.1"], 2, "--http"),
        (["--new-token"], 2, "--http"),
    ],
)
def test_wrong_command_lines(root: Path, arguments: list[str], code: int, words: str) -> None:
    done = command(root, "serve", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not root.exists()


def test_a_port_that_is_taken_is_one_clear_message(server: HttpServer, root: Path) -> None:
    done = command(root, "serve", "--http", "--port", str(urlsplit(server.url).port))
    assert done.returncode == 1
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_it_prints_can_be_pasted_and_does_not_hold_the_token(root: Path) -> None:
    line = product.client_command("http://127.0.0.1:1/mcp", Path("/a b/.mcp-evo"))
    assert line.startswith("claude mcp add --transport http evo http://127.0.0.1:1/mcp --header ")
    root.mkdir(parents=True)
    token = token_of(root)
    pasted = product.client_command("http://127.0.0.1:1/mcp", root)
    assert token not in pasted
    words = subprocess.run(
        ["sh", "-c", f'claude() {{ for word; do echo "$word"; done; }}; {pasted}'], capture_output=True, text=True
    ).stdout.splitlines()
    assert words[-2:] == ["--header", f"Authorization: Bearer {token}"]


def test_stdio_imports_nothing_of_it() -> None:
    code = (
        "import sys; from mcp_server.cli.serve import make_server; make_server('/nowhere');"
        "print('mcp_server.access.over_http' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
