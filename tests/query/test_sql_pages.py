"""A page by key is the same by SQL, whether DuckDB sorts all rows or the table has their order."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.order.ordered_rows import OrderedRead
from siltstone.query.sql import pages, sql
from tests.maintenance.stores import open_store

COUNT = 3_000
BEGIN = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - the column has no zone
KINDS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "numbers": ("int64", lambda n: n - 500),
    "large": ("uint64", lambda n: (1 << 63) - 1_000 + n),
    "days": ("date32", lambda n: dt.date(2020, 1, 1) + dt.timedelta(n)),
    "moments": ("timestamp[us]", lambda n: BEGIN + dt.timedelta(minutes=n)),
    "texts": ("string", lambda n: f"key {n:05}"),
    "bytes": ("binary", lambda n: b"key %05d" % n),
    "prices": ("decimal(12, 2)", lambda n: Decimal(n - 500) / 4),
    "ids": ("uuid", lambda n: UUID(int=(n << 116) + n)),
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """Tables with rows in base, hidden and shadowed ones, and in the levels above it."""
    some = random.Random(5)
    with open_store(tmp_path_factory.mktemp("pages") / "s") as store:
        for name, (kind, key) in KINDS.items():
            columns = {"id": kind, "v": "int64", "w": "string", "f": "float64"}
            table = store.create_table(name, columns, "id")
            for level in range(4):
                numbers = some.sample(range(COUNT), COUNT // (1 + 4 * level))
                table.upsert(
                    [
                        {"id": key(n), "v": n % 100 + level, "w": f"w{n % 7}", "f": n / 8}
                        for n in numbers
                    ]
                )
                table.delete([key(n) for n in some.sample(range(COUNT), 100)])
                if level < 3:
                    store.checkpoint()
                if level < 2:
                    store.merge()
        store.create_table("n.deep", {"id": "int64"}, "id").upsert([{"id": n} for n in range(9)])
        for name in ("limit", "offset"):
            store.create_table(f"{name}s", {name: "int64"}, name).upsert([{name: 1}, {name: 2}])
        store.create_table("plain", {"id": "int64"}).append([{"id": n} for n in range(9)])
        pairs = store.create_table("pairs", {"id": "int64", "b": "int64"}, ["id", "b"])
        pairs.upsert([{"id": n // 2, "b": n} for n in range(9)])
        yield store


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each statement, whether it was read as a page."""
    told: list[bool] = []

    def noting(text: str, parameters: Any, tables: pages.Tables) -> tuple[str, pages.Tables]:
        made = pages.paged(text, parameters, tables)
        told.append(made[0] != text)
        return made

    monkeypatch.setattr(sql, "paged", noting)
    return told


def both(db: st.Store, text: str, parameters: Any = None) -> tuple[pa.Table, pa.Table]:
    """Return the rows of a statement, and those of one that is no page: it has a WITH."""
    whole = f"WITH nothing AS (SELECT 1) {text}"
    return db.sql(text, parameters).to_arrow(), db.sql(whole, parameters).to_arrow()


PAGES: list[tuple[str, Any]] = [
    ("SELECT * FROM numbers ORDER BY id LIMIT 5", None),
    ("select id, v from numbers where id > ? order by id limit 50", [700]),
    ("FROM numbers WHERE id >= 7 ORDER BY id DESC LIMIT 3 OFFSET 4", None),
    ("SELECT w, id AS key FROM numbers AS n WHERE n.id < $1 ORDER BY n.id LIMIT $2", [100, 7]),
    ("SELECT w FROM numbers WHERE id > $low AND v = 7 ORDER BY id LIMIT $n", {"low": 9, "n": 20}),
    ("SELECT * FROM numbers WHERE id BETWEEN -3 AND 90 AND w = 'w3' ORDER BY ID LIMIT 9", None),
    ("SELECT * FROM numbers WHERE 5 < id AND v <= 50 ORDER BY id ASC NULLS FIRST LIMIT 90", None),
    ("SELECT * FROM numbers WHERE v = 99 ORDER BY id LIMIT 9 -- the end", None),
    ("SELECT * FROM numbers WHERE v = 9999 ORDER BY id LIMIT 9", None),
    ("SELECT * FROM numbers WHERE f > ? ORDER BY id LIMIT 9", [20.5]),
    ("SELECT v FROM numbers WHERE id > 1 ORDER BY id LIMIT 0", None),
    ("SELECT v FROM numbers ORDER BY id LIMIT 9 OFFSET 2990", None),
    ("SELECT * FROM large WHERE id > ? ORDER BY id LIMIT 20", [(1 << 63) - 5]),
    ("SELECT * FROM large WHERE id < 9223372036854775900 ORDER BY id DESC LIMIT 20", None),
    ("SELECT * FROM days WHERE id > '2021-03-04' ORDER BY id LIMIT 20", None),
    ("SELECT * FROM days WHERE id < ? ORDER BY id DESC LIMIT 20", [dt.date(2022, 1, 1)]),
    ("SELECT * FROM moments WHERE id > ? ORDER BY id LIMIT 20", [BEGIN + dt.timedelta(1)]),
    ("SELECT * FROM texts WHERE id > 'key 00009' ORDER BY id LIMIT 5", None),
    ("SELECT * FROM texts WHERE id <= ? AND v > 40 ORDER BY id DESC LIMIT 20", ["key 01500"]),
    ("SELECT * FROM texts ORDER BY id LIMIT 20 OFFSET 700", None),
    ("SELECT * FROM texts WHERE id BETWEEN 'key 0' AND 'key 00' ORDER BY id LIMIT 5", None),
    ("SELECT * FROM texts WHERE id = 'key 00700' AND id >= 'key' ORDER BY id LIMIT 5", None),
    ("SELECT * FROM bytes WHERE id > ? ORDER BY id LIMIT 20", [b"key 00600"]),
    ("SELECT * FROM prices WHERE id > -7 AND id < ? ORDER BY id LIMIT 20", [Decimal("9.25")]),
    ("SELECT * FROM prices WHERE id <= 0 ORDER BY id DESC LIMIT 20", None),
    (f"SELECT * FROM ids WHERE id > '{UUID(int=900 << 116)}' ORDER BY id LIMIT 20", None),
    ("SELECT * FROM ids WHERE id < ? ORDER BY id DESC LIMIT 20", [UUID(int=9 << 122)]),
    ("SELECT * FROM ids WHERE v = 7 ORDER BY id LIMIT 20", None),
    ('SELECT "id" FROM "n.deep" ORDER BY "id" DESC LIMIT 2', None),
    ("SELECT id FROM n.deep WHERE id > 3 ORDER BY id LIMIT 2", None),
]


@pytest.mark.parametrize(("text", "parameters"), PAGES)
def test_a_page_has_the_rows_that_a_sort_gives(
    db: st.Store, found: list[bool], text: str, parameters: Any
) -> None:
    page, whole = both(db, text, parameters)
    assert page.equals(whole)
    assert found == [True, False]


OTHERS: list[tuple[str, Any]] = [
    ("SELECT * FROM numbers WHERE f > 20.0::DOUBLE ORDER BY id LIMIT 9", None),
    ("SELECT * FROM prices WHERE id > 7.5 ORDER BY id LIMIT 5", None),
    ("SELECT * FROM prices WHERE id > ? ORDER BY id LIMIT 5", [Decimal("7.123")]),
    (
        "SELECT * FROM ids WHERE id > '{00f00000-0000-0000-0000-000000000000}' ORDER BY id LIMIT 5",
        None,
    ),
    ("SELECT * FROM pairs ORDER BY id LIMIT 5", None),
    ("SELECT * FROM plain ORDER BY id LIMIT 5", None),
    ("SELECT * FROM numbers ORDER BY v, id LIMIT 5", None),
    ("SELECT -id AS id, v FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT v AS id, w FROM numbers ORDER BY id, w LIMIT 5", None),
    ("SELECT * REPLACE (-id AS id) FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT * EXCLUDE (v) FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT max(v) FROM numbers GROUP BY id ORDER BY id LIMIT 5", None),
    ("SELECT DISTINCT id FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers ORDER BY id LIMIT 10%", None),
    ("SELECT id FROM numbers ORDER BY 1 LIMIT 5", None),
    ("SELECT id FROM numbers ORDER BY id + 1 LIMIT 5", None),
    ("SELECT id FROM numbers ORDER BY id LIMIT 20000", None),
    ("SELECT id FROM numbers ORDER BY id LIMIT 5 OFFSET 20000", None),
    ("SELECT id FROM numbers WHERE id > 3.5 ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE id > ? ORDER BY id LIMIT 5", [3.5]),
    ("SELECT id FROM numbers WHERE id > '7' ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE id > 99999999999999999999 ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE v % 7 = 3 ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE v = 3 OR id = 9 ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE v IN (3, 4) ORDER BY id LIMIT 5", None),
    ("SELECT id FROM numbers WHERE v > (SELECT min(v) FROM numbers) ORDER BY id LIMIT 5", None),
    ("SELECT id FROM (SELECT * FROM numbers ORDER BY v, id LIMIT 9) ORDER BY id LIMIT 5", None),
    ("SELECT a.id FROM numbers a JOIN days b ON a.v = b.v ORDER BY a.id, b.id LIMIT 5", None),
    ("SELECT id FROM numbers ORDER BY id", None),
    ("SELECT id FROM numbers UNION SELECT v FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT row_number() OVER (ORDER BY v, id) FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT 'order by id limit 5' FROM numbers ORDER BY id LIMIT 5", None),
    ("SELECT l.limit FROM limits l ORDER BY l.limit LIMIT 1", None),
    ("SELECT o.offset FROM offsets o ORDER BY o.offset LIMIT 1", None),
    ("SELECT id FROM numbers WHERE id > -? ORDER BY id LIMIT 5", [None]),
]


@pytest.mark.parametrize(("text", "parameters"), OTHERS)
def test_any_other_statement_runs_as_it_is_written(
    db: st.Store, found: list[bool], text: str, parameters: Any
) -> None:
    page, whole = both(db, text, parameters)
    assert found == [False, False]
    assert page.equals(whole)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nothing FROM numbers ORDER BY id LIMIT 5",
        "SELECT * FROM numbers WHERE nothing = 3 ORDER BY id LIMIT 5",
        "SELECT * FROM nothing ORDER BY id LIMIT 5",
        "SELECT * FROM numbers WHERE id > ? ORDER BY id LIMIT 5",
        "SELECT max(id) FROM numbers ORDER BY id LIMIT 5",
        "SELECT * FROM numbers ORDER BY id LIMIT -1",
        "SELECT * FROM numbers WHERE id > -'x' ORDER BY id LIMIT 5",
        "SELECT * FROM numbers ORDER BY id LIMIT -'x'",
    ],
)
def test_a_wrong_statement_gets_the_error_of_duckdb(db: st.Store, text: str) -> None:
    with pytest.raises(st.RequestError):
        db.sql(text)


def test_pages_after_one_another_are_the_table(db: st.Store) -> None:
    whole = db["numbers"].range(columns=["id", "v"]).read_all()
    last, rows = -(1 << 60), list[dict[str, Any]]()
    query = "SELECT id, v FROM numbers WHERE id > ? ORDER BY id LIMIT 230"
    while page := db.sql(query, [last]).to_pylist():
        rows += page
        last = page[-1]["id"]
    assert rows == whole.to_pylist()


def test_a_page_reads_few_rows(db: st.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batches = OrderedRead.batches

    def counted(self: OrderedRead, *given: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, *given):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(OrderedRead, "batches", counted)
    found = db.sql("SELECT * FROM numbers WHERE id > 5 AND v < 200 ORDER BY id LIMIT 50")
    assert found.to_arrow().num_rows == 50
    assert sum(read) <= 256 * 5


def test_a_transaction_reads_pages_with_its_own_rows(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["numbers"].upsert([{"id": 7, "v": -7, "w": "own", "f": None}])
        tx["numbers"].delete([8])
        query = "SELECT id, v FROM numbers WHERE id >= 7 ORDER BY id LIMIT 2"
        rows = tx.sql(query).to_pylist()
        assert rows[0] == {"id": 7, "v": -7}
        assert rows[1]["id"] > 8
        tx.rollback()
