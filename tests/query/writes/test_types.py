"""A value of any type goes through statements as it was, and literals are cast as DuckDB does."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import siltstone as st

_UTC = dt.UTC
VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), -128),
    (pa.uint64(), (1 << 64) - 1),
    (pa.float16(), 1.5),
    (pa.float32(), 0.1),
    (pa.float64(), 1e300),
    (pa.bool_(), True),
    (pa.string(), "it's \\ ä \x00 x"),
    (pa.large_string(), "x" * 99),
    (pa.binary(), b"\x00\xff'"),
    (pa.large_binary(), b"x"),
    (pa.binary(3), b"abc"),
    (pa.date32(), dt.date(1, 1, 1)),
    (pa.date64(), dt.date(2026, 2, 28)),
    (pa.time32("s"), dt.time(1, 2, 3)),
    (pa.time64("us"), dt.time(1, 2, 3, 4)),
    (pa.timestamp("s"), dt.datetime(2026, 1, 1)),  # noqa: DTZ001 - of no zone
    (pa.timestamp("ms"), dt.datetime(2026, 1, 1, 0, 0, 0, 5000)),  # noqa: DTZ001
    (pa.timestamp("us"), dt.datetime(2026, 1, 1, 0, 0, 0, 5)),  # noqa: DTZ001
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=_UTC)),
    (pa.timestamp("ms", "Europe/Berlin"), dt.datetime(2026, 7, 1, tzinfo=_UTC)),
    (pa.duration("us"), dt.timedelta(days=3, microseconds=7)),
    (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    (pa.decimal128(5, 2), Decimal("-999.99")),
    (pa.uuid(), UUID(int=7)),
    (pa.list_(pa.int32()), [1, None, 3]),
    (pa.large_list(pa.string()), ["a", "b"]),
    (pa.list_(pa.float32(), 2), [1.0, 2.5]),
    (pa.struct([("a", pa.int32()), ("b c", pa.list_(pa.date32()))]), {"a": 1, "b c": None}),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)]),
    (pa.timestamp("ns"), None),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_value_goes_through_statements_as_it_was(
    own: st.Store, kind: pa.DataType, value: object
) -> None:
    fields = pa.schema([("id", pa.int64()), ("c", kind), ("n", pa.int64())])
    table = own.create_table("v", fields, "id")
    table.insert([{"id": 1, "c": value, "n": 0}, {"id": 2, "c": None, "n": 0}])
    own.sql("insert into v select id + 2, c, n from v")
    own.sql("insert or replace into v (c, id) select c, id + 2 from v where id > 2")
    own.sql("update v set n = n + 1")
    own.sql("update v set c = w.c from v as w where w.id = v.id and v.id < 3")
    own.sql("insert into v select id, c, 5 from v on conflict do update set c = excluded.c, n = 9")
    found = own.sql("merge into v using v as w using (id) when matched then update returning c")
    rows = table.to_arrow().sort_by("id")
    wanted = table.schema.empty_table().column("c").type
    assert rows.column("c").type == wanted
    assert rows.column("n").to_pylist() == [9] * 6
    read = rows.column("c").to_pylist()
    assert read == [read[0], None] * 3
    assert read[0] == table.get_many([1]).column("c").to_pylist()[0]
    assert (read[0] is None) == (value is None)
    assert found.rows == 6


@pytest.mark.parametrize(
    ("kind", "literal", "wanted"),
    [
        ("double", "7", 7.0),
        ("double", "'1.5'", 1.5),
        ("int", "1.5", 2),
        ("int", "'12'", 12),
        ("int", "true", 1),
        ("varchar", "12", "12"),
        ("varchar", "date '2026-01-01'", "2026-01-01"),
        ("date", "'2026-1-2'", dt.date(2026, 1, 2)),
        ("date", "timestamp '2026-01-02 10:00:00'", dt.date(2026, 1, 2)),
        ("timestamp", "'2026-01-02'", dt.datetime(2026, 1, 2)),  # noqa: DTZ001
        ("timestamptz", "'2026-01-02 00:00:00+02'", dt.datetime(2026, 1, 1, 22, tzinfo=_UTC)),
        ("decimal(6, 2)", "1.239", Decimal("1.24")),
        ("decimal(6, 2)", "7", Decimal("7.00")),
        ("boolean", "'yes'", True),
        ("blob", "'\\xAA'", b"\xaa"),
        ("int[]", "['1', 2.6]", [1, 3]),
        (
            "struct(a int, b date)",
            "{'a': '1', 'b': '2026-01-01'}",
            {"a": 1, "b": dt.date(2026, 1, 1)},
        ),
        ("uuid", "'00000000-0000-0000-0000-000000000007'", UUID(int=7)),
    ],
)
def test_a_literal_is_cast_to_its_column(
    own: st.Store, kind: str, literal: str, wanted: object
) -> None:
    own.sql(f"create table v (id bigint primary key, c {kind})")
    own.sql(f"insert into v values (1, {literal})")
    own.sql(f"insert into v select 2, {literal}")
    own.sql("insert into v values (3, null)")
    own.sql(f"update v set c = {literal} where id = 3")
    assert own["v"].to_arrow().column("c").to_pylist() == [wanted] * 3


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_row_is_deleted_by_each_value(own: st.Store, kind: pa.DataType, value: object) -> None:
    if pa.types.is_nested(kind) or value is None:
        pytest.skip("DuckDB compares it")
    fields = pa.schema([("id", pa.int64()), ("c", kind)])
    own.create_table("v", fields, "id").insert([{"id": 1, "c": value}, {"id": 2, "c": None}])
    text = "delete from v where c = ? and c is not null and not (id in (7, 8))"
    if pa.types.is_float32(kind):
        value = own.sql("select c from v where id = 1").fetchall()[0][0]
    assert own.sql(text, [value]).rows == 1
    assert own.sql("delete from v where c is null or c = ?", [value]).rows == 1
