"""Each encoding of vectors finds nearly the nearest rows, whatever happens to the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.choices import Encoding
from siltstone.storage.tables.encodings import FLAT_BYTES_MAX, chosen, sub_vectors_of
from tests.query.nearest_rows import distance, vectors

ENCODINGS = get_args(Encoding)
SIZE, ROWS, K, QUERIES = 32, 4_500, 10, 30


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


def embeddings(count: int, seed: int, size: int = SIZE) -> np.ndarray:
    """Return vectors of length 1 around a few centres, with few directions that matter."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(0)
    scale = 1 / np.sqrt(np.arange(1, size + 1))
    about = (centres.standard_normal((40, size)) * scale)[rng.integers(0, 40, count)]
    found = about + 0.7 * rng.standard_normal((count, size)) * scale
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def table_of(ids: Any, rows: np.ndarray, kind: pa.DataType | None = None) -> pa.Table:
    flat = pa.array(rows.ravel()).cast(kind or pa.float32())
    column = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    return pa.table({"id": pa.array(list(ids), pa.int64()), "v": column})


def filled(db: st.Store, rows: pa.Table) -> st.Table:
    table = db.create_table("t", rows.schema, primary_key="id")
    table.upsert(rows)
    merged(db)
    return table


def merged(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


def recall(table: Any, rows: dict[int, np.ndarray], metric: str) -> float:
    """Return which share of the nearest rows searches find; check each row that they give."""
    ids, matrix = np.array([*rows]), np.stack([*rows.values()]).astype(np.float64)
    hits = 0
    for query in embeddings(QUERIES, 99):
        found = table.search(query, K, metric=metric, columns=["id"]).to_pylist()
        products = matrix @ query
        squares = (matrix**2).sum(axis=1)
        far = {
            "l2": squares - 2 * products,
            "cosine": -products / np.sqrt(squares),
            "dot": -products,
        }[metric]
        best = ids[np.argsort(far)[:K]].tolist()
        for row in found:  # an old row has no place, and no old distance
            assert row["_distance"] == distance(metric, rows[row["id"]], query)
        hits += len({row["id"] for row in found} & {*best})
    return hits / (QUERIES * K)


OTHERS = [("flat", "dot"), ("sq", "dot"), ("rq", "cosine"), ("pq", "cosine"), ("hnsw_sq", "dot")]


@pytest.mark.parametrize(("encoding", "metric"), [*((each, "l2") for each in ENCODINGS), *OTHERS])
def test_an_encoding_finds_the_nearest_of_rows_that_change(
    db: st.Store, encoding: Encoding, metric: Any
) -> None:
    model = dict(enumerate(embeddings(ROWS, 1)))
    table = filled(db, table_of(model, np.stack([*model.values()])))
    made = table.create_index("v", kind="vector", encoding=encoding, metric=metric)
    assert (made.encoding, made.options["encoding"]) == (encoding, encoding)
    assert recall(table, model, metric) >= 0.95
    assert made.recall is not None
    assert made.recall >= 0.95
    for turn in range(2):
        new = dict(zip(range(turn * 400, turn * 400 + 900), embeddings(900, turn + 2), strict=True))
        table.upsert(table_of(new, np.stack([*new.values()])))
        gone = range(4_000 + turn * 50, 4_050 + turn * 50)
        table.delete([*gone])
        model = {n: v for n, v in (model | new).items() if n not in gone}
        assert recall(table, model, metric) >= 0.95
        merged(db)
        assert recall(table, model, metric) >= 0.95
    db.optimize()
    assert table.indexes()[0].lagging_rows == 0
    assert recall(table, model, metric) >= 0.95
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()], ids=str)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_takes_floats_of_each_width(
    db: st.Store, encoding: Encoding, kind: pa.DataType
) -> None:
    rows = embeddings(600, 1)
    table = filled(db, table_of(range(600), rows, kind))
    table.create_index("v", kind="vector", encoding=encoding)
    stored = table.to_arrow(["id", "v"]).sort_by("id")["v"].to_pylist()
    model = {n: np.array(row, np.float64) for n, row in enumerate(stored)}
    for query in [*model.values()][:20]:
        (best,) = table.search(query, 1, columns=["id"])
        assert best["_distance"] == min(distance("l2", row, query) for row in model.values())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("rows", [1, 3, 255])
def test_few_rows_are_enough_for_each_encoding(db: st.Store, encoding: Any, rows: int) -> None:
    table = filled(db, table_of(range(rows), embeddings(rows, 1)))
    made = table.create_index("v", kind="vector", encoding=encoding)
    found = "flat" if encoding == "pq" else encoding  # it has no code book yet
    assert (made.segments, made.lagging_rows, made.encoding) == (1, 0, found)
    ids = [row["id"] for row in table.search(embeddings(rows, 1)[0], 300, columns=["id"])]
    assert (sorted(ids), ids[0]) == ([*range(rows)], 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_without_vectors_are_no_reason_to_fail(db: st.Store, encoding: Any) -> None:
    ids = pa.array(range(300), pa.int64())
    table = filled(db, pa.table({"id": ids, "v": vectors([None] * 300, SIZE), "n": ids}))
    table.create_index("v", kind="vector", encoding=encoding)
    table.create_index("n")
    assert {index.name: index.lagging_rows for index in table.indexes()}["n"] == 0
    assert table.search(embeddings(1, 1)[0]).to_pylist() == []
    table.upsert(table_of(range(300, 900), embeddings(600, 1)), missing="null")
    merged(db)
    db.optimize()
    (best,) = table.search(embeddings(600, 1)[7], 1, columns=["id"])
    assert best["id"] == 307
    assert {index.name: index.lagging_rows for index in table.indexes()} == {"n": 0, "v": 0}


@pytest.mark.parametrize(
    ("size", "options", "reason"),
    [
        (12, {"encoding": "rq"}, "a multiple of 8; 12 is not"),
        (17, {"encoding": "pq"}, "a divisor of 17"),
        (12, {"encoding": "pq", "sub_vectors": 5}, "must divide 12"),
        (12, {"encoding": "pq", "sub_vectors": -1}, "must divide 12"),
        (12, {"encoding": "hnsw_sq", "sub_vectors": 3}, "needs encoding='pq'"),
        (12, {"encoding": "hnsw_pq"}, "encoding must be one of"),
        (12, {"encoding": None}, "must be of type str"),
        (12, {"metric": "hamming", "encoding": "sq"}, "metric must be one of"),
        (12, {"partitions": True}, "must be of type int"),
    ],
)
def test_what_an_encoding_cannot_do_is_refused(
    db: st.Store, size: int, options: Any, reason: str
) -> None:
    table = filled(db, table_of(range(5), embeddings(5, 1, size)))
    with pytest.raises(st.RequestError, match=reason):
        table.create_index("v", kind="vector", **options)
    assert table.indexes() == []


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_vectors_of_bytes_have_no_index(db: st.Store, encoding: Any) -> None:
    table = db.create_table("t", {"id": "int64", "v": "vector(uint8, 8)"}, primary_key="id")
    with pytest.raises(st.RequestError, match="a vector index does not support"):
        table.create_index("v", kind="vector", encoding=encoding)


def test_the_encoding_is_chosen_by_the_number_and_the_size_of_the_vectors() -> None:
    few = FLAT_BYTES_MAX // 4 // 384
    assert [chosen(rows, 384) for rows in (0, few, few + 1, 10**8)] == ["flat", "flat", "rq", "rq"]
    assert [chosen(10**8, size) for size in (1, 64, 100, 128, 130, 1536)] == [
        *("sq", "sq", "sq", "rq", "sq", "rq")
    ]
    assert [sub_vectors_of(size) for size in (1, 3, 7, 17, 100, 384, 1536)] == [
        *(1, 3, 1, None, 20, 48, 192)
    ]


def test_a_measured_recall_is_that_of_the_index_and_outlives_the_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((6_000, 48)).astype(np.float32)  # no order: the hardest there is
    with st.connect(tmp_path / "s", background=False) as db:
        table = filled(db, table_of(range(6_000), rows))
        for name, options in {"good": {}, "bad": {"partitions": 23, "metric": "dot"}}.items():
            table.create_index("v", kind="vector", name=name, **options)
        made = {index.name: index.recall for index in table.indexes()}
        assert made["good"] == 1
        assert made["bad"] is not None
        found = table.search(rows[::187], 11, metric="dot", columns=["id"]).to_pylist()
        exact = table.search(rows[::187], 11, metric="dot", columns=["id"], exact=True).to_pylist()
        pairs = {(row["_query"], row["id"]) for row in exact}
        true = len(pairs & {(row["_query"], row["id"]) for row in found}) / len(pairs)
        assert made["bad"] == pytest.approx(true, abs=0.15)
        assert "recall 1.000" in str(db.status())
        table.upsert(table_of(range(50), rows[:50]))
        merged(db)
        db.optimize()
    for options in ({"read_only": True}, {"background": False}):
        with st.connect(tmp_path / "s", **options) as db:
            assert {index.name: index.recall for index in db["t"].indexes()} == made


@pytest.mark.parametrize("rows", [0, 1])
def test_what_has_no_two_rows_has_no_recall(db: st.Store, rows: int) -> None:
    table = filled(db, table_of(range(rows), embeddings(rows, 1)))
    assert table.create_index("v", kind="vector").recall is None


def test_rows_that_are_alike_are_as_good_as_each_other(db: st.Store) -> None:
    table = filled(db, table_of(range(400), np.repeat(embeddings(20, 1), 20, axis=0)))
    assert table.create_index("v", kind="vector", encoding="sq").recall == 1
