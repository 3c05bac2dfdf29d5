"""Many threads on one store: every receipt is true and every snapshot whole, all the time."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.errors import ConflictError
from siltstone.maintenance.flush.bulk_load import load
from siltstone.storage.tables.keys.key_cover import RUNS_MAX
from tests.engine.seams import GatedFiles, HookedTables, Threads, fake_env, open_store, until

SCHEMA = {"id": "int64", "v": "int64"}
ACCOUNT = {"id": "int64", "balance": "int64"}
ACCOUNTS, START = 20, 100
WRITERS = 64


@pytest.fixture(autouse=True)
def frequent_switches():
    """Let threads meet each other often: a race that needs a rare switch is found sooner."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(old)


def maintain(db: st.Store, stop: threading.Event, pause_s: float = 0) -> None:
    while not stop.wait(pause_s):
        db.checkpoint()
        db.merge()


def test_receipts_of_64_threads_are_unique_dense_and_visible_to_all(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        start, seqs = db.seq, []
        last: dict[str, int] = {"id": -1}

        def write(writer: int) -> None:
            for n in range(6):
                key = writer * 100 + n
                receipt = table.upsert({"id": key, "v": n})
                seqs.append(receipt.seq)
                assert table.get(key) == {"id": key, "v": n}
                with db.snapshot() as snapshot:
                    assert snapshot.seq >= receipt.seq
                    assert snapshot["t"].get(key) == {"id": key, "v": n}
                other = last["id"]
                assert other < 0 or table.get(other) is not None, "acknowledged to another thread"
                last["id"] = key

        threads = Threads()
        for writer in range(WRITERS):
            threads.start(write, writer)
        threads.join()
        assert sorted(seqs) == list(range(start + 1, start + 1 + WRITERS * 6))
        assert db.seq == db.durable_seq == start + WRITERS * 6
        assert table.count() == WRITERS * 6


def test_a_reader_never_misses_a_row_through_seal_flush_and_merge(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env(), memory_bytes_max=1 << 20) as db:
        table = db.create_table("t", {**SCHEMA, "pad": "string"}, primary_key="id")
        written, stop, looks = [0], threading.Event(), []

        def write() -> None:
            for n in range(1, 400):
                table.upsert({"id": n, "v": n, "pad": "x" * 2000})
                written[0] = n
            stop.set()

        def read() -> None:
            while not stop.is_set():
                least = written[0]
                with db.snapshot() as snapshot:
                    ids = snapshot["t"].to_arrow(columns=["id"])["id"].to_pylist()
                    most = snapshot.seq
                    assert sorted(ids) == list(range(1, len(ids) + 1)), "a hole, or a row twice"
                    assert least <= len(ids) == most - 1
                    assert snapshot["t"].count() == len(ids)
                    assert not least or snapshot["t"].get(least) is not None
                looks.append(len(ids))

        threads = Threads()
        threads.start(maintain, db, stop)
        for work in (write, read, read):
            threads.start(work)
        threads.join()
        assert len(looks) > 20


def stamp(tx: st.Transaction, key: int) -> None:
    count = tx["t"].get(key)["count"] + 1
    tx["t"].update(key, stamp=f"{key}:{count}", count=count)


def test_stamped_updates_under_checkpoints_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    """Each value names its row and its count, so another row's value or a lost one shows."""
    keys, rounds = 8, 25
    with open_store(tmp_path / "db", fake_env()) as db:
        schema = {"id": "int64", "stamp": "string", "count": "int64"}
        table = db.create_table("t", schema, primary_key="id")
        table.upsert([{"id": k, "stamp": f"{k}:0", "count": 0} for k in range(keys)])
        stop = threading.Event()

        def update(offset: int) -> None:
            for n in range(rounds):
                db.run(lambda tx, key=(n + offset) % keys: stamp(tx, key), attempts=1000)

        def read() -> None:
            while not stop.is_set():
                rows = table.to_arrow().to_pylist()
                assert [row["stamp"] for row in rows] == [f"{r['id']}:{r['count']}" for r in rows]

        updates, others = Threads(), Threads()
        for offset in range(4):
            updates.start(update, offset)
        others.start(maintain, db, stop, 0.02)
        others.start(read)
        updates.join()
        stop.set()
        others.join()
        assert sum(row["count"] for row in table.to_arrow().to_pylist()) == 4 * rounds


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def transfer(db: st.Store, number: int) -> None:
    source, target = number % ACCOUNTS, (number * 7 + 3) % ACCOUNTS
    if source == target:
        return

    def work(tx: st.Transaction) -> None:
        accounts = tx["accounts"]
        accounts.update(source, balance=accounts.get(source)["balance"] - 1)
        accounts.update(target, balance=accounts.get(target)["balance"] + 1)
        tx["ledger"].insert({"id": tx.read_seq * 10_000 + number, "balance": 1})

    db.run(work, attempts=1000)


def check_bank(snapshot) -> None:
    balances = snapshot["accounts"].to_arrow()["balance"].to_pylist()
    assert len(balances) == ACCOUNTS
    assert sum(balances) == ACCOUNTS * START, f"at seq {snapshot.seq}"
    assert snapshot["ledger"].count() == snapshot.seq - 3, f"torn at seq {snapshot.seq}"


def test_the_bank_is_whole_in_every_snapshot_now_and_past(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env(), memory_bytes_max=1 << 20) as db:
        db.create_table("accounts", ACCOUNT, primary_key="id")
        db.create_table("ledger", ACCOUNT, primary_key="id")
        db["accounts"].insert([{"id": n, "balance": START} for n in range(ACCOUNTS)])
        stop, looks = threading.Event(), []

        def work(writer: int) -> None:
            for n in range(3000):
                if n >= 40 and len(looks) > 10:  # both sides have had their say
                    break
                transfer(db, writer + 3 * n)

        def read(stride: int) -> None:
            while not stop.is_set():
                with db.snapshot() as now:
                    check_bank(now)
                past = 3 + (len(looks) * stride) % max(1, db.seq - 3)
                with db.snapshot(seq=past) as then:
                    check_bank(then)
                looks.append(past)

        writers, others = Threads(), Threads()
        for writer in range(3):
            writers.start(work, writer)
        others.start(maintain, db, stop)
        for stride in (7, 13):
            others.start(read, stride)
        writers.join()
        stop.set()
        others.join()
        assert len(looks) > 10


def test_async_commits_are_visible_at_once_and_durable_within_the_interval(
    tmp_path: Path,
) -> None:
    gate = GatedFiles()
    with open_store(tmp_path / "db", fake_env(gate), sync_interval_ms=5) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        gate.hold()
        with db.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 1, "v": 1})
        assert table.get(1) == {"id": 1, "v": 1}
        gate.wait()  # the syncer stands in its sync: nothing after this seq has left the process
        assert db.durable_seq == tx.seq - 1
        assert db.changes()["t"].read_all().num_rows == 0
        with pytest.raises(st.SnapshotExpiredError):
            db.changes(until=tx.seq)
        gate.release()
        until(lambda: db.durable_seq == tx.seq)
        assert db.changes()["t"].read_all().num_rows == 1


def test_ten_thousand_cycles_leak_no_descriptor_thread_or_transaction(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        db.checkpoint()
        db.merge()
        table.upsert({"id": 1, "v": 2})
        gc.collect()
        descriptors, threads = open_descriptors(), {*threading.enumerate()}
        for n in range(10_000):
            with db.snapshot(seq=db.seq - n % 2) as snapshot:
                assert snapshot["t"].get(1)["v"] == 2 - n % 2
            tx = db.transaction()
            tx["t"].upsert({"id": 2, "v": n})
            tx.rollback()
        for n in range(30):
            table.upsert({"id": 1, "v": 1})
            db.checkpoint()
            db.merge()
            with db.snapshot(seq=3 + n // 2) as past:
                assert past["t"].get(1) is not None
        gc.collect()
        assert open_descriptors() <= descriptors + 4 + RUNS_MAX  # its base may have more key runs
        assert {*threading.enumerate()} <= threads  # those of earlier tests may end meanwhile
        assert db._core.transactions.count == 0


def test_a_forgotten_transaction_does_not_hold_the_recent_writes(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.transaction()["t"].get(1)
        gc.collect()
        assert db._core.transactions.count == 0


def test_a_load_that_races_an_insert_leaves_both_rows(tmp_path: Path) -> None:
    """The load went straight to base; the row that came first makes it an ordinary write."""
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        count = 5_000
        rows = pa.table({"id": pa.array(range(count)), "v": pa.array([1] * count)})
        raced: list[int] = []

        def race(folder: str, *_: object) -> None:
            if not raced:
                raced.append(1)
                table.upsert([{"id": -1, "v": 7}, {"id": 5, "v": 7}])

        hooked[0].hooks["append"] = race
        hooked[0].hooks["stage"] = race
        definition = catalogs.find(db._core.state().view.catalog, "t")
        table_schema = table_schema_of(catalogs.schema_of(definition))
        receipt = load(db._core, definition, table_schema, rows, may_repeat=True, bytes_min=1)
        assert raced
        assert receipt.rows == count
        assert table.count() == count + 1
        assert table.get(-1)["v"] == 7
        assert table.get(5)["v"] == 1


def test_first_committer_wins_though_its_delete_was_flushed_and_merged_away(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        late = db.transaction()
        late["t"].update(1, v=10)
        table.delete(1)
        db.checkpoint()
        db.merge()
        with pytest.raises(ConflictError):
            late.commit()
        assert table.get(1) is None
