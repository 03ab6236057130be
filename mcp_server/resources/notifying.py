"""Tells clients that a resource changed: runs, sessions, rounds, patches (`evo://…`) and skills (`skill://…`).

Both protocol eras: a client of 2026-07-28 opens `subscriptions/listen`, for which changes go onto the server's bus; a
client of 2025-11-25 calls `resources/subscribe`, which the SDK leaves to us, and gets them on its connection. A watcher
(`optimizer.watcher`) says which runs and sessions changed; of several servers of a workspace one does the work and all
tell. What lies in few small files, every server looks at itself (`places`).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from mcp_server.resources.places import Places
from mcp_server.resources.templates import run_uris, session_uris
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.index.feed import Changes
    from optimizer.watcher import Watcher

START_S = 3.0
"""The watcher begins so long after the server: a client's first questions do not share the processor with it."""

RETRY_S = 5.0

LOOK_S = 1.0
"""How often rounds, patches and compiled skills are looked at."""

SEND_TIMEOUT_S = 5.0
"""A client that does not take a notice for so long is not told any more."""

MAX_SUBSCRIPTIONS = 1000
"""Of all clients of the older era together."""

logger = logging.getLogger(__name__)


class Updates:
    """Who wants to know of which resource."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._subscribed: dict[str, list[ServerSession]] = {}

    def serve(self, server: MCPServer[Any]) -> None:
        """Adds `resources/subscribe` and `resources/unsubscribe`, which the high-level server does not offer."""
        lowlevel = server._lowlevel_server
        lowlevel.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        lowlevel.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def _subscribe(self, ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        uri = str(params.uri)
        self._drop(uri, ctx.session)
        while sum(len(one) for one in self._subscribed.values()) >= MAX_SUBSCRIPTIONS:
            oldest = next(iter(self._subscribed))
            self._drop(oldest, self._subscribed[oldest][0])
        self._subscribed.setdefault(uri, []).append(ctx.session)
        return EmptyResult()

    async def _unsubscribe(self, ctx: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams) -> EmptyResult:
        self._drop(str(params.uri), ctx.session)
        return EmptyResult()

    def _drop(self, uri: str, session: ServerSession) -> None:
        """Takes a client out; its requests come with different session objects and the same client parameters."""
        rest = [
            one
            for one in self._subscribed.pop(uri, [])
            if one is not session and one.client_params is not session.client_params
        ]
        if rest:
            self._subscribed[uri] = rest

    async def tell(self, changes: "Changes") -> None:
        """Tells everyone who asked."""
        sessions = [uri for session in changes.sessions for uri in session_uris(session)]
        await self.publish([*sessions, *(uri for run_id in changes.runs for uri in run_uris(run_id))])

    async def publish(self, uris: Sequence[str]) -> None:
        """Tells everyone who asked about these resources."""
        for uri in uris:
            await self.bus.publish(ResourceUpdated(uri=uri))
            for session in list(self._subscribed.get(uri, [])):
                try:
                    with anyio.fail_after(SEND_TIMEOUT_S):
                        await session.send_resource_updated(uri)
                except (TimeoutError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                    logger.debug("a client is not told of %s any more: %s", uri, error)
                    self._drop(uri, session)

    async def publish_list(self) -> None:
        """Tells everyone who asked that the list of resources is another one. The older era is not told: its
        handshake says so, and only what was subscribed there is looked at."""
        await self.bus.publish(ResourcesListChanged())


async def watch(state: ServerState, updates: Updates) -> None:
    """Watches the workspace as soon as there is one, until it is cancelled."""
    await anyio.sleep(START_S)
    while not state.exists:
        await anyio.sleep(RETRY_S)
    while True:
        try:
            watcher = await anyio.to_thread.run_sync(_watcher, state, updates)
            await watcher.run()
        except Exception:  # a server without a watcher answers all the same
            logger.exception("the watcher ended; it begins again in %g s", RETRY_S)
            await anyio.sleep(RETRY_S)


def _watcher(state: ServerState, updates: Updates) -> "Watcher":
    from optimizer.watcher import Watcher

    return Watcher(state.home(), updates.tell, is_busy=state.is_answering)


async def watch_places(state: ServerState, updates: Updates) -> None:
    """Looks at rounds, patches and compiled skills as soon as there is a workspace, until it is cancelled."""
    places = Places(state.root)
    await anyio.sleep(START_S)
    while True:
        found = await anyio.to_thread.run_sync(places.look)
        await updates.publish(found.uris)
        if found.skills_changed:
            await updates.publish_list()
        await anyio.sleep(LOOK_S)
