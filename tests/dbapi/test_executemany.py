"""Many rows of parameters are written in one transaction, hundreds of rows by one statement."""

# ruff: noqa: DTZ001 - times without a zone are values, too

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

import siltstone as st
from siltstone import dbapi

TYPES = {
    "b": "bool",
    "i": "int64",
    "u": "uint64",
    "f": "float64",
    "s": "string",
    "x": "binary",
    "d": "date32",
    "m": "time64[us]",
    "ts": "timestamp[us]",
    "tz": "timestamp[us, tz=UTC]",
    "de": "decimal128(10, 2)",
    "uu": "uuid",
    "du": "duration[us]",
    "l": "list<int64>",
}
STAMP = pd.Timestamp("2026-01-03 04:05:06.000007")
UTC = dt.UTC
VALUES: dict[str, list[Any]] = {
    "b": [True, False, "true"],
    "i": [1, -5, 2.0, "7", True],
    "u": [1, 2**64 - 1, 2**63],
    "f": [1.5, 2, 2**127, -0.0, float("inf"), "2.5", Decimal("1.25")],
    "s": ["", "a'b", "\N{SNOWMAN}", 5],
    "x": [b"", b"\x00\xff"],
    "d": [dt.date(2026, 1, 1), "2026-1-2", dt.datetime(2026, 1, 3, 5)],
    "m": [dt.time(1, 2, 3, 4), "10:00"],
    "ts": [dt.datetime(2026, 1, 1, 1), "2026-01-02 03:04:05", dt.date(2026, 1, 1), STAMP],
    "tz": [dt.datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01 00:00:00+02"],
    "de": [Decimal("1.25"), Decimal(7), 3, 1.5, "2.75"],
    "uu": [uuid.UUID(int=5), str(uuid.UUID(int=6))],
    "du": [dt.timedelta(seconds=5)],
    "l": [[1, 2], [], [None, 3]],
}


@pytest.fixture
def typed(db: st.Store) -> Iterator[tuple[st.Store, dbapi.Connection]]:
    db.create_table("v", {"id": "int64", **TYPES}, primary_key="id")
    con = dbapi.connect(db)
    yield db, con
    con.close()


def _by_one(con: dbapi.Connection, text: str, rows: list[tuple[Any, ...]]) -> list[Any]:
    cur = con.cursor()
    for row in rows:
        cur.execute(text, row)
    return _taken(con)


def _by_many(con: dbapi.Connection, text: str, rows: list[tuple[Any, ...]]) -> list[Any]:
    assert con.cursor().executemany(text, iter(rows)).rowcount == len(rows)
    return _taken(con)


def _taken(con: dbapi.Connection) -> list[Any]:
    """Return all rows, and roll back."""
    found = con.cursor().execute("select * from v order by id").fetchall()
    con.rollback()
    return found


@pytest.mark.parametrize("column", TYPES)
def test_values_become_what_they_become_one_by_one(
    typed: tuple[st.Store, dbapi.Connection], column: str
) -> None:
    _, con = typed
    text = f"insert into v (id, {column}) values (?, ?)"
    for kind in dict.fromkeys(map(type, VALUES[column])):  # alone, with nulls, and all of them
        of_kind = [value for value in VALUES[column] if type(value) is kind]
        rows = list(enumerate([None, *of_kind, None]))
        assert _by_many(con, text, rows) == _by_one(con, text, rows), kind
    rows = list(enumerate([None, *VALUES[column]]))
    assert _by_many(con, text, rows) == _by_one(con, text, rows)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("insert into t values (?, ?)", [(2, 1), (3, 1)]),
        ("insert into t (n, id) values ($2, $1)", [(2, 1), (3, 1)]),
        ("insert into t values ($id, $id)", [{"id": 2}, {"ID": 3}]),
        ("insert into t values (?, 7)", [(2,), (3,)]),
        ("insert into t values (?, default)", [(2,), (3,)]),
        ("insert or replace into t values (?, ?)", [(1, 1), (2, 2), (1, 3)]),
        ("insert or ignore into t values (?, ?);", [(1, 1), (2, 2), (2, 3)]),
        ("insert into t values (?, ?) on conflict do nothing", [(1, 1), (2, 2), (2, 3)]),
        ("insert into t values (?, ?) on conflict (id) do update set n = n + 1", [(1, 1), (1, 1)]),
        ("insert into t values (?, (select max(n) + ? from t))", [(2, 1), (3, 1)]),
        ("insert into t values (?, ? + 1)", [(2, 1), (3, 1)]),
        ("insert into t select ?, ?", [(2, 1), (3, 1)]),
        ("update t set n = ? where id = ?", [(5, 1), (6, 2)]),
        ("delete from t where id = ?", [(1,), (2,)]),
        ("merge into t using (select ? as id) s on t.id = s.id when matched then delete", [(1,)]),
    ],
)
def test_it_means_the_same_as_one_statement_after_the_other(
    db: st.Store, text: str, rows: list[Any]
) -> None:
    con = dbapi.connect(db)
    cur = con.cursor()
    count = sum(cur.execute(text, row).rowcount for row in rows)
    one_by_one = cur.execute("select * from t order by id").fetchall()
    con.rollback()
    assert 0 < cur.executemany(text, rows).rowcount <= count  # of equal keys one is written
    assert cur.description is None
    assert con.in_transaction
    assert cur.execute("select * from t order by id").fetchall() == one_by_one
    con.close()


def test_many_rows_travel_to_the_owner(at_door: st.Store) -> None:
    con = dbapi.connect(at_door)
    cur = con.cursor()
    cur.executemany("insert into t values (?, ?)", [(n, None) for n in range(2, 6_000)])
    cur.executemany("insert or replace into t values (?, ?)", [(1, 1), (2, 2.0), (3, "3")])
    cur.executemany("delete from t where id = ?", [(4,), (5,)])
    assert cur.rowcount == 2
    con.commit()
    assert at_door.sql("select count(*), sum(n) from t").fetchall() == [(5_997, 6)]
    con.close()


def test_with_autocommit_all_of_it_is_one_commit(db: st.Store) -> None:
    con = dbapi.connect(db, autocommit=True)
    seq = db.seq
    cur = con.cursor()
    cur.executemany("insert into t values (?, ?)", ((n, n) for n in range(2, 12_000)))
    assert cur.rowcount == 11_998
    assert not con.in_transaction
    assert db.seq == seq + 1
    with pytest.raises(dbapi.IntegrityError):
        cur.executemany("insert into t values (?, ?)", ((n, n) for n in range(20_000, 1, -1)))
    assert not con.in_transaction
    assert db["t"].count() == 11_999
    con.close()


def test_no_rows_write_nothing(con: dbapi.Connection, db: st.Store) -> None:
    seq = db.seq
    assert con.cursor().executemany("insert into t values (?, ?)", []).rowcount == 0
    con.commit()
    assert db.seq == seq


def test_rows_may_come_from_a_query_of_the_same_connection(
    con: dbapi.Connection, db: st.Store
) -> None:
    read, written = con.cursor(), con.cursor()
    read.execute("select range + 2, 0 from range(20000)")
    written.executemany("insert into t values (?, ?)", read)
    con.commit()
    assert db["t"].count() == 20_001


def test_large_values_are_written_in_parts(db: st.Store) -> None:
    db.create_table("v", {"id": "int64", "x": "binary"}, primary_key="id")
    con = dbapi.connect(db)
    megabyte = bytes(1 << 20)
    con.cursor().executemany("insert into v values (?, ?)", ((n, megabyte) for n in range(40)))
    con.commit()
    assert db.sql("select sum(octet_length(x)) from v").fetchone() == (40 << 20,)
    con.close()


@pytest.mark.parametrize(
    "statement",
    [
        *("select ?", "insert into t values (?, 1) returning id", "create table u (id bigint)"),
        *("begin", "truncate t"),
    ],
)
def test_what_gives_rows_or_has_no_rows_to_write_is_refused(
    con: dbapi.Connection, statement: str
) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=r"executemany\(\) runs INSERT"):
        con.cursor().executemany(statement, [(1,)])
    assert not con.in_transaction


@pytest.mark.parametrize("row", [(1,), (1, 2, 3), "ab", {"a": 1}, 5, None])
def test_a_row_with_other_parameters_is_refused(con: dbapi.Connection, row: Any) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="parameters"):
        con.cursor().executemany("insert into t values (?, ?)", [(7, 8), row])
    assert not con.in_transaction


def test_a_row_that_does_not_fit_is_told_by_its_number(db: st.Store) -> None:
    db.create_table("v", {"id": "int64", "d": "date32"}, primary_key="id")
    con = dbapi.connect(db)
    rows = [(n, "2026-01-01") for n in range(6_000)]
    rows[5_003] = (5_003, "never")
    with pytest.raises(dbapi.DataError) as caught:
        con.cursor().executemany("insert into v values (?, ?)", rows)
    assert str(caught.value) == (
        "row 4 of the statement: column 'd' is date32[day], not 'never' (its row 1 is row 5001 of"
        " executemany)"
    )
    assert isinstance(caught.value.__cause__, st.SchemaMismatchError)
    con.close()
