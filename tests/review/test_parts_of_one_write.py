"""Rows of one large write, in several files, keep their order when some files become one.

A file of Lance has at most a million rows, so a larger commit is flushed into several, which all
span the same seqs. Here a file has three.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.formats.manifest import Pin
from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.tables import TableWriter
from siltstone.storage.tables.values import StagedFiles, join
from tests.query.test_scan_task import attach

FILE_ROWS = 3
SCHEMA = {"id": "int64", "v": "int64"}


class SmallFiles:
    """A writer of files with at most `FILE_ROWS` rows."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)

    def stage(
        self,
        pin: Pin,
        batches: Iterable[pa.RecordBatch],
        *,
        seqs: tuple[int, int] | None = None,
    ) -> StagedFiles:
        """Write as many files as it takes."""
        slices = [
            batch.slice(start, FILE_ROWS)
            for batch in batches
            for start in range(0, batch.num_rows, FILE_ROWS)
        ]
        return join([self._writer.stage(pin, [s], seqs=seqs) for s in slices])

    def append(self, pin: Pin, batches: Iterable[pa.RecordBatch]) -> Pin:
        """Stage as many files as it takes, then commit them."""
        return self._writer.commit(pin, self.stage(pin, batches))


def tables_of(root: Path, files: Files) -> Tables:
    tables = lance_tables(root, files)
    return replace(tables, writer=SmallFiles(tables.writer))


def opened(path: Path, **options: object) -> LocalStore:
    env = Env(tables=lambda root, files, _verify: tables_of(root, files))
    return LocalStore.open(
        path, Options(background=False, segment_bytes=65_536), env=env, **options
    )


@pytest.fixture
def db(tmp_path: Path):
    with opened(tmp_path / "db") as store:
        store.create_table("t", SCHEMA, primary_key="id")
        attach(store, "t", pa.table({"id": [99], "v": [0]}))  # to base: history begins empty
        yield store


def _optimized(db: LocalStore) -> None:
    db.optimize(target_rows=8)
    db._parts.owner.checkpointer.renew()


def test_a_row_of_a_bulk_commit_is_read_by_its_key_after_an_optimize(db) -> None:
    attach(db, "t", pa.table({"id": range(12), "v": range(12)}))
    assert db["t"].get(4) == {"id": 4, "v": 4}
    db.checkpoint()
    _optimized(db)
    assert [db["t"].get(n) for n in range(12)] == [{"id": n, "v": n} for n in range(12)]
    with opened(db.path, read_only=True) as other:
        assert sorted(other["t"].to_arrow()["v"].to_pylist()) == [0, *range(12)]


def test_the_later_of_two_jobs_of_one_commit_counts_after_an_optimize(db) -> None:
    with db.transaction() as tx:
        for value in (1, 2):
            job = db.stage("t")
            rows = pa.table({"id": range(6), "v": [value] * 6})
            tx.attach(job, [job.run_through(db._parts.site.tables.writer, rows)])
    db.checkpoint()
    _optimized(db)
    with opened(db.path, read_only=True) as other:
        assert sorted(other["t"].to_arrow()["v"].to_pylist()) == [0] + [2] * 6
    db.merge()
    assert sorted(db["t"].to_arrow()["v"].to_pylist()) == [0] + [2] * 6


def test_the_changes_of_one_flush_come_in_seq_order_after_an_optimize(db) -> None:
    for n in range(12):
        db["t"].upsert({"id": n, "v": n})
    before = db.changes(1)["t"].read_all()
    db.checkpoint()
    _optimized(db)
    with opened(db.path, read_only=True) as other:
        assert other.changes(1)["t"].read_all().equals(before)
        for seq in range(2, 15):
            with other.snapshot(seq=seq) as then:
                assert then["t"].count() == seq - 1


def test_parts_that_span_the_same_seqs_stand_as_they_were_written(tmp_path: Path) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    schema = pa.schema([("id", pa.int64())])
    pin = tables.writer.create("h", schema)
    pieces = [
        tables.writer.stage(pin, [pa.record_batch({"id": [n, n + 1]})], seqs=(5, 5))
        for n in range(0, 8, 2)
    ]
    pin = tables.writer.commit(pin, join(pieces))
    pin = tables.compactor.swap(pin, [tables.compactor.compact(pin, (0, 6))])
    pin = tables.writer.append(pin, [pa.record_batch({"id": [8]})], seqs=(6, 6))
    found = tables.reader.open(pin)
    assert [n for b in found.scan() for n in b.column(0).to_pylist()] == list(range(9))
    assert found.spans == [(0, 6), (6, 8), (8, 9)]
