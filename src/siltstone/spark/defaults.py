"""Defaults: a value of each of Spark's types, for columns that never have a null.

Spark takes what a Python function returns for nullable. `coalesce(column, a value)` is not, and has
the same values where there is no null.
"""

from __future__ import annotations

from pyspark.sql import Column, functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

_TEXTS: dict[type[DataType], str] = {
    BooleanType: "false",
    StringType: "''",
    BinaryType: "x''",
    DateType: "date'1970-01-01'",
    TimestampType: "timestamp_ltz'1970-01-01 00:00:00'",
    TimestampNTZType: "timestamp_ntz'1970-01-01 00:00:00'",
    TimeType: "time'00:00:00'",
    DayTimeIntervalType: "interval '0 00:00:00' day to second",
}


def never_null(column: Column, kind: DataType) -> Column:
    """Return a column that has no nulls as one of which Spark knows it."""
    return functions.coalesce(column, some_value(kind))


def some_value(kind: DataType) -> Column:
    """Return a value of the type, as an expression that is not nullable."""
    if isinstance(kind, StructType):
        fields = (some_value(field.dataType).alias(field.name) for field in kind)
        return functions.struct(*fields)
    if isinstance(kind, ArrayType):
        return functions.array().cast(kind)
    if isinstance(kind, MapType):
        return functions.create_map().cast(kind)
    if isinstance(kind, DecimalType):
        return functions.expr(f"{'0.' + '0' * kind.scale if kind.scale else '0'}BD").cast(kind)
    text = _TEXTS.get(type(kind))
    return functions.lit(0).cast(kind) if text is None else functions.expr(text)
