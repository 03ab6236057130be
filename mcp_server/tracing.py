"""Spans of OpenTelemetry, for whoever collects them.

The SDK makes a span of every message (`tools/call <name>`, with protocol, duration, and an error where there is one);
without a collector that costs nothing. Here it is switched on by the variables that OpenTelemetry itself uses, and a
tool's span gets what only we know: how the call ended and through whose token it came. No span holds an argument, an
answer or an error's text of a tool.
"""

import logging
import os
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, InputRequiredResult
from opentelemetry import trace

from mcp_server.access.roles import token_name

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""One of them says where spans go (https://opentelemetry.io/docs/specs/otel/protocol/exporter/)."""

SERVICE = "mcp-evo"
"""Where `OTEL_SERVICE_NAME` gives no other name."""

UNKNOWN_TOOL = "unknown"
"""Stands for a tool that there is not: a client may put anything there."""

logger = logging.getLogger(__name__)


def wanted() -> bool:
    """Whether the environment asks for spans."""
    return any(os.environ.get(name) for name in ENDPOINTS) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def start() -> bool:
    """Sends spans from now on; False, with a warning, where what is needed for it is not installed.

    A provider that is there already, as `opentelemetry-instrument` sets one, is left alone.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        logger.warning("no spans are sent, as %s is missing: pip install 'mcp-evo[otel]'", error.name)
        return False
    name = os.environ.get("OTEL_SERVICE_NAME") or SERVICE
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True


class SpanNotes:
    """Middleware that writes a tool call's outcome and token into the span that the SDK opened for it."""

    def __init__(self, server: MCPServer[Any]) -> None:
        self._server = server
        self._known: frozenset[str] = frozenset()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        span = trace.get_current_span()
        if ctx.method != "tools/call" or not span.is_recording():
            return await call_next(ctx)
        if not self._known:
            self._known = frozenset(one.name for one in await self._server.list_tools())
        if (ctx.params or {}).get("name") not in self._known:
            span.update_name(f"tools/call {UNKNOWN_TOOL}")
            span.set_attribute("gen_ai.tool.name", UNKNOWN_TOOL)
        token = token_name()
        if token is not None:
            span.set_attribute("mcp_evo.token", token)
        outcome = "failed"
        try:
            result = await call_next(ctx)
            outcome = outcome_of(result)
            return result
        finally:
            span.set_attribute("mcp_evo.outcome", outcome)


def outcome_of(result: HandlerResult) -> str:
    """ok, refused (an error that the caller reads), or asked (the user is asked first)."""
    if isinstance(result, CallToolResult):
        return "refused" if result.is_error else "ok"
    if isinstance(result, InputRequiredResult):
        return "asked"
    document: Any = result if isinstance(result, dict) else {}
    if document.get("resultType") == "input_required":
        return "asked"
    return "refused" if document.get("isError") is True else "ok"
