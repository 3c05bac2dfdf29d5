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
    nested = table.search([0.0, 0.0], vector_column_name="s.e").limit(1).to_arrow()
    assert nested.column("id").to_pylist() == [3]
    later = run(
        served[1],
        lambda t: (
            t.query().nearest_to([0.0, 0.0]).column("e").limit(1).postfilter().where("id > 1")
        ).to_arrow(),
    )
    assert later.num_rows == 0
    with pytest.raises(Exception, match="with_row_id"):
        table.search().with_row_id(True).to_arrow()


def test_an_update_sets_a_vector(remote: Any) -> None:
    table = remote.create_table("t", ROWS)
    table.update(where="id = 1", values={"e": [5.0, 6.0], "v": "z"})
    (row,) = table.search().where("id = 1").select(["e", "v"]).to_arrow().to_pylist()
    assert row == {"e": [5.0, 6.0], "v": "z"}
