"""Transaction rows: what one transaction reads and has written, table by table.

Writes stay private until the commit: of keyed tables as rows in a memtable, of plain tables as
versions that are staged, of bulk commits as files that are staged elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from copy import copy
from dataclasses import replace

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import Part, ReadSet
from siltstone.engine.filter.filters import Filter
from siltstone.engine.order.key_range import RangePredicate
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.engine.read.view import View
from siltstone.engine.write.bulk import BulkWrites
from siltstone.engine.write.keyed_writes import KeyedWrites
from siltstone.engine.write.plain_writes import ColumnChange, PlainWrites
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.errors import ClosedError, RequestError
from siltstone.formats.keys import Key
from siltstone.formats.manifest import Catalog, Schema, TableDefinition
from siltstone.storage.manifest.manifest_store import Lease
from siltstone.storage.tables.jobs import Begun

FOREVER_US = 1 << 62


class StagingHold:
    """Keeps from vacuum what a transaction stages, names or tags, until it ends.

    One thread at a time; a finalizer may close it. Most transactions never have anything to keep.
    """

    __slots__ = ("_begun", "_core", "_held", "_held_us", "_since_us", "past")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._held: ExitStack | None = None
        self._held_us = FOREVER_US
        self.past: ExitStack | None = None  # leases on what the commit tags; None: it tags nothing
        self._begun: Begun | None = None
        self._since_us: int | None = None

    def keep(self, since_us: int = FOREVER_US) -> None:
        """Keep what is staged from now on, or was elsewhere since `since_us`.

        First held, then compared with the gc horizon, as in `Core.submit`: what is staged later is
        newer than the horizon, and the commit compares what was staged before.
        """
        begun = self._core.begun() if self._begun is None else None
        self._held = self._held or ExitStack()
        from_us = since_us if begun is None else min(begun.first_us, since_us)
        if from_us < self._held_us:
            self._held.enter_context(self._core.site.jobs.hold(from_us))
            self._held_us = from_us
        if begun is not None:
            self._begun = replace(begun, above_us=max(begun.above_us, self._core.gc_horizon_us()))

    def names_since(self, since_us: int) -> None:
        """Note that the commit names files staged elsewhere, the first of them at `since_us`."""
        self._since_us = since_us if self._since_us is None else min(self._since_us, since_us)

    def keep_past(self, lease: Lease) -> None:
        """Keep what a lease keeps: the commit tags a seq of it."""
        self.past = self.past or ExitStack()
        self.past.enter_context(nullcontext(lease))  # others may share it

    def oldest_us(self) -> int:
        """Return the time (us) of the oldest file that the commit may name."""
        assert self._begun is not None
        started_us = self._begun.started_us(self._core.site.now_us)
        return started_us if self._since_us is None else min(started_us, self._since_us)

    def close(self) -> None:
        """Release everything."""
        for each in (self._held, self.past):
            if each is not None:
                each.close()


class TransactionRows:
    """See the module. One thread at a time. `keyed_writes` and `plain_writes` are by table id."""

    def __init__(
        self, core: Core, view: View, read_seq: int, reads: ReadSet | None, hold: StagingHold
    ) -> None:
        self._core, self._read_seq = core, read_seq
        self.view: View | None = view
        """What the transaction reads; None: it ended, and keeps no record from vacuum."""
        self._reads, self._hold = reads, hold
        self.is_strict: bool = reads is not None
        """Whether the transaction is serializable, so that what it reads is noted."""
        self.checks: ReadSet | None = None
        """What must not change until the commit, in any isolation; None: nothing."""
        self.keyed_writes: dict[int, KeyedWrites] = {}
        self.plain_writes: dict[int, PlainWrites] = {}
        self._bulk: dict[int, BulkWrites] = {}
        self.readers: dict[int, Reader] = {}
        """Of the tables that were read, by id, as they are now; of none with staged rows."""

    def __len__(self) -> int:
        """Return how many tables have private rows."""
        return len(self.keyed_writes) + len(self.plain_writes)

    @property
    def has_bulk(self) -> bool:
        """Whether staged rows are attached."""
        return bool(self._bulk)

    @property
    def has_any(self) -> bool:
        """Whether any table has private rows, staged ones among them."""
        return bool(self.keyed_writes or self.plain_writes or self._bulk)

    def end(self) -> None:
        """Release what the transaction reads; its caller may keep it for as long as it likes."""
        self.view = None
        self.readers.clear()
        self._bulk.clear()

    def keyed(self, table: TableDefinition) -> KeyedWrites:
        """Return the private writes of a keyed table.

        Raises:
            RequestError: It is a plain table.
        """
        if self._bulk:
            self._refuse_bulk(table)
        writes = self.keyed_writes.get(table.id)
        if writes is None:
            reader = self.readers.get(table.id)
            if reader is None:
                table_schema = table_schema_of(catalogs.schema_of(table))
            else:  # it is of the table as it is now
                table_schema = reader.table_schema
            if table_schema.keys is None:
                raise RequestError(
                    f"{catalogs.name_of(table)!r} is a plain table: append, overwrite, delete_where"
                )
            incarnation = catalogs.incarnation_of(table).id
            writes = KeyedWrites(table.id, incarnation, table_schema)
            self.keyed_writes[table.id] = writes
            if isinstance(reader, KeyedReader):
                self.readers[table.id] = reader.remembering(writes.own, self._read_seq)
        return writes

    def plain(self, table: TableDefinition) -> PlainWrites:
        """Return the private versions of a plain table.

        Raises:
            RequestError: It is a keyed table.
        """
        writes = self.plain_writes.get(table.id)
        if writes is None:
            if catalogs.schema_of(table).key:
                name = catalogs.name_of(table)
                raise RequestError(f"{name!r} has a key: insert, upsert, update or delete rows")
            self._hold.keep()
            writes = PlainWrites(table, self._core.tables, self._read_seq)
            self.plain_writes[table.id] = writes
        return writes

    def reader(self, table: TableDefinition) -> Reader:
        """Return the reader of a table over the snapshot and own writes."""
        if self._bulk:
            self._refuse_bulk(table)
        plain = self.plain_writes.get(table.id)
        if plain is not None:
            return self._core.readers.plain(plain.table_schema, plain.versions.pin)
        found = self.readers.get(table.id)
        if found is None:
            found = self.readers[table.id] = self._open(table)
        return found

    def _open(self, table: TableDefinition) -> Reader:
        writes = self.keyed_writes.get(table.id)
        own, view, seq = None if writes is None else writes.own, view_of(self), self._read_seq
        # By the definition too: of one that this transaction changed there is another reader.
        known = view.memo.get(("rows", table.id))
        if type(known) is tuple and known[0] is table and known[1].seq <= seq:
            return known[1].remembering(own, seq)
        reader = self._core.readers.open(view, table, seq, defined_at=self.defined_at(table))
        if not isinstance(reader, KeyedReader):
            return reader
        if reader.levels.images is not None:  # of the view's own levels, which have all later seqs
            view.memo["rows", table.id] = table, reader
        return reader.remembering(own, seq)

    def defined_at(self, table: TableDefinition) -> int:
        """Return the seq of the columns and the storage of a table: own ones stand at the next."""
        is_own = max(table.schemas[-1].seq, catalogs.incarnation_of(table).seq) > self._read_seq
        return self._read_seq + is_own

    def note(
        self,
        table: TableDefinition,
        reader: Reader,
        keys: Sequence[Key],
        wanted: Filter | RangePredicate | None,
    ) -> None:
        """Remember what a serializable transaction reads: `keys`, or else a scan of `wanted`."""
        if self._reads is not None:
            self.remember(self._reads, table, reader, keys, wanted)

    def remember(
        self,
        reads: ReadSet,
        table: TableDefinition,
        reader: Reader,
        keys: Sequence[Key],
        wanted: Filter | RangePredicate | None,
    ) -> None:
        """As `note`, among some reads."""
        step = catalogs.incarnation_of(table)
        if step.seq > self._read_seq:
            return  # made by this transaction: no other one can have written to it
        incarnation = step.id
        if isinstance(reader, PlainReader):
            version = catalogs.version_of(step, self._read_seq)  # not the staged one of own writes
            reads.versions[incarnation] = 0 if version is None else version.pin.version
        elif keys:
            reads.keys.setdefault(incarnation, set()).update(keys)
        else:
            # The check reads by the schema of the snapshot: a predicate over own columns is opaque.
            is_own = table.schemas[-1].seq > self._read_seq
            predicate = wanted if wanted and wanted.is_text and not is_own else None
            reads.scans.setdefault(incarnation, []).append(predicate)

    def alter(self, table: TableDefinition, schema: Schema, change: ColumnChange | None) -> None:
        """Give what was written of a table its new columns; None: only what is noted of them."""
        self._refuse_bulk(table)
        table_schema = table_schema_of(schema)
        if table_schema.keys is None and change is not None:
            self.plain(table).alter(table_schema, change)
        own = self.keyed_writes.get(table.id)
        if own is not None:
            own.alter(table_schema)

    def forget(self, table_id: int) -> None:
        """Drop what was written of a table."""
        for writes in (self.keyed_writes, self.plain_writes, self._bulk):
            writes.pop(table_id, None)

    def saved(self) -> Callable[[], bool]:
        """Return what takes back all that is written from now on, and says whether it could.

        It could not if there are more rows of a keyed table that had some before.
        """
        keyed = [(each, each.table_schema, each.own.written) for each in self.keyed_writes.values()]
        plain = [(each, copy(each)) for each in self.plain_writes.values()]
        bulk = dict(self._bulk)

        def take_back() -> bool:
            self.keyed_writes = {each.table: each for each, _, _ in keyed}
            self.plain_writes = {each.table: each for each, _ in plain}
            self._bulk = bulk
            self.readers.clear()
            for writes, table_schema, _ in keyed:
                writes.table_schema = table_schema
            for writes, before in plain:
                vars(writes).update(vars(before))
            return all(writes.own.written == written for writes, _, written in keyed)

        return take_back

    def attach(self, table: TableDefinition, stage: StageTask, staged: Sequence[Staged]) -> int:
        """Add staged rows of a table; see `api.transaction.Transaction.attach`."""
        core = self._core
        is_new = catalogs.incarnation_of(table).seq > self._read_seq
        if not catalogs.schema_of(table).key:
            files = stage.joined(core.files, core.root, staged)
            return self.plain(table).attach(stage.pin, files, is_new=is_new)
        own = self.keyed_writes.get(table.id)
        if own is not None and own.own.written:
            raise RequestError(f"{catalogs.name_of(table)!r} has rows of this transaction already")
        bulk = self._bulk.get(table.id) or BulkWrites(core, view_of(self))
        reader = None if is_new or bulk.parts else self.reader(table)
        assert reader is None or isinstance(reader, KeyedReader)
        rows = bulk.add(table, stage, staged, reader)
        if rows:
            self._bulk[table.id] = bulk
            self.readers.pop(table.id, None)
            self.keyed_writes.pop(table.id, None)  # without rows: see above
        return rows

    def _refuse_bulk(self, table: TableDefinition) -> None:
        if table.id in self._bulk:
            name = catalogs.name_of(table)
            raise RequestError(f"{name!r} has staged rows in this transaction; use another one")

    # the commit

    def parts(self, catalog: Catalog) -> list[Part]:
        """Return what to commit of all tables, by the columns that they have in `catalog`."""
        parts: list[Part]
        if not self._bulk and not self.plain_writes and catalog is view_of(self).catalog:
            parts = []
            for writes in self.keyed_writes.values():
                parts += writes.parts(writes.table_schema)
            return parts
        parts = [part for bulk in self._bulk.values() for part in bulk.parts]
        for writes in self.keyed_writes.values():
            table = catalogs.by_id(catalog, writes.table)
            if table is not None:
                parts += writes.parts(table_schema_of(catalogs.schema_of(table)))
        for plain in self.plain_writes.values():
            parts += plain.parts()
        return parts

    def names_files(self) -> bool:
        """Say whether the commit names files that were staged."""
        if not self._bulk and not self.plain_writes:
            return False
        return bool(self._bulk) or any(plain.versions.steps for plain in self.plain_writes.values())


def view_of(rows: TransactionRows) -> View:
    """Return what the transaction of some rows reads.

    Raises:
        ClosedError: It has ended.
    """
    if rows.view is None:
        raise ClosedError("the transaction ended meanwhile; begin a new one")
    return rows.view
