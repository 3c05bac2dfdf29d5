"""Times of nanoseconds, which Python's own do not hold, stay whole where they only pass."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st

TIME = pa.time64("ns")
AT = 1_000_000_007


@pytest.fixture(params=["memtable", "history", "base"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db", background=False) as store:
        kinds = {"id": pa.int64(), "kind": pa.string(), "at": TIME, "in": pa.list_(TIME)}
        schema = pa.schema([*kinds.items(), ("v", pa.int64())])
        rows = {"id": [1, 1, 2], "kind": ["a", "b", "a"], "at": pa.array([AT, AT + 1, None], TIME)}
        lists = pa.array([[AT], [], None], pa.list_(TIME))
        table = pa.table({**rows, "in": lists, "v": [1, 2, 3]}, schema=schema)
        store.create_table("pairs", schema, primary_key=["id", "kind"]).upsert(table)
        store.create_table("t", schema, primary_key="id").upsert(table.filter([True, False, True]))
        if request.param != "memtable":
            store.checkpoint()
        if request.param == "base":
            store.merge()
        yield store


def times(rows: pa.Table) -> list[object]:
    return rows["at"].cast(pa.int64()).to_pylist()


def test_an_update_keeps_the_nanoseconds_of_what_it_does_not_name(db: st.Store) -> None:
    assert db["t"].update(1, v=9).rows == 1
    assert db["pairs"].update((1, "b"), v=None).rows == 1
    assert db["t"].update(7, v=9).rows == 0
    with pytest.raises(st.SchemaMismatchError):
        db["t"].update(1, v="x")
    assert sorted(times(db["t"].to_arrow()), key=str) == [AT, None]
    assert sorted(times(db["pairs"].to_arrow()), key=str) == [AT, AT + 1, None]
    assert db["t"].to_arrow(filter="v = 9")["in"][0].values.cast(pa.int64()).to_pylist() == [AT]
    assert db["pairs"].get((1, "b"))["v"] is None


def test_rows_read_by_key_have_the_nanoseconds_of_a_scan(db: st.Store) -> None:
    assert times(db["t"].get_many([2, 7, 1])) == [None, AT]
    assert times(db["t"].get_many([])) == []
    assert times(db["pairs"].get_many([(1, "b"), (1, "x"), (1, "a")])) == [AT + 1, AT]
    assert times(db["t"].to_arrow(filter="id = 1")) == [AT]
    with db.transaction() as tx:
        tx["t"].delete(1)
        assert times(tx["t"].get_many([1, 2])) == [None]
