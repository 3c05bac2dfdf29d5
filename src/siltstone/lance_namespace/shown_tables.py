"""Shown tables: the tables of a scope as other Lance clients see them."""

from __future__ import annotations

from collections.abc import Callable

from siltstone.lance_namespace.fresh import FreshVersions
from siltstone.lance_namespace.scope import LanceReads
from siltstone.lance_namespace.table_versions import TableVersions


class ShownTables:
    """Tables as other clients see them: keyed ones at their last merge, or fresh.

    A keyed table that was never merged has an empty version, so that it can be opened; with a
    read-only store it has none, because that writes nothing unasked. `clears`: clients may write,
    so versions of plain tables that were written by path are set aside.
    """

    def __init__(
        self,
        reads: LanceReads,
        fresh: FreshVersions | None,
        of: Callable[[str], TableVersions] | None,
        *,
        clears: bool = False,
    ) -> None:
        self._reads, self._fresh, self._of, self._clears = reads, fresh, of, clears

    def tables(self) -> list[str]:
        return self._reads.tables()

    def versions(self, name: str, /) -> TableVersions:
        seen = self._reads.versions(name)
        if self._fresh is None:
            return seen
        if not seen.is_keyed:
            if self._clears:
                self._fresh.clear_way(seen)
            return seen
        return self._fresh.merged(seen) if self._of is None else self._of(name)
