"""`mcp-evo dashboard` as a process: every way in which a request must be refused, and that a decision counts once."""

import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from dashboard_helpers import COMMAND, Made, Running, dashboard_of, environment

from mcp_server.dashboard.access import CODE_LIFE_S, MAX_BODY_BYTES, MAX_SESSIONS, SESSION_LIFE_S, Access
from mcp_server.dashboard.running import NOTE, dashboard_hint, open_dashboard
from optimizer.audit import AuditLog


@pytest.fixture(scope="module")
def shared(made_once: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One dashboard for all tests that change nothing."""
    with dashboard_of(made_once.root, tmp_path_factory.mktemp("shared") / "log") as found:
        yield found.log_in()


# ---- who may ask


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{port}", "[::2]:{port}",
     "127.0.0.2:{port}", "0.0.0.0:{port}", None],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/session", "/api/overview"])
def test_a_wrong_host_is_refused(shared: Running, host: str | None, path: str) -> None:
    status, _ = shared.get(path, host=None if host is None else host.format(port=shared.port))
    assert status in ((400, 421) if host is None else (421,))


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1",
     "http://localhost:{port}.evil.example", "file://", ""],
)  # fmt: skip
def test_a_wrong_origin_is_refused(shared: Running, made_once: Made, origin: str) -> None:
    wrong = origin.format(port=shared.port)
    assert shared.get("/api/overview", origin=wrong)[0] == 403
    assert shared.post("/login", {"code": "x"}, origin=wrong)[0] == 403
    assert shared.post(f"/decide/{made_once.patch_id}", {}, origin=wrong)[0] == 403


def test_what_changes_something_needs_an_origin(shared: Running, made_once: Made) -> None:
    assert shared.post("/login", {"code": "x"}, origin=None)[0] == 403
    assert shared.post(f"/decide/{made_once.patch_id}", {}, origin=None)[0] == 403


def test_a_cross_site_request_is_refused(shared: Running, made_once: Made) -> None:
    """As a browser sends it for another site's form, picture, script or frame; with our cookie, were it lax."""
    decision = shared.decision(made_once.patch_id, "approve")
    for site in ("cross-site", "same-site"):
        assert shared.get("/api/overview", sec_fetch_site=site)[0] == 403
        assert shared.get("/", sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="iframe")[0] == 403
        assert shared.get("/", sec_fetch_site=site, sec_fetch_mode="navigate", sec_fetch_dest="document")[0] == 200
        assert shared.post(f"/decide/{made_once.patch_id}", decision, sec_fetch_site=site)[0] == 403
    form = {"content-type": "text/plain"}
    status, _, _ = shared.knock("POST", f"/decide/{made_once.patch_id}", json.dumps(decision).encode(), dict(form))
    assert status == 415
    assert shared.post(f"/decide/{made_once.patch_id}", decision, x_evo_csrf=None)[0] == 403
    assert shared.post(f"/decide/{made_once.patch_id}", decision, x_evo_csrf="x" * 43)[0] == 403
    assert made_once.audit() == []


@pytest.mark.parametrize(
    "cookie", [None, "mcp-evo-dashboard-{port}=", "mcp-evo-dashboard-{port}=x", "{mine}x", "other={mine}"]
)
def test_without_a_session_nothing_is_told(shared: Running, made_once: Made, cookie: str | None) -> None:
    sent = None if cookie is None else cookie.format(port=shared.port, mine=shared.cookie)
    for path in ("/session", "/api/overview", "/api/runs/run-one", "/api/nothing"):
        status, answer = shared.get(path, cookie=sent)
        assert status == 401
        assert answer == {"problem": "open the link that `mcp-evo dashboard` gave in the terminal"}
    assert shared.post(f"/decide/{made_once.patch_id}", {}, cookie=sent)[0] == 401
    status, page = shared.get("/", cookie=sent)
    assert status == 200
    assert made_once.patch_id not in page


def test_codes_and_sessions_end() -> None:
    now = [0.0]
    access = Access(1234, clock=lambda: now[0])
    first = access.new_code()
    second = access.new_code()
    assert access.exchange(first) is None  # a new link ends the one before
    assert access.exchange(second) is not None
    assert access.exchange(second) is None
    late = access.new_code()
    now[0] += CODE_LIFE_S + 1
    assert access.exchange(late) is None
    for _ in range(MAX_SESSIONS + 5):
        assert access.exchange(access.new_code()) is not None
    assert len(access._sessions) == MAX_SESSIONS
    assert {one.ends_at for one in access._sessions.values()} == {now[0] + SESSION_LIFE_S}


def test_no_secret_is_written_down(shared: Running, made_once: Made) -> None:
    shared.get("/api/overview")
    assert shared.code not in " ".join(psutil.Process(shared.process.pid).cmdline())
    token = shared.cookie.partition("=")[2]
    for path in (shared.log, *made_once.root.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            assert not [one for one in (shared.code, token, shared.csrf) if one.encode() in data], path


# ---- paths and bodies


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/page/index.html", "/api/../../etc/passwd", "/api/runs/..%2f..%2f..%2fetc%2fpasswd",
     "/api/%2e%2e/%2e%2e/etc/passwd", "/api/runs/%00", "/api/runs/run-one/../../config.yaml", "/api//etc/passwd",
     "/api/patches/..", "/static/x", "/docs", "/api/experience/..%2fdashboard", "/api/runs/run-one%2fconfig.json",
     "//evil.example/", "/api/"],
)  # fmt: skip
def test_paths_that_lead_nowhere(shared: Running, path: str) -> None:
    status, answer = shared.get(path)
    assert status in (400, 404)
    assert "root:" not in str(answer)


def test_bodies_beyond_the_limit(shared: Running, made_once: Made) -> None:
    large = b" " * (MAX_BODY_BYTES + 1)
    for path in ("/login", f"/decide/{made_once.patch_id}"):
        assert shared.knock("POST", path, large)[0] == 413
        pieces = b"".join(b"1000\r\n" + b" " * 0x1000 + b"\r\n" for _ in range(6)) + b"0\r\n\r\n"
        status, _, _ = shared.knock("POST", path, pieces, {"content-length": None, "transfer-encoding": "chunked"})
        assert status == 413
        assert shared.knock("POST", path, b"", {"content-length": "99999999999999999999"})[0] in (400, 413)
    assert shared.post(f"/decide/{made_once.patch_id}", {"decision": "approve"})[0] == 400
    status, _, answer = shared.knock("POST", f"/decide/{made_once.patch_id}", b"[" * 10_000)
    assert status == 400
    assert shared.get("/api/runs?cursor=" + "1" * 500)[0] == 400
    assert b"Traceback" not in answer


def test_methods(shared: Running) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert shared.knock(method, "/api/runs", b"", {"origin": shared.origin})[0] == 405
    assert shared.get("/login")[0] == 405


def test_headers_of_every_answer(shared: Running) -> None:
    for path in ("/", "/session", "/api/overview", "/nothing", "/api/nothing"):
        _, headers, _ = shared.knock("GET", path)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    policy = shared.knock("GET", "/")[1]["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert "unsafe" not in policy
    assert "*" not in policy


# ---- deciding


def kinds(made: Made) -> list[tuple[str, Any]]:
    return [(one["kind"], one["channel"]) for one in made.audit()]


def test_an_approval_counts_once(dashboard: Running, made: Made) -> None:
    dashboard.log_in()
    decision = dashboard.decision(made.patch_id, "approve", reason="it is better")
    status, answer = dashboard.post(f"/decide/{made.patch_id}", {**decision, "typed": "zzzzzz"})
    assert status == 409
    assert "first 6 characters" in answer["problem"]
    assert made.audit() == []
    told: list[tuple[int, Any]] = []
    clicks = [
        threading.Thread(target=lambda: told.append(dashboard.post(f"/decide/{made.patch_id}", decision)))
        for _ in range(4)
    ]
    for one in clicks:
        one.start()
    for one in clicks:
        one.join()
    assert sorted(status for status, _ in told) == [200, 409, 409, 409]
    assert all("decided already" in answer["problem"] for status, answer in told if status == 409)
    (done,) = [answer for status, answer in told if status == 200]
    assert (done["stage"], done["version"]) == ("active", "rllm-config@2")
    assert kinds(made) == [("approved", "dashboard"), ("promoted", "dashboard")]
    assert made.audit()[0]["reason"] == "it is better"
    assert AuditLog(made.root).verify().ok


def test_what_changed_meanwhile_is_not_approved(dashboard: Running, made: Made) -> None:
    dashboard.log_in()
    home = made.state.home()
    decision = dashboard.decision(made.patch_id, "approve")
    before = home.patches.read(made.patch_id)
    home.patches.write(before.model_copy(update={"verdict": "inconclusive"}))  # its trial says otherwise by now
    assert dashboard.post(f"/decide/{made.patch_id}", decision)[0] == 409
    page = dashboard.get(f"/api/patches/{made.patch_id}")[1]
    assert page["digests"] is None
    assert "not proven" in page["why_not"]  # an unproven one is for the terminal
    assert dashboard.post(f"/decide/{made.patch_id}", {**decision, "mark": page["mark"]})[0] == 409
    home.patches.write(before)
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    base.write_text(base.read_text().replace("# ", "# Other ", 1))  # the skill below it is another one
    status, answer = dashboard.post(f"/decide/{made.patch_id}", decision)
    assert status == 409
    assert "changed after it was shown" in answer["problem"]
    assert made.audit() == []
    assert dashboard.post(f"/decide/{made.patch_id}", dashboard.decision(made.patch_id, "approve"))[0] == 200


def test_a_link_opens_once_and_a_refusal_keeps_its_reason(dashboard: Running, made: Made) -> None:
    assert dashboard.post("/login", {"code": dashboard.code[:-1]})[0] == 401
    for wrong in ([], {}, {"code": 1}, {"code": ""}, None, "x"):
        assert dashboard.post("/login", wrong)[0] in (400, 401)
    status, headers, _ = dashboard.knock("POST", "/login", json.dumps({"code": dashboard.code}).encode())
    assert status == 200
    flags = {part.strip().lower() for part in headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert dashboard.post("/login", {"code": dashboard.code})[0] == 401
    old = dashboard.code
    dashboard.new_link()
    assert dashboard.code != old
    assert dashboard.post("/login", {"code": old})[0] == 401
    dashboard.log_in()
    status, answer = dashboard.post(
        f"/decide/{made.prose_id}", dashboard.decision(made.prose_id, "reject", reason="  ")
    )
    assert status == 409
    assert "reason" in answer["problem"]
    refused = dashboard.decision(made.prose_id, "reject", reason="It says\nnothing new.")
    assert dashboard.post(f"/decide/{made.prose_id}", refused)[1]["stage"] == "rejected"
    assert kinds(made) == [("rejected", "dashboard")]
    assert made.audit()[0]["reason"] == "It says nothing new."
    assert made.state.home().patches.rejected()[0].why.endswith("It says nothing new.")


@pytest.mark.parametrize(
    ("person", "variables", "words"),
    [(False, {}, "standard input is none"), (True, {"CLAUDECODE": "1"}, "belongs to an agent")],
)
def test_a_dashboard_that_no_person_started_only_shows(
    made: Made, tmp_path: Path, person: bool, variables: dict[str, str], words: str
) -> None:
    with dashboard_of(made.root, tmp_path / "log", person=person, **variables) as found:
        assert found.ready["decides"] is False
        assert words in found.ready["why_not"]
        found.log_in()
        assert found.get("/session")[1]["deciding"]["allowed"] is False
        for decision in ("approve", "reject"):
            wanted = found.decision(made.patch_id, decision, reason="x")
            status, answer = found.post(f"/decide/{made.patch_id}", wanted)
            assert status == 403
            assert "reading only" in answer["problem"]
        assert "open now" not in dashboard_hint(made.root)
    assert made.audit() == []


# ---- the process


def test_it_is_found_while_it_is_open(made: Made, tmp_path: Path) -> None:
    assert open_dashboard(made.root) is None
    with dashboard_of(made.root, tmp_path / "log") as found:
        path = made.root / NOTE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert dashboard_hint(made.root).endswith(f"dashboard (open now: {found.origin}/#/patches)")
        assert str(made.root) in dashboard_hint(made.root)
        os.write(found.terminal, b"\x03")  # Ctrl-C
        assert found.process.wait(timeout=60) == 130
        assert not path.exists()
        assert "Traceback" not in found.log.read_text()
    with dashboard_of(made.root, tmp_path / "log") as found:
        note = path.read_bytes()
        assert found.get("/")[0] == 200  # it serves by now
        assert found.stop(signal.SIGTERM) in (-signal.SIGTERM, 0)
        assert not path.exists()
        path.write_bytes(note)  # as it would lie there after a kill
        assert open_dashboard(made.root) is None
        assert "open now" not in dashboard_hint(made.root)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"port": "x"}', '{"port": 70000, "decides": true, "process": {"pid": 1, "started_at": 0}}'],
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / NOTE).write_text(content)
    assert open_dashboard(tmp_path) is None


def test_it_listens_on_this_machine_only(shared: Running) -> None:
    addresses = [one.laddr for one in psutil.Process(shared.process.pid).net_connections() if one.status == "LISTEN"]
    assert [one.ip for one in addresses] == ["127.0.0.1"]


def test_a_port_that_is_taken_and_a_workspace_that_is_none(made_once: Made, shared: Running, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for root, arguments, words in (
        (nowhere, [], "there is no workspace"),
        (made_once.root, ["--port", str(shared.port)], "cannot be used"),
    ):
        done = subprocess.run(
            [*COMMAND, "--workspace", str(root), "dashboard", *arguments],
            capture_output=True, text=True, env=environment(), stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not nowhere.exists()


def test_answers_come_soon(shared: Running) -> None:
    shared.get("/api/patches")
    began = time.monotonic()
    for _ in range(20):
        assert shared.get("/api/runs/run-one/steps?since=25")[0] == 200
    assert time.monotonic() - began < 10
