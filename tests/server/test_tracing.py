"""Spans: one a call, with name, outcome, duration and token, and nothing of what was said."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from http_helpers import over_http, serving
from mcp_types import ElicitRequestParams, ElicitResult
from server_helpers import environment, in_memory

from mcp_server import tracing
from mcp_server.cli.serve import make_server

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed: pip install 'mcp-evo[test]'")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

pytestmark = pytest.mark.anyio

CANARY = "canary-5b1e"


@pytest.fixture(scope="module")
def provider() -> TracerProvider:
    """There is one for a process, set once."""
    made = TracerProvider()
    trace.set_tracer_provider(made)
    return made


@pytest.fixture
def spans(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    yield exporter
    processor.shutdown()


def calls(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [one for one in of_the_server(spans) if one.name.startswith("tools/call")]


def of_the_server(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """Those of the server: its client in the same process makes some as well."""
    return [one for one in spans.get_finished_spans() if one.kind is trace.SpanKind.SERVER]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_span_a_call_with_its_outcome(root: Path, era: str, spans: InMemorySpanExporter) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("round_status")
        await caller.refused("monitor_run", run_id=f"{CANARY}-1")
        await caller.refused("load_skill", skill=f"{CANARY} 2")
        await caller.refused("list_runs", **{CANARY: 3})
        await caller.raw(f"{CANARY}_tool", request=CANARY)
    found = calls(spans)
    assert [(one.name, said(one)["mcp_evo.outcome"]) for one in found] == [
        ("tools/call round_status", "ok"),
        ("tools/call monitor_run", "refused"),
        ("tools/call load_skill", "refused"),
        ("tools/call list_runs", "refused"),
        ("tools/call unknown", "refused"),
    ]
    for one in found:
        assert one.start_time is not None
        assert one.end_time is not None
        assert 0 < one.end_time - one.start_time < 60e9
        assert "mcp_evo.token" not in said(one)
    assert [one.name for one in of_the_server(spans) if CANARY in one.to_json()] == []


async def test_a_question_is_an_outcome(root: Path, spans: InMemorySpanExporter) -> None:
    async def yes(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "approve", "reason": CANARY})

    async with in_memory(root, "auto", elicitation_callback=yes) as caller:
        patch = await caller.ok(
            "propose_patch", skill="rllm-monitor", section="loop", body=f"Say {CANARY}.", description=CANARY
        )
        await caller.ok("review_patch", patch_id=patch["patch_id"])
    assert [said(one)["mcp_evo.outcome"] for one in calls(spans)] == ["ok", "asked", "ok"]
    assert [one.name for one in of_the_server(spans) if CANARY in one.to_json()] == []


def test_it_is_off_unless_an_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*tracing.ENDPOINTS, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    assert not tracing.wanted()
    for name in tracing.ENDPOINTS:
        with monkeypatch.context() as patch:
            patch.setenv(name, "http://127.0.0.1:4318")
            assert tracing.wanted()
            patch.setenv("OTEL_SDK_DISABLED", "true")
            assert not tracing.wanted()
    code = (
        "import sys; from mcp_server.cli.serve import make_server; make_server('/nowhere');"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert make_server(Path("/nowhere")) is not None


def test_what_is_missing_is_said_once_and_hurts_nothing() -> None:
    code = (
        "import logging, sys; logging.basicConfig();"
        "sys.modules['opentelemetry.exporter'] = None;"
        "from mcp_server import tracing; print(tracing.start())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert "pip install 'mcp-evo[otel]'" in done.stderr


async def test_a_server_without_the_package_serves(root: Path, tmp_path: Path) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}  # the port where nobody listens
    with serving(root, tmp_path / "log", **endpoint) as server:
        async with over_http(server, "auto") as caller:
            assert (await caller.ok("round_status"))["next"]


def test_spans_arrive_where_the_variable_says() -> None:
    """At a collector of our own, in a process of their own: a provider is set once."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs pip install 'mcp-evo[otel]'")
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Nothing is printed."""

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever, daemon=True)
        thread.start()
        code = (
            "from mcp_server import tracing; from opentelemetry import trace; assert tracing.wanted();"
            "assert tracing.start();"
            "trace.get_tracer('x').start_span('tools/call list_runs').end()"
        )
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        subprocess.run([sys.executable, "-P", "-c", code], env=environment(**variables), check=True, timeout=120)
        collector.shutdown()
        thread.join(20)
    assert [path for path, _ in received] == ["/v1/traces"]
    assert b"tools/call list_runs" in received[0][1]
    assert b"mcp-evo" in received[0][1]
