"""Pushed filters: the part of a query's WHERE that the store may evaluate, as its own SQL.

Spark does not evaluate a filter again that a source accepts. So the source accepts a filter only if
the store answers it exactly as Spark would, row for row, nulls included. The two differ here:

    NaN = NaN, and NaN is above all     in Spark; to the store NaN equals nothing, `x <> x` finds it
    x IN (..., 0.0) with many values    Spark tells -0.0 from 0.0, with few it does not: not pushed
    NOT (x IN (..., null))              is never true, in both

Spark 4.3.0 stores the plan of one query, with its filters, in the table behind a frame. It uses
this plan for the next query that pushes no filter, and wherever else the frame occurs in one query
(`PythonDataSourceV2.setReadInfo`): rows would be missing without an error. So filters are accepted
only if the caller promises `pushdown=single_use`; the option `filter` is part of the frame and
always safe.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

TEXT_BYTES_MAX = 32 << 10  # of one filter: a longer list is as fast in Spark
LIST_MAX = 1_000

_ESCAPED = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})
OPERATORS: dict[type[spark.Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_PATTERNS: dict[type[spark.Filter], str] = {
    spark.StringStartsWith: "{}%",
    spark.StringEndsWith: "%{}",
    spark.StringContains: "%{}%",
}


class _NotPushedError(Exception):
    """This filter is Spark's to decide."""


def pushed(filter: spark.Filter, schema: pa.Schema) -> str | None:  # noqa: A002 - Spark's word
    """Return the SQL of one filter over a table's columns; None leaves it to Spark."""
    try:
        text = _sql(filter, schema)
    except _NotPushedError:
        return None
    return text if len(text.encode("utf-8", "surrogatepass")) <= TEXT_BYTES_MAX else None


def _sql(filter: spark.Filter, schema: pa.Schema) -> str:  # noqa: A002
    if isinstance(filter, spark.Not):
        return f"NOT ({_sql(filter.child, schema)})"
    column = _Column.of(getattr(filter, "attribute", ()), schema)
    if isinstance(filter, spark.IsNull | spark.IsNotNull):
        return f"{column.name} IS {'' if isinstance(filter, spark.IsNull) else 'NOT '}NULL"
    value: object = getattr(filter, "value", None)
    if isinstance(filter, spark.EqualNullSafe):
        return column.equal_null_safe(value)
    if isinstance(filter, spark.In):
        return column.among(filter.value)
    if type(filter) in _PATTERNS:
        return column.like(_PATTERNS[type(filter)], value)
    if type(filter) in OPERATORS:
        return column.compare(OPERATORS[type(filter)], value)
    raise _NotPushedError


class _Column:
    """A top-level column and the constants of a filter."""

    def __init__(self, field: pa.Field) -> None:
        self.name = '"' + field.name.replace('"', '""') + '"'
        self.type = field.type
        self.is_float = pa.types.is_floating(field.type)

    @classmethod
    def of(cls, path: Sequence[str], schema: pa.Schema) -> _Column:
        if len(path) != 1 or schema.get_field_index(path[0]) < 0:
            raise _NotPushedError  # a field of a struct
        return cls(schema.field(path[0]))

    def literal(self, value: object) -> str:
        for fits, kinds, write in _LITERALS:
            if fits(self.type) and type(value) in kinds:
                return write(value)
        raise _NotPushedError

    def compare(self, operator: str, value: object) -> str:
        if self.is_float:
            return self._compare_float(operator, value)
        return f"{self.name} {operator} {self.literal(value)}"

    def _compare_float(self, operator: str, value: object) -> str:
        if not isinstance(value, float) or math.isinf(value):
            raise _NotPushedError
        is_nan = f"{self.name} <> {self.name}"
        if not math.isnan(value):
            found = f"{self.name} {operator} {self.literal(value)}"
            return f"({found} OR {is_nan})" if operator in {">", ">="} else found
        if operator in {"=", ">="}:
            return is_nan
        if operator == "<":
            return f"{self.name} = {self.name}"
        # Always so for "<=", never for ">", and null for null.
        return f"({self.name} = {self.name}) {'OR' if operator == '<=' else 'AND'} {is_nan}"

    def equal_null_safe(self, value: object) -> str:
        if value is None:
            return f"{self.name} IS NULL"
        return f"({self.name} IS NOT NULL AND {self.compare('=', value)})"

    def among(self, values: Sequence[object]) -> str:
        known = [value for value in values if value is not None]
        if not known or len(values) > LIST_MAX or (self.is_float and 0.0 in known):
            raise _NotPushedError
        if self.is_float:
            found = " OR ".join(self.compare("=", value) for value in known)
        else:
            found = f"{self.name} IN ({', '.join(self.literal(value) for value in known)})"
        is_open = len(known) < len(values)  # what a list with a null lacks is neither in nor out
        return f"({found} OR NULL)" if is_open else f"({found})"

    def like(self, pattern: str, value: object) -> str:
        if not _is_text(self.type) or not isinstance(value, str):
            raise _NotPushedError
        return f"{self.name} LIKE {_text(pattern.format(value.translate(_ESCAPED)))}"


def _text(value: str) -> str:
    if "\0" in value:
        raise _NotPushedError
    return "'" + value.replace("'", "''") + "'"


def _number(value: int | Decimal) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise _NotPushedError
    return format(Decimal(value), "f") if 1e-40 < abs(value) < 1e40 else repr(value)


def _timestamp(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_exact_timestamp(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit != "ns"


# Not binary: Spark compares its bytes as Arrow does, but is asked for so seldom.
_Literal = tuple[Callable[[pa.DataType], bool], tuple[type, ...], Callable[[Any], str]]
_LITERALS: tuple[_Literal, ...] = (
    (pa.types.is_boolean, (bool,), lambda value: "TRUE" if value else "FALSE"),
    (pa.types.is_integer, (int, Decimal), _number),
    (pa.types.is_decimal128, (int, Decimal), _number),
    (pa.types.is_floating, (float,), _float),
    (_is_text, (str,), _text),
    (pa.types.is_date32, (dt.date,), lambda value: f"DATE '{value.isoformat()}'"),
    (_is_exact_timestamp, (dt.datetime,), _timestamp),
)
