"""What the server costs, against the least server that the SDK makes, in one alternating run.

    python benchmarks/server.py [--starts 9] [--calls 200] [--memory-calls 10000] [--json]

- start: from `exec` to the answer of `initialize`, by hand-written JSON; starts alternate, ratio of medians.
- read: `list_runs` of a workspace with twenty runs, five calls in flight, against the bare tool under the same client.
  Both answers have the same number of bytes (`answer_bytes`): one line of text and data here, plain text there. Ours
  is on record before it leaves. Besides the latency, the processor time that a call takes in server and client, and
  what is put off to the pause behind a turn.
- clients: fifty HTTP clients with a hundred calls each; every answer is counted.
- memory: resident memory over ten thousand calls, after the first thousand.

Prints `{start_ratio, read_ratio, read_p50_ms, read_cpu_ratio, clients: {calls, answered}, memory_growth_mb, …}`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainer.config import TrainingConfig
from trainer.runs.registry import create_run
from trainer.runs.types import RunState
from trainer.runs.workspace import create_workspace

BARE = [sys.executable, "-P", str(Path(__file__).with_name("bare_server.py"))]
OURS = [sys.executable, "-P", "-m", "mcp_server.cli.main"]

IN_FLIGHT = 5

PAUSE_S = 2.0
"""Behind each turn of ours: what it does in pauses (the search index) shall not be on the bare tool's account."""

CLIENTS, CALLS_EACH = 50, 100
RUNS = 20

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def ours(root: Path, *arguments: str) -> list[str]:
    return [*OURS, "--workspace", str(root), "serve", *arguments]


def seconds_to_first_answer(command: list[str]) -> float:
    """From starting the process to the answer of `initialize`."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        elapsed = time.perf_counter() - began
        assert answer["result"]["serverInfo"], answer
        process.stdin.close()
        process.wait(timeout=20)
    return elapsed


def starts(root: Path, count: int) -> dict[str, Any]:
    """Alternating starts; the first of each (cold files) does not count."""
    bare, own = [], []
    for number in range(count + 1):
        pair = seconds_to_first_answer(BARE), seconds_to_first_answer(ours(root))
        if number:
            bare.append(pair[0])
            own.append(pair[1])
    return {
        "start_ratio": round(statistics.median(own) / statistics.median(bare), 3),
        "start_s": round(statistics.median(own), 3),
        "bare_start_s": round(statistics.median(bare), 3),
        "starts": count,
    }


async def timed_calls(client: Client, tool: str, arguments: dict[str, Any], count: int) -> list[float]:
    """Latency of each of `count` calls, `IN_FLIGHT` at a time. Raises AssertionError for an answer that is an error."""
    seconds: list[float] = []
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            began = time.perf_counter()
            result = await client.call_tool(tool, arguments)
            seconds.append(time.perf_counter() - began)
            assert not result.is_error, result.content

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(worker)
    return seconds


@dataclass
class Side:
    """One of the two servers, and what its calls took."""

    client: Client
    process: psutil.Process
    tool: str
    arguments: dict[str, Any]
    latencies: list[list[float]] = field(default_factory=list)
    """Seconds of each call, turn by turn."""
    processor_s: list[float] = field(default_factory=list)
    """Of server and client together, turn by turn."""

    async def turn(self, count: int, *, counts: bool) -> None:
        """`count` calls; with `counts` they are kept."""
        began = self._used_s()
        latencies = await timed_calls(self.client, self.tool, self.arguments, count)
        if counts:
            self.processor_s.append(self._used_s() - began)
            self.latencies.append(latencies)

    async def paused_s(self, seconds: float) -> float:
        """Processor time that is used while nothing is asked for so long."""
        began = self._used_s()
        await anyio.sleep(seconds)
        return self._used_s() - began

    async def answer_bytes(self) -> int:
        """Length of the answer of its call as JSON."""
        result = await self.client.call_tool(self.tool, self.arguments)
        return len(result.model_dump_json(by_alias=True, exclude_none=True))

    def _used_s(self) -> float:
        used = self.process.cpu_times()
        return used.user + used.system + time.process_time()


@asynccontextmanager
async def connected(command: list[str], tool: str, arguments: dict[str, Any]) -> AsyncIterator[Side]:
    """A server of its own over stdio."""
    before = {one.pid for one in psutil.Process().children()}
    with open(os.devnull, "w", encoding="utf-8") as log:
        parameters = StdioServerParameters(command=command[0], args=command[1:])
        async with Client(stdio_client(parameters, errlog=log)) as client:
            (process,) = [one for one in psutil.Process().children() if one.pid not in before]
            yield Side(client, process, tool, arguments)


async def reads(root: Path, count: int, rounds: int = 5) -> dict[str, Any]:
    """Both servers under the same client, in turns; the first turn of each does not count."""
    async with connected(ours(root), "list_runs", {}) as own, connected(BARE, "ping", {"size": 0}) as bare:
        wanted = await own.answer_bytes()
        bare.arguments["size"] = wanted - await bare.answer_bytes()
        if await bare.answer_bytes() != wanted:
            raise SystemExit("the answers differ in length")
        later = 0.0
        for number in range(rounds + 1):
            await own.turn(count, counts=number > 0)
            later += await own.paused_s(PAUSE_S) if number else 0.0
            await bare.turn(count, counts=number > 0)
    ratios = [
        statistics.median(one) / statistics.median(other)
        for one, other in zip(own.latencies, bare.latencies, strict=True)
    ]
    everything = sorted(second for one in own.latencies for second in one)
    return {
        "read_ratio": round(statistics.median(ratios), 3),
        "read_p50_ms": round(1000 * statistics.median(everything), 2),
        "read_p95_ms": round(1000 * everything[int(0.95 * len(everything))], 2),
        "bare_p50_ms": round(1000 * statistics.median([s for one in bare.latencies for s in one]), 2),
        "read_cpu_ratio": round(sum(own.processor_s) / sum(bare.processor_s), 3),
        "read_cpu_ms": round(1000 * sum(own.processor_s) / (rounds * count), 2),
        "later_cpu_ms": round(1000 * later / (rounds * count), 2),
        "bare_cpu_ms": round(1000 * sum(bare.processor_s) / (rounds * count), 2),
        "answer_bytes": wanted,
        "reads": rounds * count,
    }


@contextmanager
def http_server(root: Path) -> Iterator[tuple[str, str, int]]:
    """(address, token, process id) of a server over HTTP."""
    command = ours(root, "--http", "--port", "0", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield ready["url"], Path(ready["token_file"]).read_text(encoding="utf-8").strip(), process.pid
        finally:
            process.terminate()


async def many_clients(url: str, token: str) -> dict[str, Any]:
    """Every client connects by itself and counts its answers."""
    answered = [0] * CLIENTS
    began = time.perf_counter()

    async def one(number: int) -> None:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            for _ in range(CALLS_EACH):
                result = await client.call_tool("list_runs", {"limit": 1})
                answered[number] += int(not result.is_error)

    async with anyio.create_task_group() as tasks:
        for number in range(CLIENTS):
            tasks.start_soon(one, number)
    elapsed = time.perf_counter() - began
    calls = CLIENTS * CALLS_EACH
    return {"calls": calls, "answered": sum(answered), "calls_per_s": round(calls / elapsed, 1)}


async def memory(url: str, token: str, pid: int, calls: int) -> dict[str, Any]:
    """Growth of resident memory from a tenth of the calls to the last."""
    process = psutil.Process(pid)
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await timed_calls(client, "list_runs", {"limit": 1}, max(calls // 10, 1))
        before = process.memory_info().rss
        await timed_calls(client, "list_runs", {"limit": 1}, calls - max(calls // 10, 1))
        after = process.memory_info().rss
    return {
        "memory_calls": calls,
        "memory_mb": round(after / 2**20, 1),
        "memory_growth_mb": round((after - before) / 2**20, 2),
    }


def filled_workspace(root: Path) -> None:
    """Twenty runs that have ended."""
    workspace = create_workspace(root)
    for number in range(RUNS):
        directory = create_run(workspace, TrainingConfig(seed=number), run_id=f"run-{number:02d}")
        directory.set_fields(state=RunState.STOPPED)


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything, in a workspace of its own."""
    root = work / ".mcp-evo"
    document = starts(root, arguments.starts)
    filled_workspace(root)
    document |= anyio.run(reads, root, arguments.calls)
    with http_server(root) as (url, token, pid):
        document["clients"] = anyio.run(many_clients, url, token)
        document |= anyio.run(memory, url, token, pid, arguments.memory_calls)
    return document


def table(document: dict[str, Any]) -> str:
    """For people."""
    clients = document["clients"]
    return "\n".join(
        [
            f"start to first answer  {document['start_s']:.3f} s, bare server {document['bare_start_s']:.3f} s: "
            f"{document['start_ratio']:.2f} times as long",
            f"read-only call         p50 {document['read_p50_ms']} ms, p95 {document['read_p95_ms']} ms, bare tool p50 "
            f"{document['bare_p50_ms']} ms: {document['read_ratio']:.2f} times as long ({IN_FLIGHT} in flight, "
            f"{document['answer_bytes']} bytes each)",
            f"                       processor {document['read_cpu_ms']} ms in server and client, bare tool "
            f"{document['bare_cpu_ms']} ms: {document['read_cpu_ratio']:.2f} times as much; in the pause behind them "
            f"{document['later_cpu_ms']} ms (search index)",
            f"{CLIENTS} HTTP clients        {clients['answered']} of {clients['calls']} calls answered, "
            f"{clients['calls_per_s']} a second",
            f"memory                 {document['memory_mb']} MB, {document['memory_growth_mb']:+} MB over "
            f"{document['memory_calls']} calls",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--calls", type=int, default=200, help="read-only calls of a turn")
    parser.add_argument("--memory-calls", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        document = measure(Path(work), arguments)
    print(json.dumps(document, indent=1) if arguments.json else table(document))


if __name__ == "__main__":
    main()
