"""LanceDB's remote client asks plain and keyed tables for rows, vectors and words alike.

What its own suites ask of a table on a disk (`test_query`, `test_fts`, `test_hybrid_query`) is
asked here of a server, in words of ours: what is answered, and what is refused, and how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb.query import (
    BooleanQuery,
    BoostQuery,
    ColumnOrdering,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lancedb.remote.errors import HttpError
from lancedb.rerankers import RRFReranker

from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import opened
from tests.server.rest import rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the client's own making
VECTOR = pa.list_(pa.float32(), 2)
WORDS = ["a river bends", "silt and sand", "the river carries silt", "old stones", None, "sand"]
ROWS = pa.table(
    {
        "vector": pa.array([[float(n), 1.0] for n in range(6)], VECTOR),
        "id": range(6),
        "text": pa.array(WORDS),
        "more": pa.array([f"{word} again" if word else None for word in WORDS]),
        "at": pa.array([{"n": n, "s": str(n)} for n in range(6)]),
    }
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve both tables with indexes of words: the keyed one has rows above its base."""
    with rest_of(tmp_path_factory.mktemp("remote") / "shop") as (db, service, _):
        keyed = db.create_table("keyed", ROWS.schema, primary_key="id")
        keyed.upsert(ROWS.slice(0, 4))
        db.checkpoint()
        db.merge()
        for column in ("text", "more"):
            keyed.create_index(column, kind="fts", with_position=True)
        keyed.upsert(ROWS.slice(4))
        db.create_table("plain", ROWS.schema).append(ROWS)
        space = SiltstoneNamespace(db)
        for column in ("text", "more"):
            opened(space, "plain").create_scalar_index(column, "INVERTED", with_position=True)
        yield service.url


@pytest.fixture(params=["keyed", "plain"])
def table(url: str, request: pytest.FixtureRequest) -> Any:
    remote = lancedb.connect("db://dev", api_key="none", host_override=url)
    return remote.open_table(request.param)


def ids(query: Any) -> list[int]:
    return query.to_arrow()["id"].to_pylist()


BY_ID = [ColumnOrdering(column_name="id")]
BY_ID_DOWN = [ColumnOrdering(column_name="id", ascending=False)]
ANSWERED: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    # rows
    "a limit": (lambda t: t.search().where("id > 1").limit(9), [2, 3, 4, 5]),
    "an offset": (lambda t: t.search([0, 1]).offset(4).limit(9), [4, 5]),
    "no row": (lambda t: t.search().where("id < 0"), []),
    "a null": (lambda t: t.search().where("text IS NULL"), [4]),
    "a field": (lambda t: t.search().where("at.n = 3"), [3]),
    # vectors
    "the nearest": (lambda t: t.search([4.2, 1]).limit(2), [4, 5]),
    "a NumPy vector": (lambda t: t.search(np.array([4.2, 1])).limit(1), [4]),
    "a named column": (lambda t: t.search([2, 1], vector_column_name="vector").limit(1), [2]),
    "by cosine": (lambda t: t.search([0, 1]).distance_type("cosine").limit(1), [0]),
    "by dot": (lambda t: t.search([1, 0]).distance_type("dot").limit(1), [5]),
    "within bounds": (lambda t: t.search([0, 1]).distance_range(1, 9).limit(9), [1, 2]),
    "filtered before": (lambda t: t.search([0, 1]).where("id > 2", prefilter=True).limit(1), [3]),
    "filtered after": (lambda t: t.search([0, 1]).where("id > 2", prefilter=False).limit(1), []),
    "without an index": (lambda t: t.search([3, 1]).bypass_vector_index().limit(1), [3]),
    "with hints": (lambda t: t.search([3, 1]).nprobes(7).refine_factor(2).ef(5).limit(1), [3]),
    "all of them": (lambda t: t.search([0, 1]).limit(20_000), [0, 1, 2, 3, 4, 5]),
    # words
    "a word": (lambda t: words(t, "stones"), [3]),
    "no such word": (lambda t: words(t, "sea"), []),
    "a word and a filter": (lambda t: words(t, "river").where("id > 0"), [2]),
    "a filter after words": (lambda t: words(t, "stones").where("id < 3", prefilter=False), []),
    "in a column": (lambda t: words(t, MatchQuery("bends", "more")), [0]),
    "all words": (lambda t: words(t, MatchQuery("river silt", "text", operator="AND")), [2]),
    "similar words": (lambda t: words(t, MatchQuery("rivex bendz", "text", fuzziness=1,
                                                    operator="AND")), [0]),
    "a phrase": (lambda t: words(t, PhraseQuery("carries silt", "text")), [2]),
    "a phrase that is none": (lambda t: words(t, PhraseQuery("silt carries", "text")), []),
    "in two columns": (lambda t: words(t, MultiMatchQuery("stones", ["text", "more"])), [3]),
    "above base": (lambda t: words(t, "sand").where("id > 3"), [5]),
}  # fmt: skip


IN_ORDER: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "an order": (lambda t: t.search().order_by(BY_ID).limit(2), [0, 1]),
    "an order from high to low": (
        lambda t: t.search().order_by(BY_ID_DOWN).where("id < 5").limit(2).offset(1), [3, 2]),
    "an order with the ids of rows": (
        lambda t: t.search().order_by(BY_ID_DOWN).with_row_id(True).limit(2), [5, 4]),
}  # fmt: skip


@pytest.mark.parametrize("asked", IN_ORDER)
def test_rows_of_a_keyed_table_come_in_the_order_of_its_key(url: str, asked: str) -> None:
    query, wanted = IN_ORDER[asked]
    remote = lancedb.connect("db://dev", api_key="none", host_override=url)
    assert ids(query(remote.open_table("keyed"))) == wanted


IN_NO_ORDER = ("a limit", "a null", "a field")


def words(table: Any, query: Any) -> Any:
    columns = {"fts_columns": "text"} if isinstance(query, str) else {}
    return table.search(query, query_type="fts", **columns).limit(9)


@pytest.mark.parametrize("asked", ANSWERED)
def test_a_query_is_answered(table: Any, asked: str) -> None:
    query, wanted = ANSWERED[asked]
    found = ids(query(table))
    assert (sorted(found) if asked in IN_NO_ORDER else found) == wanted


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an order by what is no key": (
        lambda t: t.search().order_by([ColumnOrdering(column_name="text")]),
        "order_by takes the key's columns",
    ),
    "an order of a search": (
        lambda t: t.search([0, 1]).order_by([ColumnOrdering(column_name="id")]),
        "a search ranks them",
    ),
    "a vector of another length": (lambda t: t.search([1.0]), "vectors of 2 numbers"),
    "a column that is not there": (lambda t: t.search().select(["gone"]), "gone"),
    "a filter that does not parse": (lambda t: t.search().where("id >"), "filter"),
    "a filter of another type": (lambda t: t.search().where("id = 'x'"), "id"),
    "a distance of bytes": (lambda t: t.search([0, 1]).distance_type("hamming"), "metric"),
    "words or words": (
        lambda t: words(t, BooleanQuery([(Occur.SHOULD, MatchQuery("silt", "text"))])),
        "boolean is not offered",
    ),
    "words less words": (
        lambda t: words(t, BoostQuery(MatchQuery("silt", "text"), MatchQuery("old", "text"))),
        "boost is not offered",
    ),
    "a loose phrase": (lambda t: words(t, PhraseQuery("silt sand", "text", slop=1)), "slop"),
    "words in a column without an index": (
        lambda t: words(t, MatchQuery("silt", "id")),
        "id",
    ),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_is_not_answered_is_refused_in_words(table: Any, asked: str) -> None:
    query, said = REFUSED[asked]
    with pytest.raises(HttpError, match=said):
        query(table).to_arrow()


def test_columns_are_chosen_and_computed(table: Any) -> None:
    query = table.search([0, 1]).limit(1)
    assert query.select(["id", "text"]).to_arrow().schema.names == ["id", "text", "_distance"]
    assert query.select({"twice": "id * 2"}).to_list() == [{"twice": 0, "_distance": 0.0}]
    found = words(table, "stones").select(["id"]).to_arrow()
    assert found.schema.names == ["id", "_score"]


def test_rows_come_in_each_form(table: Any) -> None:
    query = table.search([0, 1]).select(["id"]).limit(2)
    assert [batch.num_rows for batch in query.to_batches()] == [2]
    assert query.to_pandas()["id"].tolist() == [0, 1]
    assert [row["id"] for row in query.to_list()] == [0, 1]


def test_rows_are_taken_by_their_ids(table: Any) -> None:
    found = table.search().select(["id"]).with_row_id(True).to_arrow()
    numbers = dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
    assert len({*numbers.values()}) == 6
    taken = table.take_row_ids([numbers[5], numbers[1]]).select(["id"]).to_arrow()
    assert sorted(taken["id"].to_pylist()) == [1, 5]


def test_words_and_a_vector_together_are_ranked_by_the_client(table: Any) -> None:
    query = table.search(query_type="hybrid", fts_columns="text").vector([0, 1]).text("silt")
    found = query.rerank(RRFReranker()).limit(3).to_arrow()
    assert {*found["id"].to_pylist()} <= {0, 1, 2, 3, 4, 5}
    assert {1, 2} <= {*found["id"].to_pylist()}


def test_several_vectors_are_searched_at_once(table: Any) -> None:
    found = table.search([[0.0, 1.0], [5.0, 1.0]]).limit(1).to_arrow()
    assert dict(zip(found["query_index"].to_pylist(), found["id"].to_pylist(), strict=True)) == {
        0: 0,
        1: 5,
    }


def test_a_plan_is_told(table: Any) -> None:
    assert "nearest: l2, in vector" in table.search([0, 1]).limit(1).explain_plan()
    assert "answered with: 1 rows" in table.search([0, 1]).limit(1).analyze_plan()


def test_the_asynchronous_client_gets_the_same(url: str, table: Any) -> None:
    async def asked() -> list[list[int]]:
        remote = await lancedb.connect_async("db://dev", api_key="none", host_override=url)
        found = await remote.open_table(table.name)
        near = found.query().nearest_to(pa.array([4.2, 1.0])).limit(2)
        later = found.query().where("id = 2").nearest_to([0, 1]).postfilter().limit(1)
        text = found.query().nearest_to_text("stones", columns="text").limit(3)
        return [(await each.to_arrow())["id"].to_pylist() for each in (near, later, text)]

    assert asyncio.run(asked()) == [[4, 5], [], [3]]
