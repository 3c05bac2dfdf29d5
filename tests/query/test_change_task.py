"""Change tasks, read anywhere and in any order, give exactly the changes of the feed."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.errors import RequestError, SnapshotExpiredError
from siltstone.query.scan import scan_plan
from tests.maintenance.stores import Clock, open_store
from tests.nightly import by_day
from tests.query import task_reader
from tests.query.test_scan_task import grown


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """Hold changes in every level, over two truncates, a drop and a renaming."""
    path = tmp_path_factory.mktemp("changes") / "s"
    with st.connect(path, segment_bytes=65_536, background=False) as store:
        grown(store)
        store["t"].truncate()
        store["t"].upsert([{"id": n, "amount": n} for n in range(5)], missing="null")
        store.checkpoint()
        store["t"].rename_column("amount", "total")
        store["t"].delete([1, 2])
        store.merge()
        store.rename_table("t", "u")
        store.create_table("t", {"id": "int64", "name": "string"}, primary_key="id")
        store["t"].upsert([{"id": n, "name": "new"} for n in range(3)], missing="null")
        yield store


@pytest.fixture(scope="module")
def beside(db: st.Store) -> Iterator[st.Store]:
    with st.connect(db.path, read_only=True) as store:
        yield store


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple]:
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=repr)


def of_tasks(tasks: list) -> list[tuple]:
    again = [pickle.loads(pickle.dumps(task)) for task in tasks]
    return rows_of(batch for task in again for batch in task.read())


@settings(max_examples=by_day(15, 40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.data())
def test_the_tasks_of_any_range_give_the_feed(
    db: st.Store, beside: st.Store, data: some.DataObject
) -> None:
    store = data.draw(some.sampled_from([db, beside]))
    until = data.draw(some.integers(1, db.seq))
    since = data.draw(some.integers(0, until))
    with db.snapshot(seq=until) as then:
        names = [name for name in then.tables() if then[name].primary_key]
    if not names:
        return
    name = data.draw(some.sampled_from(names))
    wanted = rows_of(iter(db.changes(since, until, [name])[name]))
    rows_max = data.draw(some.sampled_from([1, 1000, scan_plan.ROWS_MAX]))
    tasks = store.change_tasks(name, since, until, rows_max=rows_max)
    assert of_tasks(tasks) == wanted
    assert sum(task.rows for task in tasks) >= len(wanted)


def test_a_process_of_its_own_reads_the_same(db: st.Store) -> None:
    tasks = db.change_tasks("u", 1)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(task_reader.read, map(pickle.dumps, tasks)))
    batches = (batch for part in found for batch in pa.ipc.open_stream(part))
    assert rows_of(batches) == rows_of(iter(db.changes(1, tables=["u"])["u"]))


@pytest.mark.parametrize("which", ["tag", "end"])
def test_tasks_that_begin_with_the_rows_of_a_seq_give_them_as_upserts(
    db: st.Store, which: str
) -> None:
    seq = db.tags()["merged"]
    until = seq if which == "tag" else seq + 3
    with db.snapshot(seq=seq) as then:
        whole = [(seq, "upsert", *row.values()) for row in then["t"].to_arrow().to_pylist()]
    rest = [] if which == "tag" else rows_of(iter(db.changes(seq, until, ["t"])["t"]))
    found = of_tasks(db.change_tasks("t", seq, until, begins=True))
    assert found == sorted(whole + rest, key=repr)


@settings(max_examples=by_day(15, 40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.data())
def test_a_range_is_cut_at_the_last_seq_with_as_many_changes(
    db: st.Store, beside: st.Store, data: some.DataObject
) -> None:
    store = data.draw(some.sampled_from([db, beside]))
    since = data.draw(some.integers(1, db.seq))
    rows_max = data.draw(some.sampled_from([1, 2, 3, 10, 900, 1000, 10_000_000]))
    seqs = sorted(row[0] for row in rows_of(iter(db.changes(since, tables=["u"])["u"])))
    upto, rows = store.changes_upto("u", since, rows_max)
    inside = [seq for seq in seqs if seq <= upto]
    if len(seqs) <= rows_max:
        assert (upto, rows) == (db.seq, len(seqs))
    elif len(inside) > rows_max:
        assert len(set(inside)) == 1  # one commit with more
        assert rows > rows_max
    else:
        following = min(seq for seq in seqs if seq > upto)
        assert len(inside) == rows > 0
        assert len(inside) + seqs.count(following) > rows_max


@pytest.mark.parametrize("name", ["t", "u"])
def test_the_changes_of_a_table_begin_when_it_took_its_name(db: st.Store, name: str) -> None:
    seq = db.changes_from(name)
    with db.snapshot(seq=seq) as then, db.snapshot(seq=seq - 1) as before:
        assert name in then.tables()
        assert name not in before.tables()


def test_a_plain_table_or_none_has_no_changes(db: st.Store) -> None:
    for use in (db.changes_from, lambda name: db.change_tasks(name, 1)):
        for name in ("p", "nope"):
            with pytest.raises(RequestError):
                use(name)


def test_tasks_that_come_too_late_are_refused(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=0) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db["t"].upsert([{"id": n} for n in range(10)])
        db.checkpoint()
        tasks = db.change_tasks("t", 1)
        for step in range(3):
            clock.move(days=2)
            db["t"].upsert([{"id": 10 + step}])
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(SnapshotExpiredError):
            of_tasks(tasks)
        with pytest.raises(SnapshotExpiredError):
            db.change_tasks("t", 1)


@pytest.mark.parametrize("since", [-1, "1", 10_000])
def test_a_range_that_is_none_is_refused(db: st.Store, since: Any) -> None:
    with pytest.raises(RequestError):
        db.change_tasks("u", since)
    with pytest.raises(RequestError):
        db.changes_upto("u", since, 10)


@pytest.mark.parametrize("rows_max", [0, -1, None, "x", 1.5])
def test_a_number_of_rows_that_is_none_is_refused(db: st.Store, rows_max: Any) -> None:
    with pytest.raises(RequestError, match="rows_max"):
        db.change_tasks("u", 1, rows_max=rows_max)
    with pytest.raises(RequestError, match="rows_max"):
        db.changes_upto("u", 1, rows_max)
