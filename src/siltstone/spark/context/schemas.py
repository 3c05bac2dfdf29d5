"""Schemas: the Spark type of a column of a store, and the reverse.

    store                                Spark
    bool, int8 .. int64                  boolean, byte, short, int, long
    uint8, uint16, uint32, uint64        short, int, long, decimal(20, 0)
    float16, float32, float64            float, float, double
    decimal128, decimal256(p, s)         decimal(p, s), if 0 <= s <= p <= 38
    [large_]string, [large_]binary       string, binary
    uuid, fixed_size_binary              binary: a write must have the bytes of the column
    json                                 string
    date32, date64                       date
    duration                             interval day to second: microseconds
    time32, time64                       time: microseconds
    timestamp[s | ms | us | ns]          timestamp_ntz, with a zone timestamp: microseconds
    [large_]list, vector                 array
    tensor                               array, flat: a write must have the tensor's length
    struct, map                          struct, map

A column with any other type is refused, with its name: wider decimals, and maps whose keys hold
maps. Nanoseconds are read if they are whole microseconds. A value that Spark cannot hold is an
error and is never changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from siltstone.errors import SchemaMismatchError, no_such

_END = struct.Struct("<q")
_INT32_MAX = (1 << 31) - 1
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
    pa.date64(): spark.DateType(),
    pa.uuid(): spark.BinaryType(),
    pa.json_(): spark.StringType(),
}
_DECIMAL_DIGITS_MAX = 38
# What a column of the store takes besides its own Spark type, because no value is lost on the way.
_WIDER: dict[str, tuple[str, ...]] = {
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "float": ("tinyint", "smallint"),
    "double": ("tinyint", "smallint", "int", "float"),
}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def _is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType)


def spark_type(name: str, kind: pa.DataType) -> spark.DataType:
    """Return the type of column `name` in Spark.

    Raises:
        SchemaMismatchError: Spark has no type for it.
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    for is_of, make in _MADE:
        found = make(name, kind) if is_of(kind) else None
        if found is not None:
            return found
    raise SchemaMismatchError(
        f"column {name!r} has type {kind}, which Spark does not have; read the others by"
        ' format("siltstone") and its option `columns`'
    )


def _decimal(_: str, kind: Any) -> spark.DataType | None:
    is_known = 0 <= kind.scale <= kind.precision <= _DECIMAL_DIGITS_MAX
    return spark.DecimalType(kind.precision, kind.scale) if is_known else None


def _timestamp(_: str, kind: Any) -> spark.DataType:
    return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()


def _array(name: str, kind: Any) -> spark.DataType:
    return spark.ArrayType(spark_type(name, kind.value_type), kind.value_field.nullable)


def _struct(name: str, kind: Any) -> spark.DataType:
    return spark.StructType([_field(f"{name}.{field.name}", field) for field in kind])


def _map(name: str, kind: Any) -> spark.DataType | None:
    key, item = spark_type(name, kind.key_type), spark_type(name, kind.item_type)
    if "map<" in key.simpleString():
        return None
    return spark.MapType(key, item, kind.item_field.nullable)


_MADE: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[str, Any], spark.DataType | None]], ...
] = (
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, lambda _, __: spark.TimeType(6)),
    (pa.types.is_duration, lambda _, __: spark.DayTimeIntervalType()),
    (pa.types.is_fixed_size_binary, lambda _, __: spark.BinaryType()),
    (pa.types.is_list, _array),
    (pa.types.is_large_list, _array),
    (pa.types.is_fixed_size_list, _array),
    (_is_tensor, lambda name, kind: _array(name, kind.storage_type)),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
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
    if isinstance(given, spark.NullType) or (
        # Of any unit: the store has microseconds.
        isinstance(given, spark.DayTimeIntervalType | spark.TimeType)
        and isinstance(wanted, type(given))
    ):
        return True
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return _fits(given.elementType, wanted.elementType)
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        pairs = ((given.keyType, wanted.keyType), (given.valueType, wanted.valueType))
        return all(_fits(one, other) for one, other in pairs)
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


def of_new_columns(given: spark.StructType, table: str) -> pa.Schema:
    """Return the columns that a table gets for those of a frame; all of them may be null.

    Raises:
        SchemaMismatchError: A column has no type, one that no column of a table has, or
            a name that differs from another only in upper and lower case.
    """
    seen: dict[str, str] = {}
    for field in given.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaMismatchError(
                f"the rows for {table!r} have columns {other!r} and {field.name!r}, which differ"
                " only in upper and lower case: rename one"
            )
        if _has_no_type(field.dataType):
            raise SchemaMismatchError(
                f"column {field.name!r} of the rows for {table!r} has no type, only nulls; cast it"
            )
        if not _comes_back(field):
            raise SchemaMismatchError(
                f"column {field.name!r} of the rows for {table!r} has type"
                f" {field.dataType.simpleString()}, which no column of a table has; cast it"
            )
    fields = list(arrow_schema(given.toNullable()))
    # Spark's batches have times in nanoseconds, its values do not.
    return pa.schema(
        [f.with_type(pa.time64("us")) if pa.types.is_time64(f.type) else f for f in fields]
    )


def with_not_null(kind: Any, given: spark.DataType) -> Any:
    """Return a type of `of_new_columns` with the members of structs not null that say so.

    Elements of lists and values of maps may be null: no statement of SQL can say that of them.
    """
    if isinstance(given, spark.StructType):
        members = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct(
            [
                field.with_type(with_not_null(field.type, of.dataType)).with_nullable(of.nullable)
                for field, of in zip(members, given.fields, strict=True)
            ]
        )
    if isinstance(given, spark.ArrayType):
        inner = with_not_null(kind.value_type, given.elementType)
        return pa.list_(kind.value_field.with_type(inner))
    if isinstance(given, spark.MapType):
        inner = with_not_null(kind.item_type, given.valueType)
        return pa.map_(kind.key_field, kind.item_field.with_type(inner))
    return kind


def _comes_back(field: spark.StructField) -> bool:
    """Return whether Spark reads a column as it writes it: of a variant it would be a struct."""
    try:
        (stored,) = arrow_schema(spark.StructType([field]))
    except PySparkException:  # Spark has no form of it for others
        return False
    return _fits(field.dataType, spark_type(field.name, stored.type))


def _has_no_type(kind: spark.DataType) -> bool:
    if isinstance(kind, spark.ArrayType):
        return _has_no_type(kind.elementType)
    if isinstance(kind, spark.MapType):
        return _has_no_type(kind.keyType) or _has_no_type(kind.valueType)
    if isinstance(kind, spark.StructType):
        return any(_has_no_type(field.dataType) for field in kind.fields)
    return isinstance(kind, spark.NullType)


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the exact schema that Spark requires of Arrow batches: names, units and nulls."""
    return to_arrow_schema(schema, timezone="UTC")


def for_spark(rows: pa.Table) -> tuple[spark.StructType, pa.Table]:
    """Return the Spark schema of rows, and the rows as Spark has them.

    Raises:
        SchemaMismatchError: Spark has no type for a column, or cannot hold a value.
    """
    schema = to_spark(rows.schema)
    wanted = arrow_schema(schema)
    batches = [as_schema(batch, wanted) for batch in rows.combine_chunks().to_batches()]
    # Spark takes no column without a chunk.
    whole = pa.Table.from_batches(batches, wanted) if batches else wanted.empty_table()
    return schema, whole


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema`, by name, with the same values in its types.

    Raises:
        SchemaMismatchError: A value has no equal: nanoseconds in Spark, a number out of range, a
            time outside the years of the other; the message names the column.
    """
    arrays = [_as_type(batch.column(field.name), field.type, field.name) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_far(array: Any) -> bool:
    """Return whether texts end beyond 2 GiB of their buffer, where Arrow casts not even a few."""
    if not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        return False
    ends = array.buffers()[1]
    if ends is None or not len(array):
        return False
    (end,) = _END.unpack_from(ends, _END.size * (array.offset + len(array)))
    return end > _INT32_MAX


def _as_type(array: Any, kind: Any, name: str) -> pa.Array:
    is_time = pa.types.is_time64(array.type)
    if array.type.equals(kind) and not is_time:
        return array
    given = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    if _is_far(given):
        given = given.take(pa.array(range(len(given)), pa.int64()))
    wanted = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    try:
        # Spark's batches have times in nanoseconds, its values do not.
        found = (given.cast(pa.time64("us")) if is_time else given).cast(wanted)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {name!r}: a value of {array.type} does not fit {kind}: {error}"
        ) from error
    return found if wanted is kind else pa.ExtensionArray.from_storage(kind, found)
