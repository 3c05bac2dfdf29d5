"""Version statements: a transaction as other Lance clients see it, by the versions of tables.

Only the Lance namespace uses them. A plain table is seen with the versions that this transaction
made of it; of a keyed table they see its base.
"""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.table_schema import shape_of
from siltstone.engine.read import table_versions
from siltstone.engine.read.table_versions import TableVersion, TableVersions
from siltstone.engine.write.definition_statements import DefinitionStatements
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import group
from siltstone.storage.lance.external.version_import import staged_manifest
from siltstone.storage.tables.tables import ForeignVersion


@dataclass(frozen=True, slots=True)
class VersionStatements:
    """See the module."""

    tx: EngineTransaction

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return catalogs.names(self.tx.catalog)

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        DefinitionStatements(self.tx).drop_table(name)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        DefinitionStatements(self.tx).rename_table(name, new_name)

    def declare_table(self, name: str) -> None:
        """Create a plain table without columns, which its first version brings."""
        DefinitionStatements(self.tx).declare_table(name)

    def versions(self, name: str) -> TableVersions:
        """Return a table as other Lance clients see it in this transaction.

        Raises:
            TableNotFoundError: No table has that name.
        """
        found = self._versions(name)
        self.tx.core.unite(found.folder)
        return found

    def _versions(self, name: str) -> TableVersions:
        tx = self.tx
        tx.require_open()
        table = tx.named(name)
        if catalogs.schema_of(table).key:
            return table_versions.of_keyed(table, tx.read_seq + 1, tx.view, tx.core.readers)[0]
        writes = tx.rows.plain_writes.get(table.id)
        steps = () if writes is None else writes.steps
        return table_versions.of_plain(table, tx.read_seq + 1, steps)

    def begin_versions(self, name: str) -> None:
        """Give a plain table that has columns its first version, empty, if it has none."""
        self.tx.rows.plain(self.tx.table(self.tx[name].id)).begin()

    def take_over(self, name: str, given: ForeignVersion) -> TableVersion:
        """Import a version that another Lance client staged on the newest one seen here.

        Importing the same manifest a second time returns the same version.

        Raises:
            ConflictError: Another version has that number; the staged one has no effect.
            RequestError: It does not follow, or is no whole version; nothing was changed.
        """
        tx = self.tx
        core = tx.core
        seen = self._versions(name)
        if seen.is_keyed:
            table_versions.refuse_keyed(name)
        staged = staged_manifest(core.root, seen.folder, given)
        known = seen.find(given.version)
        if known is not None and known.pin.path == staged.pin_path(core.root):
            return known
        # A client that lost looks for the winner where readers of the plain path do.
        if seen.committed:
            core.tables.show(seen.folder, seen.pins, is_whole=True)
        table_versions.check_built_on(seen, given.version, core.tables)
        table_versions.check_next(seen, given.version, tx.read_seq)
        cross(Failpoint.TAKE_BEFORE_PLAN)
        table = tx.named(name)
        writes = tx.rows.plain(table)
        taken = writes.taken_over(given)
        table_versions.check_taken(seen, taken)
        table_versions.check_kept(seen, taken, core.tables)
        tx.hold.names_import(taken)
        entry = definitions.reshaped(table, taken.schema)
        writes.go_on(taken.pin, writes.shape if entry is None else shape_of(entry.schema))
        if entry is not None:
            tx.change(entry)
        cross(Failpoint.TAKE_AFTER_PLAN)
        return TableVersion(given.version, taken.pin, 0)

    def hide_versions(self, name: str, first: int, end: int) -> int:
        """List the versions [first, end) to clients no more; return how many there were.

        Raises:
            RequestError: The newest one is among them, or the table has a key.
        """
        tx = self.tx
        seen = self.versions(name)
        if seen.is_keyed:
            table_versions.refuse_keyed(name)
        gone = [v for v in seen.versions if first <= v.number < end and not v.is_hidden]
        if tx.is_applied:
            return len(gone)
        if seen.newest in gone:
            raise RequestError(f"version {end - 1} of {name!r} is the newest: it cannot be deleted")
        if gone:
            table = catalogs.find(tx.catalog, name)
            tx.change(group.Hide(catalogs.incarnation_of(table).id, first, end))
        return len(gone)
