"""Whoever is killed amid a take-over, or before it, the next owner has what an ordinary open finds.

Real processes. Several have joined and have read: the owner dies as it commits, the first that
takes over dies at a step of that, and this process is the next one. A copy of the directory, as the
last kill left it, is opened without what was followed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

import siltstone as st
from siltstone.failpoints import Failpoint, Point
from tests.engine.test_takeover import copied, notes_of

ROWS = 3_000
OWNER = """
import sys
import siltstone as st

db = st.connect(sys.argv[1], segment_bytes=65536, background=False)
db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
db.create_table("plain", {"id": "int64"})
db.serve_local()
print("ready", flush=True)
for line in sys.stdin:
    work, _, order = line.strip().partition(" ")
    if work == "arm":
        from siltstone.failpoints import arm
        arm(order)
        continue
    if work == "rows":
        for n in range(0, 3000, 30):
            db["t"].upsert([{"id": k, "v": n} for k in range(n, n + 30)])
        db["t"].delete_where("id % 10 = 3")
        db["plain"].append([{"id": 1}, {"id": 2}])
        db.tag("before")
    if work == "more":
        with db.transaction(token=("app", 1)) as tx:
            tx["t"].upsert([{"id": n, "v": -1} for n in range(0, 3000, 7)])
            tx["plain"].append([{"id": 3}])
    if work == "async":
        for n in range(5):
            with db.transaction(durability="async") as tx:
                tx["t"].upsert({"id": 9000 + n, "v": n})
    if work == "flush":
        db.checkpoint()
    print("done", flush=True)
"""
WORKER = """
import sys
import siltstone as st

db = st.connect(sys.argv[1], join=True)
assert db.can_read_alone()
print("ready", flush=True)
sys.stdin.readline()
assert db["t"].count() and db.seq
print("read", flush=True)
sys.stdin.readline()
st.connect(sys.argv[1], join=True)
print("owns", flush=True)
sys.stdin.read()
"""


class Other:
    """A process that is told what to do, line by line."""

    def __init__(self, code: str, path: Path, order: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env=os.environ | {"SILTSTONE_FAILPOINTS": order},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.heard() == "ready"

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line: str) -> str:
        self.tell(line)
        return self.heard()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def is_dead(self) -> bool:
        return self.process.wait(60) == -signal.SIGKILL


@contextmanager
def processes(*started: Other) -> Generator[None]:
    try:
        yield
    finally:
        for each in started:
            each.kill()


@pytest.fixture
def went_on(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    return notes_of(monkeypatch)


def seen(db: st.Store) -> dict[str, object]:
    since = db.changes_from("t")
    return {
        "seq": db.seq,
        "rows": db["t"].to_arrow().sort_by("id").to_pylist(),
        "plain": sorted(row["id"] for row in db["plain"].to_arrow().to_pylist()),
        "tags": db.tags(),
        "token": db.token_apps(),
        "log": [(e.seq, e.time, e.tables, e.rows) for e in db.log(limit=200)],
        "changes": sorted(map(str, db.changes(since)["t"].read_all().to_pylist())),
    }


def ordinary(copy: Path) -> dict[str, object]:
    with st.connect(copy, background=False) as db:
        return seen(db)


def segments(root: Path) -> set[int]:
    """Return the numbers of the segments of the newest epoch."""
    names = [path.stem.split("-") for path in (root / "wal").glob("*.wal")]
    newest = max(epoch for epoch, _ in names)
    return {int(number) for epoch, number in names if epoch == newest}


# the owner dies


@pytest.mark.parametrize(
    "point", [None, Failpoint.COMMIT_BEFORE_FRAME, Failpoint.COMMIT_AFTER_FRAME]
)
@pytest.mark.parametrize("before", ["read", "behind", "flushed behind", "async"])
def test_a_worker_takes_over_what_an_ordinary_open_finds(
    tmp_path: Path, went_on: list[bool], point: Point | None, before: str
) -> None:
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        assert owner.do("rows") == "done"
        assert joined.can_read_alone()
        with joined.snapshot() as past:
            old = past["t"].to_arrow().sort_by("id")
            if before != "read":
                owner.do("async" if before == "async" else "more")
            if before == "flushed behind":
                owner.do("flush")
            if point is not None:
                owner.tell(f"arm {point.label}=kill")
                assert owner.do("rows") == ""
                assert owner.is_dead()
            owner.kill()
            wanted = ordinary(copied(root, tmp_path / "copy"))
            with st.connect(root, join=True, background=False) as db:
                assert seen(db) == wanted
                assert went_on == [False, before != "flushed behind"]
                db["t"].upsert({"id": 1, "v": 77})
                db["t"].delete_where("id > 50")
                assert past["t"].to_arrow().sort_by("id") == old
                again = seen(db)
                assert seen(joined) == again  # it reads anew, or asks the owner, which is here
        assert ordinary(root) == again


# who takes over dies

STEPS = [
    Failpoint.OWN_AFTER_CLAIM,
    Failpoint.OWN_AFTER_SEGMENT,
    Failpoint.OWN_AFTER_MARK,
    Failpoint.OWN_AFTER_REPLAY,
    Failpoint.PUBLISH_AFTER_CREATE,
]


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("point", STEPS, ids=lambda point: point.label)
def test_a_kill_amid_a_take_over_costs_nothing(
    tmp_path: Path, went_on: list[bool], point: Point, follows: bool
) -> None:
    """The next owner followed the first one, too, or it is any other."""
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner):
        owner.do("rows")
        worker = Other(WORKER, root, f"{point.label}=kill")
        with processes(worker), st.connect(root, join=True) as joined:
            assert isinstance(joined, st.JoinedStore)
            assert worker.do("") == "read"
            assert joined.can_read_alone()
            owner.do("more")
            owner.kill()
            wanted, last = ordinary(copied(root, tmp_path / "first")), max(segments(root))
            assert worker.do("") == ""
            assert worker.is_dead()
            if point is not Failpoint.OWN_AFTER_CLAIM and point in STEPS[:4]:
                assert segments(root) == {last + 1}  # it did go on from what it had followed
            assert ordinary(copied(root, tmp_path / "second")) == wanted
            if not follows:
                joined.close()
            with st.connect(root, join=True, background=False) as db:
                assert seen(db) == wanted
                assert went_on == [False, False, follows]
                db["t"].upsert({"id": 1, "v": 77})
                again = seen(db)
    assert ordinary(root) == again


# what does not fit


def test_a_worker_that_may_hold_nothing_opens_as_any_process(
    tmp_path: Path, went_on: list[bool]
) -> None:
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True, join_bytes_max=2_000) as joined:
        owner.do("rows")
        assert joined["t"].count() == ROWS * 9 // 10
        owner.kill()
        wanted = ordinary(copied(root, tmp_path / "copy"))
        with st.connect(root, join=True, background=False) as db:
            assert seen(db) == wanted
            assert went_on == [False, False]


def test_an_older_copy_in_the_place_of_the_store_is_opened_as_it_is(
    tmp_path: Path, went_on: list[bool]
) -> None:
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        owner.do("rows")
        older = copied(root, tmp_path / "older")
        owner.do("more")
        assert joined.can_read_alone()
        owner.kill()
        wanted = ordinary(copied(older, tmp_path / "copy"))
        root.rename(tmp_path / "away")
        older.rename(root)
        with st.connect(root, join=True, background=False) as db:
            assert seen(db) == wanted
            assert went_on == [False, False]


def test_another_past_in_the_place_of_the_store_is_opened_as_it_is(
    tmp_path: Path, went_on: list[bool]
) -> None:
    """A copy with the same store, epoch and segment, whose owner went on in another way."""
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        owner.do("rows")
        other = copied(root, tmp_path / "other")
        with st.connect(other, background=False) as db:
            db["t"].delete_where("id < 2000")
            db["t"].upsert([{"id": n, "v": 5} for n in range(500)])
            wanted = seen(db)
        owner.do("more")
        assert joined.can_read_alone()
        owner.kill()
        root.rename(tmp_path / "away")
        other.rename(root)
        with st.connect(root, join=True, background=False) as db:
            assert seen(db) == wanted
            assert went_on == [False, False]


def test_a_transaction_that_was_open_when_the_owner_died_commits_or_conflicts(
    tmp_path: Path, went_on: list[bool]
) -> None:
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        owner.do("rows")
        assert joined.can_read_alone()
        free, late = joined.transaction(), joined.transaction()
        free["t"].update(1, v=1_000)
        late["t"].update(7, v=1_000)
        owner.do("more")  # writes 7, and not 1
        owner.kill()
        with st.connect(root, join=True, background=False) as db:
            assert went_on == [True]
            free.commit()
            with pytest.raises(st.ConflictError):
                late.commit()
            assert [db["t"].get(key)["v"] for key in (1, 7)] == [1_000, -1]  # type: ignore[index]


class Reads:
    """Threads that read row 1 all the while, each with a store of its own."""

    def __init__(self, *stores: st.Store) -> None:
        self.acknowledged, self.wrong, self.count = 0, list[object](), 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(db,)) for db in stores]

    def _read(self, db: st.Store) -> None:
        before = 0
        while not self._stop.is_set():
            least = max(before, self.acknowledged)
            try:
                row = db["t"].get(1)
            except st.UnavailableError:  # no owner, and this process cannot read just now
                continue
            self.count += 1
            before = -1 if row is None else row["v"]
            if before < least:
                self.wrong.append((row, least))

    def write(self, db: st.Store, value: int) -> None:
        db["t"].upsert({"id": 1, "v": value})
        self.acknowledged = value

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_reads_of_old_handles_go_on_through_a_take_over_and_never_go_back(
    tmp_path: Path, went_on: list[bool]
) -> None:
    """Of the process that takes over, and of one that only reads; what was acknowledged is seen."""
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        owner.do("rows")
        assert joined.can_read_alone()
        with st.connect(root, read_only=True) as reader, Reads(joined, reader) as reads:
            for value in range(1, 40):
                reads.write(joined, value)
            owner.kill()
            with st.connect(root, join=True, background=False) as db:
                for value in range(40, 121):
                    reads.write(db, value)
                    if value % 40 == 0:
                        db.checkpoint()
                        db.merge()
                assert seen(reader) == seen(db)
                assert db.verify().is_sound
    assert reads.wrong == []
    assert reads.count > 100
    assert went_on == [True]


def test_a_torn_tail_is_set_aside_and_the_store_is_sound(
    tmp_path: Path, went_on: list[bool]
) -> None:
    root = tmp_path / "s"
    owner = Other(OWNER, root)
    with processes(owner), st.connect(root, join=True) as joined:
        assert isinstance(joined, st.JoinedStore)
        owner.do("rows")
        assert joined.can_read_alone()
        owner.kill()
        newest = max((root / "wal").glob("*.wal"))
        end = (root / "wal" / "MARK").read_bytes()[16:24]
        with newest.open("r+b") as file:  # the begin of a frame, as a write that was cut off
            file.seek(int.from_bytes(end, "little"))
            file.write(b"siltfrm\n" + b"torn" * 10)
        wanted = ordinary(copied(root, tmp_path / "copy"))
        with st.connect(root, join=True, background=False) as db:
            assert seen(db) == wanted
            assert went_on == [False, True]
            assert len(list((root / "quarantine").iterdir())) == 1
            db["t"].upsert({"id": 1, "v": 5})
            db.backup(tmp_path / "backup")
            again = seen(db)
    assert ordinary(copied(root, tmp_path / "another")) == again
    with st.connect(root, read_only=True) as db:
        assert db.verify().is_sound
        assert seen(db) == again
