"""A process that joined reads the files itself: all that was acknowledged anywhere, and no more."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.engine.recover import nearby
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.store import JoinedStore
from siltstone.local.snapshot import LocalSnapshot
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.wal.wal import Wal
from tests.nightly import by_day
from tests.server.owners import owner_of
from tests.server.stores import joined_to, opened

SCHEMA = {"id": "int64", "v": "int64"}
Both = tuple[st.Store, JoinedStore]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was asked of owners."""
    found: list[str] = []
    call = ConnectionPool.call

    def noted(self: ConnectionPool, operation: Any, *given: Any, **named: Any) -> Any:
        found.append(operation.name)
        return call(self, operation, *given, **named)

    monkeypatch.setattr(ConnectionPool, "call", noted)
    return found


def joined_with(owner: st.Store, **options: Any) -> JoinedStore:
    return JoinedStore(owner.path, str(owner.serve_local()), Options(**options))


# what is read here, and what is asked


def test_reads_of_all_kinds_ask_the_owner_nothing(both: Both, asked: list[str]) -> None:
    owner, joined = both
    table = joined["t"]
    table.get(1), table.get_many([1]), table.count(), table.to_arrow(), list(table.range(1, 2))
    joined.sql("select * from t"), joined.sql_reader("select 1").read_all()
    joined.tables(), joined.tags(), joined.log(), joined.changes()["t"].read_all()
    joined.change_tasks("t", 0), joined.seq, joined.durable_seq, table.schema, table.name
    with joined.snapshot() as past:
        assert past["t"].get(1) == owner["t"].get(1)
        past["t"].dataset().to_table()
    table.dataset().to_table()
    assert asked == []
    joined.status(), joined.jobs(), table.indexes()
    assert asked == ["status", "jobs", "indexes"]


def test_a_statement_sees_the_data_frames_of_its_caller_where_it_runs(both: Both) -> None:
    _, joined = both
    mine = joined["t"].to_arrow()
    assert joined.sql("select count(*) from mine").fetchall() == [(mine.num_rows,)]
    assert joined.sql_reader("select count(*) from mine").read_all()[0][0].as_py() == 2


def test_the_handles_of_a_process_share_one_follower(both: Both) -> None:
    owner, joined = both
    with joined_to(owner) as other:
        assert other._near is not None
        assert joined._near is not None
        assert other._near.nearby is joined._near.nearby
        other["t"].get(1)
    assert joined["t"].get(1) == {"id": 1, "v": 10}


def test_a_handle_that_was_dropped_lets_go_of_the_files(both: Both) -> None:
    owner, joined = both
    joined["t"].get(1)
    assert joined._near is not None
    kept = joined._near.nearby
    joined.close()
    assert kept._mark is None
    with pytest.raises(st.ClosedError):
        joined["t"].get(1)
    with joined_to(owner) as again:
        assert again["t"].get(1) == {"id": 1, "v": 10}


# MARK


@contextmanager
def before_mark(act: Callable[[], object]) -> Generator[None]:
    """Do something when a commit is durable, and MARK does not name it yet."""
    with pytest.MonkeyPatch.context() as patch:
        tell = Wal.tell

        def told(self: Wal) -> None:
            act()
            tell(self)

        patch.setattr(Wal, "tell", told)
        yield


def in_a_thread(read: Callable[[], object]) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()
    thread.join()
    return found[0]


def test_what_mark_does_not_name_is_not_read_though_it_is_durable(both: Both) -> None:
    owner, joined = both
    seen: list[object] = []
    with before_mark(lambda: seen.append(in_a_thread(lambda: joined["t"].get(1)["v"]))):
        owner["t"].upsert({"id": 1, "v": 11})
        owner["t"].upsert({"id": 1, "v": 12})
    assert seen == [10, 11]
    assert joined["t"].get(1)["v"] == 12


def test_mark_that_is_just_being_written_is_read_again(
    both: Both, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    owner, joined = both
    joined["t"].get(1)
    owner["t"].upsert({"id": 1, "v": 11})
    decode, torn = nearby.decode_mark, [True]

    def once_torn(data: bytes, store_id: bytes) -> object:
        return None if torn and torn.pop() else decode(data, store_id)

    monkeypatch.setattr(nearby, "decode_mark", once_torn)
    assert joined["t"].get(1)["v"] == 11
    assert (torn, asked) == ([], [])


# what was acknowledged is seen

_WORKER = """
import os, struct, sys
import siltstone as st
with st.connect(sys.argv[1], join=True) as db:
    assert type(db).__name__ == "JoinedStore"
    t = db["t"]
    t.get(0)
    while True:
        asked = os.read(0, 9)
        if len(asked) < 9:
            break
        what, value = struct.unpack("<cq", asked)
        if what == b"w":
            t.upsert({"id": 0, "v": value})
        elif what == b"s":
            value = db.sql("select v from t where id = 0").fetchall()[0][0]
        elif what == b"n":
            with db.snapshot() as past:
                value = past["t"].get(0)["v"]
        else:
            value = t.get(0)["v"]
        os.write(1, struct.pack("<q", value))
"""


class Worker:
    """A process that has joined; it writes and reads one row, as it is told."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def does(self, what: bytes, value: int = 0) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack("<cq", what, value))
        found = self.process.stdout.read(8)
        return struct.unpack("<q", found)[0]

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@contextmanager
def workers(owner: st.Store, count: int) -> Generator[list[Worker]]:
    owner.serve_local()
    found = [Worker(owner.path) for _ in range(count)]
    try:
        yield found
    finally:
        for worker in found:
            worker.end()


def test_a_value_that_goes_from_process_to_process_is_never_newer_than_what_is_read_there(
    tmp_path: Path,
) -> None:
    """From a worker to a thread of the owner, to another worker, and back."""
    with opened(tmp_path / "s") as owner:
        table = owner.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 0, "v": 0})
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                table.upsert({"id": 0, "v": number})
                if number % 500 == 0:
                    owner.checkpoint()

        with workers(owner, 2) as (one, other):
            writer = threading.Thread(target=write)
            writer.start()
            try:
                last = 0
                for turn in range(by_day(600, 20_000)):
                    what = b"sn"[turn % 2 : turn % 2 + 1] if turn % 50 == 0 else b"r"
                    for read in (
                        lambda what=what: one.does(what),
                        lambda: table.get(0)["v"],
                        lambda: other.does(b"r"),
                        lambda: owner.snapshot()["t"].get(0)["v"],
                    ):
                        found = read()
                        assert found >= last, turn
                        last = found
            finally:
                stop.set()
                writer.join()


def test_what_a_process_wrote_is_read_by_all_others_at_once(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as owner:
        table = owner.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 0, "v": 0})
        with workers(owner, 2) as (one, other):
            for number in range(1, by_day(100, 2000)):
                if number % 3:
                    (one if number % 3 == 1 else other).does(b"w", number)
                else:
                    table.upsert({"id": 0, "v": number})
                assert [one.does(b"r"), other.does(b"r"), table.get(0)["v"]] == [number] * 3
                if number % 20 == 0:
                    owner.merge()


# commits that are not synced


@pytest.fixture
def lazy(tmp_path: Path) -> Generator[Both]:
    """A store whose owner syncs no async commit by itself, and one who joined it."""
    with opened(tmp_path / "s", sync_interval_ms=10**7) as owner:
        owner.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 0})
        with joined_to(owner) as joined:
            yield owner, joined


def asynchronously(db: st.Store, v: int) -> None:
    with db.transaction(durability="async") as tx:
        tx["t"].upsert({"id": 1, "v": v})


def test_a_process_sees_its_own_async_commit(lazy: Both, asked: list[str]) -> None:
    owner, joined = lazy
    with joined_to(owner) as other:  # another handle of the same process
        for v, db in ((1, joined), (2, other), (3, joined)):
            asynchronously(db, v)
            assert other["t"].get(1)["v"] == joined.snapshot()["t"].get(1)["v"] == v
        asked.clear()
        assert joined["t"].get(1)["v"] == 3
        assert asked == []


def test_an_async_commit_of_another_process_is_unseen_until_it_is_durable(lazy: Both) -> None:
    owner, joined = lazy
    asynchronously(owner, 1)
    assert owner["t"].get(1)["v"] == 1
    assert joined["t"].get(1)["v"] == 0
    assert joined.sql("select v from t").fetchall() == [(0,)]
    owner["t"].upsert({"id": 2, "v": 2})  # synced, and what came before it
    assert joined["t"].get(1)["v"] == 1


def test_an_async_commit_that_was_lost_with_its_owner_is_missed_by_no_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with owner_of(path) as owner:
        joined = st.connect(path, join=True)
        with joined.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 1, "v": 11})
        assert joined._near is not None
        joined._near.committed(tx.seq + 100)  # as if it had not been synced by then
        owner.kill()
        assert joined["t"].get(1)["v"] == 11  # the log is read to its end
        with st.connect(path, join=True) as again:
            assert joined["t"].get(1) == again["t"].get(1)
        joined.close()


# bounds, and what cannot be read here


def test_above_its_bound_a_process_asks_until_the_log_is_flushed(
    tmp_path: Path, asked: list[str]
) -> None:
    with opened(tmp_path / "s") as owner:
        owner.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 0})
        with joined_with(owner, join_bytes_max=20_000) as joined:
            table = joined["t"]
            assert table.get(1)["v"] == 0
            assert asked == []
            for n in range(200):
                owner["t"].upsert([{"id": 2 + m, "v": n} for m in range(20)])
                assert table.get(2)["v"] == n
            assert asked != []
            owner.checkpoint()
            asked.clear()
            near = joined._near
            assert near is not None
            near.nearby._asks_until_s = 0.0
            assert table.get(2)["v"] == 199
            assert asked == []


def test_a_process_that_fell_far_behind_begins_at_the_newest_record(
    tmp_path: Path, asked: list[str]
) -> None:
    with opened(tmp_path / "s") as owner:
        owner.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 0})
        with joined_with(owner, join_bytes_max=300_000) as joined:
            assert joined["t"].get(1)["v"] == 0
            for n in range(1, 30):  # more than it may hold, and segments are used again
                owner["t"].upsert([{"id": m, "v": n} for m in range(3000)])
                if n % 5 == 0:
                    owner.checkpoint()
            owner.checkpoint()
            owner["t"].upsert({"id": 1, "v": 100})
            assert joined["t"].get(1)["v"] == 100
            assert joined["t"].get(2)["v"] == 29
            assert asked == []


def test_with_a_bound_of_0_all_is_asked(both: Both, asked: list[str]) -> None:
    owner, _ = both
    with joined_with(owner, join_bytes_max=0) as joined:
        assert joined.near is None
        assert joined["t"].get(1) == {"id": 1, "v": 10}
    assert asked == ["id_of", "get"]


def test_a_process_that_may_not_read_the_files_asks(
    both: Both, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    owner, joined = both
    joined.close()
    opens = RealFiles.open

    def refused(self: RealFiles, path: Path, **how: Any) -> Any:
        if path.name == "MARK" and how == {"write": False}:
            raise PermissionError(13, "Permission denied", str(path))
        return opens(self, path, **how)

    monkeypatch.setattr(RealFiles, "open", refused)
    with joined_to(owner) as other:
        for v in range(3):
            owner["t"].upsert({"id": 1, "v": v})
            assert other["t"].get(1)["v"] == v
    assert set(asked) == {"id_of", "get"}


def test_a_read_does_not_wait_for_a_first_look_that_takes_long(
    both: Both, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    owner, joined = both
    joined.close()
    monkeypatch.setattr(nearby, "WAIT_S", 0.0)
    with joined_to(owner) as other:
        assert other._near is not None
        while asked[-2:] != []:  # it asks until a helper has read the log
            asked.clear()
            assert other["t"].get(1) == {"id": 1, "v": 10}


def test_a_first_look_that_takes_long_is_waited_for_if_no_owner_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "WAIT_S", 0.0)
    with owner_of(tmp_path / "s") as owner, st.connect(tmp_path / "s", join=True) as joined:
        assert isinstance(joined, JoinedStore)
        table = joined._table(joined.snapshot_of_owner()["t"].id)
        owner.kill()
        assert table.get(1) == {"id": 1, "v": 10}


# who comes and goes


def test_reads_go_on_when_the_owner_dies_and_another_one_comes(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with owner_of(path) as owner:
        joined = st.connect(path, join=True)
        assert isinstance(joined, JoinedStore)
        table = joined["t"]
        table.upsert({"id": 1, "v": 11})
        assert table.get(1)["v"] == 11
        owner.kill()
        assert table.get(1)["v"] == 11
    with owner_of(path) as other, joined:
        table.upsert({"id": 1, "v": 12})  # to the next owner
        assert table.get(1)["v"] == 12
        other.stop()
        assert table.get(1)["v"] == 12


def test_a_process_that_becomes_the_owner_reads_on_with_its_joined_handle(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with owner_of(path) as owner:
        joined = st.connect(path, join=True)
        joined["t"].get(1)
        owner.kill()
        with st.connect(path, join=True) as mine, joined:
            mine["t"].upsert({"id": 1, "v": 11})
            assert joined["t"].get(1)["v"] == 11


def test_a_worker_that_was_stopped_reads_what_came_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as owner:
        owner.create_table("t", SCHEMA, primary_key="id").upsert({"id": 0, "v": 0})
        with workers(owner, 1) as (one,):
            assert one.does(b"r") == 0
            os.kill(one.process.pid, signal.SIGSTOP)
            for n in range(1, 40):
                owner["t"].upsert([{"id": m, "v": n} for m in range(1000)])
                if n % 10 == 0:
                    owner.checkpoint()
                    owner.merge()
                    owner.vacuum(dry_run=False, grace_s=0)
            os.kill(one.process.pid, signal.SIGCONT)
            assert one.does(b"r") == 39


def test_a_snapshot_of_a_joined_process_outlives_merges_and_vacuums(both: Both) -> None:
    owner, joined = both
    with joined.snapshot() as past:
        assert isinstance(past, LocalSnapshot)
        for v in range(3):
            owner["t"].upsert([{"id": 1, "v": v}, {"id": 3 + v, "v": v}])
            owner.merge()
            owner.vacuum(dry_run=False, grace_s=0)
        assert past["t"].to_arrow().to_pylist() == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
    assert joined["t"].count() == 5


def test_handles_follow_renames_and_drops(both: Both) -> None:
    owner, joined = both
    table = joined["t"]
    owner.rename_table("t", "u")
    assert (table.name, table.get(1)) == ("u", {"id": 1, "v": 10})
    owner["u"].add_column("w", "int64")
    assert table.get(1) == {"id": 1, "v": 10, "w": None}
    owner.drop_table("u")
    with pytest.raises(st.TableNotFoundError):
        table.get(1)
    assert joined.tables() == []


def test_a_child_of_a_fork_is_refused_and_its_parent_reads_on(tmp_path: Path) -> None:
    script = (
        "import os, sys, siltstone as st\n"
        "db = st.connect(sys.argv[1], join=True)\n"
        "t = db['t']\n"
        "assert t.get(1) == {'id': 1, 'v': 10}\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for read in (lambda: t.get(1), t.count, db.tables, lambda: db.sql('select 1')):\n"
        "        try:\n"
        "            read()\n"
        "        except st.ClosedError:\n"
        "            continue\n"
        "        os._exit(1)\n"
        "    os._exit(7)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 7\n"
        "t.upsert({'id': 1, 'v': 11})\n"
        "assert t.get(1) == {'id': 1, 'v': 11}\n"
        "db.close()\n"
    )
    with owner_of(tmp_path / "s") as owner:
        command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "s")]
        subprocess.run(command, check=True, timeout=60)
        owner.stop()
