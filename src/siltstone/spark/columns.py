"""Columns: a table of a snapshot as a frame of which a query reads the columns that it uses.

    range(rows x step) ──filter: every step-th──▶ numbers of rows
                       ──a function for each column: its values in these rows──▶ the frame

Spark leaves out the functions of columns that a query does not use, as it leaves out any other
expression. A count uses none, and counts the numbers. Rows have numbers in the order of the tasks
of the plan, so the range may be cut anywhere.

Spark takes such a frame for as large as its range, whatever columns are used and whatever a filter
leaves: the step makes that about half of what all columns take (see `frames`).

The functions of one step are called in turn, in one process, with the same numbers. The first one
that is called reads the columns of all of them (see `RowsInTurn`).

They are declared not to be deterministic, though they are: Spark calls a deterministic function
once for a filter and again for the result, and each time its rows are read.
"""

from __future__ import annotations

import pickle
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from siltstone.errors import InvariantError, SchemaMismatchError
from siltstone.spark.defaults import never_null
from siltstone.spark.frames import Packed, tell_and_check
from siltstone.spark.short_decimals import as_decimals, as_integers, is_short
from siltstone.spark.task_rows import Told, rows_of
from siltstone.spark.workers import Sealed, one_sentence, sealed

if TYPE_CHECKING:
    from siltstone.api.tasks import ScanTask

BATCH_BYTES_MAX = 1 << 30
"""What a function returns at a time, at most; Arrow's texts have no more than 2 GiB."""
STEP_MAX = 32
"""Of rows wider than 512 bytes the estimate is too low: a number costs up to 5 ns (ADR 62)."""
_STEP_BYTES = 16
_NUMBER = "id"


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """A planned read whose rows have numbers, from 0; pickles.

    Args:
        token: What no other plan is called.
        schema: All columns in Spark.
        told: The read to record.
        open_mark: A path on the driver's machine, there as long as the snapshot is open.
        partitions: In how many parts the range of numbers is cut.
        step: How far the numbers of neighbouring rows are apart.
        ends: For each scan task the number after that of its last row.
        tasks: The scan tasks, each pickled; perhaps a broadcast of that.
    """

    token: str
    schema: StructType
    told: Told
    open_mark: str | None
    partitions: int
    step: int
    ends: tuple[int, ...]
    tasks: Packed | Broadcast[Packed]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.ends[-1] if self.ends else 0

    @property
    def numbers(self) -> int:
        """The end of the range."""
        return self.rows * self.step

    def read(self, first: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows but the `first` ones, in the order of their numbers.

        Raises:
            ClosedError: The snapshot is closed.
            SnapshotExpiredError, UnavailableError, SchemaMismatchError: See `rows_of`.
        """
        tell_and_check(self.told, self.open_mark)
        schema = StructType([self.schema[name] for name in columns])
        while first < self.rows:
            end = self._end_of_partition(first)
            for task in self._between(first, end):
                yield from _exactly(task.rows, rows_of(task.only(columns), schema))
            first = end

    def _end_of_partition(self, row: int) -> int:
        """Return before which row Spark cuts its range next: a scan reads ahead no further."""
        number = row * self.step
        found = number * self.partitions // self.numbers
        while (end := (found + 1) * self.numbers // self.partitions) <= number:
            found += 1
        return -(-end // self.step)

    def _between(self, first: int, end: int) -> Iterator[ScanTask]:
        packed = self.tasks.value if isinstance(self.tasks, Broadcast) else self.tasks
        index = bisect_right(self.ends, first)
        while first < end:
            task: ScanTask = pickle.loads(packed[index])  # noqa: S301 - ours
            stop, start = min(end, self.ends[index]), self.ends[index] - task.rows
            yield task.between(first - start, stop - start)
            first, index = stop, index + 1


def _exactly(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the number of rows: with one more or less, all after them had the wrong number.

    The last batch comes after the end is seen, so a reader that has all rows has no lease.
    """
    last: pa.RecordBatch | None = None
    found = 0
    for batch in batches:
        if last is not None:
            yield last
        last = batch
        found += batch.num_rows
    if found != rows:
        raise InvariantError(f"a task has {found} rows, its plan says {rows}")
    if last is not None:
        yield last


class RowsInTurn:
    """Reads rows of one plan for the functions of a step; in one thread.

    It starts again where other numbers are asked for than those that follow, and where a function
    joins after the first call.
    """

    def __init__(self, rows: NumberedRows) -> None:
        self._rows = rows
        self._columns: list[str] = []
        self._next = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        self._found: tuple[int, int, pa.RecordBatch] | None = None

    def join(self, column: str) -> None:
        """Read this column, too."""
        if column not in self._columns:
            self._columns.append(column)
            self._next, self._found = -1, None

    def values(self, column: str, numbers: pa.Array) -> pa.Array:
        """Return the values of a column in the rows with these numbers, each one above the other.

        Raises:
            InvariantError: Numbers are missing between the first and the last.
            SchemaMismatchError: The values are too large for one batch.
        """
        step = self._rows.step
        first, end = numbers[0].as_py() // step, numbers[-1].as_py() // step + 1
        if end - first != len(numbers):
            raise InvariantError(f"Spark asks for {len(numbers)} of the rows {first} to {end - 1}")
        if self._found is None or self._found[:2] != (first, end):
            self._found = first, end, self._between(first, end)
        return self._found[2].column(column)

    def _between(self, first: int, end: int) -> pa.RecordBatch:
        if first != self._next:
            self._batches, self._rest = self._rows.read(first, self._columns), None
        self._next = -1
        pieces: list[pa.RecordBatch] = []
        wanted, nbytes = end - first, 0
        while first < end:
            if self._rest is None or not self._rest.num_rows:
                self._rest = next(self._batches)
            piece = self._rest.slice(0, end - first)
            self._rest = self._rest.slice(piece.num_rows)
            first += piece.num_rows
            nbytes += piece.nbytes
            if nbytes > BATCH_BYTES_MAX:
                raise _too_many(wanted, nbytes)
            pieces.append(piece)
        self._next = end
        return pieces[0] if len(pieces) == 1 else _joined(pieces)


def _joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (found,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return found


def _too_many(rows: int, nbytes: int) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Spark asks for {rows} rows at a time, and the first of these have {nbytes} bytes, more"
        f" than {BATCH_BYTES_MAX}; name the columns by `read`, or `create_views(columns=...)`, or"
        " let Spark ask for fewer: spark.sql.execution.arrow.maxRecordsPerBatch"
    )


_readers: weakref.WeakValueDictionary[str, RowsInTurn] = weakref.WeakValueDictionary()
"""By token. Spark makes the functions of a step anew for each task, and a reader ends with them."""


class ColumnValues:
    """The function of one column."""

    def __init__(self, name: str, rows: NumberedRows, column: str) -> None:
        """Join the functions of the same plan. `name`: what Spark's pages call this one."""
        self.__name__, self._rows, self._column = name, rows, column
        self._is_short = is_short(rows.schema[column].dataType)
        reader = _readers.get(rows.token)
        self._reader = RowsInTurn(rows) if reader is None else reader
        _readers[rows.token] = self._reader
        self._reader.join(column)

    # Without hints: Spark looks for those in the module of a function, and an object is in none.
    def __call__(self, numbers):  # noqa: ANN001, ANN204 # pyright: ignore[reportMissingParameterType]
        """Return the values in the rows with these numbers; see `RowsInTurn.values`."""
        with one_sentence():
            if not len(numbers):
                return pa.nulls(0)
            values = self._reader.values(self._column, numbers)
            if values.null_count and not self._rows.schema[self._column].nullable:
                raise InvariantError(f"column {self._column!r} has nulls, its schema says none")
            return as_integers(values) if self._is_short else values

    def __reduce__(self) -> Sealed:
        """Pickle as what another version of siltstone refuses."""
        return sealed(ColumnValues, self.__name__, self._rows, self._column)


def step_of(row_bytes: int) -> int:
    """Return the step of a range, by the bytes that Spark assumes for a row with all columns."""
    return max(1, min(row_bytes // _STEP_BYTES, STEP_MAX))


def frame_by_columns(spark: SparkSession, rows: NumberedRows, name: str) -> DataFrame:
    """Return all columns of a plan as a frame; `name` is what Spark's pages call the read."""
    numbers = spark.range(0, rows.numbers, 1, rows.partitions)
    if rows.step > 1:
        numbers = numbers.where(f"{_NUMBER} % {rows.step} = 0")
    return numbers.select(*(_column(rows, field, name) for field in rows.schema))


def _column(rows: NumberedRows, field: StructField, name: str) -> Column:
    values = ColumnValues(f"{field.name} of {name}", rows, field.name)
    # Spark lets a function return a null, a column without nulls has to say so.
    function: Any = functions.arrow_udf
    kind = field.dataType
    if is_short(kind):
        integers = function(values, LongType()).asNondeterministic()(_NUMBER)
        made = as_decimals(integers, cast("DecimalType", kind))
    else:
        made = function(values, kind).asNondeterministic()(_NUMBER)
    return (made if field.nullable else never_null(made, kind)).alias(field.name)
