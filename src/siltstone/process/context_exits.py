"""Context exits: what the end of a `with` block does to the object that the block was opened with.

    close_on_exit     closes it, whether the block returned or raised
    commit_on_exit    the block returned: commits it. It raised: rolls it back
                      It was committed or rolled back within the block: does nothing

An error of the block always goes on to the caller. A class takes one of the two as its own:
`__exit__ = close_on_exit`.
"""

from __future__ import annotations

from typing import Protocol


class Closable(Protocol):
    """What is open until it is closed; to close it again does nothing."""

    def close(self) -> None: ...


class Committable(Protocol):
    """What is open until it is committed or rolled back."""

    @property
    def is_open(self) -> bool: ...

    def commit(self) -> object: ...

    def rollback(self) -> None: ...


def close_on_exit(self: Closable, *_: object) -> None:
    """Close, whatever the block did."""
    self.close()


def commit_on_exit(self: Committable, kind: type[BaseException] | None, *_: object) -> None:
    """Commit what a block that returned left open; roll back what one that raised did."""
    if not self.is_open:
        return
    if kind is None:
        self.commit()
    else:
        self.rollback()
