"""An order or a range that cannot be is refused with one error, and says what would be right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from tests.maintenance.stores import open_store

COLUMNS = {"id": "int8", "name": "string", "v": "float64"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with open_store(tmp_path_factory.mktemp("order") / "s") as store:
        numbers = store.create_table("numbers", COLUMNS, "id")
        numbers.upsert([{"id": n, "name": f"n{n}", "v": n / 2} for n in range(10)])
        pairs = store.create_table("pairs", {"a": "int64", "b": "string", "v": "int64"}, ["a", "b"])
        pairs.upsert([{"a": n // 3, "b": f"b{n % 3}", "v": n} for n in range(9)])
        store.create_table("plain", {"id": "int64"}).append([{"id": 1}])
        yield store


def ids(found: pa.RecordBatchReader) -> list[Any]:
    return found.read_all().column("id").to_pylist()


@pytest.mark.parametrize(
    ("table", "order", "text"),
    [
        ("numbers", "v", r"takes the columns of the key \['id'\]"),
        ("numbers", ["id", "v"], "the columns of the key"),
        ("numbers", [], "the columns of the key"),
        ("numbers", "", "no column"),
        ("numbers", "idd", "no column 'idd'"),
        ("numbers", 7, "a column or a list of columns; got 7"),
        ("numbers", ["id", 7], "a column or a list of columns"),
        ("numbers", {"id": "desc"}, "a column or a list of columns"),
        ("numbers", math.nan, "a column or a list of columns; got nan"),
        ("numbers", b"id", "a column or a list of columns"),
        ("pairs", "b", r"key \['a', 'b'\], or the first ones"),
        ("pairs", ["b", "a"], "in that order"),
        ("plain", "id", "a plain table has no key"),
    ],
)
def test_an_order_by_what_is_no_key_is_refused(
    db: st.Store, table: str, order: Any, text: str
) -> None:
    with pytest.raises(st.RequestError, match=text):
        db[table].scan(order_by=order)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ("1", None, "key column 'id' is int8, not str"),
        (None, 1.5, "key column 'id' is int8, not float"),
        (math.nan, None, "key column 'id' is int8"),
        (128, None, "key column 'id' is int8"),
        (None, -129, "key column 'id' is int8"),
        (True, None, "key column 'id' is int8"),
        ([1], None, "key column 'id' is int8"),
        ({"v": 1}, None, "a key must have the columns"),
        ({"id": None}, None, "key column 'id' is int8, not None"),
        (pa.scalar(None, pa.int8()), None, "key column 'id' is int8"),
    ],
)
def test_an_end_that_is_no_key_is_refused(db: st.Store, low: Any, high: Any, text: str) -> None:
    with pytest.raises(st.SchemaMismatchError, match=text):
        db["numbers"].range(low, high)


@pytest.mark.parametrize("end", [(1,), 1, (1, None), ("a", 1), (1, "a", 2), (math.nan, "a")])
def test_an_end_of_a_composite_key_has_all_its_columns(db: st.Store, end: Any) -> None:
    with pytest.raises(st.SchemaMismatchError):
        db["pairs"].range(end)
    with pytest.raises(st.SchemaMismatchError):
        db["pairs"].range(None, end)


@pytest.mark.parametrize("ends", [(5, 4), (0, -1)])
def test_a_range_from_high_to_low_is_refused(db: st.Store, ends: Any) -> None:
    with pytest.raises(st.RequestError, match=r"begins at its low end; got .* descending=True"):
        db["numbers"].range(*ends)
    with pytest.raises(st.RequestError, match="begins at its low end"):
        db["numbers"].range(*ends, descending=True)


@pytest.mark.parametrize(
    "given",
    [
        *({"limit": value} for value in (-1, 1.0, True)),
        *({"offset": value} for value in (-1, None, "1", math.nan)),
        *({"descending": value} for value in (None, "desc")),
    ],
)
def test_a_page_that_cannot_be_is_refused(db: st.Store, given: dict[str, Any]) -> None:
    for read in (db["numbers"].range, lambda **g: db["numbers"].scan(order_by="id", **g)):
        with pytest.raises(st.RequestError, match=f"{next(iter(given))} must be"):
            read(**given)


@pytest.mark.parametrize("given", [{"offset": 1}, {"descending": True}])
def test_an_offset_and_a_direction_need_an_order(db: st.Store, given: dict[str, Any]) -> None:
    with pytest.raises(st.RequestError, match="need order_by"):
        db["numbers"].scan(**given)


def test_a_plain_table_has_no_ranges(db: st.Store) -> None:
    with pytest.raises(st.RequestError, match="a plain table has no key"):
        db["plain"].range(1, 2)


def test_ends_that_are_alike_have_nothing_between_them(db: st.Store) -> None:
    assert ids(db["numbers"].range(3, 3)) == []
    assert db["pairs"].range((1, "b1"), (1, "b1")).read_all().num_rows == 0


def test_a_range_without_ends_is_the_table_in_order(db: st.Store) -> None:
    assert ids(db["numbers"].range()) == list(range(10))
    assert ids(db["numbers"].range(None, None, descending=True)) == list(range(9, -1, -1))
    found = db["pairs"].range().read_all().column("v").to_pylist()
    assert found == list(range(9))


def test_the_high_end_is_not_in_a_range_and_the_highest_key_is_in_an_open_one(db: st.Store) -> None:
    table = db.create_table("ends", {"id": "int64"}, "id")
    ends = [-(1 << 63), -1, 0, (1 << 63) - 1]
    table.upsert([{"id": n} for n in ends])
    assert ids(table.range()) == ends
    assert ids(table.range(ends[0], ends[3])) == ends[:3]
    assert ids(table.range(ends[3])) == ends[3:]
    assert ids(table.range(None, ends[0])) == []


def test_a_column_is_read_by_the_filter_and_not_returned(db: st.Store) -> None:
    found = db["numbers"].range(2, columns=["id"], filter="v < 2.5").read_all()
    assert found.to_pydict() == {"id": [2, 3, 4]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id > 3 and id <= 6", [4, 5, 6]),
        ("id between 3 and 5", [3, 4, 5]),
        ("3 < id", [4, 5, 6, 7, 8, 9]),
        ("id >= 2.5 and id < 4.5", [3, 4]),
        ("id < 2 or id = 7", [0, 1, 7]),
        ("id in (9, 1, 4)", [1, 4, 9]),
        ("id not between 1 and 8", [0, 9]),
        ("not (id > 1)", [0, 1]),
        ("id > 3 and id < 2", []),
        ("id > 1000", []),
        ("id < 1000 and id > 7", [8, 9]),
        ("id is not null and id > 7", [8, 9]),
        ("id != 5 and id >= 4 and id < 7", [4, 6]),
        ("id > 3 and v < 2.5", [4]),
        ("id = 3", [3]),
        ("false", []),
    ],
)
def test_what_a_filter_says_of_the_key_is_a_range(
    db: st.Store, text: str, expected: list[int]
) -> None:
    table = db["numbers"]
    assert ids(table.scan(filter=text, order_by="id")) == expected
    assert ids(table.scan(filter=text, order_by="id", descending=True)) == expected[::-1]
    assert ids(table.range(2, 8, filter=text)) == [n for n in expected if 2 <= n < 8]
    assert sorted(ids(table.scan(filter=text))) == expected
    assert table.count(text) == len(expected)
