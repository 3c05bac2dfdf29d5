"""A search finds the rows of its seq, also those of a moment ago, through every door."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.query.search.vector_query import K_MAX, QUERIES_MAX
from tests.query.nearest_rows import found, nearest
from tests.server.stores import joined_to

SIZE = 4
COLUMNS = {"id": "int64", "v": f"vector(float32, {SIZE})", "name": "string"}


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


def near(number: float) -> list[float]:
    return [float(number), 0.0, 0.0, 0.0]


def filled(db: st.Store, rows: int = 40) -> Any:
    table = db.create_table("t", COLUMNS, primary_key="id")
    table.upsert([{"id": n, "v": near(n), "name": f"n{n}"} for n in range(rows)])
    return table


def ids(result: Any) -> list[int]:
    return [row["id"] for row in result]


def merged(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


NOWHERE: Callable[[st.Store], None] = lambda _: None  # noqa: E731
PLACES = [NOWHERE, lambda db: db.checkpoint(), merged]


@pytest.mark.parametrize("place", PLACES, ids=["memtable", "history", "base"])
def test_a_row_updated_a_moment_ago_is_found_by_its_new_vector_and_not_by_its_old_one(
    db: st.Store, place: Callable[[st.Store], None]
) -> None:
    table = filled(db)
    place(db)
    table.create_index("v", kind="vector")
    table.update(7, v=near(500))
    assert ids(table.search(near(500), k=1)) == [7]
    assert ids(table.search(near(7), k=2)) == [6, 8]
    place(db)
    assert ids(table.search(near(500), k=1)) == [7]
    assert ids(table.search(near(7), k=2)) == [6, 8]


def test_a_read_only_process_finds_the_new_vector(db: st.Store, tmp_path: Path) -> None:
    table = filled(db)
    merged(db)
    with st.connect(tmp_path / "s", read_only=True) as reader:
        assert ids(reader["t"].search(near(7), k=1)) == [7]
        table.update(7, v=near(500))
        assert ids(reader["t"].search(near(500), k=1)) == [7]
        assert ids(reader["t"].search(near(7), k=2)) == [6, 8]


def test_a_joined_process_gets_the_same_rows(db: st.Store) -> None:
    table = filled(db)
    asked: dict[str, Any] = {"k": 3, "filter": "id % 2 = 0", "columns": ["name", "id"]}
    with joined_to(db) as joined:
        for vector in (near(9), np.array(near(9)), [near(9), near(1)], pa.array(near(9))):
            here = table.search(vector, **asked).to_arrow()
            assert joined["t"].search(vector, **asked).to_arrow() == here
        with joined.snapshot() as past, joined.transaction() as tx:
            tx["t"].delete(8)
            assert ids(tx["t"].search(near(8), k=1)) == [7]
            assert ids(past["t"].search(near(8), k=1)) == [8]


def test_own_writes_of_a_transaction_are_found_in_it_alone(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    with db.transaction() as tx:
        tx["t"].upsert({"id": 900, "v": near(900)}, "null")
        tx["t"].delete(39)
        assert ids(tx["t"].search(near(900), k=2)) == [900, 38]
        assert ids(table.search(near(900), k=1)) == [39]
        tx.rollback()


def test_an_older_seq_is_searched_as_it_was(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    seq = db.seq
    table.update(7, v=near(500))
    table.delete([6, 8])
    merged(db)
    with db.snapshot(seq=seq) as past:
        assert ids(past["t"].search(near(7), k=3)) == [7, 6, 8]
    assert ids(table.search(near(7), k=2)) == [5, 9]


def test_a_search_of_a_serializable_transaction_conflicts_with_a_write_that_its_filter_meets(
    db: st.Store,
) -> None:
    table = filled(db)
    other = db.create_table("other", {"id": "int64"}, primary_key="id")
    tx = db.transaction(isolation="serializable")
    tx["t"].search(near(7), k=1, filter="id < 20")
    tx["other"].upsert({"id": 1})
    table.update(7, name="changed")
    with pytest.raises(st.ConflictError):
        tx.commit()
    tx = db.transaction(isolation="serializable")
    tx["t"].search(near(7), k=1, filter="id < 20")
    tx["t"].upsert({"id": 1, "v": near(1)}, "null")
    other.upsert({"id": 2})
    tx.commit()


def test_two_serializable_transactions_cannot_both_insert_what_they_both_missed(
    db: st.Store,
) -> None:
    filled(db)
    both = [db.transaction(isolation="serializable") for _ in range(2)]
    for number, tx in enumerate(both):
        assert tx["t"].search(near(-5), k=1, distance_range=(None, 1.0)).to_pylist() == []
        tx["t"].upsert({"id": 2_000 + number, "v": near(-5)}, "null")
    both[0].commit()
    with pytest.raises(st.ConflictError):
        both[1].commit()


def test_many_vectors_are_answered_as_one_by_one(db: st.Store) -> None:
    table = filled(db)
    merged(db)
    table.upsert([{"id": n, "v": near(n + 0.5)} for n in range(10, 20)], "null")
    asked = [near(n) for n in (3, 14, 14.6, 39)]
    result = table.search(asked, k=3, columns=["id"]).to_arrow()
    assert result.column_names == ["id", "_query", "_distance"]
    for number, vector in enumerate(asked):
        mine = result.filter(pa.array(result["_query"].to_numpy() == number))
        assert mine.drop_columns(["_query"]) == table.search(vector, k=3, columns=["id"]).to_arrow()


def test_rows_come_as_arrow_pandas_polars_and_python(db: st.Store) -> None:
    table = filled(db)
    result = table.search(near(2), k=2, columns=["name"])
    rows = [{"name": "n2", "_distance": 0.0}, {"name": "n1", "_distance": 1.0}]
    assert [*result] == result.to_pylist() == rows
    assert len(result) == 2
    assert pa.table(result) == result.to_arrow()
    assert result.to_pandas().to_dict("records") == rows
    assert result.to_polars().to_dicts() == rows
    assert "n2" in repr(result)
    assert result.schema.field("_distance").type == pa.float32()


def test_rows_that_are_equally_far_come_by_their_keys(db: st.Store) -> None:
    table = db.create_table(
        "k", {"a": "string", "b": "int64", "v": "vector(float32, 4)"}, ["b", "a"]
    )
    rows = [{"a": a, "b": b, "v": near(1)} for a in "zyx" for b in range(30)]
    table.upsert(rows[::2])
    merged(db)
    table.upsert(rows[1::2])
    result = table.search(near(0), k=7, columns=["b", "a"])
    wanted = sorted((row["b"], row["a"]) for row in rows)[:7]
    assert [(row["b"], row["a"]) for row in result] == wanted


def test_rows_that_are_equally_far_come_by_their_keys_also_if_these_are_uuids(
    db: st.Store,
) -> None:
    schema = {"id": pa.uuid(), "s": pa.string(), "v": pa.list_(pa.float32(), 2)}
    table = db.create_table("u", pa.schema(schema), primary_key="id")
    table.create_index("s", kind="fts")
    keys = [UUID(int=n) for n in (2**127, 3, 2**64, 5)]
    table.upsert([{"id": key, "s": "stone", "v": [1.0, 0.0]} for key in keys])
    for place in PLACES:
        place(db)
        assert ids(table.search([0, 0], k=3)) == sorted(keys)[:3]
        assert ids(table.search("stone", k=3)) == sorted(keys)[:3]
        assert ids(table.search("stone", k=3, vector=[0, 0])) == sorted(keys)[:3]


def test_a_table_without_a_key_is_searched_too(db: st.Store) -> None:
    plain = db.create_table("p", COLUMNS)
    assert plain.search(near(1), k=2).to_pylist() == []
    plain.append([{"id": n, "v": near(n)} for n in range(30)])
    plain.append([{"id": n, "v": near(n)} for n in range(30, 60)])
    plain.delete_where("id >= 10 and id < 20")
    assert ids(plain.search(near(12), k=3)) == [9, 8, 7]
    assert ids(plain.search(near(45), k=3, filter="id % 10 = 0")) == [40, 50, 30]


def test_a_vector_may_be_given_by_its_name(db: st.Store) -> None:
    table = filled(db)
    assert ids(table.search(vector=near(3), k=1)) == [3]
    with pytest.raises(st.RequestError, match="a list of numbers; got None"):
        table.search()


def test_an_empty_table_has_no_nearest_row(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    result = table.search(near(1)).to_arrow()
    assert result.num_rows == 0
    assert result.column_names == ["id", "v", "name", "_distance"]


@pytest.mark.parametrize("place", PLACES, ids=["memtable", "history", "base"])
def test_a_column_is_searched_by_the_name_that_it_has_at_the_seq(
    db: st.Store, place: Callable[[st.Store], None]
) -> None:
    table = filled(db)
    assert ids(table.search(near(3), k=1)) == [3]
    place(db)
    seq = db.seq
    table.rename_column("v", "w")
    assert ids(table.search(near(3), k=1, column="w")) == [3]
    table.drop_column("w")
    table.add_column("v", f"vector(float32, {SIZE})")
    assert table.search(near(3)).to_pylist() == []
    table.update(9, v=near(3))
    assert ids(table.search(near(3))) == [9]
    with db.snapshot(seq=seq) as past:
        assert ids(past["t"].search(near(3), k=1, column="v")) == [3]


def test_vectors_above_base_are_read_once(db: st.Store) -> None:
    table = filled(db)
    for number in range(20):
        table.update(number, v=near(number + 100))
        table.search(near(1), k=1)
    before = _kept_rows(db)
    assert before == 60
    db.checkpoint()
    table.search(near(1), k=1)
    assert _kept_rows(db) == before


def _kept_rows(db: Any) -> int:
    readers = db.core.readers
    origins = [*readers._vectors._origins]
    return sum(blocks[-1].end for origin in origins for blocks in origin.blocks.values())


def test_searches_beside_seals_folds_index_builds_and_compaction_miss_nothing(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(7)
    rows: dict[int, list[float]] = {}
    ended = threading.Event()
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", COLUMNS, primary_key="id")

        def maintain() -> None:
            while not ended.is_set():
                db.checkpoint()
                db.merge()
                if not table.search(near(0), k=1).to_pylist():
                    continue
                if not any(each.name == "v" for each in table.indexes()):
                    table.create_index("v", kind="vector")
                db.optimize()

        thread = threading.Thread(target=maintain)
        thread.start()
        try:
            for _ in range(60):
                some = {
                    int(n): rng.standard_normal(SIZE).round(2) for n in rng.integers(0, 500, 30)
                }
                new = {n: [float(np.float32(x)) for x in v] for n, v in some.items()}
                table.upsert([{"id": n, "v": v} for n, v in new.items()], "null")
                rows.update(new)
                query = next(iter(new.values()))
                assert found(table.search(query, k=9)) == nearest(rows, query, 9)
        finally:
            ended.set()
            thread.join()


VECTOR = near(1)
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ([1.0, 2.0], {}, "vectors of 4 numbers; the query has 2"),
    ([], {}, "the query has 0"),
    ([[[1.0] * 4]], {}, "the query has 1x1x4"),
    ([float("nan"), 0, 0, 0], {}, "finite"),
    ([float("inf"), 0, 0, 0], {}, "finite"),
    ([1e300, 0, 0, 0], {}, "finite"),
    (["a", "b", "c", "d"], {}, "a list of numbers"),
    (b"words", {}, "a text, a vector, or a list of vectors"),
    (None, {}, "a list of numbers"),
    ([True, False, True, True], {}, "a list of numbers"),
    ([True, 1, 0, 0], {}, "numbers, not of booleans"),
    ([[1, 0, 0, 0], [1, 0, np.True_, 0]], {}, "numbers, not of booleans"),
    ([np.ones(4), np.ones(4, bool)], {}, "numbers, not of booleans"),
    ([pa.array([1.0, 0, 0, 0]), (True, 1, 0, 0)], {}, "numbers, not of booleans"),
    ([[1.0] * 4, [1.0]], {}, "a list of numbers"),
    ([VECTOR] * (QUERIES_MAX + 1), {}, "1 to 1000 vectors"),
    ([VECTOR] * 100, {"k": K_MAX}, "at most 100000"),
    (VECTOR, {"k": 0}, "k must be an integer from 1 to 10000; got 0"),
    (VECTOR, {"k": -1}, "k must be"),
    (VECTOR, {"k": K_MAX + 1}, "k must be"),
    (VECTOR, {"k": 2.0}, "k must be"),
    (VECTOR, {"k": True}, "k must be"),
    (VECTOR, {"column": "w"}, "no column 'w'"),
    (VECTOR, {"column": "name"}, "needs fixed-size lists"),
    (VECTOR, {"column": 3}, "column must be a name"),
    (VECTOR, {"metric": "euclid"}, "metric must be one of"),
    (VECTOR, {"metric": "hamming"}, "l2 or cosine or dot"),
    (near(0), {"metric": "cosine"}, "zeros"),
    (VECTOR, {"filter": "nope = 1"}, "nope"),
    (VECTOR, {"columns": ["nope"]}, "nope"),
    (VECTOR, {"columns": "id"}, "a list of names"),
    (VECTOR, {"distance_range": 3}, "distance_range"),
    (VECTOR, {"distance_range": (2.0, 1.0)}, "is empty"),
    (VECTOR, {"distance_range": (float("nan"), None)}, "numbers or None"),
    (VECTOR, {"distance_range": (0, 10**400)}, "numbers or None"),
    (VECTOR, {"nprobes": 0}, "nprobes must be"),
    (VECTOR, {"refine": 0}, "refine must be"),
    (VECTOR, {"exact": 1}, "exact must be"),
]


@pytest.mark.parametrize(("vector", "options", "words"), WRONG)
def test_a_wrong_search_is_one_clear_error_and_changes_nothing(
    db: st.Store, vector: Any, options: dict[str, Any], words: str
) -> None:
    table = filled(db, 5)
    seq = db.seq
    with pytest.raises(st.RequestError, match=words):
        table.search(vector, **options)
    assert db.seq == seq


def test_a_table_without_vectors_or_with_several_says_so(db: st.Store) -> None:
    db.create_table("none", {"id": "int64", "w": "float64"}, primary_key="id")
    with pytest.raises(st.RequestError, match="no column holds vectors"):
        db["none"].search([1.0])
    db.create_table(
        "two", {"id": "int64", "a": "vector(float32, 2)", "b": "vector(uint8, 2)"}, "id"
    )
    with pytest.raises(st.RequestError, match="one of a, b"):
        db["two"].search([1, 2])
    with pytest.raises(st.RequestError, match="integers from 0 to 255"):
        db["two"].search([1, 256], column="b")


def test_a_closed_snapshot_is_not_searched(db: st.Store) -> None:
    filled(db)
    past = db.snapshot()
    table = past["t"]
    past.close()
    with pytest.raises(st.RequestError, match="closed"):
        table.search(near(1))


def test_nulls_and_vectors_with_a_nan_take_no_place(db: st.Store) -> None:
    table = filled(db, 3)
    for row in (None, [float("nan")] * SIZE, [1.0, float("nan"), 0.0, 0.0]):
        table.upsert({"id": 50, "v": row}, "null")
        assert ids(table.search(near(0), k=9)) == [0, 1, 2]
        merged(db)
        assert ids(table.search(near(0), k=9)) == [0, 1, 2]


def cancelling(rows: int) -> np.ndarray:
    """Return vectors whose products with (1, 1, 1, 1) are far less than their numbers."""
    ends = np.random.default_rng(1).standard_normal((rows, 2))
    return np.stack((ends[:, 0] * 1e7, ends[:, 0] * -1e7, ends[:, 1], ends[:, 1]), axis=1)


def spread(seed: int, scale: float) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((400, SIZE)) * scale


HARD: dict[str, tuple[str, str, np.ndarray]] = {
    "cancelling": ("float32", "dot", cancelling(400)),
    "long": ("float32", "cosine", spread(2, 1e19)),
    "short": ("float32", "cosine", spread(3, 1e-22)),
    "infinite": ("float32", "dot", np.where(np.arange(400)[:, None] % 2, np.inf, spread(4, 1e7))),
    "far": ("float64", "l2", spread(5, 1e100)),
}


@pytest.mark.parametrize("size", [1, 2, 1536])
def test_vectors_of_each_size_are_searched_by_every_metric(db: st.Store, size: int) -> None:
    columns = {"id": "int64", "v": f"vector(float32, {size})"}
    table = db.create_table("wide", columns, primary_key="id")
    matrix = np.random.default_rng(size).standard_normal((300, size)).astype(np.float32)
    rows = dict(enumerate(matrix.tolist()))
    table.upsert([{"id": n, "v": rows[n]} for n in range(200)], "null")
    merged(db)
    table.create_index("v", kind="vector", encoding="flat", partitions=1)
    table.upsert([{"id": n, "v": rows[n]} for n in range(200, 300)], "null")
    table.delete([*range(0, 300, 7)])
    for n in range(0, 300, 7):
        del rows[n]
    for metric in ("l2", "cosine", "dot"):
        for query in (rows[1], rows[299]):
            assert found(table.search(query, 12, metric=metric)) == nearest(rows, query, 12, metric)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", HARD)
def test_rows_whose_products_float32_does_not_hold_are_ranked_exactly(
    db: st.Store, kind: str, exact: bool
) -> None:
    element, metric, matrix = HARD[kind]
    rows: dict[int, Any] = dict(enumerate(matrix.astype(element).tolist()))
    some = {n: row for n, row in rows.items() if n % 3 == 1}
    columns = {**COLUMNS, "v": f"vector({element}, {SIZE})"}
    table = db.create_table("t", columns, primary_key="id")
    table.upsert([{"id": n, "v": row, "name": f"n{n % 3}"} for n, row in rows.items()])
    options: dict[str, Any] = {"metric": metric, "exact": exact}
    for place in PLACES:
        place(db)
        for query in ([1.0] * SIZE, [1.0, 1.0, -1.0, 0.5]):
            result = table.search(query, k=9, **options)
            assert found(result) == nearest(rows, query, 9, metric)
            result = table.search(query, k=9, filter="name = 'n1'", **options)
            assert found(result) == nearest(some, query, 9, metric)


def test_rows_that_are_infinitely_far_are_within_bounds_from_infinity_on(db: st.Store) -> None:
    table = filled(db, 5)
    table.upsert({"id": 7, "v": near(float("inf"))}, "null")
    for place in PLACES:
        place(db)
        assert ids(table.search(near(0), distance_range=(float("inf"), None))) == [7]
        assert ids(table.search(near(0), distance_range=(1e300, None))) == [7]


def test_many_vectors_find_the_lowest_keys_of_many_rows_that_are_equally_far(db: st.Store) -> None:
    table = db.create_table("t", COLUMNS, primary_key="id")
    for start in (200, 100, 0):
        table.upsert([{"id": n, "v": near(1)} for n in range(start, start + 100)], "null")
        merged(db)
    result = table.search([near(0)] * QUERIES_MAX, k=2, columns=["id"])
    assert ids(result) == [0, 1] * QUERIES_MAX


def test_what_a_search_holds_does_not_grow_with_the_rows_that_are_equally_far(
    db: st.Store,
) -> None:
    rows, vectors = 20_000, 200
    table = db.create_table("t", COLUMNS, primary_key="id")
    same = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(rows * SIZE, np.float32)), SIZE)
    table.upsert(pa.table({"id": range(rows), "v": same, "name": ["x"] * rows}))
    table.search(near(0), k=1)
    tracemalloc.start()
    try:
        result = table.search([near(0)] * vectors, k=2, columns=["id"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ids(result) == [0, 1] * vectors
    assert peak < 20 * rows * vectors / 2


@pytest.mark.parametrize("name", ["query_index", "Id", 'q"x', "a b", "select", "é"])
def test_a_column_may_have_a_name_that_lance_or_sql_uses(db: st.Store, name: str) -> None:
    table = db.create_table("t", {**COLUMNS, name: "int64"}, primary_key="id")
    rows = [{"id": n, "v": near(n), "name": f"stone {n % 5}", name: 7 * n} for n in range(40)]
    table.upsert(rows)
    merged(db)
    table.create_index("name", kind="fts")
    one = table.search(near(3), 2, columns=["id", name]).to_pylist()
    assert [(row["id"], row[name]) for row in one] == [(3, 21), (2, 14)]
    both = table.search([near(3), near(9)], 1, columns=["id", name]).to_pylist()
    assert [(row["_query"], row["id"], row[name]) for row in both] == [(0, 3, 21), (1, 9, 63)]
    words = table.search("stone 4", k=1, operator="and", columns=[name]).to_pylist()
    assert [row[name] for row in words] == [28]
