"""Put back undoes the commits that are meant, by a new one, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.local.past import put_back
from tests.nightly import by_day
from tests.query.levels import LEVELS, Level, at_level
from tests.query.test_diff import Life, rows_at, same
from tests.server.stores import joined_to


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        table = store.create_table("orders", {"id": "int64", "total": "float64"}, primary_key="id")
        table.upsert([{"id": n, "total": 1.0 * n} for n in range(5)])
        yield store


def totals(db: Any, table: str = "orders") -> dict[int, float]:
    return {row["id"]: row["total"] for row in db[table].to_arrow().to_pylist()}


BEFORE = {n: 1.0 * n for n in range(5)}


@pytest.mark.parametrize("level", LEVELS)
def test_the_one_commit_since_is_undone(db: Any, level: Level) -> None:
    seq = db.seq
    with db.transaction() as tx:
        tx["orders"].delete([1, 2])
        tx["orders"].upsert([{"id": 3, "total": -3.0}, {"id": 9, "total": 9.0}])
    if level != "mixed":  # which is a commit more
        at_level(db, level)
    receipt = db.put_back("orders", to=seq)
    assert (receipt.seq, receipt.rows) == (db.seq, 4)
    assert totals(db) == BEFORE
    assert db.diff(seq).rows == 0
    assert [entry.rows for entry in db.log(1)] == [4]


def test_rows_that_others_wrote_stay(db: Any) -> None:
    seq = db.seq
    db["orders"].update(1, total=-1.0)  # a mistake
    db["orders"].upsert([{"id": 4, "total": 44.0}, {"id": 7, "total": 7.0}])  # by others
    with pytest.raises(st.ConflictError, match=r"2 commits wrote 'orders' since seq 2 \(3, 4\)"):
        db.put_back("orders", to=seq)
    assert db.put_back("orders", to=seq, until=seq + 1).rows == 1
    assert totals(db) == {**BEFORE, 4: 44.0, 7: 7.0}


def test_a_row_that_others_wrote_since_is_not_undone_unless_told(db: Any) -> None:
    seq = db.seq
    db["orders"].upsert([{"id": n, "total": -1.0} for n in range(3)])  # a mistake
    db["orders"].update(2, total=22.0)  # by others
    db["orders"].delete([0])  # by others
    changed = db.seq
    with pytest.raises(
        st.ConflictError, match=r"orders\[0\], orders\[2\] changed after"
    ) as refused:
        db.put_back("orders", to=seq, until=seq + 1)
    assert (refused.value.table, refused.value.key, refused.value.read_seq) == (
        "orders",
        0,
        seq + 1,
    )
    assert db.seq == changed
    assert db.put_back("orders", to=seq, until=seq + 1, force=True).rows == 3
    assert totals(db) == BEFORE


def test_a_row_that_is_again_what_it_was_is_no_obstacle(db: Any) -> None:
    seq = db.seq
    db["orders"].upsert([{"id": 1, "total": -1.0}, {"id": 2, "total": -2.0}])
    db["orders"].update(1, total=1.0)  # somebody has mended it
    assert db.put_back("orders", to=seq, until=seq + 1).rows == 1
    assert totals(db) == BEFORE


def test_with_force_alone_the_table_is_all_that_it_was(db: Any) -> None:
    seq = db.seq
    for number in range(4):
        db["orders"].upsert([{"id": number, "total": -1.0}, {"id": 10 + number, "total": 0.0}])
    db["orders"].truncate()
    db["orders"].insert({"id": 3, "total": 0.5})
    assert db.put_back("orders", to=seq, force=True).rows == 5
    assert totals(db) == BEFORE
    assert db.diff(seq).rows == 0


def test_to_put_back_what_was_put_back_does_it_again(db: Any) -> None:
    seq = db.seq
    db["orders"].truncate()
    undone = db.put_back("orders", to=seq)
    assert db.put_back("orders", to=undone.seq - 1).rows == 5
    assert totals(db) == {}
    nothing = db.put_back("orders", to=db.seq)
    assert (nothing.rows, totals(db)) == (0, {})


def test_a_dropped_table_is_made_again(db: Any) -> None:
    db.create_table("plain", {"v": "int64"}).append([{"v": 1}, {"v": 1}])
    seq = db.seq
    db.drop_table("orders")
    db.drop_table("plain")
    assert db.put_back("orders", to=seq).rows == 5
    assert (totals(db), db["orders"].primary_key) == (BEFORE, ("id",))
    assert db.put_back("plain", to=seq).rows == 2
    assert db["plain"].to_arrow().to_pylist() == [{"v": 1}, {"v": 1}]


def test_a_table_that_was_written_and_then_dropped_needs_to_be_told(db: Any) -> None:
    seq = db.seq
    db["orders"].update(1, total=-1.0)
    db.drop_table("orders")
    with pytest.raises(st.ConflictError, match="2 commits wrote"):
        db.put_back("orders", to=seq)
    with pytest.raises(st.ConflictError, match="written after seq 3"):
        db.put_back("orders", to=seq, until=seq + 1)
    assert db.put_back("orders", to=seq + 1).rows == 5
    assert totals(db) == {**BEFORE, 1: -1.0}


def test_a_plain_table_goes_back_as_a_whole(db: Any) -> None:
    plain = db.create_table("plain", {"v": "int64"})
    plain.append([{"v": 1}])
    seq = db.seq
    plain.append([{"v": 2}])
    assert db.put_back("plain", to=seq).rows == 1
    plain.append([{"v": 3}])
    with pytest.raises(st.ConflictError, match="3 commits wrote 'plain'"):
        db.put_back("plain", to=seq)
    with pytest.raises(st.ConflictError, match="without a key"):
        db.put_back("plain", to=seq, until=seq + 2)
    assert db.put_back("plain", to=seq, until=seq + 2, force=True).rows == 1
    assert plain.to_arrow().to_pylist() == [{"v": 1}]


def test_a_plain_table_that_was_only_rewritten_was_not_written(db: Any) -> None:
    plain = db.create_table("plain", {"v": "int64"})
    for number in range(3):
        plain.append([{"v": number}])
    seq = db.seq
    plain.append([{"v": 9}])
    db.checkpoint()
    db.optimize("plain")
    assert db.put_back("plain", to=seq).rows == 3


def test_many_rows_are_staged(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_back, "STAGED_BYTES_MIN", 100)
    db["orders"].upsert([{"id": n, "total": 1.0 * n} for n in range(500)])
    seq = db.seq
    with db.transaction() as tx:
        tx["orders"].delete_where("id >= 100")
        tx["orders"].upsert([{"id": n, "total": 0.0} for n in range(600, 700)])
    assert db.put_back("orders", to=seq).rows == 500
    assert db.diff(seq).rows == 0
    db.drop_table("orders")
    assert db.put_back("orders", to=db.seq - 1).rows == 500
    assert db.diff(seq).rows == 0
    seq = db.seq
    db["orders"].upsert([{"id": n, "total": -1.0} for n in range(300)])
    mistake = db.seq
    db["orders"].delete([250])
    with pytest.raises(st.ConflictError, match=r"orders\[250\]"):
        db.put_back("orders", to=seq, until=mistake)
    assert [
        job.state for job in db.jobs() if job.state not in {"done", "committed", "discarded"}
    ] == []


def test_in_a_transaction_it_is_a_part_of_it(db: Any) -> None:
    seq = db.seq
    db["orders"].delete([1])
    with db.transaction() as tx:
        assert tx.put_back("orders", to=seq) == 1
        assert tx["orders"].get(1) == {"id": 1, "total": 1.0}
        tx.rollback()
    assert 1 not in totals(db)
    with db.transaction() as tx:
        tx["orders"].insert({"id": 1, "total": 0.5})
        tx["orders"].delete([3])
        with pytest.raises(st.ConflictError, match=r"orders\[1\]"):
            tx.put_back("orders", to=seq)
        assert tx.put_back("orders", to=seq, force=True) == 1
    assert totals(db) == {n: total for n, total in BEFORE.items() if n != 3}


def test_under_a_token_that_was_applied_it_does_nothing(db: Any) -> None:
    seq = db.seq
    db["orders"].delete([1])
    for wanted in (1, 0):
        with db.transaction(token=("undo", 1)) as tx:
            assert tx.put_back("orders", to=seq) == wanted
        assert totals(db) == BEFORE


def test_a_writer_that_races_is_not_undone(db: Any) -> None:
    seq = db.seq
    db["orders"].upsert([{"id": 1, "total": -1.0}, {"id": 2, "total": -2.0}])
    tx = db.transaction()
    tx.put_back("orders", to=seq)
    db["orders"].update(1, total=11.0)
    with pytest.raises(st.ConflictError):  # first committer wins
        tx.commit()
    assert totals(db) == {**BEFORE, 1: 11.0, 2: -2.0}


def test_a_writer_that_comes_between_two_tries_is_seen(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try loses to it; the second one would undo it, and refuses."""
    seq, others = db.seq, [11.0]
    db["orders"].upsert([{"id": 1, "total": -1.0}])
    run: Callable[..., int] = put_back.PutBack.run

    def raced(self: Any, *arguments: Any, **named: Any) -> int:
        rows = run(self, *arguments, **named)
        if others:
            db["orders"].update(1, total=others.pop())
        return rows

    monkeypatch.setattr(put_back.PutBack, "run", raced)
    with pytest.raises(st.ConflictError, match="2 commits wrote 'orders'"):
        db.put_back("orders", to=seq)
    assert (totals(db), others) == ({**BEFORE, 1: 11.0}, [])


def test_a_writer_of_a_row_that_was_only_compared_is_seen(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq, others = db.seq, [11.0]
    db["orders"].upsert([{"id": 1, "total": -1.0}, {"id": 2, "total": -2.0}])
    db["orders"].update(1, total=1.0)  # mended: not written again
    run: Callable[..., int] = put_back.PutBack.run

    def raced(self: Any, *arguments: Any, **named: Any) -> int:
        rows = run(self, *arguments, **named)
        if others:
            db["orders"].update(1, total=others.pop())
        return rows

    monkeypatch.setattr(put_back.PutBack, "run", raced)
    with pytest.raises(st.ConflictError, match=r"orders\[1\] changed after"):
        db.put_back("orders", to=seq, until=seq + 1)
    assert totals(db) == {**BEFORE, 1: 11.0, 2: -2.0}


def test_what_changed_but_rows_is_refused(db: Any) -> None:
    seq = db.seq
    with pytest.raises(st.TableNotFoundError, match="'none'"):
        db.put_back("none", to=seq)
    with pytest.raises(st.TableNotFoundError, match="at seq 0"):
        db.put_back("orders", to=0)
    for to, until in ((99, None), (seq, 99), (-1, None)):
        with pytest.raises(st.SnapshotExpiredError):
            db.put_back("orders", to=to, until=until)
    for to, until in (("x", None), (1.5, None), (None, None), (True, None), (seq, seq - 1)):
        with pytest.raises(st.RequestError):
            db.put_back("orders", to=to, until=until)
    with pytest.raises(st.RequestError, match="force"):
        db.put_back("orders", to=seq, force="yes")
    db["orders"].add_column("note", "string")
    db["orders"].update(1, note="x")
    with pytest.raises(st.RequestError, match="the columns of 'orders' are others"):
        db.put_back("orders", to=seq)
    db.rename_table("orders", "old")
    with pytest.raises(st.RequestError, match="is called 'old' now"):
        db.put_back("orders", to=seq)
    db.create_table("orders", {"id": "int64"}, primary_key="id")
    with pytest.raises(st.RequestError, match="another table is called 'orders' now"):
        db.put_back("orders", to=seq)


def test_a_read_only_store_refuses(db: Any, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", read_only=True) as reader, pytest.raises(st.ReadOnlyError):
        reader.put_back("orders", to=1)


def test_a_moment_that_is_not_kept_is_refused_and_a_tag_is_enough(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention=0) as db:
        table = db.create_table("orders", {"id": "int64", "total": "float64"}, primary_key="id")
        table.upsert([{"id": n, "total": 1.0 * n} for n in range(5)])
        db.tag("good")
        good = db.seq - 1
        for number in range(4):
            table.update(number, total=-1.0)
        table.delete([4])
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.SnapshotExpiredError):
            db.put_back("orders", to=good - 1, force=True)
        with pytest.raises(st.ConflictError):
            db.put_back("orders", to="good")
        assert db.put_back("orders", to="good", force=True).rows == 5
        assert totals(db) == BEFORE


@pytest.mark.parametrize("is_near", [False, True])
def test_other_processes_put_back(db: Any, is_near: bool) -> None:
    seq = db.seq
    with joined_to(db) if is_near else st.connect(db.serve(port=0).url) as remote:
        remote["orders"].delete([1])
        assert remote.put_back("orders", to=seq).rows == 1
        with remote.transaction() as tx:
            tx["orders"].upsert({"id": 8, "total": 8.0})
            assert tx.put_back("orders", to=remote.seq - 1) == 1
        with pytest.raises(st.ConflictError, match="commits wrote"):
            remote.put_back("orders", to=seq)
    assert totals(db) == {**{n: t for n, t in BEFORE.items() if n != 1}, 8: 8.0}


@pytest.mark.parametrize("seed", range(by_day(4, 40)))
def test_whatever_happened_since_the_table_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        life = Life(db, seed)
        if life.random.random() < 0.5:
            monkeypatch.setattr(put_back, "STAGED_BYTES_MIN", 300)
        for _ in range(12):
            for _ in range(3):
                life.step()
            to = life.random.randint(1, db.seq)
            before = db.seq
            now, wanted = rows_at(db, before), rows_at(db, to)
            try:
                db.put_back("t", to=to, force=True)
            except st.RequestError:  # other columns, another table, or none
                assert same(rows_at(db, before), now)
                assert db.seq == before
                continue
            assert same(rows_at(db, db.seq), wanted)
            assert db.diff(to, tables=["t"]).rows == 0
