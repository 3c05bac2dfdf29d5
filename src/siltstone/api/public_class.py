"""Public class: what all public classes have in common.

`dir` of a handle shows what is public, not what other modules of siltstone call: that is what its
public class declares, and what the handle's class says is public.

A public class declares methods that the handles' classes write. Such a declaration has no body:
called of the public class it would do nothing and look as if it had, so it refuses.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ClassVar, NoReturn, cast


class PublicClass(ABC):  # noqa: B024 - it declares nothing itself
    """The base of every public class."""

    __slots__ = ()
    _internal: ClassVar[frozenset[str]] = frozenset()
    """What a public class declares for other modules of siltstone."""
    _also_public: ClassVar[frozenset[str]] = frozenset()
    """What only this kind of handle has."""

    def __init_subclass__(cls) -> None:
        """Let each method and property that a public class only declares refuse a call."""
        super().__init_subclass__()
        for name, member in list(_declared(cls)):
            if getattr(member, "__isabstractmethod__", False):
                setattr(cls, name, _refusing(cls.__name__, member))

    def __dir__(self) -> list[str]:
        public = {name for kind in type(self).__mro__ for name, _ in _declared(kind)}
        public = (public | self._also_public) - self._internal
        return sorted(each for each in object.__dir__(self) if each[0] == "_" or each in public)


def _declared(kind: type) -> Iterator[tuple[str, object]]:
    """Give what a public class declares, with its values; those of annotations are their types."""
    if kind.__module__.startswith("siltstone.api."):
        yield from vars(kind).items()
        yield from vars(kind).get("__annotations__", {}).items()


def _refusing(home: str, declaration: object) -> object:
    """Return a declaration that keeps its name, signature and text, and refuses to be called."""
    if isinstance(declaration, property):
        assert declaration.fget is not None
        return property(_refusing_call(home, declaration.fget))
    return _refusing_call(home, cast("Callable[..., object]", declaration))


def _refusing_call(home: str, declaration: Callable[..., object]) -> Callable[..., NoReturn]:
    @wraps(declaration)
    def refuse(handle: object, /, *_: object, **__: object) -> NoReturn:
        name = declaration.__name__
        raise TypeError(
            f"{name} is only declared in {home}, and does nothing there; call it of the"
            f" {type(handle).__name__} itself: handle.{name}"
        )

    return refuse
