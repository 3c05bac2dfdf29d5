"""Plain writes: one transaction's changes of one plain table, as private staged versions.

    version read ──append / overwrite / delete──▶ staged pin ──▶ staged pin     not visible
                                                      commit: an `advance` frame names the last

Each operation is staged immediately, so the transaction reads its own writes. The frame names each
version: other clients of Lance, which commit on top, look up the change of every number. If the
table moved before the commit, appends are put on the new version (same data files). Any other
change is a conflict, unless only optimizes moved the table: then all changes are repeated on the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.write_set import AdvancePart
from siltstone.engine.filter.filters import Filter
from siltstone.engine.read.kept import FOREVER
from siltstone.engine.read.view import storage_folder
from siltstone.errors import RequestError
from siltstone.formats.log import group
from siltstone.formats.manifest import Incarnation, Pin, TableDefinition
from siltstone.formats.types import blobs
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import (
    NOTHING_RETYPED,
    POSITION,
    BuiltSegment,
    Compacted,
    ImportedVersion,
    InputsMovedError,
    Segment,
    StagedFiles,
    StagedVersion,
)


class ColumnChange(msgspec.Struct, frozen=True):
    """What happens to the columns of a table: new names by the old ones, or columns go or come.

    Those of `relax` may be null from now on, those of `forbid` have no null and take none. Those of
    `retype` get another type, in which each of their values has one.
    """

    rename: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    drop: Sequence[str] = ()
    add: Sequence[pa.Field] = ()
    relax: Sequence[str] = ()
    retype: Mapping[str, pa.DataType] = NOTHING_RETYPED
    forbid: Sequence[str] = ()


def dataset_of(table: TableDefinition, seq: int = FOREVER) -> tuple[str, Pin | None]:
    """Return the folder of a plain table's dataset, and its version at `seq`; None: it has none."""
    incarnation = catalogs.incarnation_of(table)
    version = catalogs.version_of(incarnation, seq)
    if version is not None:
        return version.pin.folder, version.pin
    return storage_folder(catalogs.name_of(table, incarnation.seq), incarnation.id), None


class PlainVersions:
    """A private line of versions: the one that the transaction read, and its steps from there.

    `folder` is that of the dataset, `start` the version read; None: the table has none yet.
    """

    def __init__(self, tables: Tables, folder: str, start: Pin | None) -> None:
        self._tables, self.folder = tables, folder
        self.start, self.steps = start, list[Pin]()

    @property
    def pin(self) -> Pin | None:
        """The version that the transaction is at; None: the table has none yet."""
        return self.steps[-1] if self.steps else self.start

    def add(self, pin: Pin) -> Pin:
        """Go on at `pin`: a step, unless the transaction is there."""
        if pin is not self.pin:
            self.steps.append(pin)
        return pin

    def imported(self, given: StagedVersion) -> ImportedVersion:
        """Return the version that another Lance client staged on ours; nothing is changed yet.

        Raises:
            RequestError: It is not a complete version in the table's own folder.
        """
        return self._tables.external.import_version(self.folder, self.pin, given)

    def is_moved_only(self, incarnation: Incarnation) -> bool:
        """Return whether the table now has the rows with which this began."""
        start = 0 if self.start is None else self.start.version
        return not catalogs.has_changed(incarnation, start)


class PlainWrites:
    """Uncommitted versions of one incarnation. One transaction, one thread at a time.

    They begin at the version of `seq`, where the transaction reads.
    """

    def __init__(self, table: TableDefinition, tables: Tables, seq: int) -> None:
        self.table, self.incarnation = table.id, catalogs.incarnation_of(table).id
        self.table_schema = table_schema_of(catalogs.schema_of(table))
        self._tables = tables
        self.versions = PlainVersions(tables, *dataset_of(table, seq))
        # What was done, to be done again on another version; blindly: whatever its rows are.
        self._operations = list[Callable[[], object]]()
        self._is_blind = True
        self.rows = 0
        self.is_imported = self._keeps_rows = False

    def __copy__(self) -> PlainWrites:
        """Return the state, which later changes leave alone."""
        made = object.__new__(PlainWrites)
        vars(made).update(vars(self))
        made._operations = [*self._operations]
        made.versions = PlainVersions(self._tables, self.versions.folder, self.versions.start)
        made.versions.steps += self.versions.steps
        return made

    def begin(self) -> Pin:
        """Return the version to continue from; create an empty first one if there is none."""
        return self.versions.add(self._begun())

    def _begun(self) -> Pin:
        """As `begin`, but a version that this makes is no step: rows are staged on it alone."""
        pin, create = self.versions.pin, self._tables.writer.create
        return pin or create(self.versions.folder, self.table_schema.arrow)

    def append(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Append rows; return their number."""
        start = self._begun()
        staged = self._tables.writer.stage(start, batches)
        return self._put(start, staged) if staged.rows else 0

    def attach(self, pin: Pin, staged: StagedFiles, *, is_new: bool) -> int:
        """Append rows that were staged on `pin`; return their number.

        Args:
            pin: A version of the table, perhaps from before a truncate.
            staged: The rows.
            is_new: The transaction itself began this incarnation.

        Raises:
            SchemaMismatchError: Their columns were renamed or dropped since.
            RequestError: The table has another dataset since (it was truncated).
        """
        if not staged.rows:
            return 0
        if pin.folder == self.versions.folder:
            return self._put(self.versions.pin or pin, staged)
        if self.versions.pin is not None or not is_new:
            raise RequestError("the table was truncated since the rows were staged; stage again")
        # Begun by this transaction: the staged rows alone, where they are. No other transaction can
        # have moved its new incarnation.
        self.versions.folder = pin.folder
        if not pin.rows and pin.version == 1:
            return self._put(pin, staged)
        nothing = self._tables.rewriter.rewrite(pin, drop=np.arange(pin.rows), batches=())
        return self._appended(self._tables.writer.commit(nothing, staged), staged)

    def _put(self, start: Pin, staged: StagedFiles) -> int:
        return self._appended(self._committed(start, staged), staged)

    def _appended(self, pin: Pin, staged: StagedFiles) -> int:
        self.versions.add(pin)
        self.rows += staged.rows
        self._did(lambda: self._put(self._begun(), staged), is_blind=True)
        return staged.rows

    def _committed(self, start: Pin, staged: StagedFiles) -> Pin:
        """Return `start` with rows: the version after it, or version 1 of a table without one.

        Other Lance clients expect the rows with which a table begins in its version 1.
        """
        writer = self._tables.writer
        commit = writer.commit_first if self.versions.pin is None else writer.commit
        return commit(start, staged)

    def _did(self, again: Callable[[], object], *, is_blind: bool) -> None:
        self._operations.append(again)
        self._is_blind &= is_blind

    def overwrite(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Replace all rows; return the new number."""
        pin = self.versions.add(self._overwritten(batches))
        self.rows += pin.rows

        def again() -> int:
            return self.overwrite(self._tables.reader.open(pin).scan())

        self._did(again, is_blind=False)
        return pin.rows

    def _overwritten(self, batches: Iterable[pa.RecordBatch]) -> Pin:
        writer, start = self._tables.writer, self._begun()
        if self.versions.pin is not None:
            return writer.overwrite(start, self.table_schema.arrow, batches)
        return self._committed(start, writer.stage(start, batches))

    def delete_where(self, wanted: Filter) -> int:
        """Delete the matching rows; return their number."""
        batches = self.located(sorted(wanted.columns), wanted)
        found = [wanted.keep(batch).column(POSITION).to_numpy() for batch in batches]
        drop = np.concatenate(found) if found else np.zeros(0, np.int64)
        self.replace(drop, (), again=lambda: self.delete_where(wanted))
        return len(drop)

    def located(
        self, columns: Sequence[str], wanted: Filter | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with their positions; rows that do not match `wanted` may be among them."""
        if self.versions.pin is None:
            return
        hidden = blobs.names_of(self.table_schema.arrow)
        names = {name: name for name in columns if name not in hidden}
        prefilter = None if wanted is None else wanted.prefilter(names)
        table = self._tables.reader.open(self.versions.pin)
        yield from table.scan(list(columns), prefilter=prefilter, positions=True)

    def replace(
        self,
        drop: np.ndarray,
        batches: Sequence[pa.RecordBatch],
        *,
        again: Callable[[], object],
        updated: int = 0,
    ) -> None:
        """Drop the rows at these positions and add `batches`, as one version.

        Both come from reads, so the change conflicts with other commits. `again` repeats the reads
        and the replacement, on a version with the same rows at other positions. `updated` rows are
        among both, and count once.
        """
        if not len(drop) and not batches:
            return
        pin = self._begun()
        if len(drop):
            self.versions.add(
                self._tables.rewriter.rewrite(pin, drop=drop, batches=batches, is_numbered=True)
            )
        else:
            staged = self._tables.writer.stage(pin, batches)
            self.versions.add(self._committed(pin, staged))
        self.rows += len(drop) + sum(batch.num_rows for batch in batches) - updated
        self._did(again, is_blind=False)

    def compact(self, compacted: Sequence[Compacted]) -> None:
        """Replace some files by others with the same rows; it is the only change.

        Raises:
            InputsMovedError: The version lacks an input, or has it in another form.
        """
        self._swap(self.begin(), compacted)
        self._keeps_rows = True
        self._did(lambda: self.compact(compacted), is_blind=True)

    def put_index(
        self,
        built: BuiltSegment,
        old: frozenset[str] = frozenset(),
        *,
        look: Callable[[Pin], None] = lambda _: None,
    ) -> None:
        """Add an index that was built on this version or an earlier one; it is the only change.

        It takes the place of the segments `old`, by their ids. `look` sees each version that has
        it; the last one is committed.

        Raises:
            InputsMovedError: The version lacks an input, or has other segments of that name.
        """
        pin = self.begin()
        named = [each for each in self._segments(pin) if each.index == built.index]
        if frozenset(segment.id for segment in named) != old:
            raise InputsMovedError
        made = self._tables.indexer.put(pin, [built], sorted(old))
        look(made)
        self.versions.add(made)
        self._keeps_rows = True
        self._did(lambda: self.put_index(built, old, look=look), is_blind=True)

    def drop_index(self, name: str) -> None:
        """Take an index out; it is the only change."""
        pin = self.begin()
        gone = [segment.id for segment in self._segments(pin) if segment.index == name]
        self.versions.add(self._tables.indexer.put(pin, (), gone))
        self._keeps_rows = True
        self._did(lambda: self.drop_index(name), is_blind=True)

    def _segments(self, pin: Pin) -> Sequence[Segment]:
        return self._tables.reader.open(pin).segments

    def alter(self, table_schema: TableSchema, change: ColumnChange) -> None:
        """Change the columns to those of `table_schema`."""
        self.table_schema = table_schema
        pin = self.versions.pin
        if pin is None:  # its own version: who appends meanwhile finds the table moved
            self.begin()
        else:
            alter, pin = self._tables.writer.alter, self._with_stored(pin, change.drop)
            self.versions.add(alter(pin, **msgspec.structs.asdict(change)))
        self._did(lambda: self.alter(table_schema, change), is_blind=False)

    def _with_stored(self, pin: Pin, drop: Sequence[str]) -> Pin:
        """Write the parts anew of which no file would have a column without those of `drop`.

        With all columns that the version has, those that are null throughout, too: a step of its
        own, with the same rows. The indexes of the columns go first, as they would with them.

        Raises:
            RequestError: An index of another column would be wrong: it knows rows that are gone.
        """
        spans = self._tables.compactor.bare(pin, drop)
        if not spans:
            return pin
        names = self.table_schema.arrow.names
        segments, gone = self._segments(pin), list[str]()
        for segment in segments:
            column = segment.columns[0]
            top = column if column in drop or column in names else column.partition(".")[0]
            if top in drop:
                gone.append(segment.id)
            elif not {*spans}.isdisjoint(segment.tied):
                raise RequestError(
                    f"{', '.join(drop)}: index {segment.index!r} covers rows that were deleted, and"
                    " their file is to be rewritten; drop that index first, and create it again"
                )
        pin = self.versions.add(self._tables.indexer.put(pin, (), gone))
        compacted = [self._tables.compactor.compact(pin, span) for span in spans]
        return self._swap(pin, compacted)

    def _swap(self, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
        swap = self._tables.compactor.swap
        return self.versions.add(swap(pin, compacted, keeps_indexes=True))

    def go_on(self, pin: Pin, table_schema: TableSchema) -> None:
        """Continue from an imported version, with its columns."""
        before = 0 if self.versions.pin is None else self.versions.pin.rows
        self.versions.add(pin)
        self.table_schema, self.is_imported = table_schema, True
        self.rows += abs(pin.rows - before)

    def parts(self) -> list[AdvancePart]:
        """Return the parts to commit: each step from the version read to the last."""
        start, parts = self.versions.start, list[AdvancePart]()
        version = 0 if start is None else start.version
        for pin in self.versions.steps:
            kind = group.Compact if self._keeps_rows else group.Advance
            entry = kind(self.incarnation, version, pin)
            rows = self.rows if pin is self.versions.pin else 0
            parts.append(AdvancePart(self.table, self.incarnation, version, entry, rows))
            version = pin.version
        return parts

    def rebase(self, incarnation: Incarnation, refuse: Callable[[], NoReturn]) -> None:
        """Repeat all changes on the version of `incarnation`, which won; `refuse` if impossible.

        A version of another client was planned on the one below it: that client must rebase.
        """
        if self.is_imported or not (self._is_blind or self.versions.is_moved_only(incarnation)):
            refuse()
        newest = catalogs.version_of(incarnation)
        operations, self._operations = self._operations, []
        start = None if newest is None else newest.pin
        self.versions, self.rows = PlainVersions(self._tables, self.versions.folder, start), 0
        try:
            for again in operations:
                again()
        except InputsMovedError:
            refuse()
