"""A page by a column with an index reads few rows, and is the same by SQL as a sort of all rows."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.levels import base
from siltstone.maintenance.merge import merge
from siltstone.query.sql import pages, sql
from siltstone.storage.lance.read.pinned import LancePinned
from tests.maintenance.stores import open_store

COUNT = 6_000
BEGIN = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - the column has no zone
COLUMNS = {
    "id": "int64",
    "city": "string",
    "n": "int32",
    "at": "timestamp[us]",
    "v": "int64",
    "f": "float64",
}


def row(some: random.Random, key: int) -> dict[str, Any]:
    city = None if some.random() < 0.02 else f"city {some.randrange(900):04}"
    at = BEGIN + dt.timedelta(minutes=some.randrange(9_000))
    number = some.randrange(50)
    return {"id": key, "city": city, "n": number, "at": at, "v": key % 7, "f": key / 8}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """A table with rows in base, of which some are in no index, and in the levels above it."""
    some = random.Random(7)
    before, merge.COMPACT_BELOW_ROWS = merge.COMPACT_BELOW_ROWS, 0
    with open_store(tmp_path_factory.mktemp("pages") / "s", real_lance=True) as store:
        table = store.create_table("t", COLUMNS, "id")
        for level in range(4):
            keys = some.sample(range(COUNT), COUNT if not level else COUNT // (8 * level))
            table.upsert([row(some, key) for key in keys])
            table.delete(some.sample(range(COUNT), 100))
            store.checkpoint()
            if level < 2:
                store.merge()
            if not level:
                for column in ("city", "n", "at", "f"):
                    table.create_index(column)
                table.create_index("v", kind="bitmap")
        table.upsert([row(some, key) for key in some.sample(range(COUNT), 50)])
        yield store
    merge.COMPACT_BELOW_ROWS = before


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


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("SELECT * FROM t WHERE city > 'city 0400' ORDER BY city, id LIMIT 50", None),
        ("SELECT id, v FROM t WHERE city > ? ORDER BY city, id LIMIT 50", ["city 0850"]),
        ("SELECT id, v FROM t WHERE city <= ? ORDER BY city DESC, id DESC LIMIT 50", ["city 04"]),
        ("SELECT city FROM t WHERE city >= 'city 0100' AND v = 3 ORDER BY city LIMIT 50", None),
        (
            "SELECT city FROM t WHERE city BETWEEN 'city 07' AND 'city 08' ORDER BY city LIMIT 9",
            None,
        ),
        ("SELECT city FROM t ORDER BY city DESC LIMIT 10 OFFSET 500", None),
        ("SELECT city FROM t ORDER BY city LIMIT 300 OFFSET 5800", None),
        ("SELECT id, n FROM t WHERE n > 17 ORDER BY n, id LIMIT 50", None),
        ("SELECT id, n FROM t ORDER BY n DESC, id DESC LIMIT 50 OFFSET 40", None),
        ("SELECT * FROM t WHERE v = 99 ORDER BY n LIMIT 9", None),
        ("SELECT id, t.at FROM t WHERE t.at > '2020-01-03' ORDER BY t.at, id LIMIT 20", None),
        ("SELECT id FROM t WHERE t.at < ? ORDER BY t.at DESC, id DESC LIMIT 20", [BEGIN]),
    ],
)
def test_a_page_has_the_rows_that_a_sort_gives(
    db: st.Store, found: list[bool], text: str, parameters: Any
) -> None:
    page = db.sql(text, parameters).to_arrow()
    assert page.equals(db.sql(f"WITH nothing AS (SELECT 1) {text}", parameters).to_arrow())
    assert found == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t ORDER BY f, id LIMIT 5",
        "SELECT * FROM t ORDER BY v, id LIMIT 5",
        "SELECT * FROM t ORDER BY city NULLS FIRST, id LIMIT 5",
        "SELECT * FROM t ORDER BY city DESC NULLS FIRST, id DESC LIMIT 5",
        "SELECT * FROM t ORDER BY city, id DESC LIMIT 5",
        "SELECT * FROM t ORDER BY city, n, id LIMIT 5",
        "SELECT * FROM t ORDER BY id, city LIMIT 5",
        "SELECT v AS city, id FROM t ORDER BY city, id LIMIT 5",
        "SELECT lower(city) AS x FROM t ORDER BY city, id LIMIT 5",
        "SELECT id FROM t WHERE city > 5::VARCHAR ORDER BY city, id LIMIT 5",
    ],
)
def test_any_other_statement_runs_as_it_is_written(
    db: st.Store, found: list[bool], text: str
) -> None:
    assert db.sql(text).to_arrow().equals(db.sql(f"WITH nothing AS (SELECT 1) {text}").to_arrow())
    assert found == [False, False]


@pytest.mark.parametrize("descending", [False, True])
def test_pages_after_one_another_are_the_table(db: st.Store, descending: bool) -> None:
    whole = db["t"].scan(order_by="city", descending=descending).read_all()
    assert whole.num_rows == db["t"].count()
    found: list[pa.Table] = []
    with db.snapshot() as snapshot:
        while not found or found[-1].num_rows:
            page = snapshot["t"].scan(
                order_by="city", descending=descending, limit=900, offset=900 * len(found)
            )
            found.append(page.read_all())
    assert pa.concat_tables(found).equals(whole)


@pytest.mark.parametrize(
    ("order", "given"),
    [
        ("city", {"filter": "city > 'city 0400'"}),
        ("city", {"descending": True}),
        ("n", {"filter": "n >= 9"}),
        ("at", {"filter": pc.field("at") < BEGIN + dt.timedelta(1)}),
        (["city", "id"], {"offset": 3_000}),
    ],
)
def test_a_page_reads_no_column_as_a_whole(
    db: st.Store, monkeypatch: pytest.MonkeyPatch, order: Any, given: dict[str, Any]
) -> None:
    with db.snapshot() as snapshot:
        table = snapshot["t"]
        first = table.scan(order_by=order, limit=9, **given).read_all()  # it opens the index
        rows = 0
        scan = LancePinned.scan

        def counted(self: LancePinned, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in scan(self, *args, **options):
                rows += batch.num_rows
                yield batch

        monkeypatch.setattr(LancePinned, "scan", counted)
        monkeypatch.setattr(base, "_MISSES_MIN", 1 << 30)  # all rows come into memory after some
        assert table.scan(order_by=order, limit=9, **given).read_all().equals(first)
    assert rows < COUNT // 4  # of the parts that the index does not cover


def test_the_index_of_these_tests_lacks_some_rows(db: st.Store) -> None:
    index = next(each for each in db["t"].indexes() if each.name == "city")
    assert 0 < index.lagging_rows < COUNT // 4


def test_an_order_by_what_has_no_index_says_which_columns_have_one(db: st.Store) -> None:
    for column in ("v", "f"):  # a bitmap; a btree, and NaN has no place
        text = r"key \['id'\], or the first .* or one of \['city', 'n', 'at'\], which have a btree"
        with pytest.raises(st.RequestError, match=text):
            db["t"].scan(order_by=column)
    for order in (["city", "n"], ["id", "city"], ["city", "id", "n"], ["city", "city"]):
        with pytest.raises(st.RequestError):
            db["t"].scan(order_by=order)


def test_an_order_ends_with_its_index(db: st.Store) -> None:
    table = db.create_table("ends", {"id": "int64", "c": "int64"}, "id")
    table.upsert([{"id": n, "c": -n} for n in range(9)])
    with pytest.raises(st.RequestError, match="order_by takes the columns of the key"):
        table.scan(order_by="c")
    table.create_index("c", build=False)
    wanted = {"id": [8, 7, 6]}
    assert table.scan(["id"], order_by="c", limit=3).read_all().to_pydict() == wanted
    db.checkpoint()
    db.merge()
    assert table.scan(["id"], order_by="c", limit=3).read_all().to_pydict() == wanted
    table.drop_index("c")
    with pytest.raises(st.RequestError, match="order_by takes the columns of the key"):
        table.scan(order_by="c")


def test_a_damaged_index_costs_time_and_no_row(tmp_path: Any) -> None:
    with open_store(tmp_path / "s", real_lance=True) as db:
        table = db.create_table("t", {"id": "int64", "c": "int64"}, "id")
        table.upsert([{"id": n, "c": n * 7 % 100} for n in range(100)])
        db.checkpoint()
        db.merge()
        table.create_index("c")
    for path in (tmp_path / "s").glob("tables/*/base/_indices/*/page_data.lance"):
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        path.write_bytes(content)
    with open_store(tmp_path / "s", real_lance=True) as db:
        found = db["t"].scan(order_by="c", limit=50).read_all()
        assert found.column("c").to_pylist() == [*range(50)]
