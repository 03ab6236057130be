"""Lines that are no messages: a client that sent one is answered, and what can be read is read."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError
from server_helpers import COMMAND, environment

from mcp_server.access.over_stdio import mended

MARK = "\N{REPLACEMENT CHARACTER}"

DEEP = "[" * 300 + "]" * 300
"""Beyond what the SDK reads."""


def read(line: str) -> SessionMessage | JSONRPCError | None:
    """What becomes of a line that the SDK cannot read."""
    with pytest.raises(ValidationError) as caught:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    return mended(caught.value)


@given(st.sampled_from(["\\ud83d", "\\uDE00", "\\ud800\\ud800"]), st.text(st.characters(codec="utf-8"), max_size=20))
def test_half_a_character_costs_itself_alone(half: str, text: str) -> None:
    whole = json.dumps(text)[1:-1]
    found = read(f'{{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {{"a": "{whole}{half}", "b": [1, "c"]}}}}')
    assert isinstance(found, SessionMessage)
    assert isinstance(found.message, JSONRPCRequest)
    assert found.message.id == 7
    assert found.message.params == {"a": text + MARK * half.count("\\"), "b": [1, "c"]}


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        ("{", PARSE_ERROR, None),
        ("not json", PARSE_ERROR, None),
        (
            '{"jsonrpc": "2.0", "id": 3, "method": "m", "params": {"a": ' + "[" * 300 + "]" * 300 + "}}",
            INVALID_REQUEST,
            3,
        ),
        ("[" * 100_000 + "]" * 100_000, PARSE_ERROR, None),
        ('{"id": 3, "method": "m"}', INVALID_REQUEST, 3),
        ('{"jsonrpc": "1.0", "id": "x", "method": "m"}', INVALID_REQUEST, "x"),
        ('{"jsonrpc": "2.0", "id": 3, "method": "m", "params": [1]}', INVALID_REQUEST, 3),
        ('{"jsonrpc": "2.0", "id": true, "method": 7}', INVALID_REQUEST, None),
        ("[]", INVALID_REQUEST, None),
        ("5", INVALID_REQUEST, None),
    ],
)
def test_what_is_no_message_is_answered_under_its_id(line: str, code: int, name: Any) -> None:
    found = read(line)
    assert isinstance(found, JSONRPCError)
    assert (found.id, found.error.code) == (name, code)


@pytest.mark.parametrize("line", ["", "\n", "  \r\n"])
def test_an_empty_line_is_nothing(line: str) -> None:
    assert read(line) is None


@pytest.fixture
def pipe(root: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A server process."""
    process = subprocess.Popen(
        [*COMMAND, "--workspace", str(root), "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd="/",
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    yield process
    watchdog.cancel()
    process.kill()
    process.communicate()


def test_a_server_answers_each_of_them_and_goes_on(pipe: "subprocess.Popen[bytes]") -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_runs","arguments":{"cursor":"%s"}}}'
    lines = [
        "{",
        "",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        call % (2, "half \\ud83d"),
        '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_runs","arguments":[1]}}',
        '{"jsonrpc":"2.0","id":4,"method":7}',
        call % (5, "none"),
    ]
    assert pipe.stdin is not None
    assert pipe.stdout is not None
    pipe.stdin.write("\n".join(lines).encode() + b"\n")
    pipe.stdin.flush()
    answers = {one["id"]: one for one in (json.loads(pipe.stdout.readline()) for _ in range(6))}
    assert set(answers) == {None, 1, 2, 3, 4, 5}
    assert answers[None]["error"]["code"] == PARSE_ERROR
    assert answers[4]["error"]["code"] == INVALID_REQUEST
    assert f"cursor 'half {MARK}' belongs to no listed run" in answers[2]["result"]["content"][0]["text"]
    assert answers[5]["result"]["isError"] is True
