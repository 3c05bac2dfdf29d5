"""Defaults: the default of a column in the words of Spark, which fills columns that SQL leaves out.

Spark knows a default by the metadata of a field: `CURRENT_DEFAULT`, an expression. A frame that
lacks a column gets the default where its rows are staged.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyspark.sql.types as spark

_DEFAULT = b"siltstone:default"


def has_default(field: pa.Field) -> bool:
    """Say whether a new row need not have the column."""
    return _DEFAULT in (field.metadata or {})


def default_of(column: str, field: pa.Field) -> object:
    """Return the default in a Spark schema with one column, as JSON; None: it has none."""
    (given,) = spark.StructType.fromJson(json.loads(column)).fields
    return given_default(given, field)


def given_default(given: spark.StructField, field: pa.Field) -> object:
    """Return the default that the catalog found of a column, as a value of `field`."""
    text, kind = (given.metadata or {}).get(_DEFAULT.decode()), field.type
    if text is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes.fromhex(text)
    if pa.types.is_time(kind):
        return dt.time.fromisoformat(text)
    if pa.types.is_duration(kind):
        return dt.timedelta(microseconds=int(text))
    return pa.array([text]).cast(cast("Any", kind))[0].as_py()


def with_defaults(columns: spark.StructType, stored: Iterable[pa.Field]) -> spark.StructType:
    """Return the columns of a table with their defaults, as Spark knows them."""
    pairs = zip(columns.fields, stored, strict=True)
    return spark.StructType([_with_default(column, field) for column, field in pairs])


def _with_default(column: spark.StructField, field: pa.Field) -> spark.StructField:
    if not has_default(field):
        return column
    text = (field.metadata or {})[_DEFAULT].decode()
    expression = _expression(text, column.dataType, field.type)
    notes = {"CURRENT_DEFAULT": expression, "EXISTS_DEFAULT": expression}
    return spark.StructField(column.name, column.dataType, column.nullable, notes)


def _expression(text: str, kind: spark.DataType, stored: Any) -> str:
    if isinstance(kind, spark.BinaryType):
        return f"X'{text}'"
    if isinstance(kind, spark.DayTimeIntervalType):
        per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[stored.unit]
        seconds, rest = divmod(abs(int(text)), per)
        sign = "-" if int(text) < 0 else ""
        return f"INTERVAL '{sign}{seconds}.{rest * 10**9 // per:09d}' SECOND"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    if isinstance(kind, spark.StringType):
        return f"'{escaped}'"
    return f"CAST('{escaped}' AS {kind.simpleString()})"
