"""LanceDB's remote client gets row ids, which name the same rows in its next query.

Of a keyed table they are made of the key, so they stay through updates and merges. Of a table
without a key they are Lance's own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.lance_namespace.rows import row_ids
from siltstone.lance_versions.errors import Refused

pytestmark = pytest.mark.filterwarnings("ignore")  # of LanceDB's client's own making
SIZE = 2
REST = {"s": "string", "e": f"vector(float32, {SIZE})"}
EPOCH = dt.datetime(1969, 7, 20, 20, 17, tzinfo=dt.UTC)
KEYS: dict[str, tuple[dict[str, str], Any]] = {
    "numbers": ({"id": "int64"}, lambda n: {"id": n - 3}),
    "unsigned": ({"id": "uint64"}, lambda n: {"id": 2**64 - 1 - n}),
    "times": ({"id": "timestamp"}, lambda n: {"id": EPOCH + dt.timedelta(hours=n)}),
    "texts": ({"id": "string"}, lambda n: {"id": f"key {n}"}),
    "two": ({"a": "string", "b": "int32"}, lambda n: {"a": f"a{n % 3}", "b": n}),
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Any, str]]:
    with st.connect(tmp_path / "s", background=False) as db:
        yield db, db.serve(port=0).url


def remote(url: str) -> Any:
    import lancedb

    return lancedb.connect("db://dev", api_key="none", host_override=url)


def rows_of(key: Any, numbers: Any) -> list[dict[str, Any]]:
    return [{**key(n), "s": f"silt {n}", "e": [float(n), 0.0]} for n in numbers]


def filled(db: Any, kind: str) -> Any:
    """Return a table with rows in base, in history and in the memtable, of which some are gone."""
    columns, key = KEYS[kind]
    table = db.create_table("t", columns | REST, primary_key=[*columns])
    table.create_index("s", kind="fts")
    table.upsert(rows_of(key, range(20)))
    db.checkpoint()
    db.merge()
    table.create_index("e", kind="vector")
    table.upsert(rows_of(key, range(15, 25)))
    db.checkpoint()
    table.upsert(rows_of(key, range(24, 30)))
    table.delete_where("s = 'silt 3'")
    return table


def ids_of(query: Any) -> dict[str, int]:
    """Return the row ids of what a query finds, by the text of the row."""
    found = query.with_row_id(True).to_arrow()
    assert found.schema.field("_rowid").type == pa.uint64()
    pairs = zip(found["s"].to_pylist(), found["_rowid"].to_pylist(), strict=True)
    return dict(pairs)


@pytest.mark.parametrize("kind", KEYS)
def test_every_query_gives_a_row_the_same_id(served: tuple[Any, str], kind: str) -> None:
    db, url = served
    rows = filled(db, kind)
    table = remote(url).open_table("t")
    every = ids_of(table.search())
    assert len({*every.values()}) == len(every) == 29
    near = table.search([0.0, 0.0], vector_column_name="e")
    assert ids_of(near.limit(29)) == every
    assert ids_of(near.limit(20_000)) == every  # by a look at each row
    assert ids_of(table.search("silt", query_type="fts").limit(29)) == every
    few = table.search().where("s = 'silt 7' or s = 'silt 27'").select(["s"])
    assert ids_of(few) == {s: every[s] for s in ("silt 7", "silt 27")}
    rows.upsert([{**KEYS[kind][1](7), "s": "silt 7", "e": [9.0, 9.0]}])
    db.checkpoint()
    db.merge()
    db.optimize()
    assert ids_of(table.search()) == every


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_taken_by_their_ids(served: tuple[Any, str], kind: str) -> None:
    db, url = served
    filled(db, kind)
    table = remote(url).open_table("t")
    every = ids_of(table.search())
    some = ["silt 1", "silt 16", "silt 28"]
    asked = [every[s] for s in some]
    found = table.take_row_ids([*asked, asked[0], 12345678]).to_arrow()
    assert sorted(found["s"].to_pylist()) == sorted(some)
    assert found.column_names == db["t"].schema.names
    shown = table.take_row_ids(asked).select(["e"]).with_row_id().to_arrow()
    assert {*shown["_rowid"].to_pylist()} == {*asked}
    assert shown.column_names == ["e", "_rowid"]
    db["t"].delete_where("s = 'silt 16'")
    assert table.take_row_ids(asked).to_arrow().num_rows == 2


def test_a_table_without_a_key_has_the_ids_that_lance_gives(served: tuple[Any, str]) -> None:
    db, url = served
    created = pa.Table.from_pylist(
        [{"s": f"silt {n}", "e": [float(n), 0.0]} for n in range(9)],
        pa.schema([("s", pa.string()), ("e", pa.list_(pa.float32(), SIZE))]),
    )
    table = remote(url).create_table("p", created)
    table.add(created.slice(0, 4))
    table.delete("s = 'silt 5'")
    found = table.search().with_row_id(True).to_arrow()
    every = found["_rowid"].to_pylist()
    assert len({*every}) == len(every) == 12
    with db.snapshot() as now:
        theirs = now.reader_of("p").table.dataset.to_table(with_row_id=True)
    assert dict(zip(theirs["_rowid"].to_pylist(), theirs["s"].to_pylist(), strict=True)) == dict(
        zip(every, found["s"].to_pylist(), strict=True)
    )
    near = table.search([6.6, 0.0], vector_column_name="e").limit(2).with_row_id(True).to_arrow()
    taken = table.take_row_ids(near["_rowid"].to_pylist()).to_arrow()
    assert sorted(taken["s"].to_pylist()) == sorted(near["s"].to_pylist()) == ["silt 6", "silt 7"]
    far = table.search([7.0, 0.0], vector_column_name="e").limit(20_000).with_row_id(True)
    assert {*far.to_arrow()["_rowid"].to_pylist()} == {*every}


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_the_hybrid_search_of_lancedb_finds_its_rows(served: tuple[Any, str], kind: str) -> None:
    db, url = served
    filled(db, kind)
    table = remote(url).open_table("t")
    query = table.search(query_type="hybrid").vector([27.0, 0.0]).text("27").limit(3)
    found = query.to_arrow()
    assert found["s"].to_pylist()[0] == "silt 27"
    assert found.num_rows == 3
    assert "_rowid" not in found.column_names

    async def asked() -> Any:
        import lancedb

        db = await lancedb.connect_async("db://dev", api_key="none", host_override=url)
        opened = await db.open_table("t")
        query = opened.query().nearest_to([27.0, 0.0]).column("e").nearest_to_text("27")
        return await query.limit(3).to_arrow()

    assert asyncio.run(asked())["s"].to_pylist()[0] == "silt 27"


def test_an_answer_never_has_one_id_for_two_rows() -> None:
    rows = pa.table({"_rowid": pa.array([7, 2**64 - 1, 7], pa.uint64())})
    apart = row_ids.told_apart(rows.slice(0, 2).to_reader())
    assert apart.read_all() == rows.slice(0, 2)
    with pytest.raises(Refused, match="two keys of the answer have one _rowid, 7"):
        row_ids.told_apart(rows.to_reader(max_chunksize=1)).read_all()


def test_row_ids_are_given_once_and_are_no_column_to_write_or_filter_by(
    served: tuple[Any, str],
) -> None:
    db, url = served
    filled(db, "texts")
    table = remote(url).open_table("t")
    named = table.search().select(["_rowid", "s"]).limit(4).to_arrow()
    assert named.column_names == ["_rowid", "s"]
    computed = table.search().select({"t": "upper(s)"}).with_row_id(True).limit(4).to_arrow()
    assert computed.column_names == ["t", "_rowid"]
    vectors = [[1.0, 0.0], [2.0, 0.0]]
    several = table.search(vectors, vector_column_name="e").limit(3).with_row_id(True).to_arrow()
    assert several.num_rows == 6
    for query, said in (
        (table.search().where("_rowid > 3"), "_rowid"),
        (table.search().where("_rowid in (3) and s = 'x'"), "_rowid"),
        (table.search([1.0, 0.0], vector_column_name="e").where("_rowid in (3)"), "stands alone"),
        (table.search().where(f"_rowid in ({2**64})"), "below 2"),
        (table.take_offsets([1]), "_rowoffset"),
    ):
        with pytest.raises(Exception, match=said):
            query.to_arrow()
