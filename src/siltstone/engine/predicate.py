"""Predicate: a SQL boolean filter, parsed once, that answers the same in every level of a read.

    text ──parse──▶ expression   Arrow: decides, for memtables, runs and base alike
                 └▶ prefilter    DataFusion SQL for Lance: keeps all that matches, and maybe more

A row matches if the filter is true; null is not true. What is supported: comparisons, AND, OR,
NOT, IN, BETWEEN, IS [NOT] NULL / TRUE / FALSE, [NOT] LIKE and ILIKE with ESCAPE, + - * / %, CAST
and ::, DATE, TIMESTAMP and TIME literals, X'...', fields of structs (`a.b`), lower, upper, length,
abs, coalesce and starts_with. There are no subqueries and no aggregates.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import substrait

from siltstone.engine import filter_push
from siltstone.errors import RequestError

CACHED_PREDICATES_MAX = 256
# Lance takes 1.5 s to plan a chain of 16 from Substrait, and twice as long for one more (measured).
_CHAINED_MAX = 8

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
    push: filter_push.Push | None

    @classmethod
    def parse(cls, text: str, schema: pa.Schema) -> Predicate:
        """Return the predicate of a SQL boolean expression; parsed ones are kept.

        Raises:
            RequestError: It does not parse, is not supported, names an unknown column, or its
                types do not fit.
        """
        return _parse(text, schema)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return for each row whether it matches; there are no nulls in the answer.

        Raises:
            RequestError: A row's value makes arithmetic overflow or a cast fail.
        """
        if not self.columns:  # a constant: a table without columns would lose its number of rows
            (answer,) = _evaluate(self.expression, _ONE_ROW, self.text).to_pylist()
            return pa.repeat(pa.scalar(answer is True), rows.num_rows)
        picked = rows.select(sorted(self.columns))
        if isinstance(picked, pa.RecordBatch):
            picked = pa.Table.from_batches([picked])
        found = _evaluate(self.expression, picked, self.text).fill_null(pa.scalar(False))
        one = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        return cast("pa.BooleanArray", one)

    def filter(self, rows: Rows) -> Rows:
        """Return the rows that match, in their order."""
        return rows.filter(self.mask(rows))

    def matches(self, row: Mapping[str, object]) -> bool:
        """Say whether one row of Python values matches; a column that is missing is null."""
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
        return filter_push.render(self.push, names)

    def parts(self) -> tuple[Predicate, ...]:
        """Return the predicates between the outermost ANDs; itself, if there is none."""
        if "and" not in self.text.lower():  # to parse takes longer than an index does
            return (self,)
        return _parts(self.text, self.schema)


_ONE_ROW = pa.table({"_": pa.nulls(1)})


@functools.lru_cache(maxsize=CACHED_PREDICATES_MAX)
def _parse(text: str, schema: pa.Schema) -> Predicate:
    # Late: sqlglot takes 0.3 s to import, and a process that filters nothing should not wait.
    from siltstone.engine import filter_compile  # noqa: PLC0415

    compiled = filter_compile.compile_filter(text, schema)
    # Arrow binds the kernels to the types here, once, and not on the first row.
    _evaluate(compiled.expression, schema.empty_table(), text)
    return Predicate(text, compiled.columns, compiled.expression, schema, compiled.push)


@functools.lru_cache(maxsize=CACHED_PREDICATES_MAX)
def _parts(text: str, schema: pa.Schema) -> tuple[Predicate, ...]:
    from siltstone.engine import filter_compile  # noqa: PLC0415 - as in `_parse`

    return tuple(
        Predicate(text, one.columns, one.expression, schema, one.push)
        for one in filter_compile.compile_parts(text, schema)
    )


def _evaluate(expression: pc.Expression, rows: pa.Table, text: str) -> pa.ChunkedArray[Any]:
    """Project one expression; five times as fast as `Table.filter`, and it keeps the nulls."""
    from pyarrow import acero  # noqa: PLC0415 (late: it imports pandas, 1 s)

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["answer"]))
    try:
        plan = acero.Declaration.from_sequence([source, project])
        return plan.to_table(use_threads=False).column(0)
    except pa.ArrowException as error:
        raise RequestError(f"the filter {text[:200]!r} cannot be evaluated: {error}") from error


def pushable(expression: pc.Expression, schema: pa.Schema) -> pc.Expression | None:
    """Return a foreign Arrow expression if it provably reads no float or nested column, else None.

    Lance may evaluate it then before us. It gets it as Substrait, which cannot say all of Arrow,
    and with the types of all columns.
    """
    if not filter_push.is_readable_as_substrait(schema):
        return None
    text = str(expression)
    if text.count(" or ") + text.count(" and ") > _CHAINED_MAX:
        return None
    if any(
        not filter_push.is_pushable(field.type) and mentions(text, field.name) for field in schema
    ):
        return None
    try:
        substrait.serialize_expressions([expression], ["filter"], schema)
    except pa.ArrowException:
        return None
    return expression


def mentions(text: str, name: str) -> bool:
    """Say whether `text`, an Arrow expression as it prints itself, may read the column `name`.

    An expression does not tell its columns. A name inside a string constant counts for nothing
    worse than a column too many; a column by its number ("FieldPath") may be any.
    """
    if not name or "FieldPath" in text:
        return True
    before = r"(?<!\w)" if re.match(r"\w", name) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", name) else ""
    return re.search(before + re.escape(name) + after, text) is not None
