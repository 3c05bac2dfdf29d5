"""Filters: the rows that a read keeps, parsed once, with the same result in every level of a read.

    wanted ──▶ expression   Arrow: decides, for memtables, runs and base alike
           └─▶ push         DataFusion SQL for Lance: keeps all matching rows, and maybe more

A filter is SQL text, or an Arrow expression of another engine (DuckDB, Polars and pandas push
those). A row matches if the filter is true; null is not true. Texts may have comparisons, AND, OR,
NOT, IN, BETWEEN, IS [NOT] NULL / TRUE / FALSE, [NOT] LIKE and ILIKE with ESCAPE, + - * / %, CAST
and ::, DATE, TIMESTAMP and TIME literals, X'...', fields of structs (`a.b`), lower, upper, length,
abs, coalesce and starts_with. There are no subqueries and no aggregates. An `Expression` is SQL of
the same kind, with a value of any type: the new value in an update.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.arguments import is_text
from siltstone.engine.filter import arrow, pickled, pushed
from siltstone.engine.filter.typed import Value
from siltstone.errors import RequestError

if TYPE_CHECKING:
    from siltstone.engine.filter.compiler import Compiled

CACHED_FILTERS_MAX = 256
_SHOWN_CHARACTERS = 200
_ONE_ROW = pa.table({"_": pa.nulls(1)})
_COMPARED_CHARACTERS_MAX = 1_000
_COMPARING = re.compile(r"[=<>~]|\b(?:in|is|isnull|notnull|between|i?like)\b", re.IGNORECASE)

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A filter over the user's column names; immutable, free to share, a text also picklable.

    `columns` are the top-level columns it reads, in the order of `schema`: an expression may count
    them. `pieces` are the operands of the outermost ANDs of an expression.
    """

    wanted: str | pc.Expression
    expression: pc.Expression
    columns: tuple[str, ...]
    schema: pa.Schema
    push: pushed.Push | None
    pieces: tuple[arrow.FilterPiece, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it was given as SQL."""
        return isinstance(self.wanted, str)

    @property
    def counts_columns(self) -> bool:
        """Whether it may name a column by its number."""
        return not self.is_text and arrow.counts_columns(self.expression)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return for each row whether it matches, without nulls.

        Raises:
            RequestError: Arithmetic overflows or a cast fails for the value of a row.
        """
        if not self.columns:  # a constant: a table without columns would lose its number of rows
            (answer,) = self._answers(_ONE_ROW).to_pylist()
            return pa.repeat(pa.scalar(answer is True), rows.num_rows)
        picked = rows.select(list(self.columns))
        if isinstance(picked, pa.RecordBatch):
            picked = pa.Table.from_batches([picked])
        found = self._answers(picked).fill_null(pa.scalar(False))
        one = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        return cast("pa.BooleanArray", one)

    def keep(self, rows: Rows) -> Rows:
        """Return the rows that match, in their order."""
        return rows.filter(self.mask(rows))

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether one row of Python values matches; a missing column is null."""
        fields = [self.schema.field(name) for name in self.columns]
        try:
            arrays = [pa.array([row.get(field.name)], field.type) for field in fields]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"a value of the row does not fit its column: {error}") from error
        one = pa.table(arrays, list(self.columns)) if arrays else _ONE_ROW
        return bool(self.mask(one)[0].as_py())

    def prefilter(self, names: Mapping[str, str]) -> str | None:
        """Return a filter for Lance that keeps every row that matches, and maybe more; None: all.

        Args:
            names: Physical names by the user's names. Columns that are absent are not pushed.
        """
        return pushed.render(self.push, names)

    def parts(self) -> Sequence[Filter]:
        """Return the operands of the outermost ANDs; itself, if there is no AND."""
        if isinstance(self.wanted, str) and "and" in self.wanted.lower():
            return _parts(self.wanted, self.schema)  # to parse takes longer than an index does
        return [_of_piece(piece, self.schema) for piece in self.pieces] or [self]

    def check(self) -> Filter:
        """Bind the filter to the types of its schema: now, and not on the first row.

        Raises:
            RequestError: It does not fit them.
        """
        self._answers(self.schema.empty_table())
        return self

    def _answers(self, rows: pa.Table) -> pa.ChunkedArray[Any]:
        try:
            found = projected(self.expression, rows)
        except pa.ArrowException as error:
            raise RequestError(f"the filter {self._shown} cannot be evaluated: {error}") from error
        if not pa.types.is_boolean(found.type):
            raise RequestError(
                f"the filter {self._shown} is {found.type}, where a boolean is needed"
            )
        return found

    @property
    def _shown(self) -> str:
        return repr(str(self.wanted)[:_SHOWN_CHARACTERS])


def filter_of(wanted: str | pc.Expression | None, schema: pa.Schema) -> Filter | None:
    """Return the filter for a caller's text or expression; None keeps all rows.

    Raises:
        RequestError: It does not parse, is not supported, names an unknown column, or does not fit
            the columns' types. The message does not depend on the level of the rows.
    """
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return parse(wanted, schema)
    if isinstance(wanted, pc.Expression):
        pickled.refuse_deep(wanted)
        Filter(wanted, wanted, tuple(schema.names), schema, None).check()
        return _of_piece(arrow.read(wanted, schema), schema)
    raise RequestError(f"a filter must be a SQL text or an Arrow expression; got {wanted!r}")


def both(one: Filter | None, other: Filter | None) -> Filter | None:
    """Return the filter of the rows that both keep, of one schema; None keeps all."""
    if one is None or other is None:
        return other if one is None else one
    columns = _in_order([*one.columns, *other.columns], one.schema)
    expression = one.expression & other.expression
    return Filter(expression, expression, columns, one.schema, pushed.All((one.push, other.push)))


@functools.lru_cache(maxsize=CACHED_FILTERS_MAX)
def parse(text: str, schema: pa.Schema) -> Filter:
    """Return the filter of a SQL boolean expression; parsed ones are kept.

    Raises:
        RequestError: See `filter_of`.
    """
    if not is_text(text):
        raise RequestError(f"a filter has half of a surrogate pair: {text!r:.80}")
    # Late: sqlglot takes 0.3 s to import, and a process that filters nothing should not wait.
    from siltstone.engine.filter import compiler  # noqa: PLC0415

    return _of_text(text, compiler.compile_filter(text, schema), schema).check()


def compares_columns(text: str, schema: pa.Schema) -> bool:
    """Say whether a text that was given as something else reads as a filter over some columns.

    It compares one of them (`n > 5`, `lower(name) LIKE 'a%'`); that its types fit is not needed.
    A long text is a value: to parse 20,000 parentheses takes a second.
    """
    if len(text) > _COMPARED_CHARACTERS_MAX:
        return False
    if not (is_text(text) and _COMPARING.search(text) and any(n in text for n in schema.names)):
        return False
    from siltstone.engine.filter import compiler  # noqa: PLC0415 - as in `parse`

    return compiler.is_comparison(text, schema.names)


@functools.lru_cache(maxsize=CACHED_FILTERS_MAX)
def _parts(text: str, schema: pa.Schema) -> Sequence[Filter]:
    from siltstone.engine.filter import compiler  # noqa: PLC0415 - as in `parse`

    return [_of_text(text, part, schema) for part in compiler.compile_parts(text, schema)]


def _of_text(text: str, found: Compiled, schema: pa.Schema) -> Filter:
    columns = _in_order(found.columns, schema)
    return Filter(text, found.expression, columns, schema, found.push)


def _of_piece(piece: arrow.FilterPiece, schema: pa.Schema) -> Filter:
    columns = _in_order(piece.columns, schema)
    found = piece.expression
    return Filter(found, found, columns, schema, piece.push, piece.conjuncts)


def _in_order(names: Iterable[str], schema: pa.Schema) -> tuple[str, ...]:
    """Return names of columns in the order of the schema."""
    wanted = set(names)
    return tuple(name for name in schema.names if name in wanted)


def projected(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray[Any]:
    """Return an expression of each row; five times as fast as `Table.filter`, and with nulls."""
    from pyarrow import acero  # noqa: PLC0415 (late: it imports pandas, 1 s)

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["answer"]))
    plan = acero.Declaration.from_sequence([source, project])
    return plan.to_table(use_threads=False).column(0)


class Expression(msgspec.Struct, frozen=True):
    """A parsed expression over the columns of one schema; immutable, free to share.

    `columns` are the top-level columns that it reads, `column` is the one that it is, and nothing
    but is. A list of numbers (`[1.5, 2]`) has no `value`: it is the same `numbers` for each row.
    """

    text: str
    value: Value | None
    columns: tuple[str, ...] = ()
    numbers: tuple[float | None, ...] | None = None

    @property
    def column(self) -> str | None:
        """The name of the column that it is; None if it computes something."""
        return None if self.value is None else self.value.column

    @property
    def is_null(self) -> bool:
        """Whether it is NULL for every row."""
        return self.value is None and self.numbers is None

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of its values.

        Raises:
            RequestError: It is a bare NULL, which has no type.
        """
        if self.numbers is not None:
            return pa.list_(pa.float64())
        if self.value is None:
            raise RequestError("NULL has no type; write cast(NULL as int), for example")
        return self.value.type

    def evaluate(self, rows: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
        """Return its value for each row, as `kind`.

        Raises:
            RequestError: A value does not fit, or arithmetic overflows.
        """
        try:
            if self.value is not None:
                return projected(self.value.expression, rows).cast(kind)
            one = pa.scalar(None if self.numbers is None else list(self.numbers), kind)
        except (pa.ArrowException, TypeError) as error:
            raise RequestError(f"{self.text[:200]!r} does not fit {kind}: {error}") from error
        return pa.chunked_array([pa.repeat(cast("Any", one), rows.num_rows)])


def compile_value(text: str, schema: pa.Schema) -> Expression:
    """Return the expression of a SQL text over the columns of `schema`.

    It is SQL, or a list of numbers as LanceDB's client writes a vector.

    Raises:
        RequestError: It does not parse, is not supported, or its types do not fit.
    """
    from siltstone.engine.filter import compiler  # noqa: PLC0415 - as in `parse`

    if text.lstrip().startswith("["):
        with suppress(msgspec.DecodeError):
            return Expression(text, None, (), _numbers(text))
    value, columns = compiler.compile_value(text, schema)
    return Expression(text, value, _in_order(columns, schema))


_numbers = msgspec.json.Decoder(tuple[float | None, ...]).decode
