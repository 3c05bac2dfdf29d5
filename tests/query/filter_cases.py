"""Filters over every type that a column can have, as SQL texts and as Arrow expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Filter = str | pc.Expression

DAY_S = 86_400
INF, NAN = float("inf"), float("nan")


def _ints(bits: int, is_signed: bool) -> list[int]:
    if is_signed:
        return [-(1 << bits - 1), -1, 0, 1, (1 << bits - 1) - 1]
    return [0, 1, 2, 1 << bits - 1, (1 << bits) - 1]


def _values() -> dict[str, tuple[pa.DataType, list[Any], list[str]]]:
    """Return name -> type, five values (the numbers behind temporal ones), and SQL literals."""
    found: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {}
    for bits in (8, 16, 32, 64):
        for letter, kind in (("i", "int"), ("u", "uint")):
            values = _ints(bits, letter == "i")
            type_ = getattr(pa, f"{kind}{bits}")()
            found[f"{letter}{bits}"] = (type_, values, [str(n) for n in values])
    found["b"] = (pa.bool_(), [True, False, True, False, False], ["TRUE", "FALSE"])
    texts = ["", "a", "it's \\", "Ünï", "a\nb"]
    quoted = [f"""'{text.replace("'", "''")}'""" for text in texts]
    found["s"] = (pa.string(), texts, quoted)
    found["ls"] = (pa.large_string(), texts, quoted)
    blobs = [b"", b"a", b"\0", b"\xff\0", b"ab"]
    hexes = [f"X'{blob.hex()}'" for blob in blobs]
    found["bin"] = (pa.binary(), blobs, hexes)
    found["lbin"] = (pa.large_binary(), blobs, hexes)
    days = ["DATE '1969-12-31'", "'1970-01-01'", "DATE '1970-01-02'"]
    found["d"] = (pa.date32(), [-(1 << 31), -1, 0, 1, (1 << 31) - 1], days)
    for unit, ticks in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        time = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        clock = ["'00:00:00'", "TIME '12:00:00'", "'23:59:59'"]
        found[f"t_{unit}"] = (time, [0, 1, DAY_S * ticks // 2, 7, DAY_S * ticks - 1], clock)
        for suffix, zone in (("", None), ("_utc", "UTC"), ("_zone", "+02:00")):
            at = [-(1 << 63) + 1, -1, 0, ticks, (1 << 63) - 1]
            moments = ["'1970-01-01 00:00:00'", "TIMESTAMP '1970-01-01 00:00:01'", "'1969-12-31'"]
            found[f"ts_{unit}{suffix}"] = (pa.timestamp(unit, zone), at, moments)
    cents = [Decimal(text) for text in ("-99999999.99", "-0.01", "0.00", "1.50", "99999999.99")]
    found["dec"] = (pa.decimal128(10, 2), cents, ["-0.01", "0", "1.5", "99999999.99", "0.005"])
    wide = [Decimal("9" * 28 + "." + "9" * 10), *map(Decimal, ("0.0000000001", "0", "-1", "7"))]
    found["dec38"] = (pa.decimal128(38, 10), wide, [format(n, "f") for n in wide])
    floats = [NAN, -0.0, INF, -INF, 1.5]
    found["f32"] = (pa.float32(), floats, ["0.0", "-0.0", "1.5", "1e300", "cast('nan' as double)"])
    found["f64"] = (pa.float64(), [*floats[:4], 0.0], ["0.0", "-0.0", "1.5", "-1e300"])
    return found


VALUES = _values()
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "l_i64": (pa.list_(pa.int64()), [[], [1], [1, None], [2], [3]]),
    "st": (pa.struct({"x": pa.int64(), "y": pa.string()}), [{"x": n, "y": "y"} for n in range(5)]),
    "vec": (pa.list_(pa.float32(), 2), [[n, 0.5] for n in range(5)]),
}
# What Lance does not take from Substrait, alone or inside a list or struct.
UNTAKEN: dict[str, pa.DataType] = {
    "x_time": pa.time64("us"),
    "x_bytes": pa.list_(pa.uint8()),
    "x_texts": pa.list_(pa.large_string()),
    "x_struct": pa.struct({"a": pa.large_string()}),
    "x_deep": pa.struct({"a": pa.list_(pa.struct({"b": pa.time64("us")}))}),
}


def _array(type_: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_temporal(type_):
        numbers = pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64())
        return numbers.cast(type_)
    return pa.array(values, type_)


def rows() -> pa.Table:
    """Return ten rows: five with values, one all null, four that repeat the first ones."""
    order = [0, 1, 2, 3, 4, None, 0, 1, 2, 3]
    columns: dict[str, pa.Array] = {"id": pa.array(range(10), pa.int64())}
    for name, (type_, values, *_) in {**VALUES, **NESTED}.items():
        columns[name] = _array(type_, values).take(pa.array(order, pa.int64()))
    return pa.table(columns)


def scalars(name: str) -> list[pa.Scalar]:
    type_, values, _ = VALUES[name]
    return [*_array(type_, values)]


OPERATORS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def texts(name: str) -> Iterator[str]:
    """Yield SQL filters of a column."""
    literals = VALUES[name][2]
    for index, sign in enumerate(OPERATORS):
        yield f"{name} {sign} {literals[index % len(literals)]}"
    some = ", ".join(literals)
    yield f"{name} BETWEEN {literals[1]} AND {literals[-1]}"
    yield f"{name} IN ({some})"
    yield f"{name} NOT IN ({literals[0]})"
    yield f"{name} IN ({literals[0]}, NULL)"
    yield f"{name} IS NULL"
    yield f"NOT ({name} = {literals[0]} OR {name} IS NULL) AND id < 8"
    yield f"({name} = {literals[1]}) IS NOT TRUE OR f64 > 1"


def expressions(name: str) -> Iterator[pc.Expression]:
    """Yield Arrow filters of a column."""
    column, known = pc.field(name), scalars(name)
    for index, compare in enumerate(OPERATORS.values()):
        yield compare(column, known[index % 5])
        yield ~compare(known[(index + 1) % 5], column)
    three = (
        pa.array([known[1].as_py(), known[3].as_py()], VALUES[name][0]) if _is_plain(name) else None
    )
    if three is not None:
        yield column.isin(three)
        yield ~column.isin(three)
        by_duckdb = pc.if_else(column.is_valid(), column.isin(three), pa.scalar(None, pa.bool_()))
        yield by_duckdb  # IN of DuckDB 2
        yield ~by_duckdb | (pc.field("id") == 3)
        yield pc.if_else(pc.field("id") < 8, column.isin(three), pa.scalar(None, pa.bool_()))
        yield column.isin(pa.concat_arrays([three, pa.nulls(1, three.type)]))
    yield column.is_null()
    yield column.is_valid() & (pc.field("id") < 8)
    yield (column == known[1]) | (pc.field("id") == 3)
    yield ~((column == known[1]) & (pc.field("f64") < 1.0)) & (column != known[2])


def _is_plain(name: str) -> bool:
    return not pa.types.is_temporal(VALUES[name][0])


# The last two: of columns that two tables have.
OTHERS: list[Filter] = [
    "s LIKE 'a%' OR ls ILIKE '%Ï'",
    "starts_with(ls, 'a') AND length(s) > 1",
    "st.x >= 2 AND i64 <> 0",
    "l_i64 IS NOT NULL AND id > 2",
    "lower(ls) = s",
    "coalesce(u8, 7) = 7",
    "u64 = i64",
    "i8 > 1000 OR i8 < 2.5",
    "added IS NULL AND ls = 'a'",
    "added > 3 OR u16 = 1",
    pc.field("st", "x") > 1,
    pc.field("l_i64").is_valid() & (pc.field("u8") > 1),
    pc.field("added").is_null() & (pc.field("ls") == "a"),
    (pc.field("i8") > 0) & (pc.field("s") != "a") & (pc.field("f64") > -1.0),
    pc.field("i8").isin([1, 2, 300]),
    pc.field("ls").isin(["a", "Ünï"]),
    pc.field("i8").cast("int64") == 1,
    pc.starts_with(pc.field("ls"), "a") | (pc.field("id") == 1),
    pc.field("f64").is_null(nan_is_null=True),
    pc.field("f64").isin([0.0, 1.5]),
    pc.scalar(True),
    pc.field("b"),
    ~pc.field("b") & (pc.field("u64") >= pa.scalar(1 << 63, pa.uint64())),
    pc.if_else(pc.field("b"), pc.field("i8"), pc.field("i16")) > 0,
    pc.field("i64") == pa.scalar(None, pa.int64()),
    pc.field(4) == 1,
    "vec IS NULL OR st IS NULL",
    pc.field("vec").is_null(),
]
