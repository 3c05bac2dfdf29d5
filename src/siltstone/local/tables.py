"""Table: one table of an open store; reads see the newest commit, each write is a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import msgspec
import pyarrow as pa

from siltstone.api.tables import Table
from siltstone.choices import UNCHANGED, IndexKind, IndexOptions, Missing
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.partial_rows import check_missing
from siltstone.engine.catalog.row_input import ROWS_MAX as FEW_MAX
from siltstone.engine.catalog.row_input import RowInput, row_input, stream_of
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.admission import SchemaMovedError
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import BLIND, BatchPart, Receipt, RowPart, WriteSet
from siltstone.engine.read.read_arguments import keyed
from siltstone.engine.read.read_union import KeyedReader, Row, beyond_python
from siltstone.engine.read.reader import Reader
from siltstone.engine.read.view import State, View
from siltstone.engine.write.keyed_writes import batch_part, deletion
from siltstone.engine.write.row_plan import RowPlan, row_plan
from siltstone.engine.write.submission import submit
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import ConflictError, RequestError
from siltstone.formats.keys import Key
from siltstone.formats.log.group import DELETE, UPSERT
from siltstone.formats.manifest import Catalog, TableDefinition
from siltstone.local.readable import LocalReadable
from siltstone.local.snapshot import LocalSnapshot, place_of, reopened
from siltstone.local.transaction_table import LocalTransactionTable
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.index.index_plan import IndexStatus, statuses
from siltstone.maintenance.index.indexer import TableIndexes
from siltstone.maintenance.index.plain_indexes import plain_statuses
from siltstone.process.retry import Retry

if TYPE_CHECKING:
    from siltstone.query.sql.dataset import SnapshotDataset

ATTEMPTS = 100
_BLIND: tuple[Missing, ...] = ("refuse", "null")
"""What needs no look at the rows that exist."""
_AGAIN = Retry(ATTEMPTS)
_POINT = "point"
"""Where a view keeps the readers of `get`."""


@dataclass(frozen=True, slots=True)
class SampledReader:
    """Stands in the place of a table's reader: its next `get` is measured."""

    reader: KeyedReader


def sample_gets(view: View) -> None:
    """Have the next `get` of each table measured that is read at this view.

    To count each of them would cost 3 % of one; so all others cost nothing more.
    """
    for point, reader in list(view.memo.items()):
        if type(reader) is KeyedReader and isinstance(point, tuple) and point[0] == _POINT:
            view.memo[point] = SampledReader(reader)


class LocalTable(LocalReadable, Table):
    """See the module. It carries the table's id: a rename does not disturb it."""

    __slots__ = ("_core", "_id", "_indexes", "_plan", "_point", "_seen")
    _in_any_order = True

    def __init__(self, core: Core, table_id: int, indexes: Callable[[], TableIndexes]) -> None:
        self._core, self._id, self._indexes = core, table_id, indexes
        # One reference each: threads share a handle. Nothing here holds a view, which would keep
        # the files of its record from vacuum for as long as the handle is idle.
        self._seen: tuple[Catalog, TableDefinition, TableSchema] | None = None
        self._point = (_POINT, table_id)
        self._plan: RowPlan | None = None

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[object, ...]]:
        """Pickle as path, store and id: what comes back only reads, and follows the newest rows."""
        return table_now, (*place_of(self._core), self._id)

    def _look(self) -> tuple[State, TableDefinition, TableSchema]:
        core, seen = self._core, self._seen
        if core.refusal is not None:
            core.check()
        state = core.state()
        if seen is not None and seen[0] is state.view.catalog:
            return state, seen[1], seen[2]
        found = catalogs.by_id(state.view.catalog, self._id)
        if found is None or not catalogs.is_alive(found):
            raise catalogs.dropped(self._id, found)
        table_schema = table_schema_of(catalogs.schema_of(found))
        self._seen = (state.view.catalog, found, table_schema)
        return state, found, table_schema

    @property
    def id(self) -> int:
        return self._id

    @property
    def name(self) -> str:
        return catalogs.name_of(self._look()[1])

    @property
    def schema(self) -> pa.Schema:
        return self._look()[2].shown

    def _reader(self) -> Reader:
        state, definition, _ = self._look()
        return self._core.readers.open(state.view, definition, state.visible)

    def get(self, key: object) -> Row | None:
        core = self._core
        state = core.state()
        # A reader serves all later seqs of its view, too: most reads are one look at one row.
        reader = state.view.memo.get(self._point)
        if type(reader) is not KeyedReader or core.refusal is not None:
            if type(reader) is SampledReader:
                return self._sampled(state.view, reader, key)
            state, definition, _ = self._look()
            reader = keyed(core.readers.open(state.view, definition, state.visible))
            state.view.memo[self._point] = reader
        committer = core.committer
        if committer is not None and committer.is_led:
            core.give_way()
        wanted = reader.table_schema.codec.from_user(key)
        try:
            return reader.row_at(wanted, state.visible)
        except OverflowError as error:
            raise beyond_python(wanted, error) from error

    def _sampled(self, view: View, reader: SampledReader, key: object) -> Row | None:
        view.memo[self._point] = reader.reader
        begun_s = time.perf_counter()
        row = LocalTable.get(self, key)  # of one whose reads are spans this is within its span
        self._core.works.gets.add(time.perf_counter() - begun_s)
        return row

    def dataset(self) -> SnapshotDataset:
        state, definition, _ = self._look()
        return LocalSnapshot(self._core, state, state.visible)[
            catalogs.name_of(definition)
        ].dataset()

    def _table_schema(self) -> tuple[TableDefinition, TableSchema]:
        _, definition, table_schema = self._look()
        if table_schema.keys is None:
            raise RequestError(f"{self.name!r} is a plain table: append, overwrite, delete_where")
        return definition, table_schema

    # keyed tables

    def upsert(self, rows: object, missing: Missing = "refuse") -> Receipt:
        core, plan = self._core, self._plan
        state, committer = core.state(), core.committer
        if (
            plan is not None
            and plan.catalog is state.view.catalog
            and committer is not None
            and core.refusal is None
        ):
            if type(rows) is dict and type(missing) is str and missing in _BLIND:
                is_whole = missing == "refuse"
                try:
                    write_set = plan.upsert(rows, next(core.numbers), is_whole=is_whole)
                    return committer.commit(write_set)
                except (SchemaMovedError, ConflictError):
                    pass  # its columns or its storage are new: nothing was written
        else:
            self._plan = self._planned()
        if check_missing(missing) != "keep":
            return self._upsert_any(rows, is_whole=missing == "refuse")
        again = _held(rows)
        return self._run(lambda table: table.upsert(again, "keep"))

    def _planned(self) -> RowPlan | None:
        self._core.writer()
        state, definition, table_schema = self._look()
        return row_plan(state.view.catalog, definition, table_schema)

    def _upsert_any(self, rows: object, *, is_whole: bool = True) -> Receipt:
        again = _repeatable(rows)
        stream = None if hasattr(again, "__len__") else stream_of(again)
        if stream is not None:
            again = stream
        is_spent = stream is not None

        def make(
            definition: TableDefinition, table_schema: TableSchema
        ) -> RowPart | BatchPart | Receipt:
            nonlocal again, is_spent
            found = again
            if type(found) is not dict and type(found) is not list:  # those are few: no load
                found = load(
                    self._core, definition, table_schema, found, may_repeat=True, is_whole=is_whole
                )
                if isinstance(found, Receipt):
                    return found
            name = catalogs.name_of(definition)
            given = row_input(found, table_schema, name, may_repeat=True, is_whole=is_whole)
            if stream is not None and is_spent:
                again, is_spent = _regiven(given, table_schema).select(stream.schema.names), False
            return _part(definition, table_schema, given)

        return self._blindly(make, lambda: not is_spent)

    def delete(self, keys: object) -> Receipt:
        self._core.writer()
        self._table_schema()
        found = deletion(keys, keyed(self._reader()))
        receipt = self._blindly(
            lambda definition, table_schema: _deletes(definition, table_schema, found.keys)
        )
        return msgspec.structs.replace(receipt, rows=found.lived)

    def _blindly(
        self,
        make: Callable[[TableDefinition, TableSchema], RowPart | BatchPart | Receipt],
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> Receipt:
        """Commit what `make` makes; again, by the new columns, where some were renamed or dropped.

        `may_repeat`: whether what it makes rows of can be read a second time.
        """

        def once() -> Receipt:
            made = make(*self._table_schema())
            return made if isinstance(made, Receipt) else self._blind(made)

        return _AGAIN.run(once, may_repeat=may_repeat)

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
        self._core.writer()
        definition, table_schema = self._table_schema()
        loaded = load(self._core, definition, table_schema, rows, may_repeat=False)
        if isinstance(loaded, Receipt):
            return loaded
        given = row_input(loaded, table_schema, self.name, may_repeat=False)
        again = _regiven(given, table_schema)
        return self._run(lambda table: table.insert(again))

    def update(self, key: object, /, **values: object) -> Receipt:
        return self._run(lambda table: table.update(key, **values))

    def update_many(self, rows: object) -> Receipt:
        again = _held(rows)
        return self._run(lambda table: table.update_many(again))

    # plain tables

    def append(self, rows: object) -> Receipt:
        again = _repeatable(rows)
        return self._run(lambda table: table.append(again), _attempts(again))

    def overwrite(self, rows: object) -> Receipt:
        again = _repeatable(rows)
        return self._run(lambda table: table.overwrite(again), _attempts(again))

    # both

    def delete_where(self, filter: str) -> Receipt:  # noqa: A002 - the contract's name
        return self._run(lambda table: table.delete_where(filter))

    def update_where(
        self,
        filter: str,  # noqa: A002 - the contract's name
        values: Mapping[str, object] | None = None,
        sql: Mapping[str, str] | None = None,
    ) -> Receipt:
        return self._run(lambda table: table.update_where(filter, values, sql))

    def truncate(self) -> Receipt:
        return self._run(lambda table: table.truncate())

    def add_column(self, name: str, kind: object, default: object = None) -> Receipt:
        return self._run(lambda table: table.add_column(name, kind, default))

    def alter_column(
        self,
        name: str,
        *,
        type: object = None,  # noqa: A002 - the contract's name
        nullable: bool | None = None,
        default: object = UNCHANGED,
    ) -> Receipt:
        return self._run(
            lambda table: table.alter_column(name, type=type, nullable=nullable, default=default)
        )

    def drop_column(self, name: str) -> Receipt:
        return self._run(lambda table: table.drop_column(name))

    def rename_column(self, name: str, new_name: str) -> Receipt:
        return self._run(lambda table: table.rename_column(name, new_name))

    # indexes

    def create_index(
        self,
        column: str,
        kind: IndexKind = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: Unpack[IndexOptions],
    ) -> IndexStatus:
        table = self._look()[1].id
        return self._indexes().create(
            table, column, kind, name=name, options=options, is_built=build
        )

    def indexes(self) -> list[IndexStatus]:
        state, definition, table_schema = self._look()
        if table_schema.keys is None:
            version = catalogs.version_of(catalogs.incarnation_of(definition))
            tables = self._core.tables.reader
            return [] if version is None else plain_statuses(tables.open(version.pin))
        record, number = state.view.record, catalogs.incarnation_of(definition).id
        storage = next((s for s in record.keyed if s.incarnation == number), None)
        return statuses(record, definition, storage, self._core.tables.reader)

    def drop_index(self, name: str) -> None:
        self._indexes().drop(self._look()[1].id, name)

    def _run(
        self, work: Callable[[LocalTransactionTable], object], attempts: int = ATTEMPTS
    ) -> Receipt:
        def once() -> Receipt:
            with EngineTransaction(self._core) as tx:
                work(LocalTransactionTable(tx, self._id))  # by id: it may be renamed meanwhile
            assert tx.receipt is not None
            return tx.receipt

        return Retry(attempts).run(once)


def _repeatable(rows: object) -> object:
    """Return rows that can be given again, as far as they fit into memory: a stream stays one."""
    is_arrow = hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")
    if is_arrow or hasattr(rows, "__len__") or not isinstance(rows, Iterable):
        return rows
    return list(rows)


def _held(rows: object) -> object:
    """Return rows that can be given again, all of them in memory."""
    found = _repeatable(rows)
    stream = None if hasattr(found, "__len__") else stream_of(found)
    if stream is None:
        return found
    try:
        return stream.read_all()
    except pa.ArrowException as error:
        raise RequestError(f"the rows cannot be read: {error}") from error


def _attempts(rows: object) -> int:
    """A stream is read once: tried again it would be empty, and its rows lost in silence."""
    return ATTEMPTS if hasattr(rows, "__len__") else 1


def _part(
    definition: TableDefinition, table_schema: TableSchema, given: RowInput
) -> RowPart | BatchPart:
    table, incarnation = definition.id, catalogs.incarnation_of(definition).id
    if given.batch is None:
        return RowPart(table, incarnation, table_schema, given.rows, given.keys, [])
    return batch_part(table, incarnation, table_schema, given.batch, UPSERT)


def _deletes(
    definition: TableDefinition, table_schema: TableSchema, keys: list[Key]
) -> RowPart | BatchPart:
    table, incarnation = definition.id, catalogs.incarnation_of(definition).id
    if len(keys) <= FEW_MAX and table_schema.rows.is_packable:
        return RowPart(table, incarnation, table_schema, [], [], keys)
    return batch_part(table, incarnation, table_schema, table_schema.codec.batch(keys), DELETE)


def _regiven(given: RowInput, table_schema: TableSchema) -> pa.RecordBatch:
    """Return given rows in a form that can be given again, when a transaction is re-run."""
    return table_schema.rows.to_batch(given.rows) if given.batch is None else given.batch


def table_now(root: str, store_id: str, verify: str, table_id: int) -> Table:
    """Return a table as another process pickled it: read-only, always at the newest seq.

    Raises:
        TableNotFoundError: It was dropped.
        RequestError: There is another store now, or none.
    """
    with reopened((root, store_id, verify)) as store:
        core = store.parts.core

        def indexes() -> TableIndexes:
            core.writer()
            raise AssertionError(store.root)

        found = LocalTable(core, table_id, indexes)
        _ = found.name  # it raises if the table was dropped
        return found
