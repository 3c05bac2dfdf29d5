"""Schemas: the Spark type of a column of a store, and the reverse.

    store                                Spark
    bool, int8 .. int64                  boolean, byte, short, int, long
    uint8, uint16, uint32, uint64        short, int, long, decimal(20, 0)
    float16, float32, float64            float, float, double
    decimal128(p, s), 0 <= s <= p        decimal(p, s)
    [large_]string, [large_]binary       string, binary
    date32                               date
    time32, time64                       time: microseconds
    timestamp[s | ms | us | ns]          timestamp_ntz, with a zone timestamp: microseconds
    list, vector                         array
    struct                               struct

A column with any other type is refused, with its name. Nanoseconds are read if they are whole
microseconds. A value that Spark cannot hold is an error and is never changed.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from siltstone.errors import SchemaMismatchError, no_such

_SIMPLE: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.DecimalType(20, 0),
    pa.float16(): spark.FloatType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
}
# What a column of the store takes besides its own Spark type, because no value is lost on the way.
_WIDER: dict[str, tuple[str, ...]] = {
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "float": ("tinyint", "smallint"),
    "double": ("tinyint", "smallint", "int", "float"),
}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def spark_type(name: str, kind: pa.DataType) -> spark.DataType:
    """Return the type of column `name` in Spark.

    Raises:
        SchemaMismatchError: Spark has no type for it.
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if pa.types.is_time(kind):
        return spark.TimeType(6)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return spark.ArrayType(spark_type(name, kind.value_type), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return spark.StructType([_field(f"{name}.{field.name}", field) for field in fields])
    raise SchemaMismatchError(
        f"column {name!r} has type {kind}, which Spark does not have; leave it out by the option"
        " `columns`"
    )


def _field(path: str, field: pa.Field) -> spark.StructField:
    return spark.StructField(field.name, spark_type(path, field.type), field.nullable)


def to_spark(schema: pa.Schema) -> spark.StructType:
    """Return the Spark schema of a table.

    Raises:
        SchemaMismatchError: Spark lacks the type of a column, which the message names.
    """
    return spark.StructType([_field(field.name, field) for field in schema])


def wanted_columns(wanted: spark.StructType, found: pa.Schema, table: str) -> list[str]:
    """Return the names of the columns that a reader must return: columns of the table.

    Raises:
        SchemaMismatchError: A column does not exist, or has another type.
    """
    for field in wanted.fields:
        has = spark_type(field.name, stored(field.name, found, table).type)
        if has.simpleString() != field.dataType.simpleString():
            raise SchemaMismatchError(
                f"column {field.name!r} of {table!r} is {has.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return wanted.fieldNames()


def stored(name: str, schema: pa.Schema, table: str) -> pa.Field:
    """Return the column `name` of a table.

    Raises:
        SchemaMismatchError: The table has no such column.
    """
    if name not in schema.names:
        raise SchemaMismatchError(f"table {table!r} has {no_such('column', name, schema.names)}")
    return schema.field(name)


def to_store(given: spark.StructType, schema: pa.Schema, table: str) -> pa.Schema:
    """Return the table's columns that a frame of Spark has, with the table's types.

    Raises:
        SchemaMismatchError: A column does not exist, appears twice or does not fit; the message
            names both types.
    """
    names = given.fieldNames()
    for field in given.fields:
        column = stored(field.name, schema, table)
        if names.count(field.name) > 1:
            raise SchemaMismatchError(f"the rows for {table!r} have column {field.name!r} twice")
        if not _fits(field.dataType, spark_type(field.name, column.type)):
            raise SchemaMismatchError(
                f"column {field.name!r} of {table!r} has type {column.type}, the rows have"
                f" {field.dataType.simpleString()}; cast it"
            )
    return pa.schema([schema.field(name) for name in names])


def _fits(given: spark.DataType, wanted: spark.DataType) -> bool:
    if isinstance(given, spark.NullType):
        return True
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return _fits(given.elementType, wanted.elementType)
    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        return given.fieldNames() == wanted.fieldNames() and all(
            _fits(one.dataType, other.dataType)
            for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    if isinstance(wanted, spark.DecimalType):
        return _whole_digits(given) <= wanted.precision - wanted.scale and (
            not isinstance(given, spark.DecimalType) or given.scale <= wanted.scale
        )
    name, wanted_name = given.simpleString(), wanted.simpleString()
    return name == wanted_name or name in _WIDER.get(wanted_name, ())


def _whole_digits(kind: spark.DataType) -> int:
    """Return how many digits before the point a number of this type may have; else too many."""
    if isinstance(kind, spark.DecimalType):
        return kind.precision - kind.scale
    return _DIGITS.get(kind.simpleString(), 1_000)


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the exact schema that Spark requires of Arrow batches: names, units and nulls."""
    return to_arrow_schema(schema, timezone="UTC")


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`, by name, with the same values in its types.

    Raises:
        SchemaMismatchError: A value has no equal: nanoseconds in Spark, a number out of range, a
            time outside the years of the other; the message names the column.
    """
    arrays = [_as_type(batch.column(field.name), field.type, field.name) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    is_time = pa.types.is_time64(array.type)
    if array.type.equals(kind) and not is_time:
        return array
    try:
        # Spark's batches have times in nanoseconds, its values do not.
        return (array.cast(pa.time64("us")) if is_time else array).cast(kind)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {name!r}: a value of {array.type} does not fit {kind}: {error}"
        ) from error
