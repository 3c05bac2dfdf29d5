"""Bulk: rows in files that exist already, as a part of a commit that names them.

    empty table     an `advance` to its first base
    any other       an `attach`: a run of the commit's seq
    few, in hand    an upsert or a delete, as a transaction makes them: no files at all

All need every key once. Many rows get key runs first, which have their codes in order, so that
equal ones are neighbours; of few a code per row is sorted in memory. Keys and order values are read
back only for equal codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.partial_rows import PartialRows
from siltstone.engine.catalog.row_input import many
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import AdvancePart, AttachPart, BatchPart
from siltstone.engine.levels.load_keys import FiledCodes
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import View, is_empty
from siltstone.engine.write.keyed_writes import batch_part, chunk_of_batch, has_other_values
from siltstone.engine.write.stage_task import (
    ATTACHED,
    BASE,
    PLAIN,
    Staged,
    StageTask,
    stored_fields,
)
from siltstone.errors import DuplicateKeyError, RequestError, SchemaMismatchError
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.conversion.row_codec import lacks
from siltstone.formats.key_run import Entries, sorted_entries
from siltstone.formats.keys import Codes, KeyCodec, KeyColumns, KeysAt, newest_rows
from siltstone.formats.log import group
from siltstone.formats.manifest import Incarnation, Pin, TableDefinition
from siltstone.formats.schema import history_name
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import StagedFiles, StagedKeys

INLINE_BYTES_MAX = 8 << 20
"""What one job may put into the log; more goes into files, however small its pieces are."""
COVERED_ROWS_MIN = 65_536
"""A run of fewer rows has no key runs: the next checkpoint copies them into history."""
_CHECKED_BYTES = 64 << 20
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class BulkRows:
    """Rows of a keyed table in one dataset; `names` are its names of the key columns.

    `staged` are keys that were sorted when the rows were staged.
    """

    table: str
    table_schema: TableSchema
    pin: Pin
    names: tuple[str, ...]
    staged: tuple[StagedKeys, ...] = ()

    def opened(self, tables: TableReader) -> PinnedTable:
        """Return the dataset."""
        return tables.open(self.pin)

    @property
    def codec(self) -> KeyCodec:
        """The codec of the keys by the names of the dataset."""
        codec = self.table_schema.codec
        return codec if self.names == codec.names else self.table_schema.history_codec

    def covered(self, tables: Tables) -> BulkRows:
        """Return the rows with key runs, which are written next to them."""
        pin = tables.keys.cover(self.pin, self.codec, self.staged)
        return replace(self, pin=pin, staged=())

    def codes(self, tables: TableReader) -> Codes:
        """Return the codes of the keys in row order; reads the keys."""
        codec = self.table_schema.codec
        return np.concatenate([_NONE, *(codec.codes(batch) for batch in self.keys(tables))])

    def keys(self, tables: TableReader) -> Iterator[pa.RecordBatch]:
        """Yield the key columns in row order, with the names of the schema."""
        for batch in self.opened(tables).scan(list(self.names)):
            yield pa.RecordBatch.from_arrays(
                batch.columns, names=list(self.table_schema.codec.names)
            )

    def keys_at(self, tables: TableReader) -> KeysAt:
        """Return a function from positions to the keys of these rows."""
        opened, codec = self.opened(tables), self.table_schema.codec

        def keys_at(positions: np.ndarray) -> KeyColumns:
            taken = opened.take(positions, list(self.names))
            return codec.columns(taken.rename_columns(list(codec.names)))

        return keys_at


def unique(
    tables: Tables, rows: BulkRows, *, may_repeat: bool, order: str | None = None
) -> BulkRows:
    """Return the rows with each key once; many rows with key runs.

    Args:
        tables: The datasets.
        rows: The written rows.
        may_repeat: Whether to keep the last of the rows with one key, or to refuse them.
        order: The stored column that says which is the last (see `ascending`); None: row order.

    Raises:
        DuplicateKeyError: Keys are equal but may not repeat.
    """
    is_large = rows.pin.rows >= COVERED_ROWS_MIN
    rows = rows.covered(tables) if is_large else rows
    codes, equal = _equal(tables, rows)
    if not len(equal):
        return rows
    keys_at = rows.keys_at(tables.reader)
    by_order = np.arange(len(equal))
    if order is not None:
        values = rows.opened(tables.reader).take(equal, [order]).column(0).combine_chunks()
        by_order = ascending(values)
    ranked = equal[by_order]
    codec = rows.table_schema.codec
    newest = newest_rows(codec, codes[by_order], lambda index: keys_at(ranked[index]))
    if len(newest) == len(equal):
        return rows
    dropped = np.sort(np.delete(ranked, newest))
    if not may_repeat:
        key = codec.keys_of(keys_at(dropped[:1]))[0]
        raise DuplicateKeyError(rows.table, codec.to_user(key), is_repeated=True)
    pin = tables.rewriter.rewrite(rows.pin, drop=dropped, batches=())
    rows = replace(rows, pin=pin, staged=())
    return rows.covered(tables) if is_large else rows


def _equal(tables: Tables, rows: BulkRows) -> tuple[Codes, np.ndarray]:
    """Return codes that several rows have, in row order, and the positions of these rows."""
    keys = tables.keys.open(rows.pin)
    if not rows.pin.runs or not keys.is_whole:
        codes = rows.codes(tables.reader)
        return _in_row_order(*_repeated([sorted_entries(codes, np.arange(len(codes)))]))
    codes, places = _repeated(keys.ordered())
    return _in_row_order(codes, keys.positions_of(places))


def _repeated(blocks: Iterable[Entries]) -> Entries:
    """Return the entries whose codes others have, too; the blocks ascend."""
    codes_found, places_found = [_NONE], list[np.ndarray]()
    before: Entries | None = None  # the last entry of the block before
    for block in blocks:
        codes, places = block if before is None else map(np.append, before, block)
        same = codes[1:] == codes[:-1]
        if same.any():
            is_equal = np.append(same, False) | np.append(False, same)
            codes_found.append(codes[is_equal])
            places_found.append(places[is_equal])
        before = codes[-1:], places[-1:]
    places = np.concatenate(places_found) if places_found else _NONE
    return np.concatenate(codes_found), places


def ascending(values: pa.Array) -> np.ndarray:
    """Return the places of values in ascending order, equal ones as they are.

    Nulls are first and NaN is last, above all numbers, as queries have it: DuckDB's and Spark's.
    """
    if pa.types.is_float16(values.type):  # Arrow cannot sort it
        values = values.cast(pa.float32())
    places = pc.array_sort_indices(values, null_placement="at_start").to_numpy()  # stable
    if not pa.types.is_floating(values.type):
        return places
    first = values.null_count  # Arrow has NaN next to the nulls
    end = first + int(np.isnan(values.drop_null().to_numpy()).sum())
    return np.concatenate((places[:first], places[end:], places[first:end]))


def _in_row_order(codes: Codes, positions: np.ndarray) -> tuple[Codes, np.ndarray]:
    positions, first = np.unique(positions, return_index=True)
    return codes[first], positions


def load_part(core: Core, table: TableDefinition, incarnation: int, rows: BulkRows) -> AdvancePart:
    """Return the part that makes `rows` the first base of an incarnation without a row version."""
    pin = rows.covered(core.tables).pin
    entry = group.Advance(incarnation, 0, pin)
    base = core.readers.base_of(pin, rows.table_schema)
    return AdvancePart(table.id, incarnation, 0, entry, pin.rows, base)


def attach_part(
    core: Core, table: TableDefinition, incarnation: int, rows: BulkRows, op: int = group.UPSERT
) -> AttachPart:
    """Return the part that makes `rows`, stored by column ids, a run of the commit's seq."""
    entry = group.Attach(incarnation, rows.table_schema.id, rows.pin, op, rows.pin.rows)
    return AttachPart(
        table.id, incarnation, rows.table_schema, entry, rows.pin.rows,
        _written(core.tables, rows), rows.opened(core.tables.reader), core.readers.keys,
    )  # fmt: skip


def _written(tables: Tables, rows: BulkRows) -> Codes | FiledCodes:
    """Return the codes of the keys for recent writes: those in files, if these have them all."""
    if rows.pin.runs:
        keys = tables.keys.open(rows.pin)
        if keys.is_whole:
            return FiledCodes(keys, rows.pin.rows)
    return np.sort(rows.codes(tables.reader))


def refuse_living(tables: TableReader, rows: BulkRows, reader: KeyedReader) -> None:
    """Check that no key of the rows exists; it looks up 64 MiB of keys at once.

    Raises:
        DuplicateKeyError: A key exists already.
    """
    if not reader.count():
        return  # a load of an empty table: its keys need not be read
    for batches in gathered(rows.keys(tables), attrgetter("nbytes"), _CHECKED_BYTES):
        (keys,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        found = reader.first_existing(chunk_of_batch(keys, rows.table_schema))
        if found is not None:
            raise DuplicateKeyError(rows.table, rows.table_schema.codec.to_user(found))


class BulkWrites:
    """The jobs that one transaction attaches to one keyed table, in their order. One thread."""

    __slots__ = ("_core", "_jobs", "_view")

    def __init__(self, core: Core, view: View) -> None:
        """Begin without a job; `view` is what the transaction reads."""
        self._core, self._view = core, view
        self._jobs: list[tuple[StageTask, _Part]] = []

    @property
    def parts(self) -> list[_Part]:
        """The parts to commit: one first base or batch, else runs, later over earlier ones."""
        return [part for _, part in self._jobs]

    def add(
        self,
        table: TableDefinition,
        stage: StageTask,
        staged: Sequence[Staged],
        living: KeyedReader | None,
    ) -> int:
        """Add the staged pieces of a job; return their number of rows, with each key once.

        Args:
            table: The table in the transaction's catalog.
            stage: The job.
            staged: Its pieces; for equal order values the later piece wins.
            living: The table as the transaction reads it; None: no rows, or other jobs.

        Raises:
            DuplicateKeyError: Equal keys without an order, or an insert of an existing key.
            RequestError: The job was discarded or vacuumed, or a piece belongs to another job.
        """
        named = _named_ids(stage, staged)
        if self._jobs and (stage.op == "insert" or named is not None):
            raise RequestError(f"{stage!r} must be attached before other jobs of its table")
        core = self._core
        few = None if self._jobs else _few(table, stage, staged)
        if few is not None:
            stage.joined(core.files, core.root, ())
            return self._add_few(table, stage, few, living, named)
        staged = stage.filed(core.tables.writer, staged)
        files = stage.joined(core.files, core.root, staged)
        if not files.rows:
            return 0
        rows = _each_key_once(core, catalogs.name_of(table), stage, files)
        if stage.op == "insert" and living is not None:
            refuse_living(core.tables.reader, rows, living)
        if named is not None and living is not None:
            rows = _laid_over(core, stage, rows, living, named)
        # A first base is alone: merges take what is above its seq, and a run of history is not. So
        # is a batch: in one commit no run is above it, or below.
        self._jobs = [(job, self._run_of(table, job, part)) for job, part in self._jobs]
        part = self._part(table, stage, rows, is_alone=living is not None)
        self._jobs.append((stage, part))
        return part.rows

    def _add_few(
        self,
        table: TableDefinition,
        stage: StageTask,
        batch: pa.RecordBatch,
        living: KeyedReader | None,
        named: frozenset[int] | None,
    ) -> int:
        if not batch.num_rows:
            return 0
        name, table_schema = catalogs.name_of(table), table_schema_of(stage.schema)
        rows = _few_once(name, stage, batch)
        if stage.op == "insert" and living is not None:
            keys = rows.select(list(table_schema.codec.names))
            found = living.first_existing(chunk_of_batch(keys, table_schema))
            if found is not None:
                raise DuplicateKeyError(name, table_schema.codec.to_user(found))
        if named is not None and living is not None:
            rows = _over(rows, table_schema, living, named)
        incarnation, op = catalogs.incarnation_of(table).id, _op_of(stage)
        self._jobs.append((stage, batch_part(table.id, incarnation, table_schema, rows, op)))
        return rows.num_rows

    def _part(
        self, table: TableDefinition, stage: StageTask, rows: BulkRows, *, is_alone: bool
    ) -> AdvancePart | AttachPart:
        incarnation = catalogs.incarnation_of(table)
        is_first = stage.target == BASE and is_alone
        if is_first and _may_load(self._view, table, incarnation, stage):
            return load_part(self._core, table, incarnation.id, rows)
        return self._attached(table, stage, rows)

    def _attached(self, table: TableDefinition, stage: StageTask, rows: BulkRows) -> AttachPart:
        if stage.target == BASE:
            rows = restaged(self._core, rows, stage.marks)
        incarnation = catalogs.incarnation_of(table).id
        return attach_part(self._core, table, incarnation, rows, _op_of(stage))

    def _run_of(self, table: TableDefinition, stage: StageTask, part: _Part) -> AttachPart:
        if isinstance(part, AttachPart):
            return part
        if isinstance(part, BatchPart):
            piece = stage.run_through(self._core.tables.writer, [part.batch])
            rows = _each_key_once(self._core, catalogs.name_of(table), stage, piece.files)
            return self._attached(table, stage, rows)
        table_schema, pin = table_schema_of(stage.schema), part.entry.pin
        base = BulkRows(catalogs.name_of(table), table_schema, pin, table_schema.codec.names)
        rows = restaged(self._core, base, stage.marks)
        return attach_part(self._core, table, part.incarnation, rows)


_Part = AdvancePart | AttachPart | BatchPart


def _op_of(stage: StageTask) -> int:
    return group.DELETE if stage.op == "delete" else group.UPSERT


def refuse_later_columns(table: TableDefinition, stage: StageTask) -> None:
    """Refuse whole rows of a job whose table has got columns since it began.

    Raises:
        SchemaMismatchError: It has, and nothing says what becomes of their values.
    """
    refuse_other_values(table, stage)
    if stage.missing != "refuse":
        return
    known = {column.id for column in stage.schema.columns}
    later = [c.name for c in catalogs.schema_of(table).columns if c.id not in known]
    if later:
        raise lacks(later)


def refuse_other_values(table: TableDefinition, stage: StageTask) -> None:
    """Refuse rows of a job whose files would be those of a plain table, with nulls in them.

    Raises:
        SchemaMismatchError: It has got a column with a default, another type or 'not null' since.
    """
    newest = table_schema_of(catalogs.schema_of(table))
    if stage.target == PLAIN and has_other_values(table_schema_of(stage.schema), newest):
        raise SchemaMismatchError(
            f"{catalogs.name_of(table)!r} has got a column with a default, another type or 'not"
            " null' since the rows were staged; stage them again"
        )


def _named_ids(stage: StageTask, staged: Sequence[Staged]) -> frozenset[int] | None:
    """Return the ids of the columns that the rows of a job name; None: no other is kept.

    Raises:
        SchemaMismatchError: Its pieces name different columns.
    """
    if stage.missing != "keep":
        return None
    found = {frozenset(piece.named) for piece in staged if piece.named is not None}
    if len(found) > 1:
        one, other, *_ = map(sorted, found)
        raise SchemaMismatchError(
            f'pieces of {stage!r} name the columns {one} and {other}; with missing="keep" all'
            " rows of a job name the same"
        )
    ids = table_schema_of(stage.schema).ids
    return frozenset(ids[name] for names in found for name in names)


def _over(
    batch: pa.RecordBatch, written: TableSchema, living: KeyedReader, named: frozenset[int]
) -> pa.RecordBatch:
    """Return rows of a job as whole rows: with the values that they do not name from `living`."""
    newest = living.table_schema
    arrays = newest.align(batch, written, newest.arrow.names)
    whole = pa.RecordBatch.from_arrays(arrays, names=newest.arrow.names)
    keys = newest.codec.keys(whole)
    by_name = {column.name: column.id in named for column in newest.schema.columns}
    return PartialRows(newest, keys, whole, by_name).over(living.many(keys), creates=True)


def _laid_over(
    core: Core, stage: StageTask, rows: BulkRows, living: KeyedReader, named: frozenset[int]
) -> BulkRows:
    """Write the rows of a job again as whole rows, in a folder of their own."""
    written = rows.table_schema
    stored = [history_name(column.id) for column in written.schema.columns]

    def merged() -> Iterator[pa.RecordBatch]:
        for batch in rows.opened(core.tables.reader).scan(stored):
            given = pa.RecordBatch.from_arrays(batch.columns, names=written.arrow.names)
            yield _over(given, written, living, named)

    folder = f"{stage.home}/.attached/{core.site.new_token()}"
    return _as_run(core, rows.table, living.table_schema, folder, merged())


def _few(
    table: TableDefinition, stage: StageTask, staged: Sequence[Staged]
) -> pa.RecordBatch | None:
    """Return the rows of a job that may go into the log: all in hand, and of today's columns."""
    if catalogs.schema_of(table) != stage.schema:
        return None
    batch = stage.in_hand(staged)
    return None if batch is None or batch.nbytes > INLINE_BYTES_MAX else batch


def _few_once(name: str, stage: StageTask, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a job in hand, each key once: as `unique`, which has them in files."""
    if stage.order_by is not None:
        values = batch.column(stage.order_by)
        batch = batch.take(pa.array(ascending(values), pa.uint64()))
    found = many(batch, table_schema_of(stage.schema), name, may_repeat=stage.may_repeat).batch
    assert found is not None
    return found


def _each_key_once(core: Core, name: str, stage: StageTask, files: StagedFiles) -> BulkRows:
    """Return the rows of a job in one pin, each key once."""
    table_schema, is_by_id = table_schema_of(stage.schema), stage.target == ATTACHED
    pin = core.tables.writer.commit(stage.pin, files)
    names = (table_schema.history_codec if is_by_id else table_schema.codec).names
    rows = BulkRows(name, table_schema, pin, names, files.keys)
    order = stage.order_by
    if order is not None and is_by_id:
        order = history_name(table_schema.ids[order])
    return unique(core.tables, rows, may_repeat=stage.may_repeat, order=order)


def _may_load(
    view: View, table: TableDefinition, incarnation: Incarnation, stage: StageTask
) -> bool:
    levels = view.levels.get(incarnation.id)
    return (
        levels is not None
        and incarnation.id == stage.incarnation
        and is_empty(levels)
        and not incarnation.versions
        and catalogs.schema_of(table).id == stage.schema.id
    )


def restaged(core: Core, rows: BulkRows, folder: str) -> BulkRows:
    """Write rows that were staged as a base again as a run, because the table got others meanwhile.

    The dataset is in `folder`.
    """
    batches = rows.opened(core.tables.reader).scan(rows.table_schema.arrow.names)
    return _as_run(core, rows.table, rows.table_schema, folder, batches)


def _as_run(
    core: Core,
    table: str,
    table_schema: TableSchema,
    folder: str,
    batches: Iterable[pa.RecordBatch],
) -> BulkRows:
    """Write rows as a run, whose dataset is in `folder`."""
    fields, writer = stored_fields(table_schema, ATTACHED, "upsert"), core.tables.writer
    stored = (pa.RecordBatch.from_arrays(batch.columns, schema=fields) for batch in batches)
    pin = writer.append(writer.create(folder, fields), stored)
    found = BulkRows(table, table_schema, pin, table_schema.history_codec.names)
    return found.covered(core.tables) if pin.rows >= COVERED_ROWS_MIN else found
