"""Whenever somebody looks, a commit is there with all of its tables or not at all, and durable."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.commit.shown import Shown
from siltstone.storage.wal.wal import Wal
from tests.engine.seams import fake_env, open_store
from tests.support.traced import EveryLine

SCHEMA = {"id": "int64", "v": "int64"}
ROWS = 3


WHERE = (
    "engine/commit/committer.py",
    "engine/levels/memtable.py",
    "engine/read/view.py",
    "storage/wal/wal.py",
)


def rows(v: int) -> list[dict[str, int]]:
    return [{"id": n, "v": v} for n in range(ROWS)]


def by_rows(db: Store, v: int) -> None:
    with db.transaction() as tx:
        tx["a"].upsert(rows(v))
        tx["b"].upsert(rows(v))


def by_batches(db: Store, v: int) -> None:
    with db.transaction() as tx:
        for name in ("a", "b"):
            tx[name].upsert(tx[name].to_arrow().set_column(1, "v", [[v] * ROWS]))


def by_a_token(db: Store, v: int) -> None:
    with db.transaction(token=("app", v)) as tx:
        tx["a"].upsert(rows(v))
        tx["b"].upsert(rows(v))


def by_a_new_column(db: Store, v: int) -> None:
    with db.transaction() as tx:
        tx["a"].add_column(f"c{v}", "int64")
        tx["a"].upsert(rows(v), missing="null")
        tx["b"].upsert(rows(v))


@pytest.mark.parametrize("commit", [by_rows, by_batches, by_a_token, by_a_new_column])
def test_at_every_line_of_a_commit_a_reader_sees_all_of_it_or_nothing_and_it_is_durable(
    tmp_path: Path, commit: Callable[[Store, int], None]
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        for name in ("a", "b"):
            db.create_table(name, SCHEMA, primary_key="id").upsert(rows(0))
        before = db.seq
        seen: set[int] = set()
        wrong: list[str] = []  # raised in the middle of a commit it would do harm of its own

        looks = 0

        def look(_: FrameType) -> None:
            nonlocal looks
            looks += 1
            shown = db._parts.owner.committer.shown
            if shown.before is not None:  # it would wait for this very thread
                return
            with db.snapshot() as snapshot:
                a, b = ([row["v"] for row in snapshot[n].to_arrow().to_pylist()] for n in "ab")
                if not a == b == [snapshot.seq - before] * ROWS:
                    wrong.append(f"seq {snapshot.seq} shows {a} and {b}")
                if snapshot.seq > db._parts.owner.wal.durable_seq:
                    wrong.append(f"seq {snapshot.seq} is shown before it is durable")
                seen.add(snapshot.seq)

        for v in range(1, 3):
            looks = 0
            with EveryLine(look, *WHERE):
                commit(db, v)
            assert looks > 50
            assert wrong == []
        assert seen == {before, before + 1, before + 2}


# other processes hear of a commit from MARK on


def in_a_thread(read: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Let another thread read until it is done, or waits for the state; return its results, too."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(read()))
    thread.start()
    while thread.is_alive() and not is_waited_for():
        thread.join(0.001)
    return thread, found


def is_waited_for() -> bool:
    waits = Shown.__getattr__.__code__
    return any(frame.f_code is waits for frame in sys._current_frames().values())


def around_mark(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], behind: Callable[[], object]
) -> None:
    """Do something just before each MARK is written, and just behind it."""
    tell = Wal.tell

    def told(self: Wal) -> None:
        before()
        tell(self)
        behind()

    monkeypatch.setattr(Wal, "tell", told)


READS: dict[str, Callable[[Any], Any]] = {
    "get": lambda db: db["a"].get(1)["v"],
    "scan": lambda db: db["a"].to_arrow().sort_by("id")["v"][1].as_py(),
    "snapshot": lambda db: db.snapshot()["a"].get(1)["v"],
    "transaction": lambda db: db.transaction()["a"].get(1)["v"],
    "served": lambda db: db.served["a"].get(1)["v"],
}


@pytest.mark.parametrize("read", READS)
def test_a_read_here_that_begins_behind_mark_sees_what_others_see_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Somebody is handed a value by another process, and reads here: not an older one."""
    with open_store(tmp_path / "db", fake_env()) as db:
        db.create_table("a", SCHEMA, primary_key="id").upsert(rows(0))
        begun: list[tuple[threading.Thread, list[object]]] = []
        with st.connect(db.serve(port=0).url) as served:
            db.served = served
            reads = lambda: begun.append(in_a_thread(lambda: READS[read](db)))  # noqa: E731
            around_mark(monkeypatch, lambda: None, reads)
            db["a"].upsert(rows(1))
            for thread, _ in begun:
                thread.join()
        assert [found for _, found in begun] == [[1]]


def test_no_read_here_sees_a_commit_that_mark_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be acknowledged to who reads, and another process would not find it."""
    with open_store(tmp_path / "db", fake_env()) as db:
        db.create_table("a", SCHEMA, primary_key="id").upsert(rows(0))
        state = db._parts.owner.committer.shown
        seen: list[int] = []
        around_mark(monkeypatch, lambda: seen.append(state.before.visible), lambda: None)
        before = db.seq
        db["a"].upsert(rows(1))
        assert seen == [before]


def test_a_mark_that_cannot_be_written_leaves_the_state_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        db.create_table("a", SCHEMA, primary_key="id").upsert(rows(0))
        before = db.seq

        def refused() -> None:
            raise OSError(5, "refused")

        around_mark(monkeypatch, refused, lambda: None)
        with pytest.raises(st.InDoubtError):
            db["a"].upsert(rows(1))
        assert db.seq == before
        assert db["a"].get(1) == {"id": 1, "v": 0}
        monkeypatch.undo()
        with pytest.raises(st.PoisonedError):
            db["a"].upsert(rows(2))


def test_in_the_child_of_a_fork_no_read_waits_for_a_thread_that_is_not_there() -> None:
    shown = Shown("before")  # type: ignore[arg-type]
    children: list[str] = []

    def forked() -> None:
        child = Shown.__new__(Shown)
        child.lock, child.before = shown.lock, shown.before
        child.free_in_child()
        children.append(child.state)

    with shown.lock:
        shown.before = shown.state
        del shown.state
        forked()
    assert children == ["before"]


def test_a_commit_that_mark_could_not_tell_is_in_doubt_and_reopening_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame is synced before MARK is written: nobody is told, and nothing is lost."""

    def refuse(_: object) -> None:
        raise OSError(errno.EIO, "no")

    db = st.connect(tmp_path / "s", background=False)
    db.create_table("t", {"id": "int64"}, primary_key="id").upsert([{"id": 0}])
    with monkeypatch.context() as patch:
        patch.setattr(Wal, "tell", refuse)
        with pytest.raises(st.InDoubtError):
            db["t"].upsert([{"id": 1}])
        assert db["t"].get(1) is None
    with pytest.raises(st.PoisonedError):
        db["t"].upsert([{"id": 2}])
    db.close()
    with st.connect(tmp_path / "s", background=False) as again:
        assert again["t"].scan().read_all()["id"].to_pylist() == [0, 1]
