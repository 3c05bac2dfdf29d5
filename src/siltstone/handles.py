"""Handles: the tables and snapshots that users hold.

A `Table` reads a fresh snapshot and writes one transaction per call; a `Snapshot` is frozen at one
seq over all tables. Both carry ids, not names: a rename does not disturb them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.row_input import ROWS_MAX as FEW_MAX
from siltstone.engine.catalog.row_input import RowInput, key_input, row_input, stream_of
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import BLIND, BatchPart, Receipt, RowPart, WriteSet
from siltstone.engine.read.readable import Readable
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.table_versions import TableVersions, of_keyed, of_plain
from siltstone.engine.read.view import State
from siltstone.engine.write.keyed_writes import batch_part
from siltstone.engine.write.submission import submit
from siltstone.engine.write.transaction import Transaction, run
from siltstone.engine.write.transaction_table import TransactionTable
from siltstone.errors import ClosedError, ConflictError, RequestError, TableNotFoundError
from siltstone.formats.group import DELETE, UPSERT
from siltstone.formats.keys import Key
from siltstone.formats.manifest import TableDefinition as Definition
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.index.index_plan import IndexStatus, statuses
from siltstone.maintenance.index.table_indexes import TableIndexes
from siltstone.query.scan.scan_plan import ROWS_MAX, TaskSite, plan
from siltstone.query.scan.scan_task import ScanTask
from siltstone.storage.manifest.manifest_store import Lease

if TYPE_CHECKING:
    from siltstone.query.sql import sql as queries
    from siltstone.query.sql.dataset import SnapshotDataset

ATTEMPTS = 100


class SnapshotTable(Readable):
    """One table at the seq of its snapshot."""

    __slots__ = ("_definition", "_snapshot")

    def __init__(self, snapshot: Snapshot, definition: Definition) -> None:
        self._snapshot, self._definition = snapshot, definition

    def __repr__(self) -> str:
        return f"<table {self.name!r} at seq {self._snapshot.seq}>"

    @property
    def id(self) -> int:
        """Its id in this store: stays when it is renamed, and is never given again."""
        return self._definition.id

    @property
    def name(self) -> str:
        """What the table was called at the snapshot's seq."""
        return catalogs.name_of(self._definition, self._snapshot.seq)

    def _reader(self) -> Reader:
        return self._snapshot.reader(self._definition)

    def dataset(self) -> SnapshotDataset:
        """Return the table as a pyarrow dataset: DuckDB, Polars and pandas push down into it."""
        # Late: pyarrow.dataset brings all of pandas with it, more than a second.
        from siltstone.query.sql.dataset import SnapshotDataset  # noqa: PLC0415

        return SnapshotDataset(self)


class Snapshot:
    """All tables at one seq, for as long as it is held: a context manager, or until `close`."""

    def __init__(self, core: Core, state: State, seq: int) -> None:
        self._core = core
        self._state: State | None = state
        self._leases = core.readers.hold(state.view, seq) if seq < state.visible else {}
        self.seq = seq

    def __repr__(self) -> str:
        if self._state is None:
            return f"<Snapshot at seq {self.seq}, closed>"
        return f"<Snapshot at seq {self.seq}: {', '.join(self.tables()) or 'no tables'}>"

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files that the snapshot keeps; a second time does nothing."""
        self._state, self._leases = None, {}

    def _open(self) -> State:
        self._core.check()
        if self._state is None:
            raise ClosedError(f"the snapshot at seq {self.seq} is closed")
        return self._state

    def reader(self, definition: Definition) -> Reader:
        """Return the reader of a table at this seq."""
        return self._core.readers.open(self._open().view, definition, self.seq)

    def reader_of(self, table: str) -> Reader:
        """Return the reader of the table that was called so at this seq."""
        return self.reader(catalogs.find(self._open().view.catalog, table, self.seq))

    def tables(self) -> list[str]:
        """Return the names of the tables that lived at this seq."""
        return catalogs.names(self._open().view.catalog, self.seq)

    def __getitem__(self, name: str) -> SnapshotTable:
        """Return the table that was called `name`.

        Raises:
            TableNotFoundError: There was none.
        """
        return SnapshotTable(self, catalogs.find(self._open().view.catalog, name, self.seq))

    def versions(self, table: str) -> TableVersions:
        """Return a table as other Lance clients see it at this seq: a keyed one as last merged.

        Raises:
            TableNotFoundError, SnapshotExpiredError: There was none; its base is not kept any more.
        """
        state = self._open()
        definition = catalogs.find(state.view.catalog, table, self.seq)
        if not catalogs.schema_of(definition, self.seq).key:
            plain = of_plain(definition, self.seq)
            self._core.unite(plain.folder)
            return plain
        found, lease = of_keyed(definition, self.seq, state.view, self._core.readers)
        self._core.unite(found.folder)
        if isinstance(lease, Lease):
            self._leases.setdefault(lease.number, lease)  # each is an open file: one for a record
        return found

    def scan_tasks(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        *,
        rows_max: int = ROWS_MAX,
    ) -> list[ScanTask]:
        """Cut a scan into tasks that other processes may read; see `query.scan.scan_task`.

        A task needs neither this snapshot nor this process, only the store's path: the retention
        keeps what it reads. Read late, it gives all its rows or raises `SnapshotExpiredError`.

        Args:
            table: Its name at this seq.
            columns: As of `scan`.
            filter: As of `scan`.
            rows_max: About how many stored rows one task reads; parts of files are never cut.
                Rows in this process's memory (those of the log, and of lately flushed memtables)
                travel in the tasks, at most 8 MiB in each.

        Raises:
            TableNotFoundError, RequestError: No such table or column, a bad filter or `rows_max`.
        """
        view = self._open().view
        definition = catalogs.find(view.catalog, table, self.seq)
        return plan(
            self.reader(definition),
            view.record,
            site=TaskSite(str(self._core.root), self._core.verify),
            table=table,
            seq=self.seq,
            columns=columns,
            filter=filter,
            rows_max=rows_max,
        )

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a query over this snapshot; it ends when the snapshot does. See `query.sql.sql`."""
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - as in `dataset`

        def table(name: str) -> SnapshotTable | None:
            try:
                return self[name]
            except TableNotFoundError:
                return None

        return queries.run(statement, table, self.tables(), parameters, check=self._open)


class Table(Readable):
    """One table of an open store. Reads take a fresh snapshot, writes are a transaction each."""

    __slots__ = ("_begin", "_core", "_id", "_indexes", "_seen")

    def __init__(
        self,
        core: Core,
        table_id: int,
        begin: Callable[[], Transaction],
        indexes: Callable[[], TableIndexes],
    ) -> None:
        self._core, self._id, self._begin, self._indexes = core, table_id, begin, indexes
        self._seen: tuple[object, Definition] | None = None  # one reference: threads share a handle

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"<table {self.name!r}, {f'key {key}' if key else 'plain'}: {self.schema.names}>"

    def _look(self) -> tuple[State, Definition]:
        self._core.check()
        state = self._core.state()
        seen = self._seen
        if seen is not None and seen[0] is state.view:
            return state, seen[1]
        found = catalogs.by_id(state.view.catalog, self._id)
        if found is None or not catalogs.is_alive(found):
            raise TableNotFoundError(f"#{self._id}" if found is None else catalogs.name_of(found))
        self._seen = (state.view, found)
        return state, found

    @property
    def id(self) -> int:
        """Its id in this store: stays when it is renamed, and is never given again."""
        return self._id

    @property
    def name(self) -> str:
        """What the table is called now."""
        return catalogs.name_of(self._look()[1])

    def _reader(self) -> Reader:
        state, definition = self._look()
        return self._core.readers.open(state.view, definition, state.visible)

    def dataset(self) -> SnapshotDataset:
        """Return a fresh snapshot of the table as a pyarrow dataset."""
        state, definition = self._look()
        return Snapshot(self._core, state, state.visible)[catalogs.name_of(definition)].dataset()

    def _table_schema(self) -> tuple[Definition, TableSchema]:
        definition = self._look()[1]
        table_schema = table_schema_of(catalogs.schema_of(definition))
        if table_schema.keys is None:
            raise RequestError(f"{self.name!r} is a plain table: append, overwrite, delete_where")
        return definition, table_schema

    # keyed tables

    def upsert(self, rows: object) -> Receipt:
        """Add or replace whole rows; of equal keys the last counts.

        Never conflicts: a column that is renamed or dropped meanwhile is as if it had been before.

        Args:
            rows: A dict, dicts, or anything Arrow-shaped; missing nullable columns become null.

        Raises:
            SchemaMismatchError: A column or value that does not fit; nothing was written.
            ConflictError: A stream that can be read but once, too large to keep, met such a column.
        """
        self._core.writer()
        again = _repeatable(rows)
        stream = None if hasattr(again, "__len__") else stream_of(again)
        if stream is not None:
            again = stream
        is_spent = stream is not None

        def make(
            definition: Definition, table_schema: TableSchema
        ) -> RowPart | BatchPart | Receipt:
            nonlocal again, is_spent
            found = again
            if type(found) is not dict and type(found) is not list:  # those are few: no load
                found = load(self._core, definition, table_schema, found, may_repeat=True)
                if isinstance(found, Receipt):
                    return found
            given = row_input(found, table_schema, catalogs.name_of(definition), may_repeat=True)
            if stream is not None and is_spent:
                again, is_spent = _regiven(given, table_schema).select(stream.schema.names), False
            return _part(definition, table_schema, given)

        return self._blindly(make, lambda: is_spent)

    def delete(self, keys: object) -> Receipt:
        """Delete rows by key, one or a list, whether they live or not. Never conflicts."""
        self._core.writer()
        wanted = key_input(keys, self._table_schema()[1])
        return self._blindly(
            lambda definition, table_schema: _deletes(definition, table_schema, wanted)
        )

    def _blindly(
        self,
        make: Callable[[Definition, TableSchema], RowPart | BatchPart | Receipt],
        is_spent: Callable[[], bool] = lambda: False,
    ) -> Receipt:
        """Commit what `make` makes; again, by the new columns, where some were renamed or dropped.

        `is_spent`: what it makes rows of cannot be read a second time.
        """
        for left in range(ATTEMPTS - 1, -1, -1):
            try:
                made = make(*self._table_schema())
                return made if isinstance(made, Receipt) else self._blind(made)
            except ConflictError:
                if not left or is_spent():
                    raise
        raise AssertionError

    def _blind(self, part: RowPart | BatchPart) -> Receipt:
        rows = part.rows
        if not rows:
            return Receipt(self._core.state().visible, 0)
        write_set = WriteSet(
            number=next(self._core.numbers),
            read_seq=BLIND,
            parts=(part,),
            rows=rows,
            nbytes=part.nbytes,
        )
        return submit(self._core, lambda: write_set)

    def insert(self, rows: object) -> Receipt:
        """Add rows whose keys do not live.

        Raises:
            DuplicateKeyError: A key lives already, or comes twice; nothing was written.
            SchemaMismatchError: A column or value that does not fit; nothing was written.
        """
        self._core.writer()
        definition, table_schema = self._table_schema()
        loaded = load(self._core, definition, table_schema, rows, may_repeat=False)
        if isinstance(loaded, Receipt):
            return loaded
        given = row_input(loaded, table_schema, self.name, may_repeat=False)
        again = _regiven(given, table_schema)
        return self._run(lambda table: table.insert(again))

    def update(self, key: object, /, **values: object) -> Receipt:
        """Change the named columns of one row; receipt.rows is 0 if the key does not live."""
        return self._run(lambda table: table.update(key, **values))

    # plain tables

    def append(self, rows: object) -> Receipt:
        """Add rows to a plain table."""
        again = _repeatable(rows)
        return self._run(lambda table: table.append(again), _attempts(again))

    def overwrite(self, rows: object) -> Receipt:
        """Replace all rows of a plain table."""
        again = _repeatable(rows)
        return self._run(lambda table: table.overwrite(again), _attempts(again))

    # both

    def delete_where(self, filter: str) -> Receipt:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression."""
        return self._run(lambda table: table.delete_where(filter))

    def truncate(self) -> Receipt:
        """Delete all rows at once; older snapshots still see them."""
        return self._run(lambda table: table.truncate())

    def add_column(self, name: str, kind: object) -> Receipt:
        """Add a nullable column."""
        return self._run(lambda table: table.add_column(name, kind))

    def drop_column(self, name: str) -> Receipt:
        """Drop a column; adding the same name later makes a new one."""
        return self._run(lambda table: table.drop_column(name))

    def rename_column(self, name: str, new_name: str) -> Receipt:
        """Rename a column."""
        return self._run(lambda table: table.rename_column(name, new_name))

    # indexes of keyed tables

    def create_index(
        self,
        column: str,
        kind: str = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: object,
    ) -> IndexStatus:
        """Have an index on a column; no answer changes. Nobody waits for it but the caller.

        It covers base, as far as it is merged; merges and optimizes keep it up to date.

        Args:
            column: Of a keyed table.
            kind: "btree" (equality, ranges), "bitmap" (the same, of few values), "fts" (words of
                a text) or "vector" (neighbours); the last two serve other Lance clients.
            name: By default that of the column.
            build: False leaves the building to the next optimize, or a merge.
            options: fts: language, base_tokenizer, stem, lower_case, remove_stop_words,
                ascii_folding, with_position. vector: metric ("l2", "cosine", "dot"), encoding
                ("flat", "sq", "pq" with sub_vectors), partitions.

        Raises:
            RequestError: A plain table; no such column; a kind, name or option that does not fit,
                or that there is already. Nothing was changed. Or somebody dropped it at once.
            TableNotFoundError: The table was dropped, be it meanwhile.
            ReadOnlyError: This handle does not own the store.
        """
        table = self._look()[1].id
        made = self._indexes().create(
            table, column, kind, name=name, options=options, is_built=build
        )
        for index in self.indexes():
            if index.name == made.name:
                return index
        raise RequestError(
            f"{self.name!r} has no index {made.name!r} any more: it, or its column, was dropped as"
            " soon as it was made"
        )

    def indexes(self) -> list[IndexStatus]:
        """Return the indexes, by name, and how far they are behind; the key's own comes last."""
        state, definition = self._look()
        record, number = state.view.record, catalogs.incarnation_of(definition).id
        storage = next((s for s in record.keyed if s.incarnation == number), None)
        return statuses(record, definition, storage, self._core.tables.reader)

    def drop_index(self, name: str) -> None:
        """Give an index up.

        Raises:
            RequestError: There is none of that name, or it is the key's own.
            TableNotFoundError: The table was dropped, be it meanwhile.
            ReadOnlyError: This handle does not own the store.
        """
        self._indexes().drop(self._look()[1].id, name)

    def _run(self, work: Callable[[TransactionTable], object], attempts: int = ATTEMPTS) -> Receipt:
        last: list[Transaction] = []

        def body(tx: Transaction) -> None:
            last[:] = [tx]
            work(TransactionTable(tx, self._id))  # by id: it may be renamed meanwhile

        run(self._begin, body, attempts)
        receipt = last[0].receipt
        assert receipt is not None
        return receipt


def _repeatable(rows: object) -> object:
    """Return rows that can be given again, as far as they fit into memory: a stream stays one."""
    is_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    if is_arrow or hasattr(rows, "__len__") or not isinstance(rows, Iterable):
        return rows
    return list(rows)


def _attempts(rows: object) -> int:
    """A stream is read once: tried again it would be empty, and its rows lost in silence."""
    return ATTEMPTS if hasattr(rows, "__len__") else 1


def _part(
    definition: Definition, table_schema: TableSchema, given: RowInput
) -> RowPart | BatchPart:
    table, incarnation = definition.id, catalogs.incarnation_of(definition).id
    if given.batch is None:
        return RowPart(table, incarnation, table_schema, given.rows, given.keys, [])
    return batch_part(table, incarnation, table_schema, given.batch, UPSERT)


def _deletes(
    definition: Definition, table_schema: TableSchema, keys: list[Key]
) -> RowPart | BatchPart:
    table, incarnation = definition.id, catalogs.incarnation_of(definition).id
    if len(keys) <= FEW_MAX and table_schema.rows.is_packable:
        return RowPart(table, incarnation, table_schema, [], [], keys)
    return batch_part(table, incarnation, table_schema, table_schema.codec.batch(keys), DELETE)


def _regiven(given: RowInput, table_schema: TableSchema) -> pa.RecordBatch:
    """Return given rows in a form that can be given again, when a transaction is re-run."""
    return table_schema.rows.to_batch(given.rows) if given.batch is None else given.batch
