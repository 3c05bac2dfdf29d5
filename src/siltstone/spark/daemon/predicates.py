"""Predicates: conditions of a query, as Spark's connector gives them, as SQL of the store.

    {"op": "AND", "args": [..]}         a function of Spark, by the connector's name
    {"column": ["total"]}               a column; of a struct its path
    {"type": "int", "value": "7"}       a constant, as a text; null without `value`
    {}                                  anything else

What the store answers exactly as Spark would is decided for each comparison by `filters.pushed`;
AND, OR and NOT of such ones mean the same in both, nulls included.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import datasource as spark

from siltstone.spark.reads.filters import OPERATORS, TEXT_BYTES_MAX, pushed

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a time without a zone
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARISONS: dict[str, type[spark.Filter]] = {
    **{operator: kind for kind, operator in OPERATORS.items()},
    "<=>": spark.EqualNullSafe,
    "STARTS_WITH": spark.StringStartsWith,
    "ENDS_WITH": spark.StringEndsWith,
    "CONTAINS": spark.StringContains,
}
_CONSTANTS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "string": str,
    "boolean": lambda text: text == "true",
    "decimal": Decimal,
    "date": lambda text: dt.date(1970, 1, 1) + dt.timedelta(int(text)),
    "timestamp": lambda text: _EPOCH_UTC + dt.timedelta(microseconds=int(text)),
    "timestamp_ntz": lambda text: _EPOCH + dt.timedelta(microseconds=int(text)),
}


class _NotOursError(Exception):
    """This predicate is Spark's to decide."""


def sql_of(predicate: str, schema: pa.Schema) -> str | None:
    """Return a predicate, JSON, as SQL over a table's columns; None leaves it to Spark."""
    try:
        found = _sql(msgspec.json.decode(predicate), schema)
    except (_NotOursError, RecursionError):  # nested too deep
        return None
    return found if len(found.encode("utf-8", "surrogatepass")) <= TEXT_BYTES_MAX else None


def _sql(node: Any, schema: pa.Schema) -> str:
    op, args = str(node.get("op")), node.get("args", [])
    if op in {"AND", "OR"}:
        return "(" + f" {op} ".join(_sql(each, schema) for each in args) + ")"
    if op == "NOT":
        return f"(NOT {_sql(args[0], schema)})"
    found = pushed(_comparison(op, args), schema)
    if found is None:
        raise _NotOursError
    return f"({found})"


def _comparison(op: str, args: Sequence[Any]) -> spark.Filter:
    """Return the filter of a column and constants."""
    if not args or "column" not in args[0]:
        raise _NotOursError
    column = tuple(args[0]["column"])
    if op in {"IS_NULL", "IS_NOT_NULL"}:
        return spark.IsNull(column) if op == "IS_NULL" else spark.IsNotNull(column)
    values = tuple(_constant(each) for each in args[1:])
    if op == "IN":
        return spark.In(column, values)
    if op in _COMPARISONS and len(values) == 1:
        kind: Any = _COMPARISONS[op]
        return kind(column, values[0])
    raise _NotOursError


def _constant(node: Any) -> object:
    kind = str(node.get("type", "")).partition("(")[0]
    if kind not in _CONSTANTS:
        raise _NotOursError
    if node.get("value") is None:
        return None
    try:
        return _CONSTANTS[kind](node["value"])
    except (ValueError, OverflowError, ArithmeticError):  # a year that Python does not know
        raise _NotOursError from None
