"""Scan tasks, read anywhere and in any order, give exactly the rows of the snapshot's scan."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.errors import RequestError, SnapshotExpiredError, TableNotFoundError
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.merge.merge import COMPACT_BELOW_ROWS
from siltstone.query.scan import scan_plan
from tests.maintenance.stores import Clock, open_store
from tests.nightly import by_day
from tests.query import task_reader

SCHEMA = {"id": "int64", "name": "string", "amount": "int64"}


def ids(low: int, high: int, amount: int) -> pa.Table:
    numbers = np.arange(low, high)
    names = pa.array([None if n % 7 == 0 else f"n{n % 10}" for n in numbers.tolist()])
    return pa.table({"id": numbers, "name": names, "amount": np.full(len(numbers), amount)})


def attach(db: st.Store, name: str, given: pa.Table) -> None:
    definition, table_schema = db[name]._table_schema()
    load(db._core, definition, table_schema, given, may_repeat=True, bytes_min=1)


def grown(db: st.Store) -> None:
    """Put rows into every level of `t`, some of them updated twice, some deleted in each."""
    db.create_table("t", SCHEMA, primary_key="id")
    db.create_table("p", SCHEMA)
    db.create_table("empty", SCHEMA, primary_key="id")
    db.create_table("none", SCHEMA)
    attach(db, "t", ids(4000, 4000 + COMPACT_BELOW_ROWS, 1))
    db["p"].append(ids(0, 500, 1))
    db.checkpoint()
    attach(db, "t", ids(-COMPACT_BELOW_ROWS, 4000, 1))
    db["p"].append(ids(500, 1000, 1))
    db.checkpoint()
    db.merge()
    db.tag("merged")
    db["t"].delete(list(range(10, 20)))
    db["t"].upsert(ids(15, 18, 2))
    db["t"].upsert(ids(4400, 5200, 2))
    db.checkpoint()
    db["t"].delete(list(range(4400, 4410)))
    attach(db, "t", ids(4390, 4405, 3))
    db["t"].delete([0, 4391, 5100])
    db["t"].upsert(ids(1, 3, 4))
    db["t"].add_column("note", "string")
    db["t"].upsert([{"id": n, "name": "x", "amount": 5, "note": "new"} for n in (2, 3, 6000)])


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("tasks") / "s"
    with st.connect(path, segment_bytes=65_536, background=False) as store:
        grown(store)
        yield store


@pytest.fixture(scope="module")
def beside(db: st.Store) -> Iterator[st.Store]:
    """Read it as another process does: what is flushed is in no memtable."""
    with st.connect(db.path, read_only=True) as store:
        yield store


@pytest.fixture(scope="module")
def other() -> Iterator[ProcessPoolExecutor]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        yield pool


def through_pickle(tasks: Sequence[st.ScanTask]) -> list[st.ScanTask]:
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


def union(tasks: Sequence[st.ScanTask], schema: pa.Schema) -> pa.Table | int:
    batches = [batch for task in through_pickle(tasks) for batch in task.read()]
    assert all(batch.schema.equals(schema) for batch in batches)
    return in_order(batches, schema)


def in_order(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table | int:
    """Return the rows, sorted; without a column only their number."""
    if not len(schema):
        return sum(batch.num_rows for batch in batches)
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    return table.sort_by([(name, "ascending") for name in schema.names])


def check(snapshot: st.Snapshot, name: str, **options: object) -> list[st.ScanTask]:
    rows_max = options.pop("rows_max", scan_plan.ROWS_MAX)
    tasks = snapshot.scan_tasks(name, rows_max=rows_max, **options)
    scanned = snapshot[name].scan(**options)
    assert union(tasks, scanned.schema) == in_order(list(scanned), scanned.schema)
    return tasks


FILTERS = [
    None, "amount > 1", "amount = 1", "id < 16", "name is null", "name = 'n3' and amount <> 2",
    "id between 4390 and 4420 or id = 6000", "not (amount = 2)", "amount > 100", "id % 3 = 1",
    pc.field("id") > 4395, pc.field("name") == "n4", pc.is_in(pc.field("id"), pa.array([2, 4401])),
]  # fmt: skip
COLUMNS = [None, [], ["id"], ["amount", "id"], ["name"]]


def test_together_they_give_every_row_once_and_each_level_has_its_task(
    beside: st.Store,
) -> None:
    with beside.snapshot() as now:
        tasks = check(now, "t", rows_max=70_000)
        assert sum(task.rows for task in tasks) == now["t"].count()
    kinds = {
        "hand" if isinstance(task.source, bytes) else task.source.pin.folder.split("/")[2]
        for task in tasks
    }
    assert kinds == {"hand", "base", ".history", ".attached"}
    assert len(tasks) > 4


def test_a_file_with_many_rows_is_several_tasks_of_about_one_size(beside: st.Store) -> None:
    with beside.snapshot() as now:
        tasks = check(now, "p", rows_max=300)
        assert [task.rows for task in tasks] == [250] * 4
        assert len(check(now, "p", rows_max=300, filter="amount = 1")) == 2  # Lance finds its rows
        few = [task for task in check(now, "t", rows_max=10_000) if task.rows <= 10_000]
        assert sum(task.rows for task in few) == now["t"].count()


def test_a_file_is_a_bounded_number_of_tasks_whatever_is_asked_for(beside: st.Store) -> None:
    with beside.snapshot() as now:
        tasks = check(now, "p", rows_max=1)
    assert len(tasks) == 2 * scan_plan.RANGES_MAX
    assert {task.rows for task in tasks} == {7, 8}


@settings(deadline=None, max_examples=by_day(20, 60), suppress_health_check=list(HealthCheck))
@given(data=some.data())
def test_some_rows_of_a_task_are_those_in_the_order_of_its_rows(
    db: st.Store, beside: st.Store, data: some.DataObject
) -> None:
    seq = data.draw(some.integers(db.tags()["merged"], db.seq))
    with data.draw(some.sampled_from([db, beside])).snapshot(seq=seq) as snapshot:
        rows_max = data.draw(some.sampled_from([700, 9_000, 70_000, 1 << 20]))
        tasks = snapshot.scan_tasks(data.draw(some.sampled_from(["t", "p"])), rows_max=rows_max)
        task = data.draw(some.sampled_from(tasks))
        first = data.draw(some.integers(0, task.rows - 1))
        end = data.draw(some.integers(first + 1, task.rows))
        whole = pa.Table.from_batches(task.read(), task.schema)
        (part,) = through_pickle([task.between(first, end)])
        found = pa.Table.from_batches(part.read(), part.schema)
        again = part.between((end - first) // 2, end - first)
        assert part.rows == len(found)
        assert found == whole.slice(first, end - first)
        assert pa.Table.from_batches(again.read(), again.schema) == found.slice((end - first) // 2)


def test_a_range_that_begins_and_ends_around_hidden_rows_has_the_rows_between(
    beside: st.Store,
) -> None:
    ranges = 0
    with beside.snapshot() as now:
        for task in now.scan_tasks("t", rows_max=20_000):
            if isinstance(task.source, bytes) or task.source.dropped is None:
                continue
            whole = pa.Table.from_batches(task.read(), task.schema)
            hidden = task.source.dropped.offsets()
            before = sorted({*(hidden - np.arange(len(hidden))).tolist()})  # rows before each
            for at in before[:4] + before[-4:]:
                for low, high in ((at - 9, at + 1), (at - 1, at + 1), (at, at + 9), (1, at + 1)):
                    first, end = max(0, low), min(high, task.rows)
                    if first < end:
                        ranges += 1
                        part = task.between(first, end)
                        found = pa.Table.from_batches(part.read(), part.schema)
                        assert found == whole.slice(first, end - first), (first, end)
    assert ranges > 20


@settings(deadline=None, max_examples=by_day(15, 40), suppress_health_check=list(HealthCheck))
@given(data=some.data())
def test_columns_and_filters_change_nothing_about_that(
    db: st.Store, beside: st.Store, data: some.DataObject
) -> None:
    seq = data.draw(some.integers(db.tags()["merged"] - 3, db.seq))
    with data.draw(some.sampled_from([db, beside])).snapshot(seq=seq) as snapshot:
        check(
            snapshot,
            data.draw(some.sampled_from(["t", "p", "empty", "none"])),
            filter=data.draw(some.sampled_from(FILTERS)),
            columns=data.draw(some.sampled_from(COLUMNS)),
            rows_max=data.draw(some.sampled_from([9_000, 30_000, 1 << 20])),
        )


def test_a_process_of_its_own_reads_them_when_the_planner_is_closed(
    db: st.Store, other: ProcessPoolExecutor
) -> None:
    with st.connect(db.path, read_only=True) as planner, planner.snapshot() as snapshot:
        tasks = snapshot.scan_tasks("t", filter="amount > 1 or id < 50", rows_max=70_000)
        scanned = snapshot["t"].to_arrow(filter="amount > 1 or id < 50")
    found = list(other.map(task_reader.read, map(pickle.dumps, tasks)))
    batches = [batch for data in found for batch in pa.ipc.open_stream(data)]
    assert in_order(batches, scanned.schema) == in_order(scanned.to_batches(), scanned.schema)


def test_a_task_says_what_it_reads(db: st.Store) -> None:
    with db.snapshot() as now:
        task = now.scan_tasks("p", ["amount"])[0]
    assert repr(task).startswith(f"<ScanTask 'p' at seq {now.seq}: 1000 rows, tables/p-")
    assert task.schema == pa.schema([pa.field("amount", pa.int64())])


def test_bad_requests_are_refused_when_they_are_planned(db: st.Store) -> None:
    with db.snapshot() as now:
        for options in ({"columns": ["nope"]}, {"filter": "nope = 1"}, {"rows_max": 0}):
            with pytest.raises(RequestError):
                now.scan_tasks("t", **options)
        with pytest.raises(TableNotFoundError):
            now.scan_tasks("nope")


def test_an_empty_table_has_no_task(db: st.Store) -> None:
    with db.snapshot() as now:
        assert now.scan_tasks("empty") == now.scan_tasks("none") == []


def test_rows_in_hand_travel_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as store:
        store.create_table("t", {"id": "int64", "text": "string"}, primary_key="id")
        text = pa.array(["x" * 3000] * 5000)
        store["t"].upsert(pa.table({"id": np.arange(5000), "text": text}))
        with store.snapshot() as now:
            tasks = check(now, "t")
        assert 1 < len(tasks) < 5
        assert all(len(pickle.dumps(task)) < scan_plan.IN_HAND_BYTES_MAX + 10_000 for task in tasks)


# --- late readers


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def aging(tmp_path: Path, clock: Clock) -> Iterator[st.Store]:
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=86_400) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store["t"].upsert(ids(0, 50, 1))
        store.checkpoint()
        store.merge()
        store["t"].upsert(ids(10, 20, 2))
        store.checkpoint()
        yield store


def rewrite(store: st.Store, amount: int) -> None:
    store["t"].upsert(ids(0, 50, amount))
    store.checkpoint()
    store.merge()


def test_maintenance_does_not_disturb_what_was_planned(aging: st.Store) -> None:
    with aging.snapshot() as now:
        tasks, before = now.scan_tasks("t"), now["t"].to_arrow()
    rewrite(aging, 9)
    aging.vacuum(dry_run=False, grace_s=0)
    assert union(tasks, before.schema) == in_order(before.to_batches(), before.schema)


def planned_beside(path: Path) -> list[st.ScanTask]:
    with st.connect(path, read_only=True) as planner, planner.snapshot() as now:
        return now.scan_tasks("t")


def test_a_task_that_comes_after_the_retention_is_told_so(
    aging: st.Store, clock: Clock, other: ProcessPoolExecutor
) -> None:
    tasks = planned_beside(aging.path)
    rewrite(aging, 9)
    clock.move(days=2)
    rewrite(aging, 10)
    oldest = aging.vacuum(dry_run=False, grace_s=0).oldest_seq
    assert len(tasks) == 2
    for task in through_pickle(tasks):
        with pytest.raises(SnapshotExpiredError) as told:
            task.read()
        assert told.value.oldest_seq == oldest > task.seq
        with pytest.raises(SnapshotExpiredError) as told:
            other.submit(task_reader.read, pickle.dumps(task)).result()
        assert told.value.oldest_seq == oldest


def test_a_task_at_a_tag_is_read_below_the_retention(aging: st.Store, clock: Clock) -> None:
    aging.tag("kept")
    with aging.snapshot(tag="kept") as then:
        before = then["t"].to_arrow()
    for step in range(3):
        rewrite(aging, 9 + step)
        clock.move(days=2)
    aging.vacuum(dry_run=False, grace_s=0)
    with aging.snapshot(tag="kept") as then:
        tasks = then.scan_tasks("t")
    assert union(tasks, before.schema) == in_order(before.to_batches(), before.schema)


def test_a_task_that_reads_keeps_its_files_from_vacuum(aging: st.Store, clock: Clock) -> None:
    with aging.snapshot() as now:
        tasks, before = now.scan_tasks("t"), now["t"].to_arrow()
    reading = [task.read() for task in tasks]
    rewrite(aging, 9)
    clock.move(days=2)
    rewrite(aging, 10)
    assert any("leased" in reason for reason in aging.vacuum(dry_run=False, grace_s=0).spared)
    batches = [batch for rows in reading for batch in rows]
    assert in_order(batches, before.schema) == in_order(before.to_batches(), before.schema)
    assert not aging.vacuum(dry_run=False, grace_s=0).spared


def test_attached_rows_that_the_checkpoint_took_and_vacuum_swept_are_no_fewer_rows(
    aging: st.Store, clock: Clock
) -> None:
    attach(aging, "t", ids(100, 200, 3))
    with aging.snapshot() as now:
        tasks = now.scan_tasks("t")
    aging.checkpoint()
    clock.move(days=0.5)  # the record is kept, the attached files are not
    aging["t"].upsert(ids(0, 1, 4))
    aging.checkpoint()
    aging.vacuum(dry_run=False, grace_s=0)
    late = [
        t for t in tasks if ".attached" in getattr(getattr(t.source, "pin", None), "folder", "")
    ]
    assert late
    for task in late:
        with pytest.raises(SnapshotExpiredError):
            list(task.read())


def test_a_damaged_file_is_named_and_not_taken_for_expired(aging: st.Store) -> None:
    with aging.snapshot() as now:
        (task, *_) = now.scan_tasks("t")
    path = next((aging.path / task.source.pin.folder / "data").glob("*.lance"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    fresh = pickle.loads(pickle.dumps(task))
    with pytest.raises(st.CorruptionError):
        list(fresh.read())


# --- any history of a table


STEP = some.one_of(
    some.tuples(some.just("upsert"), some.integers(0, 30), some.integers(1, 12)),
    some.tuples(some.just("delete"), some.integers(0, 30), some.integers(1, 12)),
    some.tuples(some.just("attach"), some.integers(0, 30), some.integers(1, 12)),
    some.tuples(
        some.sampled_from(["checkpoint", "merge", "add", "drop", "truncate"]),
        some.just(0),
        some.just(0),
    ),
)


def act(store: st.Store, step: tuple[str, int, int], amount: int) -> None:
    kind, low, count = step
    table = store["t"]
    if kind == "upsert":
        table.upsert([{"id": n, "amount": amount} for n in range(low, low + count)], missing="null")
    elif kind == "delete":
        table.delete(list(range(low, low + count)))
    elif kind == "attach":
        attach(store, "t", pa.table({"id": range(low, low + count), "amount": [amount] * count}))
    elif kind == "add" and "note" not in table.schema.names:
        table.add_column("note", "string")
    elif kind == "drop" and "note" in table.schema.names:
        table.drop_column("note")
    elif kind == "truncate":
        table.truncate()
    elif kind in {"checkpoint", "merge"}:
        getattr(store, kind)()


@settings(deadline=None, max_examples=by_day(10, 30), suppress_health_check=list(HealthCheck))
@given(steps=some.lists(STEP, max_size=12), rows_max=some.sampled_from([1, 5, 1000]))
def test_whatever_happened_to_a_table_its_tasks_are_its_scan_at_every_seq(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], rows_max: int
) -> None:
    path = tmp_path_factory.mktemp("life") / "s"
    with open_store(path) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        for number, step in enumerate(steps):
            act(store, step, number)
        for source in (store, open_store(path, read_only=True)):
            for seq in range(1, store.seq + 1):
                with source.snapshot(seq=seq) as snapshot:
                    check_in_process(source, snapshot, rows_max)


def check_in_process(store: st.Store, snapshot: st.Snapshot, rows_max: int) -> None:
    for wanted in (None, "amount > 3"):
        tasks = snapshot.scan_tasks("t", filter=wanted, rows_max=rows_max)
        found = [
            batch
            for task in through_pickle(tasks)
            for batch in task.read_through(
                store._parts.site.manifests, store._parts.site.tables.reader
            )
        ]
        scanned = snapshot["t"].to_arrow(filter=wanted)
        assert in_order(found, scanned.schema) == in_order(scanned.to_batches(), scanned.schema)
