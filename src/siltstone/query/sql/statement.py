"""Statement: one query that DuckDB runs within bounds, and its rows as they are read.

    made ──rows──▶ read, a batch at a time ──the last batch, close, or dropped──▶ closed

DuckDB runs in memory, in an instance that is lent to this one statement (see `duckdbs.instances`).
It has no access to files, the network or Python variables. DuckDB does not stop by itself: another
thread looks at the deadline of the thread that reads now, and at what the statement reads.

DuckDB's bound does not count the values of the rows that it is just computing, at most 2,048 at a
time: one `repeat('x', 1e9)` takes its gigabyte, and is refused once it is there.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.nan_order import ranked
from siltstone.errors import LimitError, RequestError, TableNotFoundError
from siltstone.formats.types import layouts
from siltstone.options import SqlBounds
from siltstone.process import deadline
from siltstone.process.spares import Spares
from siltstone.query.sql import half_floats, shielded
from siltstone.query.sql.dataset import Columns, Filter, InMemory, Scannable, SnapshotDataset
from siltstone.query.sql.duckdbs import versions
from siltstone.query.sql.duckdbs.instances import give_back, lent
from siltstone.query.sql.duckdbs.parameters import refuse_lost
from siltstone.query.sql.duckdbs.watch import Watched
from siltstone.query.sql.shielded import quoted
from siltstone.query.sql.taken.moments import parts_of

BATCH_ROWS = 8_192
VALUE_BYTES_MAX = 256 << 20
"""Of one value of a result: as much as a commit may hold, so every stored value can be read."""
HUGEINT_KEY = b"siltstone.hugeint"
"""In the metadata of a field: a sum of whole numbers, whose type Arrow has not."""
LOST_KEY = b"siltstone.lost"
"""In the metadata of a field: its type in DuckDB, of which Arrow has other values."""
_LOST = re.compile(r"\b(?:BIT|TIME WITH TIME ZONE)\b")
_OF_A_PARENT: list[object] = []
"""What a forked child must not end: DuckDB would cut the files that its parent reads."""
_KEPT = (Exception, KeyboardInterrupt)
"""What DuckDB would turn into its own text; a handler of a signal may raise in a scan."""
_INTERRUPTED = ("Query interrupted", "KeyboardInterrupt: ")
_MISSING = re.compile(r"Table with name (.+?) does not exist!")
_FILE = re.compile(r'Cannot access \w+ "(.*?)" - file system operations are disabled')


@dataclass
class _WatchedTable:
    """A table whose errors are kept: DuckDB would turn them into its own text.

    DuckDB reads it in its own threads, which have no deadline: `end` gives that of the reader.
    """

    source: Scannable
    end: Callable[[], deadline.Deadline | None]
    failures: list[BaseException] = field(default_factory=list[BaseException])
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = half_floats.widened_schema(self.source.schema)

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        try:
            # DuckDB does not evaluate it again.
            wanted = ranked(filter, self.schema) if isinstance(filter, pc.Expression) else filter
            with deadline.within(self.end()):
                reader = self.source.scan(columns, wanted, limit)
        except _KEPT as error:
            self.failures.append(error)
            raise
        schema = half_floats.widened_schema(reader.schema)
        return pa.RecordBatchReader.from_batches(schema, self._pull(reader, schema))

    def _pull(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._next(reader)) is not None:
                yield half_floats.widened_batch(batch, schema)
        except _KEPT as error:
            self.failures.append(error)
            raise
        finally:
            reader.close()

    def _next(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        with deadline.within(self.end()):
            return next(iter(reader), None)


@dataclass(frozen=True, slots=True)
class _Scan:
    """What DuckDB needs of a scanner: it reads no batch before it is asked for.

    One of Arrow's sends rows through its threads, reads ahead, and to the end when it is closed.
    """

    rows: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        return self.rows


class _WatchedDataset(SnapshotDataset):
    """What DuckDB scans. It hears before it has rows that a filter is not as it was written."""

    def __init__(self, source: _WatchedTable) -> None:
        super().__init__(source)
        self.source = source.source
        self.has_cut_filter = False

    def scanner(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, columns: Columns = None, filter: Filter = None, **_: object
    ) -> _Scan:
        if shielded.is_cut(filter, self.schema):
            self.has_cut_filter = True
            raise RequestError("a filter of the statement was not pushed as it was written")
        return _Scan(self.reader(self._needed(columns), filter))


class Statement:
    """See the module. One thread at a time."""

    def __init__(
        self, bounds: SqlBounds, check: Callable[[], object], names: Sequence[str], spares: Spares
    ) -> None:
        """Take a DuckDB for one statement.

        Args:
            bounds: What it may use.
            check: Raises if the statement must stop; another thread calls it now and then.
            names: Of all tables that there are, to tell what a mistyped one may mean.
            spares: Keeps the DuckDBs of other statements with these bounds.

        Raises:
            UnavailableError: DuckDB is not installed, or the system gives no thread.
        """
        self._bounds, self._names = bounds, names
        self._tables: list[_WatchedTable] = []
        self._datasets: dict[str, _WatchedDataset] = {}
        self._reader: pa.RecordBatchReader | None = None
        self._instance = lent(spares, bounds)
        self._close_all: list[Callable[[], object]] = [partial(give_back, self._instance, spares)]
        try:
            self.connection = self._instance.connection()
            self._close_all.append(self.connection.close)
            self._watch = Watched(self.connection, check)
            self._close_all.append(self._watch.leave)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it. Again: nothing. In the child of a fork it is left as it is, to the parent."""
        if self._instance.is_of_another_process:
            _OF_A_PARENT.append((self, self._reader, [*self._close_all]))
            self._reader, self._close_all = None, []
            return
        self._tables.clear()
        self._datasets.clear()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()  # else its rows would still be made, by the instance of another one
        while self._close_all:
            self._close_all.pop()()

    def at_end(self, call: Callable[[], object]) -> None:
        """Have `call` called once the statement is closed."""
        self._close_all.insert(0, call)

    # tables

    def register(self, name: str, source: Scannable, *, may_filter: bool = True) -> None:
        """Let the statement read a table under its name; `may_filter`: DuckDB may have filters."""
        watched = _WatchedTable(source, lambda: self._watch.end)
        self._tables.append(watched)
        self._datasets[name] = dataset = _WatchedDataset(watched)
        if columns := _shielded_from_the_start(source, may_filter=may_filter):
            self._register_shielded(name, dataset, columns)
        else:
            self.connection.register(name, dataset)
        namespace, last = parts_of(name)
        if namespace:
            self._instance.make_schema(namespace)
            view = f"{quoted(namespace)}.{quoted(last)}"
            self.connection.execute(f"CREATE VIEW {view} AS FROM {quoted(name)}")

    def register_frame(self, name: str, rows: pa.Table) -> None:
        """Let the statement read rows in memory under a name.

        Nothing is pushed into them: there is nothing to save, and Arrow ranks NaN otherwise.
        """
        self._register_shielded(name, half_floats.widened(rows), rows.column_names)

    def _register_shielded(self, name: str, rows: object, columns: list[str]) -> None:
        hidden = f"_shielded {name}"  # no table and no variable has such a name
        self.connection.register(hidden, rows)
        self.connection.execute(shielded.view(name, hidden, columns))

    def _shield(self, *, is_every: bool) -> None:
        """Have DuckDB evaluate all filters itself that it may not be able to push, or every one."""
        for name, dataset in self._datasets.items():
            dataset.has_cut_filter = False
            schema = dataset.schema
            if columns := schema.names if is_every else shielded.columns(schema):
                self.connection.execute(f"DROP VIEW {quoted(name)}")
                also = _shielded_from_the_start(dataset.source, may_filter=True)
                self._register_shielded(name, dataset, list(dict.fromkeys([*columns, *also])))

    # rows

    def rows(
        self, sql: str, parameters: Any, *, says_what_is_lost: bool = False
    ) -> pa.RecordBatchReader:
        """Run the query; the statement is closed when its rows are read, or dropped.

        `says_what_is_lost`: fields of types that Arrow has not have these in their metadata.

        Raises:
            RequestError: DuckDB refuses it, or a column has whole numbers that Arrow has not.
        """
        kinds, reader = self._begun(sql, parameters)
        self._reader, schema = reader, reader.schema
        for place, kind in enumerate(kinds):
            if "UHUGEINT" in kind:  # of 2**127 DuckDB gives Arrow the same bits, which are negative
                raise RequestError(
                    f"column {schema.field(place).name!r} is a UHUGEINT, which Arrow has not: cast"
                    " it to DOUBLE or VARCHAR"
                )
            if kind == "HUGEINT":
                marked = schema.field(place).with_metadata({HUGEINT_KEY: b""})
                schema = schema.set(place, marked)
            elif says_what_is_lost and _LOST.search(kind):
                marked = schema.field(place).with_metadata({LOST_KEY: kind.encode()})
                schema = schema.set(place, marked)
        # An ENUM is a dictionary, which no table takes and no stream of ours carries.
        schema = layouts.plain_schema(schema)
        batches = self._batches(reader, schema)
        next(batches)  # it ends what it began: dropped before that, it would close nothing
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _begun(self, sql: str, parameters: Any) -> tuple[list[str], pa.RecordBatchReader]:
        """Run the query up to its first rows, again if a filter cannot be pushed."""
        refuse_lost(parameters)
        try:
            return self._run(sql, parameters)
        except Exception as error:
            is_cut = any(dataset.has_cut_filter for dataset in self._datasets.values())
            if self._watch.reason is not None or not (is_cut or shielded.is_met(error)):
                raise
            is_every = shielded.is_of_any_column(error)
        self.connection.execute("ROLLBACK")
        self._shield(is_every=is_every)
        return self._run(sql, parameters)

    def _run(self, sql: str, parameters: Any) -> tuple[list[str], pa.RecordBatchReader]:
        # Whatever it is: it leaves nothing in the catalog, which the next statement sees.
        self.connection.execute("BEGIN TRANSACTION READ ONLY")
        return versions.begun(self.connection, sql, parameters, BATCH_ROWS)

    def _batches(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[Any]:
        try:
            yield None  # for `rows`
            while True:
                with self.step():
                    batch = next(iter(reader), None)
                    if batch is None:
                        return
                    self._refuse_large(batch)
                yield layouts.plain_batch(batch, schema)
        finally:
            self.close()

    def _refuse_large(self, batch: pa.RecordBatch) -> None:
        """Refuse rows that DuckDB's own bound does not count (see the module)."""
        if batch.nbytes <= VALUE_BYTES_MAX:
            return
        largest, most = max(map(_largest, batch.columns)), self._bounds.memory_bytes_max
        if largest > VALUE_BYTES_MAX:
            text = f"a value of the result has {largest} bytes; at most {VALUE_BYTES_MAX} are read"
            raise LimitError(text, VALUE_BYTES_MAX)
        if batch.nbytes > most:
            raise LimitError(
                f"{batch.num_rows} rows of the result take {batch.nbytes} bytes, more than"
                f" sql_memory_bytes_max ({most}); read fewer columns, or raise it",
                most,
            )

    # steps

    @contextmanager
    def step(self) -> Generator[None]:
        """Let DuckDB work in the block, until the deadline of this thread.

        Raises:
            SiltstoneError: Why it must stop, or what a table of it raised.
            LimitError: It needs more than its bounds.
            RequestError: DuckDB refuses it.
        """
        self._watch.end = deadline.current()
        try:
            yield
        except Exception as error:
            told = self._told(error)
            if told is None:
                raise
            raise told from error
        finally:
            self._watch.end = None

    def _told(self, error: Exception) -> BaseException | None:
        """Return the error to raise instead; None: this one."""
        import duckdb  # noqa: PLC0415 (it is there)

        if self._watch.reason is not None:
            return self._watch.reason
        if str(error).startswith(_INTERRUPTED):
            return KeyboardInterrupt()
        text = _message_of(error)
        if text is None:
            return None
        for table in self._tables:
            for failure in table.failures:
                return failure
        is_memory = isinstance(error, duckdb.OutOfMemoryException | MemoryError)
        if not is_memory and "Out of Memory Error" not in text:
            return self._refused(text)
        return self._too_large()

    def _refused(self, text: str) -> RequestError:
        missing, file = _MISSING.search(text), _FILE.search(text)
        if missing is not None:
            return TableNotFoundError(missing[1], self._names)
        if file is not None:
            return RequestError(
                f"{file[1]!r} is a file, which no statement reads or writes: read it into a data"
                " frame and name that, or create a table with it (`siltstone query` on a store of"
                " this machine reads: from 'FILE')"
            )
        return RequestError(f"DuckDB refuses the statement: {text}")

    def _too_large(self) -> LimitError:
        memory, temp = self._bounds.memory_bytes_max, self._bounds.temp_bytes_max
        return LimitError(
            f"the statement needs more than sql_memory_bytes_max ({memory}) and"
            f" sql_temp_bytes_max ({temp}); read fewer rows or columns, or raise them",
            memory,
        )


def _message_of(error: Exception) -> str | None:
    """Return what DuckDB or Arrow says; None: it is an error of something else."""
    import duckdb  # noqa: PLC0415 (it is there)

    if isinstance(error, UnicodeDecodeError) and b" Error: " in error.object[:40]:
        return error.object.decode(errors="replace")  # a message of DuckDB that quotes bytes
    is_known = isinstance(error, duckdb.Error | pa.ArrowException | OSError | MemoryError)
    return str(error) if is_known else None


def _shielded_from_the_start(source: Scannable, *, may_filter: bool) -> list[str]:
    """Return the columns whose filters DuckDB evaluates: it cannot push them, or is faster.

    It is faster where rows are in memory: it filters while it reads them, in all of its threads.
    """
    found = source.found_by() if isinstance(source, InMemory) else None
    if found is None or not may_filter:
        return half_floats.columns(source.schema)
    cannot = shielded.columns(source.schema)
    return [name for name in source.schema.names if name not in found or name in cannot]


def _largest(column: pa.Array) -> int:
    """Return the bytes of the largest value of a column of texts; of another one the average."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.max(pc.binary_length(cast("Any", column))).as_py() or 0
    return column.nbytes // max(len(column), 1)
