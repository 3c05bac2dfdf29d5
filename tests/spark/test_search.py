"""A search of a snapshot is a frame with the rows and distances of the search of the table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import snapshot

FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.list_(pa.float32(), 2)),
        ("b", pa.list_(pa.uint8(), 2)),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("clock", pa.time64("us")),
        ("cost", pa.decimal128(8, 2)),
    ]
)


def row(n: int) -> dict[str, Any]:
    at = dt.datetime(2026, 11, 20, tzinfo=dt.UTC) + dt.timedelta(hours=n)
    return {
        "id": n,
        "v": [float(n), 0.5],
        "b": [n, 255],
        "name": f"n{n}",
        "at": at,
        "clock": at.time(),
        "cost": n,
    }


@pytest.fixture
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    with st.connect(tmp_path_factory.mktemp("search") / "s", background=False) as store:
        table = store.create_table("t", FIELDS, primary_key="id")
        table.upsert(pa.Table.from_pylist([row(n) for n in range(30)], FIELDS))
        store.checkpoint()
        store.merge()
        table.create_index("v", kind="vector")
        table.update(7, v=[100.0, 0.0])
        table.delete(8)
        yield store


def test_a_search_is_a_frame_with_the_rows_of_the_search(spark: SparkSession, db: st.Store) -> None:
    asked: list[dict[str, Any]] = [
        {"vector": [7.2, 0.0], "k": 4, "column": "v"},
        {"vector": [3, 254], "k": 3, "column": "b", "metric": "hamming"},
        {"vector": [7.2, 0.0], "k": 5, "column": "v", "filter": "id > 9", "columns": ["id"]},
        {"vector": [7.2, 0.0], "column": "v", "distance_range": (0.5, 9.0), "exact": True},
        {"vector": [7.2, 0.0], "column": "v", "filter": "id < 0"},
    ]
    with snapshot(spark, db) as snap:
        for each in asked:
            wanted = db["t"].search(**each).to_arrow()
            frame = snap.search("t", **each)
            assert frame.columns == wanted.column_names
            found = frame.orderBy("_distance", "id").toArrow()
            assert found.num_rows == wanted.num_rows
            assert found.to_pylist() == wanted.to_pylist()
        kept = snap.search("t", [100.0, 0.0], 1, column="v", columns=["id"])
    assert [each["id"] for each in kept.collect()] == [7]


def test_many_vectors_are_one_frame(spark: SparkSession, db: st.Store) -> None:
    with snapshot(spark, db) as snap:
        frame = snap.search("t", [[100, 0], [3, 0]], 1, column="v", columns=["name"])
        assert frame.columns == ["name", "_query", "_distance"]
        found = [(each["_query"], each["name"]) for each in frame.orderBy("_query").collect()]
    assert found == [(0, "n7"), (1, "n3")]


def test_a_search_counts_as_a_read_for_overwrites(spark: SparkSession, db: st.Store) -> None:
    with snapshot(spark, db) as snap:
        nearest = snap.search("t", [3, 0], 5, column="v")
        db.serve_local()
        db["t"].update(20, name="changed")
        writer = nearest.drop("_distance").write.format("siltstone").mode("overwrite")
        with pytest.raises(Exception, match="ConflictError"):
            writer.option("uri", str(db.path)).option("table", "t").save()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vector": [1.0]}, "vectors of 2 numbers; the query has 1"),
        ({"vector": [float("nan"), 0]}, "no NaN"),
        ({"vector": [1, 0], "k": 0}, "k must be an integer from 1"),
        ({"vector": [1, 0], "k": 10_001}, "k must be an integer from 1"),
        ({"vector": [1, 0], "column": "w"}, "no column 'w'"),
        ({"vector": [1, 0], "column": "name"}, "needs fixed-size lists"),
        ({"vector": [1, 0], "table": "x"}, "no table 'x'"),
    ],
)
def test_a_wrong_search_is_one_clear_error(
    spark: SparkSession, db: st.Store, options: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"table": "t", "column": "v", **options}
    with snapshot(spark, db) as snap, pytest.raises(st.RequestError, match=said):
        snap.search(**given)


def test_a_frame_is_joined_with_the_nearest_rows_of_a_table_by_executors(
    spark: SparkSession, db: st.Store
) -> None:
    asked = [(n, [n / 7, 0.25]) for n in range(700)]
    frame = spark.createDataFrame(
        [*asked, (999, None)], "query bigint, near array<double>"
    ).repartition(2)
    with snapshot(spark, db) as snap:
        joined = snap.join_nearest(
            frame, "near", "t", 2, column="v", columns=["id", "at"], filter="id <> 5"
        )
        assert joined.columns == ["query", "near", "id", "at", "_distance"]
        found = joined.select("query", "id", "_distance").orderBy("query", "_distance", "id")
        rows = [tuple(each) for each in found.collect()]
        wanted = db["t"].search(
            [vector for _, vector in asked], 2, column="v", columns=["id"], filter="id <> 5"
        )
        assert rows == [(each["_query"], each["id"], each["_distance"]) for each in wanted]
        times = {each["at"] for each in joined.where("id = 9").collect()}
        assert times == {row(9)["at"].replace(tzinfo=None)}  # as Spark gives times in UTC


def test_a_join_with_another_seq_than_now_searches_it(spark: SparkSession, db: st.Store) -> None:
    frame = spark.createDataFrame([([100.0, 0.0],), ([3.0, 0.5],)], "near array<float>")
    with snapshot(spark, db) as snap:
        joined = snap.join_nearest(frame, "near", "t", 1, column="v", columns=["id"])
        db["t"].update(3, v=[50.0, 0.0])
        db.checkpoint()
        assert sorted(each["id"] for each in joined.collect()) == [3, 7]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k must be an integer from 1"),
        ({"column": "w"}, "no column 'w'"),
        ({"column": "name"}, "needs fixed-size lists"),
        ({"column": None}, "column must be one of v, b"),
        ({"metric": "hamming"}, "l2 or cosine or dot"),
        ({"filter": "w = 1"}, "no column 'w'"),
        ({"columns": ["w"]}, "no column"),
        ({"columns": ["name"]}, r"both have \['name'\]"),
        ({"vector": "x"}, "no column 'x'"),
        ({"table": "x"}, "no table 'x'"),
    ],
)
def test_a_wrong_join_is_refused_before_it_runs(
    spark: SparkSession, db: st.Store, options: dict[str, Any], said: str
) -> None:
    frame = spark.createDataFrame([("a", [1.0])], "name string, near array<float>")
    given: dict[str, Any] = {
        "vector": "near",
        "table": "t",
        "k": 2,
        "column": "v",
        "columns": ["id"],
        **options,
    }
    with snapshot(spark, db) as snap, pytest.raises(st.RequestError, match=said):
        snap.join_nearest(frame, **given)


def test_a_vector_that_does_not_fit_ends_the_join(spark: SparkSession, db: st.Store) -> None:
    frame = spark.createDataFrame([([1.0],)], "near array<float>")
    with snapshot(spark, db) as snap:
        joined = snap.join_nearest(frame, "near", "t", 1, column="v", columns=["id"])
        with pytest.raises(Exception, match="vectors of 2 numbers; the query has 1x1"):
            joined.collect()
