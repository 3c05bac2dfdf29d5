"""A search for words and by a vector ranks the rows of both by one score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.query.words_found import found
from tests.server.stores import joined_to

COLUMNS = {"id": "int64", "s": "string", "g": "int32", "v": "vector(float32, 2)"}
WORDS = ("silt", "stone", "river", "sand")


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


def filled(db: st.Store, rows: int = 400) -> Any:
    rng = np.random.default_rng(4)
    table = db.create_table("t", COLUMNS, primary_key="id")
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(rows)]
    vectors = rng.standard_normal((rows, 2)).round(1).tolist()
    pairs = zip(texts, vectors, strict=True)
    made = [{"id": n, "s": s, "g": n % 3, "v": v} for n, (s, v) in enumerate(pairs)]
    table.upsert(made[: rows // 2])
    table.create_index("s", kind="fts")
    db.checkpoint()
    db.merge()
    table.upsert(made[rows // 2 :])
    table.upsert([{**row, "s": "river"} for row in made[:20]])
    return table


def by_ranks(table: Any, words: str, vector: Any, k: int, **options: Any) -> dict[int, float]:
    """Return the sums of 1 / (60 + rank) of all rows in one of both rankings."""
    wide = max(100, 4 * k)
    total: dict[int, float] = {}
    for query in (words, vector):
        for rank, key in enumerate(found(table.search(query, k=wide, **options)), 1):
            total[key] = total.get(key, 0) + 1 / (60 + rank)
    return total


@pytest.mark.parametrize("k", [1, 10, 50])
def test_rows_are_ranked_by_the_sum_of_their_reciprocal_ranks(db: st.Store, k: int) -> None:
    table = filled(db)
    for options in ({}, {"filter": "g = 1"}, {"exact": True}):
        total = by_ranks(table, "river silt", [0.5, 0.5], k, **options)
        best = sorted(total, key=lambda key: (-np.float32(total[key]), key))[:k]
        result = table.search("river silt", k, vector=[0.5, 0.5], columns=["id"], **options)
        assert found(result) == best
        assert [row["_score"] for row in result] == pytest.approx([total[key] for key in best])


def test_rows_have_the_score_and_the_distance_that_each_search_gives_them(db: st.Store) -> None:
    table = filled(db)
    near = {row["id"]: row["_distance"] for row in table.search([0, 0], k=100)}
    best = {row["id"]: row["_score"] for row in table.search("river", k=100)}
    result = table.search("river", k=200, vector=[0, 0], columns=["g", "id"]).to_arrow()
    assert result.column_names == ["g", "id", "_distance", "_words_score", "_score"]
    assert result.num_rows == 200
    result = table.search("river", k=25, vector=[0, 0])
    for row in result:
        assert row["_distance"] == near.get(row["id"])
        assert row["_words_score"] == best.get(row["id"])


def test_weights_rank_by_scores_from_0_to_1(db: st.Store) -> None:
    table = filled(db)
    words, near = (table.search(query, k=100).to_pylist() for query in ("river", [0, 0]))
    only = table.search("river", k=100, vector=[0, 0], fusion={"words": 0, "vector": 1})
    assert found(only)[:99] == found(near)[:99]
    only = table.search("river", k=100, vector=[0, 0], fusion={"words": 2.5, "vector": 0})
    top = [key for key, score in ((r["id"], r["_score"]) for r in only) if score > 0]
    assert top == found(words)[: len(top)]
    assert only.to_pylist()[0]["_score"] == 2.5
    both = table.search("river", k=400, vector=[0, 0], fusion={"words": 1, "vector": 3})
    wide = [table.search(query, k=1600) for query in ("river", [0, 0])]
    total: dict[int, float] = {}
    for weight, rows in zip((1, 3), wide, strict=True):
        name = "_score" if weight == 1 else "_distance"
        values = np.array([row[name] for row in rows], np.float64)
        for row, value in zip(rows, values, strict=True):
            share = (value - values[-1]) / (values[0] - values[-1])
            total[row["id"]] = total.get(row["id"], 0) + weight * share
    for row in both:
        assert row["_score"] == pytest.approx(total[row["id"]], rel=1e-5, abs=1e-6)


def test_a_reranker_gets_arrow_and_decides_the_order(db: st.Store) -> None:
    table = filled(db)
    seen: list[pa.Table] = []

    def backwards(rows: pa.Table) -> pa.ChunkedArray:
        seen.append(rows)
        return rows["id"]

    result = table.search("river", k=5, vector=[0, 0], columns=["id", "s"], rerank=backwards)
    assert seen[0].column_names == ["id", "s", "_distance", "_words_score", "_score"]
    assert found(result) == sorted(seen[0]["id"].to_pylist(), reverse=True)[:5]
    assert [row["_score"] for row in result] == [float(key) for key in found(result)]
    alike = table.search("river", k=5, vector=[0, 0], rerank=lambda rows: [0] * len(rows))
    assert found(alike) == sorted(seen[0]["id"].to_pylist())[:5]


def test_a_reranker_orders_by_its_own_numbers_also_if_float32_does_not_tell_them_apart(
    db: st.Store,
) -> None:
    table = filled(db)

    def latest(rows: pa.Table) -> list[int]:
        return [1_764_000_000_000_000 + key for key in rows["id"].to_pylist()]

    result = table.search("river", k=400, vector=[0, 0], columns=["id"], rerank=latest)
    assert found(result) == sorted(found(result), reverse=True)
    assert result.schema.field("_score").type == pa.float32()


def test_own_writes_older_seqs_and_joined_processes_are_searched_too(db: st.Store) -> None:
    table = filled(db)
    seq = db.seq
    before = found(table.search("river", k=7, vector=[0, 0]))
    with db.transaction() as tx:
        tx["t"].upsert({"id": 999, "s": "river", "v": [0, 0]}, "null")
        assert 999 in found(tx["t"].search("river", k=7, vector=[0, 0]))
        tx.rollback()
    with joined_to(db) as joined:
        here = table.search("river", k=7, vector=[0, 0], fusion={"words": 1, "vector": 2})
        there = joined["t"].search("river", k=7, vector=[0, 0], fusion={"words": 1, "vector": 2})
        assert there.to_arrow() == here.to_arrow()

        def order(rows: pa.Table) -> pa.Array:
            return rows["id"]

        here = table.search("river", k=7, vector=[0, 0], rerank=order)
        there = joined["t"].search("river", k=7, vector=[0, 0], rerank=order)  # it reads the files
        assert there.to_arrow() == here.to_arrow()
    with (
        JoinedStore(db.path, str(db.serve_local())) as asking,
        pytest.raises(st.RequestError, match="cannot be sent"),
    ):
        asking["t"].search("river", vector=[0, 0], rerank=order)
    table.truncate()
    assert table.search("river", vector=[0, 0]).to_pylist() == []
    with db.snapshot(seq=seq) as past:
        assert found(past["t"].search("river", k=7, vector=[0, 0])) == before


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ([0, 0], {"vector": [0, 0]}, "give a text as the first argument"),
    ("river", {"vector": [0, 0, 0]}, "vectors of 2 numbers"),
    ("river", {"vector": [[0, 0], [1, 1]]}, "takes one vector"),
    ("", {"vector": [0, 0]}, "needs a text"),
    ("river", {"vector": [0, 0], "k": 0}, "k must be an integer from 1 to 10000; got 0"),
    ("river", {"vector": [0, 0], "vector_column": "s"}, "needs fixed-size lists"),
    ("river", {"vector": [0, 0], "column": "v"}, "a search for words needs texts"),
    ("river", {"vector": [0, 0], "fusion": "best"}, "fusion must be one of"),
    ("river", {"vector": [0, 0], "fusion": {"words": 1}}, "a weight of words and of vector"),
    ("river", {"vector": [0, 0], "fusion": {"words": 0, "vector": 0}}, "a weight above 0"),
    ("river", {"vector": [0, 0], "fusion": {"words": -1, "vector": 0}}, "is a number from 0"),
    ("river", {"vector": [0, 0], "fusion": {"words": 10**400, "vector": 0}}, "is a number from 0"),
    ("river", {"vector": [0, 0], "fusion": {"words": 1e308, "vector": 1e308}}, "to 1e\\+09"),
    ("river", {"vector": [0, 0], "fusion": {"words": 1e-44, "vector": 0}}, "of 1e-09 or more"),
    ("river", {"vector": [0, 0], "rerank": 3}, "rerank must be a function"),
    ("river", {"vector": [0, 0], "rerank": lambda _: [1]}, "for each of .* rows; got 1 of them"),
    ("river", {"vector": [0, 0], "rerank": lambda _: "x"}, "must return numbers"),
    ("river", {"vector": [0, 0], "rerank": lambda t: [np.nan] * len(t)}, "no NaN"),
    ("river", {"vector": [0, 0], "rerank": lambda t: [10**400] * len(t)}, "must return numbers"),
    ("river", {"vector": [0, 0], "rerank": lambda t: ["1"] * len(t)}, "must return numbers"),
    ("river", {"vector": [0, 0], "rerank": lambda t: np.ones(len(t)) * 1j}, "must return numbers"),
    ("river", {"vector": [0, 0], "fusion": np.ones(2)}, "fusion must be one of"),
    ("river", {"fusion": "rrf"}, "fusion needs a search for a vector; this one is for words"),
    ([0, 0], {"fusion": "rrf"}, "fusion needs a search for words and a vector"),
    ([0, 0], {"rerank": len}, "rerank needs a search for words and a vector"),
    ("river", {"vector_column": "v"}, "vector_column needs a search for a vector"),
]


@pytest.mark.parametrize(("query", "options", "words"), WRONG)
def test_a_wrong_search_is_one_clear_error(
    db: st.Store, query: Any, options: dict[str, Any], words: str
) -> None:
    table = filled(db, 10)
    with pytest.raises(st.RequestError, match=words):
        table.search(query, **options)
