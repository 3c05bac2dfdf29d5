"""Tables: the two states of each table between two seqs, by its name at each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State
from siltstone.errors import TableNotFoundError
from siltstone.formats.manifest import TableDefinition
from siltstone.formats.types.blobs import BLOB
from siltstone.query.changes.change_feed import Feeds
from siltstone.query.diff.changed_keys import changed_keys
from siltstone.query.diff.plain_diff import PlainStates
from siltstone.query.diff.table_diff import TwoStates


@dataclass(frozen=True, slots=True)
class DiffOfStates:
    """Two seqs of one state of a store, each of which is kept."""

    core: Core
    state: State
    old: int
    new: int

    def names(self) -> list[str]:
        """Return the names of all tables at either seq, but for those with columns of blobs."""
        found = {
            catalogs.name_of(table, seq)
            for seq in (self.old, self.new)
            for table in self.state.view.catalog.tables
            if catalogs.is_alive(table, seq)
            and not any(c.type == BLOB for c in catalogs.schema_of(table, seq).columns)
        }
        return sorted(found)

    def of(self, name: str) -> TwoStates | PlainStates:
        """Return the two states of a table: by its key, or of whole rows.

        Raises:
            TableNotFoundError: There is none of that name at either seq.
            SnapshotExpiredError: A seq is not kept any more.
        """
        catalog = self.state.view.catalog
        old, new = (catalogs.called(catalog, name, seq) for seq in (self.old, self.new))
        if old is None and new is None:
            raise TableNotFoundError(name, catalogs.names(catalog, self.new), seq=self.new)
        before, after = self._reader(old, self.old), self._reader(new, self.new)
        is_one = old is not None and old is new
        if not (_is_keyed(before) and _is_keyed(after)):
            return PlainStates(name, before, after, is_one)
        return self._by_key(name, before, after, is_one=is_one)

    def by_key(self, name: str) -> TwoStates:
        """Return the two states of a table that has a key at both."""
        found = self.of(name)
        assert isinstance(found, TwoStates)
        return found

    def _by_key(
        self, name: str, before: KeyedReader | None, after: KeyedReader | None, *, is_one: bool
    ) -> TwoStates:
        keys = None
        if before is not None and after is not None:
            first, last = sorted((self.old, self.new))
            feeds = Feeds(self.core, self.state)
            keys = [] if first == last else changed_keys(feeds, name, before, after, first, last)
        return TwoStates(before, after, is_one, keys)

    def _reader(self, table: TableDefinition | None, seq: int) -> Reader | None:
        return None if table is None else self.core.readers.open(self.state.view, table, seq)


def _is_keyed(reader: Reader | None) -> TypeGuard[KeyedReader | None]:
    return reader is None or isinstance(reader, KeyedReader)
