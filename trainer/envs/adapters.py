"""Classes that need a little help to be played: asynchronous methods, and factories instead of classes.

The engine calls plain methods of a class that it builds once per episode. A *facade* is such a class around another
object: its tools have the signatures and docstrings of the originals, its calls wait for coroutines on one event loop,
and everything else is the object's own.
"""

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from trainer.envs.base import NOT_TOOLS, OWN_FUNCTION_S, EnvironmentFault


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all asynchronous environments, in a thread of its own: connections stay bound to one loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="environment-loop", daemon=True).start()
    return loop


async def _await(value: Awaitable[Any]) -> Any:
    return await value


def settle(value: Any, timeout_s: float | None = OWN_FUNCTION_S) -> Any:
    """A value, or what an awaitable becomes. Raises TimeoutError."""
    if not inspect.isawaitable(value):
        return value
    future = asyncio.run_coroutine_threadsafe(_await(value), _loop())
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None


class Facade:
    """An environment around another object. Subclasses add the tools; see `facade_of`."""

    _factory: Callable[[], Any]

    def __init__(self) -> None:
        self.inner = type(self)._factory()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.inner)})

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not built yet
            raise AttributeError(name)
        found = getattr(self.inner, name)
        if inspect.iscoroutinefunction(found):
            return lambda *arguments, **named: settle(found(*arguments, **named), None)  # whoever plays has a limit
        return found


def inner_of(environment: Any) -> Any:
    """The user's own object, for reward functions."""
    return environment.inner if isinstance(environment, Facade) else environment


def needs_facade(environment: type) -> bool:
    """Whether a class has asynchronous methods."""
    return any(
        inspect.iscoroutinefunction(member)
        for name, member in inspect.getmembers(environment, inspect.isfunction)
        if not name.startswith("_")
    )


def facade_of(environment: type, factory: Callable[[], Any]) -> type[Facade]:
    """A class with the tools of `environment` whose instances are built by `factory`."""
    namespace: dict[str, Any] = {"__doc__": environment.__doc__, "_factory": staticmethod(factory)}
    for name, member in inspect.getmembers(environment, inspect.isfunction):
        if not name.startswith("_") and (name not in NOT_TOOLS or name in ("reset", "get_reward")):
            namespace[name] = _forwarded(name, member)
    for name in ("system_prompt", "tool_timeouts", "call_timeout_s"):
        if name in dir(environment):
            namespace[name] = inspect.getattr_static(environment, name)
    return type(environment.__name__, (Facade,), namespace)


def _forwarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls the object's method of that name, with the original's signature and docstring."""

    @functools.wraps(original)
    def call(self: Facade, *arguments: Any, **named: Any) -> Any:
        return settle(getattr(self.inner, name)(*arguments, **named), None)  # whoever plays has a limit

    return call


_WANTED = "Name a class with reset and get_reward, or a function without arguments that builds an environment."


def from_factory(name: str, factory: Callable[[], Any]) -> tuple[type, Callable[[], Any]]:
    """(class of what a factory builds, the factory). Builds one and closes it. Raises EnvironmentFault."""
    if not callable(factory):
        raise EnvironmentFault(f"{name} is not a class but {type(factory).__name__}. {_WANTED}")
    try:
        built = factory()
    except Exception as error:  # whatever the user's code raises
        raise EnvironmentFault(
            f"{name}: calling it without arguments failed: {type(error).__name__}: {error}. {_WANTED}"
        ) from error
    if built is None or isinstance(built, str | int | float | dict | list | tuple):
        raise EnvironmentFault(
            f"{name} is not a class, and calling it gives {type(built).__name__}, not an environment. {_WANTED}"
        )
    if "close" in dir(built):
        settle(built.close())
    return type(built), factory
