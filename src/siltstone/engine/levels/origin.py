"""Origin: the name of the rows of a memtable, also when they are history.

Rows are only ever added to it. What searches keep of them (`engine.columns`) is kept with it, and
goes when it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, Self


class RowBlock(Protocol):
    """One column of consecutive rows of an origin, as searches read it."""

    @property
    def start(self) -> int:
        """The ordinal of the first row."""
        ...

    @property
    def end(self) -> int:
        """One above the ordinal of the last row."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        ...

    def upto(self, end: int) -> Self:
        """Return the rows with an ordinal below `end`."""
        ...

    def followed_by(self, other: Self) -> Self:
        """Return both as one; `other` has the next rows."""
        ...


class Origin:
    """The name of the rows of a memtable or of a load of history, and what is kept of them.

    Two are equal if they are one, or have the same name: an attached load is opened more than once.
    """

    name: object = None
    blocks: Mapping[object, tuple[RowBlock, ...]] = MappingProxyType({})
    """By the id of the column (of texts: and how they are taken apart), from ordinal 0 on.
    Replaced, never changed: most have none, and a transaction makes one for its own rows."""

    @classmethod
    def named(cls, name: object) -> Origin:
        """Return the origin of rows that others may name, too."""
        made = cls()
        made.name = name
        return made

    def __eq__(self, other: object) -> bool:
        """Return whether both name the same rows."""
        if self is other or self.name is None:
            return self is other
        return isinstance(other, Origin) and self.name == other.name

    def __hash__(self) -> int:
        """Return the hash of the name."""
        return id(self) if self.name is None else hash(self.name)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(block.nbytes for blocks in [*self.blocks.values()] for block in blocks)
