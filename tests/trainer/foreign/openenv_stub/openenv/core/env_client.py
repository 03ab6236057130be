import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from openenv.core.client_types import StepResult

ActT = TypeVar("ActT")
ObsT = TypeVar("ObsT")
StateT = TypeVar("StateT")


class EnvClient(ABC, Generic[ActT, ObsT, StateT]):
    def __init__(self, base_url: str, connect_timeout_s: float = 10.0, message_timeout_s: float = 60.0) -> None:
        self._address = urlsplit(base_url)
        self._message_timeout = message_timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @abstractmethod
    def _step_payload(self, action: ActT) -> dict[str, Any]: ...

    @abstractmethod
    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ObsT]: ...

    @abstractmethod
    def _parse_state(self, payload: dict[str, Any]) -> StateT: ...

    async def _send_and_receive(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        reader, writer = self._streams
        writer.write(json.dumps(message).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), self._message_timeout)
        if not line:
            raise ConnectionError("the server closed the connection")
        response = json.loads(line)
        if response.get("type") == "error":
            raise RuntimeError(f"Server error: {response['data']['message']}")
        return response

    async def reset(self, **kwargs: Any) -> StepResult[ObsT]:
        return self._parse_result((await self._send_and_receive({"type": "reset", "data": kwargs}))["data"])

    async def step(self, action: ActT, **kwargs: Any) -> StepResult[ObsT]:
        message = {"type": "step", "data": self._step_payload(action)}
        return self._parse_result((await self._send_and_receive(message))["data"])

    async def state(self) -> StateT:
        return self._parse_state((await self._send_and_receive({"type": "state"}))["data"])

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].write(b'{"type": "close"}\n')
            self._streams[1].close()
            self._streams = None

    def sync(self) -> "SyncEnvClient":
        return SyncEnvClient(self)


class SyncEnvClient:
    """The synchronous form: a loop of its own around the client."""

    def __init__(self, client: EnvClient[Any, Any, Any]) -> None:
        self._async = client
        self._loop = asyncio.new_event_loop()

    @property
    def async_client(self) -> EnvClient[Any, Any, Any]:
        return self._async

    def reset(self, **kwargs: Any) -> Any:
        return self._loop.run_until_complete(self._async.reset(**kwargs))

    def step(self, action: Any) -> Any:
        return self._loop.run_until_complete(self._async.step(action))

    def state(self) -> Any:
        return self._loop.run_until_complete(self._async.state())

    def close(self) -> None:
        self._loop.run_until_complete(self._async.close())
