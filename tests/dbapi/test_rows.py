"""Rows come as they are read, as values of Python, for as long as their store and transaction."""

# ruff: noqa: DTZ001 - times without a zone are values, too

from __future__ import annotations

import datetime as dt
import gc
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import dbapi

MANY = "select range as n from range(100_000_000)"
KINDS: dict[str, tuple[Any, Any]] = {
    "bool": (True, True),
    "int8": (-128, -128),
    "uint64": (2**64 - 1, 2**64 - 1),
    "float32": (0.5, 0.5),
    "float64": (1e300, 1e300),
    "decimal128(38, 3)": (Decimal("1.500"), Decimal("1.500")),
    "string": ("\N{SNOWMAN}", "\N{SNOWMAN}"),
    "binary": (b"\x00", b"\x00"),
    "date32": (dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
    "time64[us]": (dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
    "timestamp[us]": (dt.datetime(2026, 1, 2, 3), dt.datetime(2026, 1, 2, 3)),
    "timestamp[us, tz=UTC]": (
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
    ),
    "uuid": (uuid.UUID(int=7), str(uuid.UUID(int=7))),
    "list<int64>": ([1, None], [1, None]),
    "list<list<string>>": ([["a"], []], [["a"], []]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_comes_out_as_pythons_and_null_as_none(db: st.Store, kind: str) -> None:
    given, wanted = KINDS[kind]
    db.create_table("v", {"id": "int64", "v": kind}, primary_key="id")
    db["v"].insert([{"id": 1, "v": given}, {"id": 2, "v": None}])
    con = dbapi.connect(db)
    found = con.cursor().execute("select v from v order by id").fetchall()
    assert found == [(wanted,), (None,)]
    assert type(found[0][0]) is type(wanted)
    con.close()


def test_other_values_of_a_query_come_out_as_pythons(cur: dbapi.Cursor) -> None:
    cur.execute("select sum(n), sum(n) * 10000000000000000000000, {'a': 1}, map {'k': 2} from t")
    assert cur.fetchone() == (10, 10**23, {"a": 1}, [("k", 2)])
    zoned = cur.execute("select timestamptz '2026-01-01 00:00:00+00'").fetchall()[0][0]
    assert zoned.utcoffset() is not None


def test_a_result_of_any_size_is_read_in_batches(at_door: st.Store) -> None:
    con = dbapi.connect(at_door)
    cur = con.cursor()
    cur.execute("select range as n, 'some text ' || range as s from range(100_000_000)")
    before = pa.total_allocated_bytes()
    for start in range(0, 100_000, 10_000):
        assert cur.fetchmany(10_000)[0][0] == start
        assert pa.total_allocated_bytes() - before < 32 << 20
    cur.close()
    con.close()


@pytest.mark.parametrize("autocommit", [-1, False, True])
def test_rows_are_read_while_another_cursor_writes(at_door: st.Store, autocommit: int) -> None:
    at_door["t"].insert([{"id": n, "n": 0} for n in range(2, 30_000)])
    con = dbapi.connect(at_door, autocommit=autocommit)
    read, write = con.cursor(), con.cursor()
    seen = 0
    for (key,) in read.execute("select id from t order by id"):
        seen += 1
        if key % 10_000 == 0:
            write.execute("update t set n = ? where id = ?", [seen, key])
    assert seen == 29_999
    con.commit()
    assert at_door["t"].get(20_000) == {"id": 20_000, "n": 20_000}
    con.close()


def test_a_small_result_outlives_its_transaction_and_a_large_one_says_that_it_does_not(
    db: st.Store,
) -> None:
    con = dbapi.connect(db, autocommit=False)
    small, large = con.cursor(), con.cursor()
    small.execute("select range from range(8192)")
    large.execute(MANY)
    assert large.fetchone() == (0,)
    con.commit()
    assert len(small.fetchall()) == 8_192
    for _ in range(2):
        with pytest.raises(dbapi.InterfaceError, match="fetch them before"):
            large.fetchone()
    assert large.execute("select 1").fetchall() == [(1,)]
    con.close()


def test_a_large_result_outside_of_transactions_outlives_them(con: dbapi.Connection) -> None:
    read, write = con.cursor(), con.cursor()
    read.execute("select range from range(20000)")
    write.execute("update t set n = 11")
    con.commit()
    assert len(read.fetchall()) == 20_000


def test_rows_end_with_their_connection(db: st.Store) -> None:
    con = dbapi.connect(db)
    cur = con.cursor()
    cur.execute(MANY)
    con.close()
    with pytest.raises(dbapi.ProgrammingError, match="the connection is closed"):
        cur.fetchone()


def test_an_error_in_the_middle_of_the_rows_is_raised_and_ends_them(cur: dbapi.Cursor) -> None:
    cur.execute("select cast(if(range = 3000000, 'x', '1') as int) from range(3000001)")
    with pytest.raises(dbapi.DataError, match="Could not convert"):
        cur.fetchall()
    with pytest.raises(dbapi.InterfaceError, match="the rows ended with an error"):
        cur.fetchone()


def test_rows_that_nobody_fetches_hold_nothing_of_the_store(db: st.Store) -> None:
    con = dbapi.connect(db)
    held = con._session._fetched
    gc.disable()
    try:
        con.cursor().execute(MANY)
        assert not held  # no one has the cursor any more
        with con.cursor() as cur:
            cur.execute(MANY)
            assert len(held) == 1
        assert all(rows.is_read for rows in held)
        cur = con.cursor()
        cur.execute(MANY)
        cur.execute("select 1")
        assert all(rows.is_read for rows in held)
    finally:
        gc.enable()
    con.close()
