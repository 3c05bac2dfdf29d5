"""A process builds text and vector segments while another one folds: searches stay right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.failpoints import Failpoint
from siltstone.maintenance.merge import merge
from tests.races.processes import WAIT_S, Meeting, Process, workers
from tests.storage.searches import SCHEMA, check, rows, truly_nearest, with_word

PART = 300


@pytest.fixture(scope="module")
def other() -> Iterator[Process]:
    with workers(1) as (process,):
        yield process


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", SCHEMA, "id")
        for n in range(4):
            table.upsert(pa.Table.from_batches([rows(n * PART, PART)]))
            db.checkpoint()
            db.merge()
        yield db


def shown(db: Store) -> lance.LanceDataset:
    return lance.dataset(db.path / "tables/t-1/base")


def take_the_nearest(db: Store) -> None:
    """Delete half of the first part, and of all parts the rows that a search finds first."""
    near = truly_nearest(shown(db), 30, np.zeros(8, np.float32))
    db["t"].delete([*{*near, *range(PART // 2)}])
    db.checkpoint()


def check_all(db: Store) -> None:
    check(shown(db))
    db.optimize()
    found = shown(db)
    check(found)
    assert with_word(found, "stone") == sorted(db["t"].to_arrow()["id"].to_pylist())
    assert [index.lagging_rows for index in db["t"].indexes()] == [0, 0]
    assert db.verify(deep=True).is_sound


@pytest.mark.parametrize(
    "point", [Failpoint.INDEX_AFTER_PLAN, Failpoint.INDEX_AFTER_BUILD], ids=lambda p: p.label
)
def test_a_fold_overtakes_a_build(db: Store, other: Process, point: Failpoint) -> None:
    db["t"].create_index("place", "vector", build=False)
    db["t"].create_index("words", "fts", build=False)
    meeting = Meeting()
    try:
        other.call("arm", orders=f"{point.label}=pause", socket=meeting.address)
        running = other.start("optimize", root=str(db.path), stamp=1)
        held = meeting.expect(running)
        take_the_nearest(db)
        db.merge()
        held.go()
        running.result(WAIT_S)
    finally:
        meeting.close()
    check_all(db)


@pytest.mark.parametrize(
    "point",
    [Failpoint.MERGE_AFTER_DELETIONS, Failpoint.MERGE_BEFORE_PUBLISH],
    ids=lambda p: p.label,
)
def test_a_build_overtakes_a_fold(db: Store, other: Process, point: Failpoint) -> None:
    take_the_nearest(db)
    meeting = Meeting()
    try:
        other.call("arm", orders=f"{point.label}=pause", socket=meeting.address)
        running = other.start("merge", root=str(db.path), stamp=1)
        held = meeting.expect(running)
        db["t"].create_index("place", "vector")
        db["t"].create_index("words", "fts")
        held.go()
        running.result(WAIT_S)
    finally:
        meeting.close()
    check_all(db)
