"""Awaited: how a public class becomes one whose calls are awaited.

    count = awaited(ReadableTable.count)      async def count(self, filter=None) -> int
    @like(ReadableTable.scan)                 a method with these arguments, whatever it returns

A made method has the arguments of the one that it is made of, for people and for type checkers,
and asks its handle to make the call: in place where that waits for nothing, else in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def awaited(
    call: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the method of that name whose result is awaited.

    The `_call` of its handle makes the calls of the sync counterpart: by name, where they may wait.
    """
    name = call.__name__

    @wraps(call)
    async def wait(handle: Any, /, *arguments: Any, **named: Any) -> Any:
        return await handle._call(name, *arguments, **named)  # noqa: SLF001 - as it says

    wait.__doc__ = told(call)
    return wait  # type: ignore[return-value]


def like(
    call: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method that passes its arguments on those of its sync counterpart."""

    def give(method: Any) -> Any:
        method.__signature__ = inspect.signature(call)
        return method

    return give


def told(call: object) -> str:
    """Return the text of a sync call without its examples, which await nothing."""
    text = (getattr(call, "__doc__", None) or "").partition("\n\n        Examples:")[0]
    return text.rstrip() + "\n"


class BlockEnd(Protocol):
    """What a block opens and ends."""

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None: ...


O = TypeVar("O", bound=BlockEnd)  # noqa: E741 - as T and P


class Opening(Generic[O]):
    """What is opened by `await`, or for a block by `async with`. Once."""

    def __init__(self, opens: Callable[[], Awaitable[O]]) -> None:
        self._opens = opens
        self._opened: O | None = None

    def __await__(self) -> Generator[Any, Any, O]:
        return self._opens().__await__()

    async def __aenter__(self) -> O:
        self._opened = opened = await self
        return opened

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, *rest)
