"""Visible names: `dir` of a handle shows what is public, not what other modules of siltstone call.

That is what its public class declares, and what the handle's class says is public.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from typing import ClassVar


class VisibleNames(ABC):  # noqa: B024 - it declares nothing itself
    """The base of every public class."""

    __slots__ = ()
    _internal: ClassVar[frozenset[str]] = frozenset()
    """What a public class declares for other modules of siltstone."""
    _also_public: ClassVar[frozenset[str]] = frozenset()
    """What only this kind of handle has."""

    def __dir__(self) -> list[str]:
        public = {name for kind in type(self).__mro__ for name in _declared(kind)}
        public = (public | self._also_public) - self._internal
        return sorted(each for each in object.__dir__(self) if each[0] == "_" or each in public)


def _declared(kind: type) -> Iterator[str]:
    if kind.__module__.startswith("siltstone.api."):
        yield from vars(kind)
        yield from vars(kind).get("__annotations__", ())
