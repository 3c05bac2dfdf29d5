"""Declared: what a public class declares reaches the handle, also when the class is asked.

`map(st.Table.count, tables)` and `st.Store.checkpoint(db)` call a function of the class. Without
this they would run the declaration, which has no body, and return None.

`dir` of a handle shows what its public class declares, and what the handle's class says is public,
not what other modules of siltstone call.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction
from typing import Any, ClassVar


class Declared(ABC):  # noqa: B024 - it declares nothing itself
    """The base of every public class: its declarations call what the handle's class defines."""

    __slots__ = ()
    _internal: ClassVar[frozenset[str]] = frozenset()
    """What a public class declares for other modules of siltstone."""
    _also_public: ClassVar[frozenset[str]] = frozenset()
    """What only this kind of handle has."""

    def __dir__(self) -> list[str]:
        public = {name for kind in type(self).__mro__ for name in _declared(kind)}
        public = (public | self._also_public) - self._internal
        return sorted(each for each in object.__dir__(self) if each[0] == "_" or each in public)

    def __init_subclass__(cls) -> None:
        """Replace the declarations of a public class by calls of the handle's own methods."""
        super().__init_subclass__()
        for name, member in tuple(vars(cls).items()):
            if isfunction(member) and getattr(member, "__isabstractmethod__", False):
                setattr(cls, name, _of_handle(name, member))


def _declared(kind: type) -> Iterator[str]:
    if kind.__module__.startswith("siltstone.api."):
        yield from vars(kind)
        yield from vars(kind).get("__annotations__", ())


def _of_handle(name: str, declared: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(declared)
    def call(self: object, *args: object, **options: object) -> Any:
        return getattr(self, name)(*args, **options)

    return call
