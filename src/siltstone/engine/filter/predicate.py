"""Predicate: a SQL boolean filter, parsed once, with the same result in every level of a read.

    text ──parse──▶ expression   Arrow: decides, for memtables, runs and base alike
                 └▶ prefilter    DataFusion SQL for Lance: keeps all matching rows, and maybe more

A row matches if the filter is true; null is not true. What is supported: comparisons, AND, OR,
NOT, IN, BETWEEN, IS [NOT] NULL / TRUE / FALSE, [NOT] LIKE and ILIKE with ESCAPE, + - * / %, CAST
and ::, DATE, TIMESTAMP and TIME literals, X'...', fields of structs (`a.b`), lower, upper, length,
abs, coalesce and starts_with. There are no subqueries and no aggregates.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter import pushed
from siltstone.errors import RequestError

CACHED_PREDICATES_MAX = 256
_SHOWN_CHARACTERS = 200

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """A filter over the user's column names; immutable, picklable, free to share.

    `columns` are the top-level columns it reads.
    """

    text: str
    columns: frozenset[str]
    expression: pc.Expression
    schema: pa.Schema
    push: pushed.Push | None

    @classmethod
    def parse(cls, text: str, schema: pa.Schema) -> Predicate:
        """Return the predicate of a SQL boolean expression; parsed ones are kept.

        Raises:
            RequestError: It does not parse, is not supported, names an unknown column, or its
                types do not fit.
        """
        return _parse(text, schema)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return for each row whether it matches, without nulls.

        Raises:
            RequestError: Arithmetic overflows or a cast fails for the value of a row.
        """
        return mask(self.expression, sorted(self.columns), rows, self.text)

    def filter(self, rows: Rows) -> Rows:
        """Return the rows that match, in their order."""
        return rows.filter(self.mask(rows))

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether one row of Python values matches; a missing column is null."""
        names = sorted(self.columns)
        fields = [self.schema.field(name) for name in names]
        try:
            arrays = [pa.array([row.get(field.name)], field.type) for field in fields]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"a value of the row does not fit its column: {error}") from error
        if not arrays:
            return bool(self.mask(_ONE_ROW)[0].as_py())
        return bool(self.mask(pa.RecordBatch.from_arrays(arrays, names=names))[0].as_py())

    def prefilter(self, names: Mapping[str, str]) -> str | None:
        """Return a filter for Lance that keeps every row that matches, and maybe more.

        Args:
            names: Physical names by the user's names. Columns that are absent are not pushed.
        """
        return pushed.render(self.push, names)

    def parts(self) -> tuple[Predicate, ...]:
        """Return the operands of the outermost ANDs; itself, if there is no AND."""
        if "and" not in self.text.lower():  # to parse takes longer than an index does
            return (self,)
        return _parts(self.text, self.schema)


_ONE_ROW = pa.table({"_": pa.nulls(1)})


@functools.lru_cache(maxsize=CACHED_PREDICATES_MAX)
def _parse(text: str, schema: pa.Schema) -> Predicate:
    # Late: sqlglot takes 0.3 s to import, and a process that filters nothing should not wait.
    from siltstone.engine.filter import compiler  # noqa: PLC0415

    compiled = compiler.compile_filter(text, schema)
    # Arrow binds the kernels to the types here, once, and not on the first row.
    _evaluate(compiled.expression, schema.empty_table(), text)
    return Predicate(text, compiled.columns, compiled.expression, schema, compiled.push)


@functools.lru_cache(maxsize=CACHED_PREDICATES_MAX)
def _parts(text: str, schema: pa.Schema) -> tuple[Predicate, ...]:
    from siltstone.engine.filter import compiler  # noqa: PLC0415 - as in `_parse`

    return tuple(
        Predicate(text, one.columns, one.expression, schema, one.push)
        for one in compiler.compile_parts(text, schema)
    )


def mask(
    expression: pc.Expression,
    names: Sequence[str],
    rows: pa.RecordBatch | pa.Table,
    text: object,
) -> pa.BooleanArray:
    """Return for each row whether `expression` is true, without nulls.

    Args:
        expression: Over the columns `names`; if it counts columns, it counts these.
        names: Top-level columns of `rows`.
        rows: The rows, with more columns or not.
        text: The name of the filter in errors.

    Raises:
        RequestError: It cannot be evaluated, or not of some row's value.
    """
    if not names:  # a constant: a table without columns would lose its number of rows
        (answer,) = _evaluate(expression, _ONE_ROW, text).to_pylist()
        return pa.repeat(pa.scalar(answer is True), rows.num_rows)
    picked = rows.select(list(names))
    if isinstance(picked, pa.RecordBatch):
        picked = pa.Table.from_batches([picked])
    found = _evaluate(expression, picked, text).fill_null(pa.scalar(False))
    one = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
    return cast("pa.BooleanArray", one)


def _evaluate(expression: pc.Expression, rows: pa.Table, text: object) -> pa.ChunkedArray[Any]:
    """Project one expression; five times as fast as `Table.filter`, and it keeps the nulls."""
    from pyarrow import acero  # noqa: PLC0415 (late: it imports pandas, 1 s)

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["answer"]))
    try:
        plan = acero.Declaration.from_sequence([source, project])
        found = plan.to_table(use_threads=False).column(0)
    except pa.ArrowException as error:
        shown = str(text)[:_SHOWN_CHARACTERS]
        raise RequestError(f"the filter {shown!r} cannot be evaluated: {error}") from error
    if not pa.types.is_boolean(found.type):
        shown = str(text)[:_SHOWN_CHARACTERS]
        raise RequestError(f"the filter {shown!r} is {found.type}, where a boolean is needed")
    return found


def check(expression: pc.Expression, schema: pa.Schema) -> None:
    """Bind an Arrow expression to the types of a schema.

    Raises:
        RequestError: It does not fit them.
    """
    _evaluate(expression, schema.empty_table(), expression)
