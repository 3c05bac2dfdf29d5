"""Declared: what a public class declares reaches the handle, also when the class is asked.

`map(st.Table.count, tables)` and `st.Store.checkpoint(db)` call a function of the class. Without
this they would run the declaration, which has no body, and return None.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any


class Declared(ABC):  # noqa: B024 - it declares nothing itself
    """The base of every public class: its declarations call what the handle's class defines."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Replace the declarations of a public class by calls of the handle's own methods."""
        super().__init_subclass__()
        for name, member in tuple(vars(cls).items()):
            if isfunction(member) and getattr(member, "__isabstractmethod__", False):
                setattr(cls, name, _of_handle(name, member))


def _of_handle(name: str, declared: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(declared)
    def call(self: object, *args: object, **options: object) -> Any:
        return getattr(self, name)(*args, **options)

    return call
