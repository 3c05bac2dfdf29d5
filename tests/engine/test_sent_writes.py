"""A transaction that ran in another process commits here, or conflicts, as if it had run here.

Nobody registered its read seq: whatever was forgotten, flushed, or done by an owner before, no
update is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.commit.recent_writes import ForgottenError, Keys, RecentWrites
from siltstone.engine.commit.write_set import BatchPart, Receipt, WriteSet
from siltstone.engine.write import sent_writes
from siltstone.engine.write.sent_writes import Recheck
from siltstone.formats.log import group
from siltstone.local.sent_commits import WINDOW_BYTES

Work = Callable[[st.Transaction], object]
MANY = 200
"""Commits after which recent writes have forgotten what no open transaction needs."""


@pytest.fixture(params=[0, WINDOW_BYTES], ids=["without a window", "with a window"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[st.Store]:
    with st.connect(tmp_path / "shop", background=False) as found:
        made(found, request.param)
        yield found


def made(db: st.Store, window: int) -> None:
    db._core.recent.window_bytes = window
    db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    db["t"].upsert([{"id": number, "v": 0} for number in range(10)])


def elsewhere(db: st.Store, work: Work, isolation: str = "snapshot") -> WriteSet:
    """Return what a transaction that does `work` would commit; nobody knows of it any more."""
    tx: Any = db.transaction(isolation=isolation)
    work(tx)
    write_set = tx._write_set()
    tx.rollback()
    return write_set


def sent(db: st.Store, write_set: WriteSet | bytes) -> Receipt | Recheck:
    body = write_set if isinstance(write_set, bytes) else sent_writes.encode(write_set)
    core = db._core
    catalog = core.state().view.catalog
    return sent_writes.commit(core, sent_writes.decode(body, next(core.numbers), catalog))


def update(key: int, value: int) -> Work:
    return lambda tx: tx["t"].update(key, v=value)


def with_many_commits(db: st.Store) -> None:
    for number in range(MANY):
        db["t"].upsert({"id": 1_000 + number, "v": 0})


# what nobody registered


def test_what_is_forgotten_raises_the_floor() -> None:
    """Else who reads below it would be let in without a check: a lost update."""
    recent = RecentWrites()
    for seq in range(1, 11):
        recent.take(seq, ((1, Keys([seq]), None),))
    recent.forget(oldest=8)
    assert recent.floor == 8
    with pytest.raises(ForgottenError):
        recent.take(11, ((1, Keys([99]), None),), read_seq=7)
    recent.take(11, ((1, Keys([99]), None),), read_seq=8)


def test_a_window_keeps_the_newest_writes_though_nobody_needs_them() -> None:
    recent = RecentWrites()
    recent.window_bytes = 2_000
    for seq in range(1, 101):
        recent.take(seq, ((1, Keys([seq]), None),))
    recent.forget(oldest=100)
    assert 1_000 < recent.nbytes <= 2_000
    assert recent.floor < 100
    assert recent.conflict(1, 98, Keys([99])) == (99, 99)


@pytest.mark.parametrize("step", [lambda _: None, with_many_commits], ids=["at once", "late"])
def test_an_update_that_another_one_won_is_refused(
    db: st.Store, step: Callable[[st.Store], None]
) -> None:
    mine, other = elsewhere(db, update(1, 5)), elsewhere(db, update(2, 6))
    db["t"].update(1, v=7)
    step(db)
    with pytest.raises(st.ConflictError) as caught:
        sent(db, mine)
    assert (caught.value.table, caught.value.key) == ("t", 1)
    receipt = sent(db, other)
    assert isinstance(receipt, Receipt)
    assert (receipt.seq, receipt.rows) == (db.seq, 1)
    assert [db["t"].get(key)["v"] for key in (1, 2)] == [7, 6]


def test_an_update_that_another_one_won_is_refused_after_a_flush_and_a_merge(db: st.Store) -> None:
    mine, other = elsewhere(db, update(1, 5)), elsewhere(db, update(2, 6))
    db["t"].delete([1])
    with_many_commits(db)
    db.checkpoint()
    db.merge()
    with pytest.raises(st.ConflictError):
        sent(db, mine)
    sent(db, other)
    assert db["t"].get(1) is None
    assert db["t"].get(2)["v"] == 6


@pytest.mark.parametrize("flushes", [False, True])
def test_the_next_owner_knows_what_was_written_before_it_opened(
    tmp_path: Path, *, flushes: bool
) -> None:
    with st.connect(tmp_path / "shop", background=False) as db:
        made(db, 0)
        mine, other = elsewhere(db, update(1, 5)), elsewhere(db, update(2, 6))
        db["t"].update(1, v=7)
        if flushes:
            db.checkpoint()
    with st.connect(tmp_path / "shop", background=False) as db:
        with pytest.raises(st.ConflictError):
            sent(db, mine)
        sent(db, other)
        assert [db["t"].get(key)["v"] for key in (1, 2)] == [7, 6]


def test_what_the_store_no_longer_knows_is_a_conflict_that_says_so(tmp_path: Path) -> None:
    with st.connect(tmp_path / "shop", background=False, retention_s=0) as db:
        made(db, 0)
        mine = elsewhere(db, update(1, 5))
        for _ in range(3):
            with_many_commits(db)
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.ConflictError, match=r"run the transaction again|no longer knows"):
            sent(db, mine)
        assert db["t"].get(1)["v"] == 0


def test_a_seq_that_the_store_does_not_have_yet_is_refused(db: st.Store) -> None:
    mine = msgspec.structs.replace(elsewhere(db, update(1, 5)), read_seq=db.seq + 1)
    with pytest.raises(st.RequestError, match="no seq"):
        sent(db, mine)


# definitions


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda db: db["t"].add_column("w", "int64"), st.ConflictError),
        (lambda db: db["t"].rename_column("v", "w"), st.ConflictError),
        (lambda db: db["t"].truncate(), st.ConflictError),
        (lambda db: db.drop_table("t"), st.TableNotFoundError),
    ],
    ids=["a column more", "a column renamed", "truncated", "dropped"],
)
def test_a_commit_whose_table_changed_since_it_read_is_refused(
    db: st.Store, change: Callable[[st.Store], object], error: type[Exception]
) -> None:
    mine = elsewhere(db, update(1, 5))
    change(db)
    seq = db.seq
    with pytest.raises(error):
        sent(db, mine)
    assert db.seq == seq


def test_a_commit_whose_table_has_another_name_goes_on(db: st.Store) -> None:
    mine = elsewhere(db, update(1, 5))
    db.rename_table("t", "u")
    sent(db, mine)
    assert db["u"].get(1)["v"] == 5


# reads


def test_a_key_that_was_read_and_changed_since_is_a_conflict_if_reads_count(db: st.Store) -> None:
    def work(tx: st.Transaction) -> None:
        tx["t"].update(2, v=tx["t"].get(1)["v"] + 1)

    mine = [elsewhere(db, work, level) for level in ("serializable", "snapshot")]
    db["t"].update(1, v=7)
    with pytest.raises(st.ConflictError):
        sent(db, mine[0])
    sent(db, mine[1])
    assert db["t"].get(2)["v"] == 1


def test_a_key_that_was_read_and_changed_long_ago_is_a_conflict_if_reads_count(
    db: st.Store,
) -> None:
    mine = elsewhere(db, lambda tx: (tx["t"].get(1), tx["t"].update(2, v=1)), "serializable")
    db["t"].update(1, v=7)
    with_many_commits(db)
    db.checkpoint()
    with pytest.raises(st.ConflictError):
        sent(db, mine)


def test_a_scanned_table_that_was_written_is_looked_at_by_who_scanned_it(db: st.Store) -> None:
    def work(tx: st.Transaction) -> None:
        assert tx["t"].count("v = 5") == 0
        tx["t"].update(2, v=1)

    db._core.recent.window_bytes = WINDOW_BYTES
    mine = elsewhere(db, work, "serializable")
    db["t"].update(3, v=4)
    found = sent(db, mine)
    assert isinstance(found, Recheck)
    ((_, keys),) = found.keys.items()
    assert (found.upto, keys) == (db.seq, [3])
    assert mine.reads is not None
    mine.reads.checked = found.upto
    assert isinstance(sent(db, mine), Receipt)
    assert db["t"].get(2)["v"] == 1


def test_reads_of_keys_with_two_columns_are_compared(db: st.Store) -> None:
    db.create_table("p", {"a": "int64", "b": "string", "v": "int64"}, primary_key=["a", "b"])
    db["p"].upsert([{"a": 1, "b": "x", "v": 1}, {"a": 1, "b": "y", "v": 1}])

    def work(tx: st.Transaction) -> None:
        assert tx["p"].get((1, "x")) is not None
        tx["p"].delete([(1, "y")])

    mine = elsewhere(db, work, "serializable")
    again = elsewhere(db, work, "serializable")
    assert isinstance(sent(db, mine), Receipt)
    assert db["p"].get((1, "y")) is None
    db["p"].update((1, "x"), v=2)
    with pytest.raises(st.ConflictError):
        sent(db, again)


# what is sent


def test_many_rows_travel_as_a_batch(db: st.Store) -> None:
    rows = pa.table({"id": range(20_000), "v": range(20_000)})
    receipt = sent(db, elsewhere(db, lambda tx: tx["t"].upsert(rows)))
    assert isinstance(receipt, Receipt)
    assert receipt.rows == 20_000
    assert db["t"].count() == 20_000
    mine = elsewhere(db, lambda tx: tx["t"].upsert(rows))
    db["t"].update(19_999, v=0)
    with_many_commits(db)
    with pytest.raises(st.ConflictError):
        sent(db, mine)


@pytest.mark.parametrize("read_seq", [1, 200, 70_000])
def test_a_batch_is_read_in_its_place_however_long_the_head_before_it_is(
    db: st.Store, read_seq: int
) -> None:
    rows = pa.table({"id": range(20_000), "v": range(20_000)})
    made = elsewhere(db, lambda tx: tx["t"].upsert(rows))
    body = sent_writes.encode(msgspec.structs.replace(made, read_seq=read_seq))
    (part,) = sent_writes.decode(body, 0, db._core.state().view.catalog).parts
    assert isinstance(part, BatchPart)
    assert all(buffer.address % 8 == 0 for buffer in part.batch.column("id").buffers() if buffer)


def test_rows_of_a_batch_are_found_by_key_at_whatever_seq_it_was_sent(db: st.Store) -> None:
    with_many_commits(db)
    rows = pa.table({"id": range(20_000), "v": range(20_000)})
    sent(db, elsewhere(db, lambda tx: tx["t"].upsert(rows)))
    assert [db["t"].get(key)["v"] for key in (0, 77, 19_999)] == [0, 77, 19_999]


def changed(write_set: WriteSet, **values: Any) -> bytes:
    (part,) = write_set.parts
    other = msgspec.structs.replace(part, **values)
    return sent_writes.encode(msgspec.structs.replace(write_set, parts=(other,)))


def with_token(write_set: WriteSet, token: group.Token | None, **values: Any) -> bytes:
    return sent_writes.encode(msgspec.structs.replace(write_set, token=token, **values))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: b"",
        lambda _: b"\xff\xff\xff\xff",
        lambda mine: sent_writes.encode(mine)[:-3],
        lambda mine: changed(mine, upserts=[(1, "five")]),
        lambda mine: changed(mine, upserts=[(1,)]),
        lambda mine: changed(mine, upserts=[(None, 5)]),
        lambda mine: changed(mine, upserts=[(1, 5), (1, 6)]),
        lambda mine: changed(mine, deletes=[1]),
        lambda mine: changed(mine, deletes=["one"]),
        lambda mine: changed(mine, incarnation=99),
        lambda mine: with_token(mine, group.Token("", 1)),
        lambda mine: with_token(mine, group.Token("a" * 10_000, 1)),
        lambda mine: with_token(mine, group.Token("app", -5)),
        lambda mine: with_token(mine, group.Token("app", 1), claim=-1),
        lambda mine: with_token(mine, None, claim=1),
    ],
)
def test_what_is_no_write_set_is_refused_and_changes_nothing(
    db: st.Store, wrong: Callable[[WriteSet], bytes]
) -> None:
    seq, body = db.seq, wrong(elsewhere(db, update(1, 5)))
    with pytest.raises((st.RequestError, st.TableNotFoundError)):
        sent(db, body)
    assert db.seq == seq
    assert db["t"].get(1)["v"] == 0
