"""Spark, reading while others write, sees what their isolation allows and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import siltstone as st
from proof.isolation import clients
from proof.isolation.journal import LEVELS, Journal, entries, judge
from tests.engine.seams import Threads

LOOKS = 2


class SparkTable:
    """A table at one seq, with the words of ours that a client's look uses."""

    def __init__(self, spark: SparkSession, uri: Path, name: str, seq: int) -> None:
        given = {"uri": str(uri), "table": name, "seq": str(seq)}
        self._frame = spark.read.format("siltstone").options(**given).load()

    def to_arrow(self, filter: str) -> pa.Table:  # noqa: A002 - as ours is called
        return self._frame.where(filter).toArrow()

    def get_many(self, keys: Sequence[int]) -> pa.Table:
        return self._frame.where(self._frame.id.isin(list(keys))).toArrow()

    def get(self, key: int) -> dict[str, object] | None:
        found = self.get_many([key]).to_pylist()
        return found[0] if found else None


class SparkStore:
    """A store as Spark reads it: all tables at the seq that its owner shows now."""

    def __init__(self, spark: SparkSession, db: st.Store) -> None:
        self._spark, self._db = spark, db
        self._seq = 0

    @contextmanager
    def snapshot(self) -> Iterator[SparkStore]:
        self._seq = self._db.seq
        yield self

    def __getitem__(self, name: str) -> SparkTable:
        return SparkTable(self._spark, self._db.path, name, self._seq)


def test_what_spark_reads_beside_writers_and_maintenance_has_no_anomaly(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, begun, stop = tmp_path / "journal", time.monotonic(), threading.Event()
    journal = Journal(path)
    with st.connect(tmp_path / "shop", background=False, segment_bytes=65_536) as db:
        clients.create(db)

        def client_of(number: int, store: object) -> clients.Client:
            return clients.Client(
                store, journal, number=number, seed=7, run=0, begun=begun, rotate_s=1e6
            )

        def play(number: int) -> None:
            client = client_of(number, db)
            while not stop.wait(0.01):  # a pace: Spark wants the cores, too
                client.play()

        def look() -> None:
            client = client_of(9, SparkStore(spark, db))
            for _ in range(LOOKS):
                db.checkpoint()
                db.merge()
                db.optimize(target_rows=64)
                client.look()

        client_of(7, db).cross(client_of(8, db))
        players = Threads()
        for number in range(2):
            players.start(play, number)
        try:
            look()
        finally:
            stop.set()
            players.join()
        told = entries([path])
        verdict = judge(told, clients.lists_in(db))
    seen = [step[2] for each in told if each["client"] == 9 for step in each.get("steps", ())]
    assert verdict.violations == []
    assert verdict.has_write_skew
    assert sum(each["client"] == 9 and each["what"] in LEVELS for each in told) == 2 * LOOKS
    assert any(seen)
