"""Streams through a catalog: the changes of a table as a source, and a table as an exact sink."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import siltstone as st
from siltstone.spark import register
from tests.spark.daemons import daemons, siblings

_numbers = itertools.count()
SOURCE = {"id": "int64", "v": "string"}
LOG = {"seq": "int64", "op": "string", "id": "int64", "v": "string"}


class Followed:
    """Two stores as catalogs: `a`, whose table `t` is followed, and `b`, with what comes of it."""

    def __init__(self, spark: SparkSession, root: Path, a: st.Store, b: st.Store) -> None:
        number = next(_numbers)
        self.spark, self.root, self.a, self.b = spark, root, a, b
        self.source, self.sink = f"fa{number}", f"fb{number}"
        register(spark, stores={self.source: root / "a", self.sink: root / "b"})

    def put(self, step: int) -> None:
        self.a["t"].upsert([{"id": 10 * (step % 3) + n, "v": str(step)} for n in range(10)])

    def changes(self, **options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        found = self.spark.readStream.options(**given).table(f"{self.source}.t.changes")
        return found.selectExpr("_seq AS seq", "_op AS op", "id", "v")

    def start(self, frame: DataFrame, table: str = "log", mode: str = "append", **more: object):
        given = {"checkpointLocation": str(self.root / "c"), **more}
        writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.options(**{name: str(value) for name, value in given.items()})
        return writer.toTable(f"{self.sink}.{table}")

    def follow(self, frame: DataFrame | None = None, **more: object) -> StreamingQuery:
        query = self.start(self.changes() if frame is None else frame, **more)
        query.awaitTermination()
        return query

    def logged(self) -> list[tuple]:
        return in_order(self.b["log"].to_arrow().to_pylist())

    def fed(self) -> list[tuple]:
        return in_order(self.a.changes(tables=["t"])["t"].read_all().to_pylist())


def in_order(rows: list[dict]) -> list[tuple]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Followed]:
    with (
        st.connect(tmp_path / "a", background=False, segment_bytes=65_536) as a,
        st.connect(tmp_path / "b", background=False, segment_bytes=65_536) as b,
    ):
        with a.transaction() as tx:
            tx.create_table("t", SOURCE, primary_key="id")
            tx["t"].upsert([{"id": n, "v": "first"} for n in range(10)])
        a.create_table("plain", SOURCE)
        b.create_table("log", LOG)
        a.serve_local()
        b.serve_local()
        yield Followed(spark, tmp_path, a, b)


def collected(shop: Followed, frame: DataFrame, where: str = "m", **trigger: object) -> list[tuple]:
    """Run a stream into memory, as far as there is something; return its rows."""
    name = f"rows{next(_numbers)}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(shop.root / where))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    query.awaitTermination()
    return in_order([row.asDict() for row in shop.spark.table(name).collect()])


# --- the source


def test_the_stream_of_a_table_begins_with_its_rows_and_goes_on_with_its_changes(
    shop: Followed,
) -> None:
    shop.put(0)
    shop.a["t"].delete([3])
    assert collected(shop, shop.changes()) == shop.fed()
    since = shop.a.seq
    shop.put(1)
    later = [row for row in shop.fed() if row[0] > since]
    assert collected(shop, shop.changes(startingSeq=since), "m2") == later
    assert collected(shop, shop.changes(startingVersion=since + 1), "m3") == later
