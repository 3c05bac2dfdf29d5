"""Pages: statements that read a page of one table by its key or an index, which need no sort.

    SELECT id, v FROM t WHERE id > ? AND v < 7 ORDER BY id LIMIT 50
    SELECT * FROM t WHERE city > 'x' ORDER BY city, id LIMIT 50

DuckDB sorts what a scan gives, so it reads all rows that match. Where the table finds its rows in
that order, the statement runs without its ORDER BY, over a scan in that order: DuckDB keeps the
order of a scan through filters and columns, and ends the scan at its LIMIT.

That is so only for one table, columns as they are, comparisons of columns with constants of their
types (DuckDB pushes those, so rows that it drops are not read), and few rows. Any other statement
runs as it is written. A page reads no more than a statement that is not understood.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

import datetime as dt
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.compare import FLIPPED, KERNELS
from siltstone.engine.filter.literals import Operator
from siltstone.formats.types.extensions import is_uuid
from siltstone.query.sql.dataset import Filter, Scannable
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.taken.tokens import kind_of, tokens_of, trees_of

if TYPE_CHECKING:
    from siltstone.query.sql.taken.values import Parameters

ROWS_MAX = 10_000
"""Of LIMIT, and of OFFSET: more rows are sorted faster than they are looked up."""
_MAY_PAGE = re.compile(r"\border\s+by\b.*\blimit\b", re.IGNORECASE | re.DOTALL)
_PARTS = {"expressions", "from_", "where", "order", "limit", "offset"}
_SIGNS: Mapping[str, Operator] = {"GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "EQ": "="}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_Node: TypeAlias = Any
"""An expression of sqlglot, which is imported late."""
KeyEnd: TypeAlias = tuple[Operator, object]
"""How keys compare with one: ("<", key), also with <=, >, >= and =."""
Tables: TypeAlias = "Callable[[str], Scannable | None]"


class UnpagedError(Exception):
    """The statement is no page, or not surely one."""


@dataclass(frozen=True, slots=True)
class RowsInOrder:
    """A table whose scan is by a column, or by its key, and has only rows between its `ends`.

    `column`: None is the key. `likely`: as many rows are likely read.
    """

    source: Any
    column: str | None
    descending: bool
    ends: Sequence[KeyEnd]
    likely: int

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        """See `Scannable.scan`; `filter` is an expression, which DuckDB pushed."""
        scan, page = self.source.scan_by, {"limit": limit, "likely": self.likely}
        if self.column is None:
            return scan(columns, filter, ends=self.ends, descending=self.descending, **page)
        column, kind = pc.field(self.column), self.schema.field(self.column).type
        said = [KERNELS[s](column, cast("Any", pa.scalar(end, kind))) for s, end in self.ends]
        parts = cast("list[Any]", said if filter is None else [*said, filter])
        wanted = functools.reduce(operator.and_, parts) if parts else None
        return scan(columns, wanted, column=self.column, descending=self.descending, **page)


def paged(sql: str, parameters: Parameters, tables: Tables) -> tuple[str, Tables]:
    """Return a statement and its tables; of a page without ORDER BY, over a table in order."""
    if _MAY_PAGE.search(sql) is None:
        return sql, tables
    try:
        return _page(sql, parameters, tables)
    except UnpagedError:
        return sql, tables


def _page(sql: str, parameters: Parameters, tables: Tables) -> tuple[str, Tables]:
    tree = _tree_of(sql)
    _require({name for name, value in tree.args.items() if value} <= _PARTS)
    table = tree.args["from_"].this
    _require(type(table).__name__ == "Table")
    _require({name for name, value in table.args.items() if value} <= {"this", "db", "alias"})
    _require(not (table.args.get("alias") and table.args["alias"].columns))
    name = ".".join(part.name for part in table.parts)
    source = tables(name)
    _require(source is not None)
    known = _Columns(cast("Scannable", source).schema, folded(table.alias_or_name))
    order, descending = _order(tree, known)
    column = _column_of(source, order)
    _check_shown(tree.expressions, known, order)
    given = _Constants(parameters)
    ends = _ends(tree.args.get("where"), known, order[0], given)
    likely = sum(_rows_of(tree.args.get(part), given) for part in ("limit", "offset"))
    ordered = RowsInOrder(source, column, descending, ends, likely)
    first, end = _order_in(sql)
    return sql[:first] + sql[end:], lambda asked: ordered if asked == name else tables(asked)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the table, which the statement calls `table` (folded)."""

    schema: pa.Schema
    table: str

    def named(self, node: _Node) -> str:
        """Return the column that a node is."""
        _require(type(node).__name__ == "Column" and len(node.parts) <= 2)
        _require(not node.table or folded(node.table) == self.table)
        found = [name for name in self.schema.names if folded(name) == folded(node.name)]
        _require(len(found) == 1)
        return found[0]


class _Constants:
    """The constants of a statement, with its parameters; asked in the order of the text."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters, self._next = parameters, 0

    def value(self, node: _Node) -> object:
        kind = type(node).__name__
        if kind == "Placeholder":
            return self._parameter(node)
        if kind == "Neg":
            value = self.value(node.this)
            _require(type(value) in (int, float))
            return -cast("float", value)
        _require(kind == "Literal")
        if node.is_string:
            return node.this
        try:
            return int(node.this)
        except ValueError:
            raise UnpagedError from None

    def _parameter(self, node: _Node) -> object:
        given = self._parameters
        if isinstance(given, Mapping):
            _require(node.this in given)
            return given[node.this]
        _require(isinstance(given, Sequence) and not isinstance(given, str))
        if node.this is None:
            place, self._next = self._next, self._next + 1
        else:
            _require(str(node.this).isdecimal())
            place = int(node.this) - 1
        values = cast("Sequence[object]", given)
        _require(0 <= place < len(values))
        return values[place]


def _require(is_so: object) -> None:
    if not is_so:
        raise UnpagedError


@functools.lru_cache(maxsize=64)
def _tree_of(sql: str) -> _Node:
    trees = trees_of(sql)
    tree: _Node = trees[0] if len(trees) == 1 else None
    _require(type(tree).__name__ == "Select")
    _require(tree.args.get("from_") and tree.args.get("limit"))
    return tree


def _order(tree: _Node, known: _Columns) -> tuple[list[str], bool]:
    """Return the columns by which rows are ordered, nulls last, and whether they descend."""
    ordered = tree.args["order"].expressions
    ways = {bool(each.args.get("desc")) for each in ordered}
    _require(len(ways) == 1)
    names = [known.named(each.this) for each in ordered]
    may_be_null = [known.schema.field(name).nullable for name in names]
    nulls_first = [each.args.get("nulls_first") for each in ordered]
    _require(not any(map(operator.and_, may_be_null, map(bool, nulls_first))))
    return names, ways.pop()


def _column_of(source: object, order: Sequence[str]) -> str | None:
    """Return the column by which a table is read for an order; None: by its key."""
    key = cast("tuple[str, ...]", getattr(source, "ordered_key", ()))
    if len(key) == 1 and [*key] == [*order]:
        return None
    whole = cast("tuple[str, ...]", getattr(source, "primary_key", ()))
    _require(whole and whole[: len(order) - 1] == tuple(order[1:]))
    _require(hasattr(source, "has_order_of") and cast("Any", source).has_order_of(order[0]))
    return order[0]


def _check_shown(shown: Sequence[_Node], known: _Columns, order: Sequence[str]) -> None:
    """Check that columns are shown as they are, and that none has the name of one of the order."""
    for node in shown:
        kind = type(node).__name__
        if kind == "Star":
            _require(not any(node.args.values()))
        elif kind == "Alias":
            column = known.named(node.this)
            _require(all(column == name or folded(node.alias) != folded(name) for name in order))
        else:
            known.named(node)


def _rows_of(part: _Node, given: _Constants) -> int:
    """Return the number of rows that LIMIT or OFFSET says; 0 without one."""
    if part is None:
        return 0
    options = part.args.get("limit_options")
    _require(options is None and not part.args.get("expressions"))
    rows = given.value(part.expression)
    _require(type(rows) is int and 0 <= rows <= ROWS_MAX)
    return cast("int", rows)


def _ends(where: _Node, known: _Columns, first: str, given: _Constants) -> list[KeyEnd]:
    """Return what the comparisons of a column say; check that DuckDB pushes all others."""
    found: list[KeyEnd] = []
    for sign, column, value in _comparisons(where, known, given):
        kind = known.schema.field(column).type
        end = _key(value, kind) if column == first else None
        _require(end is not None or _fits(value, kind))
        if end is not None:
            found.append((sign, end))
    return found


def _comparisons(
    where: _Node, known: _Columns, given: _Constants
) -> Iterator[tuple[Operator, str, object]]:
    """Yield the comparisons that are joined by AND, in the order of the text."""
    for node in _conjuncts(where):
        kind = type(node).__name__
        if kind == "Between":
            column = known.named(node.this)
            _require(not node.args.get("symmetric"))
            yield ">=", column, given.value(node.args["low"])
            yield "<=", column, given.value(node.args["high"])
            continue
        _require(kind in _SIGNS)
        sign, left, right = _SIGNS[kind], node.this, node.expression
        if type(left).__name__ == "Column":
            yield sign, known.named(left), given.value(right)
        else:
            value = given.value(left)
            yield FLIPPED.get(sign, sign), known.named(right), value


def _conjuncts(where: _Node) -> list[_Node]:
    if where is None:
        return []
    is_and = type(where.this).__name__ == "And"
    return [*where.this.flatten()] if is_and else [where.this]


def _key(value: object, kind: pa.DataType) -> object:
    """Return the key of a type as which DuckDB compares a constant; None: it is surely none."""
    types = pa.types
    if is_uuid(kind):
        is_text = type(value) is str and _UUID.fullmatch(value) is not None
        return UUID(str(value)) if is_text or type(value) is UUID else None
    if types.is_decimal(kind):
        number = Decimal(value) if isinstance(value, int | Decimal) else None
        return number if type(value) is not bool and _is_value(number, kind) else None
    is_known = (
        (type(value) is str and types.is_string(kind))
        or (type(value) is bytes and types.is_binary(kind))
        or (type(value) is int and types.is_integer(kind) and _is_value(value, kind))
    )
    return value if is_known else None


def _is_value(value: object, kind: pa.DataType) -> bool:
    """Say whether a type has a value, with all its digits."""
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return False
    return True


def _fits(value: object, kind: pa.DataType) -> bool:
    """Say whether DuckDB compares a constant with a column of a type as a value of that type."""
    types = pa.types
    if type(value) is int and types.is_integer(kind):
        return _is_value(value, kind)
    if type(value) is str:
        return types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind)
    if type(value) is dt.date:
        return types.is_date32(kind)
    if type(value) is dt.datetime:
        return types.is_timestamp(kind) and (value.tzinfo is None) == (kind.tz is None)
    return type(value) in (int, float) and types.is_float64(kind) and value == value  # noqa: PLR0124


@functools.lru_cache(maxsize=64)
def _order_in(sql: str) -> tuple[int, int]:
    """Return where ORDER BY and its columns lie in a statement that has it once."""
    tokens = tokens_of(sql)
    names = [*map(kind_of, tokens)]
    _require(names.count("ORDER_BY") == 1)
    at = names.index("ORDER_BY")
    behind = [place for place, name in enumerate(names) if place > at and name in _ENDS]
    _require(behind and names[behind[0] - 1] != "DOT")  # a column may have such a name
    return tokens[at].start, tokens[behind[0]].start


_ENDS = ("LIMIT", "OFFSET")
