"""Statement: one query that DuckDB runs within bounds, and its rows as they are read.

    made ──rows──▶ read, a batch at a time ──the last batch, close, or dropped──▶ closed

DuckDB runs in memory, for this one statement. It has no access to files, the network or Python
variables. What does not fit in its memory goes to its own directory that only this user may
read, and that ends with the statement. DuckDB does not stop by itself: another thread looks at the
deadline of the thread that reads now, and at what the statement reads.

DuckDB's bound does not count the values of the rows that it is just computing, at most 2,048 at a
time: one `repeat('x', 1e9)` takes its gigabyte, and is refused once it is there.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from siltstone.engine.filter.nan_order import ranked
from siltstone.errors import (
    LimitError,
    RequestError,
    SiltstoneError,
    TableNotFoundError,
)
from siltstone.formats.types import layouts
from siltstone.options import SqlBounds
from siltstone.process import deadline, extras, threads
from siltstone.query.sql import duckdb_versions, half_floats, shielded
from siltstone.query.sql.dataset import Columns, Filter, Scannable, SnapshotDataset
from siltstone.query.sql.pages import KeyOrdered
from siltstone.query.sql.shielded import quoted

if TYPE_CHECKING:
    import duckdb

LOOK_S = 0.1
"""How often the other thread checks."""
BATCH_ROWS = 8_192
VALUE_BYTES_MAX = 256 << 20
"""Of one value of a result: as much as a commit may hold, so every stored value can be read."""
HUGEINT_KEY = b"siltstone.hugeint"
"""In the metadata of a field: a sum of whole numbers, whose type Arrow has not."""
_MISSING = re.compile(r"Table with name (.+?) does not exist!")
_FILE = re.compile(r'Cannot access \w+ "(.*?)" - file system operations are disabled')
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",  # else each look for one names the home directory
}


@dataclass
class _Watched:
    """A table whose errors are kept: DuckDB would turn them into its own text.

    DuckDB reads it in its own threads, which have no deadline: `end` gives that of the reader.
    """

    source: Scannable
    end: Callable[[], deadline.Deadline | None]
    failures: list[Exception] = field(default_factory=list[Exception])

    @property
    def schema(self) -> pa.Schema:
        return half_floats.widened_schema(self.source.schema)

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        try:
            # DuckDB does not evaluate it again.
            wanted = ranked(filter, self.schema) if isinstance(filter, pc.Expression) else filter
            with deadline.within(self.end()):
                reader = self.source.scan(columns, wanted, limit)
        except Exception as error:
            self.failures.append(error)
            raise
        schema = half_floats.widened_schema(reader.schema)
        return pa.RecordBatchReader.from_batches(schema, self._pull(reader, schema))

    def _pull(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._next(reader)) is not None:
                yield half_floats.widened_batch(batch, schema)
        except Exception as error:
            self.failures.append(error)
            raise
        finally:
            reader.close()

    def _next(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        with deadline.within(self.end()):
            return next(iter(reader), None)


class _WatchedDataset(SnapshotDataset):
    """What DuckDB scans. It hears before it has rows that a filter is not as it was written."""

    def __init__(self, source: _Watched) -> None:
        super().__init__(source)
        self.has_cut_filter = False
        self.is_page = isinstance(source.source, KeyOrdered)

    def scanner(
        self,
        columns: Columns = None,
        filter: Filter = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> ds.Scanner:
        if shielded.is_cut(filter, self.schema):
            self.has_cut_filter = True
            raise RequestError("a filter of the statement was not pushed as it was written")
        if self.is_page and isinstance(columns, list) and columns:
            return cast("ds.Scanner", _Pulled(self.reader(columns, filter, batch_size)))
        return super().scanner(columns, filter, batch_size, **options)


class _Pulled:
    """A scanner that reads no batch before DuckDB asks for it, and none after its last.

    Arrow's own reads ahead, and reads all that is left when DuckDB closes it.
    """

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader, self.projected_schema = reader, reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


class _Watch:
    """The other thread: it interrupts a statement that must stop. `end` is set by the reader."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, check: Callable[[], object]) -> None:
        self.end: deadline.Deadline | None = None
        self.reason: SiltstoneError | None = None
        self._connection, self._check = connection, check
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="siltstone-sql", daemon=True)
        threads.start(self._thread)

    def _look(self) -> None:
        while not self._is_done.wait(LOOK_S):
            end = self.end
            try:
                self._check()
                if end is not None:
                    end.check()
            except SiltstoneError as reason:
                self.reason = self.reason or reason
                self._connection.interrupt()  # and again: between two steps it is not heard

    def stop(self) -> None:
        self._is_done.set()
        if threading.current_thread() is not self._thread:  # where Python collects a lost reader
            self._thread.join()


class Statement:
    """See the module. One thread at a time."""

    def __init__(
        self, bounds: SqlBounds, check: Callable[[], object], names: Sequence[str]
    ) -> None:
        """Open a DuckDB for one statement.

        Args:
            bounds: What it may use.
            check: Raises if the statement must stop; another thread calls it now and then.
            names: Of all tables that there are, to tell what a mistyped one may mean.

        Raises:
            UnavailableError: DuckDB is not installed, or the system gives no thread.
        """
        duckdb = extras.imported("duckdb", "sql()", "DuckDB", "sql")  # half a second
        self._bounds, self._names, self._folder = bounds, names, _folder(bounds)
        self._tables: list[_Watched] = []
        self._datasets: dict[str, _WatchedDataset] = {}
        self._close_all: list[Callable[[], object]] = [self._remove_folder]
        try:
            self.connection = duckdb.connect(":memory:", config=_config(bounds, self._folder))
            self._close_all.append(self.connection.close)
            if self._folder:  # here: DuckDB 1.5 forgets the bound of the configuration
                size = bounds.temp_bytes_max
                self.connection.execute(f"SET max_temp_directory_size = '{size}B'")
            self.connection.execute("SET enable_external_access = false")
            self._watch = _Watch(self.connection, check)
            self._close_all.append(self._watch.stop)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it. Again: nothing."""
        self._tables.clear()
        self._datasets.clear()
        while self._close_all:
            self._close_all.pop()()

    def at_end(self, call: Callable[[], object]) -> None:
        """Have `call` called once the statement is closed."""
        self._close_all.insert(0, call)

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    # tables

    def register(self, name: str, source: Scannable) -> None:
        """Let the statement read a table under its name."""
        watched = _Watched(source, lambda: self._watch.end)
        self._tables.append(watched)
        self._datasets[name] = dataset = _WatchedDataset(watched)
        if halves := half_floats.columns(source.schema):
            self._register_shielded(name, dataset, halves)
        else:
            self.connection.register(name, dataset)
        namespace, dot, last = name.rpartition(".")
        if dot and namespace and last and "." not in namespace:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(namespace)}")
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

    def _shield(self) -> None:
        """Have DuckDB evaluate all filters itself that it may not be able to push."""
        for name, dataset in self._datasets.items():
            dataset.has_cut_filter = False
            if columns := shielded.columns(dataset.schema):
                self.connection.execute(f"DROP VIEW {quoted(name)}")
                self._register_shielded(name, dataset, columns)

    # rows

    def rows(self, sql: str, parameters: Any) -> pa.RecordBatchReader:
        """Run the query; the statement is closed when its rows are read, or dropped."""
        self.connection.execute("SET lock_configuration = true")
        kinds, reader = self._begun(sql, parameters)
        schema = reader.schema
        for place, kind in enumerate(kinds):
            if kind == "HUGEINT":
                marked = schema.field(place).with_metadata({HUGEINT_KEY: b""})
                schema = schema.set(place, marked)
        # An ENUM is a dictionary, which no table takes and no stream of ours carries.
        schema = layouts.plain_schema(schema)
        batches = self._batches(reader, schema)
        next(batches)  # it ends what it began: dropped before that, it would close nothing
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _begun(self, sql: str, parameters: Any) -> tuple[list[str], pa.RecordBatchReader]:
        """Run the query up to its first rows, again if a filter cannot be pushed."""
        try:
            return duckdb_versions.begun(self.connection, sql, parameters, BATCH_ROWS)
        except Exception as error:
            is_cut = any(dataset.has_cut_filter for dataset in self._datasets.values())
            if self._watch.reason is not None or not (is_cut or shielded.is_met(error)):
                raise
        self._shield()
        return duckdb_versions.begun(self.connection, sql, parameters, BATCH_ROWS)

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

    def _told(self, error: Exception) -> Exception | None:
        """Return the error to raise instead; None: this one."""
        import duckdb  # noqa: PLC0415 (it is there)

        if self._watch.reason is not None:
            return self._watch.reason
        if not isinstance(error, duckdb.Error | pa.ArrowException | OSError | MemoryError):
            return None
        for table in self._tables:
            for failure in table.failures:
                return failure
        is_memory = isinstance(error, duckdb.OutOfMemoryException | MemoryError)
        if not is_memory and "Out of Memory Error" not in str(error):
            return self._refused(str(error))
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


def _folder(bounds: SqlBounds) -> str:
    """Return a new directory for what does not fit in memory; "" without one."""
    if not bounds.temp_bytes_max:
        return ""
    try:
        return tempfile.mkdtemp(prefix="siltstone-sql-")  # mode 0700: it will hold rows
    except OSError:  # no disk to write to: then there is the memory
        return ""


def _config(bounds: SqlBounds, folder: str) -> dict[str, str | bool | int | float | list[str]]:
    return {
        **_SETTINGS,
        **duckdb_versions.settings(),
        "memory_limit": f"{bounds.memory_bytes_max}B",
        "temp_directory": folder,
        "threads": bounds.threads_max,
    }


def _largest(column: pa.Array) -> int:
    """Return the bytes of the largest value of a column of texts; of another one the average."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.max(pc.binary_length(cast("Any", column))).as_py() or 0
    return column.nbytes // max(len(column), 1)
