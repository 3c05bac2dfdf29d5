"""Many rows of a worker's transaction go to its owner as files: all, or none at any crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.failpoints import Failpoint
from siltstone.joined.store import JoinedStore
from siltstone.joined.transactions import large_writes
from siltstone.joined.transactions.transaction import JoinedTransaction
from siltstone.storage.lance.write.writer import LanceWriter
from tests.server.stores import eventually, opened
from tests.server.test_joined_here import asked_of

Both = tuple[st.Store, JoinedStore]
MANY = 10_000
LARGE = 100_000
"""Bytes from which on writes are staged here: `MANY` rows have more."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_writes, "STAGED_BYTES_MIN", LARGE)


def rows(first: int = 10, v: int = 1, count: int = MANY) -> pa.Table:
    return pa.table({"id": range(first, first + count), "v": [v] * count})


def counts(db: st.Store) -> dict[int, int]:
    """Return how many rows have each value."""
    return dict(db.sql("select v, count(*) from t group by v").fetchall())


def staged_folders(db: st.Store) -> list[str]:
    """Return the state of each job whose files are there."""
    marks = ("OPEN", "ATTACHED", "DISCARDED")
    return [path.name for path in db.path.glob("tables/*/.attached/*/*") if path.name in marks]


def swept(db: st.Store, left: int = 0) -> bool:
    """Vacuum a store behind a commit that is newer than its files; say whether they are gone."""
    db["t"].upsert({"id": 2, "v": 20})
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=0)
    return len(staged_folders(db)) <= left


def test_many_rows_go_as_files_and_no_request_has_them(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    asked, lengths = asked_of(joined, monkeypatch), list[int]()
    message = joined.pool.message

    def measured(*given: Any, **of: Any) -> Any:
        made = message(*given, **of)
        lengths.append(len(made.body))
        return made

    monkeypatch.setattr(joined.pool, "message", measured)
    seq = owner.seq
    with joined.transaction() as tx:
        tx["t"].upsert(rows())
        tx["t"].delete([2, 11])
        tx["t"].update(1, v=7)
        assert tx["t"].count() == MANY
    assert [path.rpartition("/")[2] for path in asked] == [
        *("stage", "stage", "begin", "attach", "attach")
    ]
    assert max(lengths) < 10_000
    assert tx.receipt is not None
    assert (tx.receipt.rows, tx.seq, owner.seq) == (MANY + 2, seq + 1, seq + 1)
    assert counts(owner) == counts(joined) == {1: MANY - 1, 7: 1}
    assert joined.outcome(tx.receipt.transaction_id) == "committed"
    owner.merge()
    assert counts(owner) == counts(joined) == {1: MANY - 1, 7: 1}
    assert owner.verify(deep=True).is_sound


def test_few_rows_of_other_tables_are_of_the_same_commit(both: Both) -> None:
    owner, joined = both
    owner.create_table("u", {"id": "int64"}, primary_key="id")
    seq = owner.seq
    with joined.transaction(isolation="serializable") as tx:
        assert tx["u"].get(1) is None
        tx["u"].insert({"id": 1})
        tx["t"].insert(rows())
        tx["t"].upsert(rows(first=5 + MANY, v=2))
    assert owner.seq == seq + 1
    assert counts(joined) == {10: 1, 20: 1, 1: MANY - 5, 2: MANY}
    assert owner["u"].count() == 1


def test_into_an_empty_table_they_go_as_its_base(both: Both) -> None:
    owner, joined = both
    owner["t"].truncate()
    with joined.transaction() as tx:
        tx["t"].insert(rows())
    assert counts(owner) == counts(joined) == {1: MANY}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_key_that_another_one_wrote_is_a_conflict_and_nothing_is_left(
    both: Both, isolation: str
) -> None:
    owner, joined = both
    tx = joined.transaction(isolation=isolation)
    tx["t"].upsert(rows())
    owner["t"].upsert({"id": 12, "v": 5})
    owner.merge()
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert counts(owner) == counts(joined) == {10: 1, 20: 1, 5: 1}
    with joined.transaction() as again:
        again["t"].upsert(rows())
    assert counts(owner) == {10: 1, 20: 1, 1: MANY}
    # The worker keeps the files that it read last until it reads again.
    eventually(lambda: joined["t"].get(2)["v"] == 20 and swept(owner, left=1))  # of the commit
    assert counts(owner) == {10: 1, 20: 1, 1: MANY}


def test_what_was_read_and_changed_since_is_a_conflict_if_reads_count(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction(isolation="serializable")
    assert tx["t"].get(1)["v"] == 10
    tx["t"].upsert(rows())
    owner["t"].update(1, v=11)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert owner["t"].count() == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda db: db["t"].add_column("w", "int64"), st.ConflictError),
        (lambda db: db["t"].truncate(), st.ConflictError),
        (lambda db: db.drop_table("t"), st.TableNotFoundError),
        (lambda db: db.rename_table("t", "u"), None),
    ],
    ids=["a column", "truncated", "dropped", "renamed"],
)
def test_a_table_that_is_another_one_by_now_is_told_as_for_few_rows(
    both: Both, change: Any, error: type[Exception] | None
) -> None:
    owner, joined = both
    few, many = joined.transaction(), joined.transaction()
    few["t"].upsert({"id": 3, "v": 1})
    many["t"].upsert(rows())
    change(owner)
    for tx in (few, many):
        if error is None:
            tx.commit()
        else:
            with pytest.raises(error):
                tx.commit()
    assert [name for name in staged_folders(owner) if name == "OPEN"] == []
    if error is None:
        assert owner["u"].count() == 3 + MANY


def test_who_may_write_no_files_sends_them(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, joined = both

    def refused(self: LanceWriter, *given: Any, **named: Any) -> Any:
        raise st.UnavailableError("a mount that may not be written")

    asked = asked_of(joined, monkeypatch)
    with monkeypatch.context() as patched, joined.transaction() as tx:
        tx["t"].upsert(rows())
        patched.setattr(LanceWriter, "stage", refused)
        tx.commit()
    assert asked == ["stage", "commit_writes"]
    assert counts(owner) == {10: 1, 20: 1, 1: MANY}
    assert staged_folders(owner) == ["DISCARDED"]
    eventually(lambda: joined["t"].get(2)["v"] == 20 and swept(owner))


def test_more_than_a_frame_holds_is_committed_as_files(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    monkeypatch.setitem(joined.pool.hello, "body_bytes_max", LARGE // 2)
    with joined.transaction() as tx:
        tx["t"].upsert(rows())
    assert owner["t"].count() == MANY + 2


def test_a_commit_that_is_interrupted_before_it_moves_has_all_rows_when_it_is_tried_again(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    owner.create_table("u", {"id": "int64"}, primary_key="id")
    tx = joined.transaction()
    tx["t"].upsert(rows())
    tx["u"].insert({"id": 1})

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(JoinedTransaction, "_commit_staged", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
    tx.commit()
    assert counts(owner) == {10: 1, 20: 1, 1: MANY}
    assert owner["u"].count() == 1


# crashes

_OWNER = """
import sys
import siltstone as st
with st.connect(sys.argv[1], background=False) as db:
    print(db.serve_local(), flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner_that_dies_at(path: Path, point: Failpoint) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)],
        env={**os.environ, "SILTSTONE_FAILPOINTS": f"{point.label}=kill"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def filled(path: Path) -> None:
    with opened(path) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])


def check_whole(path: Path, *, is_there: bool) -> None:
    """Check that all rows are there or none, also after a vacuum; of no rows no file is left."""
    expected = {10: 1, 20: 1} | ({1: MANY} if is_there else {})
    with opened(path) as db:
        assert counts(db) == expected
        eventually(lambda: swept(db, left=int(is_there)))
        assert counts(db) == expected
        assert db.verify(deep=True).is_sound
        db.merge()
        assert counts(db) == expected


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.ATTACH_BEFORE_PLAN,
        Failpoint.ATTACH_AFTER_PLAN,
        Failpoint.COMMIT_BEFORE_FRAME,
        Failpoint.COMMIT_AFTER_FRAME,
    ],
)
def test_an_owner_that_is_killed_amid_a_large_commit_has_all_of_it_or_nothing(
    tmp_path: Path, point: Failpoint
) -> None:
    path = tmp_path / "s"
    filled(path)
    with owner_that_dies_at(path, point) as owner:
        joined = st.connect(path, join=True)
        assert isinstance(joined, JoinedStore)
        assert joined["t"].count() == 2
        tx = joined.transaction()
        tx["t"].upsert(rows())
        with pytest.raises((st.UnavailableError, st.InDoubtError)):
            tx.commit()
        assert owner.wait(30) == -9
        joined.close()
    check_whole(path, is_there=point is Failpoint.COMMIT_AFTER_FRAME)


_WORKER = """
import os, signal, sys
import pyarrow as pa
import siltstone as st
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.transactions import large_writes
from siltstone.joined.transactions.transaction import JoinedTransaction

large_writes.STAGED_BYTES_MIN = 100_000
path, dies_at = sys.argv[1:]
real = {"open": ConnectionPool.open, "commit": ConnectionPool.commit}


def dies(self, *given, **named):
    os.kill(os.getpid(), signal.SIGKILL)


with st.connect(path, join=True) as db:
    assert db["t"].count() == 2
    tx = db.transaction()
    tx["t"].upsert(pa.table({"id": range(10, 10_010), "v": [1] * 10_000}))
    setattr(ConnectionPool, dies_at, dies)
    tx.commit()
"""


@pytest.mark.parametrize("dies_at", ["open", "commit"])
def test_a_worker_that_is_killed_amid_a_large_commit_leaves_files_that_vacuum_takes(
    tmp_path: Path, dies_at: str
) -> None:
    """With its files staged, and with them attached."""
    path = tmp_path / "s"
    filled(path)
    with opened(path) as owner:
        owner.serve_local()
        done = subprocess.run([sys.executable, "-c", _WORKER, str(path), dies_at], check=False)
        assert done.returncode == -9
        assert staged_folders(owner) == ["OPEN" if dies_at == "open" else "ATTACHED"]
        eventually(lambda: swept(owner))
    check_whole(path, is_there=False)
