"""Versions: a table as other Lance clients know it, numbered versions in one folder.

A plain table's versions are those that frames named, so a number is taken once and by one commit.
Own statements may skip numbers; a client's commit never does. Of a keyed table there is one, the
base as of the last merge: its rows are written by transactions, never by a version.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.read.reader import Readers, plain_folder
from siltstone.engine.read.view import View, storage_folder
from siltstone.errors import ConflictError, RequestError
from siltstone.formats.manifest import Pin, TableDefinition, Version
from siltstone.storage.tables.tables import ImportedVersion, OtherLineError, TableReader, Tables

# What writes rows of a table with a key, in the words of the Lance Namespace specification.
ROW_OPERATIONS = (
    *("insert_into_table", "merge_insert_into_table"),
    *("update_table", "delete_from_table"),
)
# What a commit may be that was rebased over a version whose change nobody can look up any more: it
# adds rows, replaces all, or says nothing about rows that were there.
_BLIND_OPERATIONS = frozenset(("Append", "Overwrite", "ReserveFragments"))


class _Pins(Sequence[Pin]):
    """The pins of versions, without a list of them."""

    def __init__(self, versions: Sequence[Version]) -> None:
        self._versions = versions

    def __len__(self) -> int:
        return len(self._versions)

    @overload
    def __getitem__(self, index: int) -> Pin: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pin]: ...
    def __getitem__(self, index: int | slice) -> Pin | Sequence[Pin]:
        if isinstance(index, slice):
            return _Pins(self._versions[index])
        return self._versions[index].pin


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version: its manifest (`path` relative to the store's root) and when it came to be.

    `seq` is 0 for one that a transaction has not committed.
    """

    number: int
    pin: Pin
    seq: int
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class TableVersions:
    """A table at one seq; `folder` below the root.

    `committed` and then `own`, those of an open transaction, are in the order of their numbers.
    There may be 10,000 of them, and a request is about one: it is found without looking at all.
    """

    name: str
    folder: str
    schema: pa.Schema
    is_keyed: bool
    committed: Sequence[Version]
    own: Sequence[Pin] = ()

    @property
    def versions(self) -> list[TableVersion]:
        """All versions, the oldest first."""
        return [*map(_committed, self.committed), *map(_own, self.own)]

    @property
    def pins(self) -> Sequence[Pin]:
        """The pins of the committed versions, each made when somebody looks at it."""
        return _Pins(self.committed)

    @property
    def newest(self) -> TableVersion | None:
        """The version that the table is at; None: it has none yet."""
        if self.own:
            return _own(self.own[-1])
        return _committed(self.committed[-1]) if self.committed else None

    def find(self, number: int) -> TableVersion | None:
        """Return the version of that number, hidden or not."""
        found = self.after(number)
        return found if found is not None and found.number == number else None

    def has_skipped(self, number: int) -> bool:
        """Say whether no version has a number, though there are lower and higher ones."""
        after = self.after(number)
        if after is None or after.number == number:
            return False
        lowest = self.committed[0].pin if self.committed else self.own[0]
        return lowest.version < number

    def after(self, number: int) -> TableVersion | None:
        """Return the version that followed a number: of one that was skipped, the next."""
        place = bisect_left(self.committed, number, key=lambda version: version.pin.version)
        if place < len(self.committed):
            return _committed(self.committed[place])
        return next((_own(pin) for pin in self.own if pin.version >= number), None)


def _committed(version: Version) -> TableVersion:
    return TableVersion(version.pin.version, version.pin, version.seq, version.is_hidden)


def _own(pin: Pin) -> TableVersion:
    return TableVersion(pin.version, pin, 0)


def of_plain(table: TableDefinition, seq: int, own: Sequence[Pin] = ()) -> TableVersions:
    """Return a plain table as of `seq`, with the versions of an open transaction on top."""
    incarnation = catalogs.incarnation_of(table, seq)
    known = incarnation.versions
    committed = known[: bisect_right(known, seq, key=lambda version: version.seq)]
    home = storage_folder(catalogs.name_of(table, incarnation.seq), incarnation.id)
    newest = own[-1] if own else committed[-1].pin if committed else None
    return TableVersions(
        name=catalogs.name_of(table, seq),
        folder=home if newest is None else plain_folder(newest),
        schema=table_schema_of(catalogs.schema_of(table, seq)).arrow,
        is_keyed=False,
        committed=committed,
        own=own,
    )


def of_keyed(
    table: TableDefinition, seq: int, view: View, readers: Readers
) -> tuple[TableVersions, object]:
    """Return a keyed table as of `seq`, and a lease that keeps the files of its base."""
    storage, lease = readers.storage_at(view, table, seq)
    pin = storage.base
    return TableVersions(
        name=catalogs.name_of(table, seq),
        folder=f"{storage.folder}/base",
        schema=table_schema_of(catalogs.schema_of(table, seq)).arrow,
        is_keyed=True,
        committed=() if pin is None else (Version(storage.merged_seq, pin),),
    ), lease


def refuse_keyed(name: str) -> None:
    """Say how the rows of a keyed table are written.

    Raises:
        RequestError: Always.
    """
    raise RequestError(
        f"{name!r} has a primary key: write its rows with upsert, insert, update or delete of"
        f" siltstone, or with {', '.join(ROW_OPERATIONS)} of its server's namespace, not with"
        " versions of Lance; nothing was committed"
    )


def check_built_on(table: TableVersions, number: int, tables: Tables) -> None:
    """Refuse a version with others missing below it, and set those aside that are in its way.

    Lance leaves out no number, so somebody wrote those by path, and the client built on them.

    Raises:
        OtherLineError, RequestError: It is one; nothing was committed. Where somebody wrote by
            path the client may write again.
    """
    newest = table.newest
    current = newest.number if newest is not None else 0
    if number <= current + 1:
        return
    tables.names.set_aside(table.folder, table.committed[-1].pin.version if table.committed else 0)
    reason = f"version {number} of {table.name!r} does not follow version {current}"
    others = [external.version for external in tables.external.versions(table.folder)]
    if not others:
        raise RequestError(f"{reason}; open the table again")
    raise OtherLineError(
        f"{reason}: somebody wrote versions by path ({others[-10:]}, which are set aside), and it"
        " was built on one; nothing was committed; write again, or open the table again"
    )


def check_next(table: TableVersions, number: int, read_seq: int) -> None:
    """Refuse a version with a number that is taken.

    Raises:
        ConflictError: There is one of that number, or of a higher one.
    """
    found = table.after(number)
    if found is not None:
        raise ConflictError(table.name, f"version {number}", read_seq, found.seq)


def check_taken(table: TableVersions, taken: ImportedVersion) -> None:
    """Refuse what was planned below a version whose change the client could not look up.

    A delete that was planned on version 3 and rebased to 6, past a version 5 that is not kept, may
    name files that 5 replaced: it would be lost in silence.

    Raises:
        RequestError: It is such a commit, or the first version has not the columns of the table.
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
        raise RequestError(f"{table.name!r} has columns {table.schema.names}; the version has not")


def check_kept(table: TableVersions, taken: ImportedVersion, tables: TableReader) -> None:
    """Refuse files that come back of no version in sight: a vacuum may be about to delete them.

    Those of the versions in sight stay for as long as the record is leased that they are seen by.

    Raises:
        RequestError: The version names such files; nothing was committed.
    """
    if not taken.back:
        return
    back = set(taken.back)
    newest_first = reversed(table.versions)
    for version in sorted(newest_first, key=lambda one: one.number != taken.restored):
        back.difference_update(file.path for file in tables.files(table.folder, version.pin))
        if not back:
            return
    raise RequestError(
        f"the version names {min(back)}, of a version of {table.name!r} that is not kept any more;"
        " open the table again"
    )


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType, bool]]:
    return [(field.name, field.type, field.nullable) for field in schema]
