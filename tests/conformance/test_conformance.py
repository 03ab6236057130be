"""The conformance suite gives what the baseline says; and the comparison notices when it does not."""

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from bearer_proxy import bearer_proxy
from npm_tools import CONFORMANCE, NpmTool, ToolsUnavailable
from run_conformance import EXTENSION, VERSIONS, Expect, Expected, Outcome, judge, read_baseline, run

Results = Mapping[str, Sequence[Mapping[str, Any]]]


@pytest.mark.npm
@pytest.mark.timeout(900)
def test_the_suite_gives_what_the_baseline_says(tmp_path: Path) -> None:
    try:
        outcome = run(tmp_path)
    except ToolsUnavailable as error:
        pytest.skip(str(error))
    assert outcome.problems == []
    assert outcome.passed[EXTENSION] == [
        "sep-2640-skills-directory",
        "sep-2640-skills-enumeration",
        "sep-2640-skills-manifest",
    ]
    assert all(len(outcome.passed[version]) >= 10 for version in VERSIONS)


def test_the_baseline_can_be_read_and_excuses_nothing_of_the_skills() -> None:
    baseline = read_baseline()
    assert {version for line in baseline.values() for version in line.versions} == {*VERSIONS, EXTENSION}
    skills = [line for name, line in baseline.items() if name.startswith("sep-2640-")]
    assert len(skills) == 3
    assert all(line.expect is Expect.PASS and not line.not_ok for line in skills)


BASELINE = {
    "good": Expected(("v",), Expect.PASS),
    "half": Expected(("v",), Expect.PASS, "needs a fixture", frozenset({"fixture"})),
    "empty": Expected(("v",), Expect.VACUOUS, "an unknown tool will do"),
    "other": Expected(("v",), Expect.NOT_APPLICABLE, "needs a tool", frozenset({"tool"})),
    "later": Expected(("w",), Expect.PASS),
}

AS_EXPECTED: dict[str, list[dict[str, str]]] = {
    "good": [{"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "INFO"}],
    "half": [{"id": "a", "status": "SUCCESS"}, {"id": "fixture", "status": "WARNING"}],
    "empty": [{"id": "a", "status": "SUCCESS"}],
    "other": [{"id": "tool", "status": "FAILURE"}, {"id": "schema", "status": "SUCCESS"}],
}


def judged(results: Results) -> Outcome:
    outcome = Outcome()
    judge("v", results, BASELINE, outcome)
    return outcome


def test_what_is_as_expected_is_counted_apart() -> None:
    outcome = judged(AS_EXPECTED)
    assert outcome.problems == []
    assert outcome.passed == {"v": ["good", "half"]}
    assert outcome.vacuous == {"v": ["empty"]}
    assert outcome.not_applicable == {"v": ["other"]}
    assert outcome.checks == {"v": 2}, "only what succeeds in scenarios that count"


@pytest.mark.parametrize(
    ("scenario", "checks", "says"),
    [
        ("good", [{"id": "a", "status": "FAILURE", "errorMessage": "broken"}], "good a: FAILURE, broken"),
        ("good", [{"id": "a", "status": "WARNING"}], "good a: WARNING"),
        ("good", [{"id": "a", "status": "SKIPPED"}], "good a: SKIPPED"),
        ("good", [], "good: checked nothing"),
        ("half", [{"id": "fixture", "status": "SUCCESS"}], "half fixture: succeeds, which the baseline excludes"),
        ("half", [{"id": "a", "status": "FAILURE"}, {"id": "fixture", "status": "FAILURE"}], "half a: FAILURE"),
        ("other", [{"id": "tool", "status": "SUCCESS"}], "other tool: succeeds"),
        (
            "other",
            [{"id": "tool", "status": "FAILURE"}, {"id": "schema", "status": "FAILURE"}],
            "other schema: FAILURE",
        ),
        ("new", [{"id": "a", "status": "SUCCESS"}], "new: the baseline does not name it"),
        ("later", [{"id": "a", "status": "SUCCESS"}], "later: the baseline does not name it"),
    ],
)
def test_what_is_not_as_expected_is_told(scenario: str, checks: list[dict[str, str]], says: str) -> None:
    problems = judged({**AS_EXPECTED, scenario: checks}).problems
    assert len(problems) == 1
    assert says in problems[0]


def test_a_scenario_that_did_not_run_is_told() -> None:
    results = {name: checks for name, checks in AS_EXPECTED.items() if name != "good"}
    assert judged(results).problems == ["v good: did not run"]


def test_a_line_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Expected(("v",), Expect.VACUOUS)
    with pytest.raises(ValueError, match="not_ok"):
        Expected(("v",), Expect.NOT_APPLICABLE, "needs a tool")


def test_a_tool_that_npm_cannot_get_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EVO_NPM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolsUnavailable, match="not on PATH"):
        CONFORMANCE.install()
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho npm error network unreachable >&2\nexit 1\n")
    npm.chmod(0o755)
    with pytest.raises(ToolsUnavailable, match="network unreachable"):
        NpmTool("x", ("x@1.0.0",), "x").install()
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half installed is left"


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while (size := int(self.rfile.readline(), 16)) > 0:
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        told = json.dumps({**{k.lower(): v for k, v in self.headers.items()}, "body": body.decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_proxy_adds_the_token_and_nothing_else() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with bearer_proxy() as proxy:
            proxy.target, proxy.token = ("127.0.0.1", server.server_port), "secret"
            headers = {"Host": "evil.example", "Origin": "http://evil.example", "Authorization": "Bearer other"}
            request = Request(f"http://127.0.0.1:{proxy.port}/mcp", data=b"x" * 100_000, headers=headers)
            with urlopen(request, timeout=10) as answer:
                seen = json.load(answer)
            assert (seen["host"], seen["origin"]) == ("evil.example", "http://evil.example")
            assert seen["authorization"] == "Bearer secret"
            assert seen["body"] == "x" * 100_000
            chunked = (
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as line:
                for _ in range(2):  # one connection, two requests: both get the token
                    line.sendall(chunked)
                    _, _, rest = line.makefile("rb").read1(65536).partition(b"\r\n\r\n")
                    told = json.loads(rest or line.recv(65536))
                    assert (told["authorization"], told["body"]) == ("Bearer secret", "abcde")
    finally:
        server.shutdown()
        server.server_close()
