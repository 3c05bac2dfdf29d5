"""Version statements: what other Lance clients see and do in a transaction, by versions of tables.

    a client stages version n+1 ─▶ import: checked, synced, private ─▶ commit ─▶ its public name

They see a plain table with the versions that this transaction made of it, a keyed one as its base.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog import namespaces as spaces
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.read.view import storage_folder
from siltstone.engine.write.plain_writes import PlainWrites
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.engine.write.transaction_rows import view_of
from siltstone.errors import RequestError, UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.log import group
from siltstone.formats.manifest import Version
from siltstone.lance_versions import table_versions
from siltstone.lance_versions.errors import NamespaceNotEmptyError
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.storage.lance.external.version_import import staged_manifest
from siltstone.storage.tables.values import ImportedVersion, StagedVersion


@dataclass(frozen=True, slots=True)
class VersionStatements:
    """See the module."""

    tx: EngineTransaction

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return self.tx.tables()

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Return the properties of all namespaces by name, own changes included."""
        return spaces.properties_of(self.tx.catalog)

    def has_created(self, name: str) -> bool:
        """Return whether a namespace was created, and does not only exist by what is in it."""
        return spaces.created(self.tx.catalog, name) is not None

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a namespace that was not created yet; it may have tables.

        Raises:
            RequestError: The name or the properties are not allowed.
        """
        self.tx.require_open()
        self.tx.change(spaces.create(name, properties))

    def drop_namespace(self, name: str) -> None:
        """Drop a namespace.

        Raises:
            NamespaceNotEmptyError: A table or a namespace is in it.
        """
        self.tx.require_open()
        if spaces.contents(self.tx.catalog, name):
            raise NamespaceNotEmptyError(name)
        self.tx.change(group.DropNamespace(name))

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
        seq, defined = tx.read_seq, tx.rows.defined_at(table)
        if catalogs.schema_of(table).key:
            found, _ = table_versions.of_keyed(
                table, seq, view_of(tx.rows), tx.core.readers, defined_at=defined
            )
        else:
            writes = tx.rows.plain_writes.get(table.id)
            steps = () if writes is None else writes.versions.steps
            found = table_versions.of_plain(table, seq, steps, defined_at=defined)
        return replace(found, name=name)  # own renames included

    def folder(self, name: str) -> str:
        """Return the folder of a table's versions; of a keyed one also before it has any.

        Raises:
            TableNotFoundError: No table has that name.
        """
        table = self.tx.named(name)
        if not catalogs.schema_of(table).key:
            return self._versions(name).folder
        made = catalogs.incarnation_of(table)
        return f"{storage_folder(catalogs.name_of(table, made.seq), made.id)}/base"

    def tag_table(self, table: str, name: str, seq: int | None) -> None:
        """Tag a sequence number for one table, which keeps it; None removes the tag.

        The tag follows the table when it is renamed, and goes when it is dropped.

        Raises:
            RequestError: The name is not allowed.
            TableNotFoundError: There is no such table.
            SnapshotExpiredError: The store does not keep the seq.
        """
        name = definitions.check_tag_name(name)
        found = catalogs.find(self.tx.catalog, table)
        self.tx.set_tag(catalogs.table_tag(found.id, name), seq)

    def begin_versions(self, name: str) -> None:
        """Give a plain table that has columns its first version, empty, if it has none."""
        self.tx.require_open()
        self.tx.rows.plain(self.tx.named(name)).begin()

    def import_version(self, name: str, given: StagedVersion) -> Version:
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
            newest_first = (version.pin for version in reversed(seen.committed))
            core.tables.names.show(seen.folder, newest_first, is_whole=True)
        table_versions.check_built_on(seen, given.version, core.tables)
        table_versions.check_next(seen, given.version, tx.read_seq)
        cross(Failpoint.TAKE_BEFORE_PLAN)
        table = tx.named(name)
        writes = tx.rows.plain(table)
        taken = writes.versions.imported(given)
        table_versions.check_taken(seen, taken)
        table_versions.check_kept(seen, taken, core.tables.reader)
        tx.hold.names_since(_oldest_us(core, taken))
        entry = definitions.reshaped(table, taken.schema)
        if not writes.is_imported:
            tx.after_commit.append(partial(_show, core, writes))
        writes.go_on(
            taken.pin, writes.table_schema if entry is None else table_schema_of(entry.schema)
        )
        if entry is not None:
            tx.change(entry)
        cross(Failpoint.TAKE_AFTER_PLAN)
        return table_versions.uncommitted(taken.pin)

    def hide_versions(self, name: str, first: int, end: int) -> int:
        """Hide the versions [first, end) from lists; return how many there were.

        Raises:
            RequestError: The newest one is among them, or the table has a key.
        """
        tx = self.tx
        seen = self.versions(name)
        if seen.is_keyed:
            table_versions.refuse_keyed(name)
        gone = [v for v in seen.versions if first <= v.pin.version < end and not v.is_hidden]
        if tx.is_applied:
            return len(gone)
        if seen.newest is not None and seen.newest in gone:
            number = seen.newest.pin.version
            raise RequestError(f"version {number} of {name!r} is the newest: it cannot be deleted")
        if gone:
            table = catalogs.find(tx.catalog, name)
            tx.change(group.Hide(catalogs.incarnation_of(table).id, first, end))
        return len(gone)


def _oldest_us(core: Core, taken: ImportedVersion) -> int:
    """Return when the oldest of the files was written that an imported version adds.

    Raises:
        UnavailableError: The file system refuses to say.
    """
    try:
        return min(int(core.files.mtime(core.root / path) * 1e6) for path in taken.added)
    except OSError as error:
        raise UnavailableError(f"{core.root}: cannot look at staged files: {error}") from error


def _show(core: Core, writes: PlainWrites) -> None:
    """Give versions that a commit imported their public names; a failure fails no commit.

    The commit made none if its token was applied before: then no frame names them.
    """
    table = catalogs.by_id(core.state().view.catalog, writes.table)
    known = () if table is None else catalogs.versions_of(table, writes.incarnation)
    if not any(version.pin == writes.versions.pin for version in reversed(known)):
        return
    cross(Failpoint.SHOW_BEFORE_LINK)
    with suppress(UnavailableError):
        steps = writes.versions.steps
        core.tables.names.show(steps[0].folder, steps)
    cross(Failpoint.SHOW_AFTER_LINK)
