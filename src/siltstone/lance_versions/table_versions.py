"""Versions: a table for other Lance clients, as numbered versions in one folder.

The versions of a plain table are those in frames, so exactly one commit takes a number. Statements
of the store may skip numbers; a client's commit never does. A keyed table has one version, the base
as of the last merge: transactions write its rows, never a client's version.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import View, storage_folder
from siltstone.errors import ConflictError, RequestError
from siltstone.formats.manifest import Pin, TableDefinition, Version
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.tables import TableReader
from siltstone.storage.tables.values import ImportedVersion, OtherLineError

# What writes rows of a table with a key, in the words of the Lance Namespace specification.
ROW_OPERATIONS = (
    *("insert_into_table", "merge_insert_into_table"),
    *("update_table", "delete_from_table"),
)
# What a commit may be that was rebased over a version whose change is no longer known: it
# adds rows, replaces all, or says nothing about rows that were there.
_BLIND_OPERATIONS = frozenset(("Append", "Overwrite", "ReserveFragments"))


@dataclass(frozen=True, slots=True)
class TableVersions:
    """A table at one seq; `folder` below the root, `id` in the catalog.

    `committed` and then `own`, the versions of an open transaction, are in the order of their
    numbers. There may be 10,000 versions; a request for one finds it without a look at all.
    """

    id: int
    name: str
    folder: str
    table_schema: TableSchema
    committed: Sequence[Version]
    own: Sequence[Pin] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the metadata that clients noted."""
        return self.table_schema.shown

    @property
    def is_keyed(self) -> bool:
        """Whether it has a primary key."""
        return self.table_schema.keys is not None

    @property
    def versions(self) -> list[Version]:
        """All versions, the oldest first."""
        return [*self.committed, *map(uncommitted, self.own)]

    @property
    def newest(self) -> Version | None:
        """The newest version of the table; None if it has none yet."""
        if self.own:
            return uncommitted(self.own[-1])
        return self.committed[-1] if self.committed else None

    def find(self, number: int) -> Version | None:
        """Return the version with a number, hidden or not."""
        found = self.after(number)
        return found if found is not None and found.pin.version == number else None

    def has_skipped(self, number: int) -> bool:
        """Return whether no version has a number, although there are lower and higher ones."""
        after = self.after(number)
        if after is None or after.pin.version == number:
            return False
        lowest = self.committed[0].pin if self.committed else self.own[0]
        return lowest.version < number

    def after(self, number: int) -> Version | None:
        """Return the version after a number; for a skipped number, the next one."""
        place = bisect_left(self.committed, number, key=lambda version: version.pin.version)
        if place < len(self.committed):
            return self.committed[place]
        return next((uncommitted(pin) for pin in self.own if pin.version >= number), None)


def uncommitted(pin: Pin) -> Version:
    """Return a version that a transaction has not committed: its seq is 0."""
    return Version(0, pin)


def of_plain(
    table: TableDefinition, seq: int, own: Sequence[Pin] = (), *, defined_at: int | None = None
) -> TableVersions:
    """Return a plain table as of `seq`, with the versions of an open transaction on top.

    Columns and storage are those at `defined_at` (default `seq`), as in `Readers.open`.
    """
    defined = seq if defined_at is None else defined_at
    incarnation = catalogs.incarnation_of(table, defined)
    known = incarnation.versions
    committed = known[: bisect_right(known, seq, key=lambda version: version.seq)]
    home = storage_folder(catalogs.name_of(table, incarnation.seq), incarnation.id)
    newest = own[-1] if own else committed[-1].pin if committed else None
    return TableVersions(
        id=table.id,
        name=catalogs.name_of(table, defined),
        folder=home if newest is None else newest.folder,
        table_schema=table_schema_of(catalogs.schema_of(table, defined)),
        committed=committed,
        own=own,
    )


def of_keyed(
    table: TableDefinition, seq: int, view: View, readers: Readers, *, defined_at: int | None = None
) -> tuple[TableVersions, object]:
    """Return a keyed table as of `seq`, and a lease that keeps the files of its base."""
    defined = seq if defined_at is None else defined_at
    storage, lease = readers.storage_at(view, table, seq, defined)
    pin = storage.base
    return TableVersions(
        id=table.id,
        name=catalogs.name_of(table, defined),
        folder=f"{storage.folder}/base",
        table_schema=table_schema_of(catalogs.schema_of(table, defined)),
        committed=() if pin is None else (Version(storage.merged_seq, pin),),
    ), lease


def refuse_keyed(name: str) -> None:
    """Refuse a version of a keyed table; the message tells how to write its rows.

    Raises:
        RequestError: Always.
    """
    raise RequestError(
        f"{name!r} has a primary key: write its rows with upsert, insert, update or delete of"
        f" siltstone, or with {', '.join(ROW_OPERATIONS)} of its server's namespace, not with"
        " versions of Lance; nothing was committed"
    )


def check_built_on(table: TableVersions, number: int, tables: Tables) -> None:
    """Refuse a version with missing versions below it, and set external versions aside.

    Lance skips no number, so another program wrote the missing ones by path, and the client built
    on them.

    Raises:
        OtherLineError, RequestError: Versions are missing; nothing was committed. If another
            program wrote by path, the client may write again.
    """
    newest = table.newest
    current = newest.pin.version if newest is not None else 0
    if number <= current + 1:
        return
    tables.names.set_aside(table.folder, table.committed[-1].pin.version if table.committed else 0)
    reason = f"version {number} of {table.name!r} does not follow version {current}"
    others = [external.version for external in tables.external.versions(table.folder)]
    if not others:
        raise RequestError(f"{reason}; open the table again")
    raise OtherLineError(
        f"{reason}: another program wrote versions by path ({others[-10:]}, which are set aside),"
        " and it was built on one; nothing was committed; write again, or open the table again"
    )


def check_next(table: TableVersions, number: int, read_seq: int) -> None:
    """Refuse a version whose number is taken.

    Raises:
        ConflictError: There is a version with this number or a higher one.
    """
    found = table.after(number)
    if found is not None:
        raise ConflictError(table.name, f"version {number}", read_seq, found.seq)


def check_taken(table: TableVersions, taken: ImportedVersion) -> None:
    """Refuse a commit planned below a version whose change the client could not look up.

    A delete that was planned on version 3 and rebased to 6, past a version 5 that is not kept, may
    name files that 5 replaced: the delete would have no effect, without an error.

    Raises:
        RequestError: It is such a commit, or the first version lacks columns of the table.
    """
    between = range(max(1, taken.read_version + 1), taken.pin.version)
    missing = [number for number in between if table.find(number) is None]
    if missing and taken.operation not in _BLIND_OPERATIONS:
        raise RequestError(
            f"{table.name!r} changed since version {taken.read_version} in ways that Lance cannot"
            f" look up (version {missing[0]}); open the table again"
        )
    has_columns = table.newest is None and len(table.schema) > 0
    if has_columns and _columns(taken.schema) != _columns(table.schema):
        raise RequestError(
            f"{table.name!r} has the columns {table.schema.names}; the version lacks some"
        )


def check_kept(table: TableVersions, taken: ImportedVersion, tables: TableReader) -> None:
    """Refuse files of versions that are not listed: a vacuum may be about to delete them.

    Files of listed versions stay as long as the record that lists them is leased.

    Raises:
        RequestError: The version names such files; nothing was committed.
    """
    if not taken.back:
        return
    back = set(taken.back)
    newest_first = reversed(table.versions)
    for version in sorted(newest_first, key=lambda one: one.pin.version != taken.restored):
        back.difference_update(file.path for file in tables.files(version.pin))
        if not back:
            return
    raise RequestError(
        f"the version names {min(back)}, of a version of {table.name!r} that is no longer kept;"
        " open the table again"
    )


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType, bool]]:
    return [(field.name, field.type, field.nullable) for field in schema]
