"""LanceDB's remote client gets what it asks for: all rows, computed columns, bounds, vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.rest import rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the client's own making
VECTOR = pa.list_(pa.float32(), 2)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "v": ["a", "b", "c"],
        "e": pa.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], VECTOR),
        "s": pa.array([{"e": [float(at), 0.0]} for at in (9, 8, 7)], pa.struct([("e", VECTOR)])),
    }
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[st.Store, str]]:
    with rest_of(tmp_path / "shop") as (db, service, _):
        yield db, service.url


@pytest.fixture
def remote(served: tuple[st.Store, str]) -> Any:
    import lancedb

    return lancedb.connect("db://dev", api_key="none", host_override=served[1])


def run(url: str, work: Any) -> Any:
    """Run `work` of an asynchronous table `t`."""
    import lancedb

    async def all_of_it() -> Any:
        db = await lancedb.connect_async("db://dev", api_key="none", host_override=url)
        return await work(await db.open_table("t"))

    return asyncio.run(all_of_it())


def test_reads_without_a_limit_return_all_rows(served: tuple[st.Store, str], remote: Any) -> None:
    table = remote.create_table("t", ROWS)
    for found in (
        table.search().to_arrow(),
        table.search().limit(None).to_arrow(),
        run(served[1], lambda t: t.to_arrow()),
        run(served[1], lambda t: t.query().to_arrow()),
    ):
        assert sorted(found.column("id").to_pylist()) == [1, 2, 3]
    assert table.search().where("id > 1").to_arrow().num_rows == 2
    where = run(served[1], lambda t: t.query().where("id > 2").to_arrow())
    assert where.column("id").to_pylist() == [3]


def test_a_search_is_computed_bounded_and_filtered_as_it_says(
    served: tuple[st.Store, str], remote: Any
) -> None:
    table = remote.create_table("t", ROWS)
    computed = table.search().select({"x": "id + 1"}).to_arrow()
    assert computed.to_pydict() == {"x": [2, 3, 4]}
    near = table.search([0.0, 0.0], vector_column_name="e").limit(1)
    assert near.where("id > 1", prefilter=False).to_arrow().num_rows == 0
    assert near.where("id > 1", prefilter=True).to_arrow().column("id").to_pylist() == [2]
    ring = table.search([0.0, 0.0], vector_column_name="e").distance_range(1.0, 4.0).to_arrow()
    assert ring.column("id").to_pylist() == [2]
    with pytest.raises(Exception, match="within column 's'"):
        table.search([0.0, 0.0], vector_column_name="s.e").limit(1).to_arrow()
    later = run(
        served[1],
        lambda t: (
            t.query().nearest_to([0.0, 0.0]).column("e").limit(1).postfilter().where("id > 1")
        ).to_arrow(),
    )
    assert later.num_rows == 0


def test_an_update_sets_a_vector(remote: Any) -> None:
    table = remote.create_table("t", ROWS)
    table.update(where="id = 1", values={"e": [5.0, 6.0], "v": "z"})
    (row,) = table.search().where("id = 1").select(["e", "v"]).to_arrow().to_pylist()
    assert row == {"e": [5.0, 6.0], "v": "z"}


def test_a_search_sees_the_rows_of_a_moment_ago_above_an_index(
    served: tuple[st.Store, str], remote: Any
) -> None:
    db, url = served
    rows = db.create_table("t", ROWS.schema, primary_key="id")
    rows.upsert([{"id": n, "v": "old", "e": [float(n), 0.0], "s": None} for n in range(60)])
    db.checkpoint()
    db.merge()
    rows.create_index("e", kind="vector")
    rows.update(7, e=[500.0, 0.0], s={"e": [1.0, 0.0]})
    rows.delete(8)
    table = remote.open_table("t")

    def ids(query: Any) -> list[int]:
        return query.to_arrow().column("id").to_pylist()

    def asked(x: float) -> Any:
        return table.search([x, 0.0], vector_column_name="e")

    assert ids(asked(500).limit(2)) == [7, 59]
    assert ids(asked(7.4).limit(3)) == [6, 9, 5]
    assert ids(asked(7.4).limit(2).offset(1)) == [9, 5]
    assert ids(asked(0).limit(9).distance_range(1.0, 10.0)) == [1, 2, 3]
    assert ids(asked(0).limit(2).where("id > 6")) == [9, 10]
    assert ids(asked(0).limit(20_000).select(["id"])) == [
        n for n in range(60) if n not in (7, 8)
    ] + [7]
    assert ids(asked(7).limit(1).nprobes(3).refine_factor(2)) == [6]
    assert ids(asked(7).limit(1).bypass_vector_index()) == [6]
    near = run(url, lambda t: t.query().nearest_to([500.0, 0.0]).column("e").limit(1).to_arrow())
    assert near.column("id").to_pylist() == [7]
    ring = run(
        url,
        lambda t: (
            t.query().nearest_to([0.0, 0.0]).column("e").distance_range(1.0, 10.0).limit(9)
        ).to_arrow(),
    )
    assert ring.column("id").to_pylist() == [1, 2, 3]
    assert table.search().limit(None).to_arrow().num_rows == 59


def test_a_wrong_search_is_one_clear_error(remote: Any) -> None:
    table = remote.create_table("t", ROWS)
    for query, said in (
        (table.search([1.0], vector_column_name="e"), "vectors of 2 numbers; the query has 1"),
        (table.search([1.0, 2.0], vector_column_name="v"), "column 'v' is string; a search needs"),
        (table.search([1.0, 2.0], vector_column_name="e").limit(2_000_000), "k is at most 1000000"),
        (table.search([0.0, 0.0], vector_column_name="e").distance_type("cosine"), "zeros"),
        (
            table.search([1.0, 0.0], vector_column_name="e").distance_type("hamming"),
            "the metric l2",
        ),
    ):
        with pytest.raises(Exception, match=said):
            query.to_arrow()
