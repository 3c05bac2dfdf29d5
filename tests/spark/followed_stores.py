"""Followed stores: a table that is followed, and the tables that its changes go to."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st
from tests.maintenance.stores import Clock, open_store
from tests.spark.micro_batches import Checkpoint, Run

SOURCE = {"id": "int64", "v": "int64"}
LOG = {"seq": "int64", "op": "string", "id": "int64", "v": "int64"}
COPY = {"id": "int64", "v": "int64", "version": "int64"}


class World:
    """A store with a table `t` that is followed, and one with what came of it; both served."""

    def __init__(self, root: Path) -> None:
        self.a = st.connect(root / "a", background=False, segment_bytes=65_536)
        self.b = st.connect(root / "b", background=False, segment_bytes=65_536)
        self.a.create_table("t", SOURCE, primary_key="id")
        self.a.create_table("other", SOURCE, primary_key="id")
        self.b.create_table("log", LOG)
        self.b.create_table("copy", COPY, primary_key="id")
        for db in (self.a, self.b):
            db.serve_local()
        self.count = 0

    def close(self) -> None:
        self.a.close()
        self.b.close()

    def source(self, start: object = "earliest", **more: object) -> dict[str, str]:
        given = {"uri": self.a.path, "table": "t", "startingSeq": start, **more}
        return {name: str(value) for name, value in given.items()}

    def sink(self, table: str = "log", **more: str) -> dict[str, str]:
        return {"uri": str(self.b.path), "table": table, **more}

    def follow(
        self, checkpoint: Checkpoint, source: dict[str, str], kill: tuple[str, int] | None = None
    ) -> int:
        with Run(checkpoint, source, self.sink(), as_log) as run:
            return run.finish(kill)

    def log(self) -> list[tuple]:
        return sorted(tuple(row.values()) for row in self.b["log"].to_arrow().to_pylist())

    # what may happen to `t` between two runs

    def upsert(self) -> None:
        self.count += 1
        keys = [(self.count + n) % 9 for n in range(4)]
        self.a["t"].upsert([{"id": key, "v": self.count} for key in keys], "null")

    def delete(self) -> None:
        self.a["t"].delete([self.count % 9, 100])

    def upsert_w(self) -> None:
        self.a["t"].upsert({"id": 1, "w": 1}, "null")

    def truncate(self) -> None:
        self.a["t"].truncate()

    def elsewhere(self) -> None:
        self.a["other"].upsert({"id": 1, "v": self.count}, "null")

    def checkpoint(self) -> None:
        self.a.checkpoint()

    def merge(self) -> None:
        self.a.checkpoint()
        self.a.merge()

    def vacuum(self) -> None:
        self.a.vacuum(dry_run=False, grace_s=0)


@contextlib.contextmanager
def followed(
    root: Path, clock: Clock
) -> Generator[tuple[st.Store, dict[str, str], dict[str, str]]]:
    """Give a store without retention, by its own clock, whose table `t` goes to its table `log`."""
    with open_store(root / "s", clock, real_lance=True, retention_s=0) as db:
        db.create_table("t", SOURCE, primary_key="id")
        db.create_table("log", LOG)
        db.serve_local()
        uri = str(db.path)
        yield (
            db,
            {"uri": uri, "table": "t", "startingSeq": "earliest"},
            {"uri": uri, "table": "log"},
        )


def as_log(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["_seq", "_op", "id", "v"]).rename_columns(list(LOG))


def as_copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    live = batch.filter(pc.field("_op") != "delete")
    return live.select(["id", "v", "_seq"]).rename_columns(["id", "v", "version"])


def fed(db: st.Store, since: int) -> list[tuple]:
    """Return what a feed from `since` on has: the rows that live there, then the changes."""
    with db.snapshot(seq=since) as then:
        first = [(since, "upsert", *row.values()) for row in then["t"].to_arrow().to_pylist()]
    rest = db.changes(since, tables=["t"])["t"].read_all().to_pylist()
    return sorted(first + [tuple(row.values()) for row in rest])


def in_order(rows: list[tuple]) -> list[tuple]:
    return sorted(rows, key=repr)
