"""Tables: the two states of each table between two seqs, by its name at each."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import State
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.query.changes.change_feed import Feeds
from siltstone.query.diff.changed_keys import changed_keys
from siltstone.query.diff.table_diff import TwoStates


@dataclass(frozen=True, slots=True)
class DiffOfStates:
    """Two seqs of one state of a store, each of which is kept."""

    core: Core
    state: State
    old: int
    new: int

    def names(self) -> list[str]:
        """Return the names of all keyed tables at either seq."""
        found = {
            catalogs.name_of(table, seq)
            for seq in (self.old, self.new)
            for table in self.state.view.catalog.tables
            if catalogs.is_alive(table, seq) and catalogs.schema_of(table, seq).key
        }
        return sorted(found)

    def of(self, name: str) -> TwoStates:
        """Return the two states of a table.

        Raises:
            TableNotFoundError: There is none of that name at either seq.
            RequestError: It is a plain table.
            SnapshotExpiredError: A seq is not kept any more.
        """
        old, new = self._table(name, self.old), self._table(name, self.new)
        if old is None and new is None:
            names = catalogs.names(self.state.view.catalog, self.new)
            raise TableNotFoundError(name, names, seq=self.new)
        before, after = self._reader(name, old, self.old), self._reader(name, new, self.new)
        is_one = old is not None and old is new
        keys = None
        if before is not None and after is not None:
            first, last = sorted((self.old, self.new))
            feeds = Feeds(self.core, self.state)
            keys = [] if first == last else changed_keys(feeds, name, before, after, first, last)
        return TwoStates(before, after, is_one, keys)

    def _table(self, name: str, seq: int) -> TableDefinition | None:
        try:
            return catalogs.find(self.state.view.catalog, name, seq)
        except TableNotFoundError:
            return None

    def _reader(self, name: str, table: TableDefinition | None, seq: int) -> KeyedReader | None:
        if table is None:
            return None
        found = self.core.readers.open(self.state.view, table, seq)
        if not isinstance(found, KeyedReader):
            raise RequestError(
                f"{name!r} is a plain table: its rows have no key to be compared by; read both"
                f" states, as `from {name} at (version => {seq})`"
            )
        return found
