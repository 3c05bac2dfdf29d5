# pyright: basic
"""Rows that Lance refuses: what a review found."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from siltstone.errors import LanceRefusedError, UnavailableError
from tests.maintenance.test_checkpoint import RefusingRecords
from tests.maintenance.test_fallback import REASON, Refusing, fallbacks, made, rows, write


@pytest.fixture
def refusing(tmp_path: Path) -> Refusing:
    return Refusing(tmp_path / "shop")


def test_an_unreadable_file_is_not_read_while_commits_wait(refusing: Refusing):
    hooked = []
    inner = refusing.env.tables

    def tables(*args):
        hooked.append(inner(*args))
        return hooked[-1]

    refusing.env = replace(refusing.env, tables=tables)
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        path = refusing.root / fallbacks(db)[0].pin.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with refusing.open() as db:
        waited = []

        def look(_pin) -> None:
            writer = threading.Thread(
                target=lambda: db["good"].upsert({"id": 5, "v": "x"}), daemon=True
            )
            writer.start()
            writer.join(5)
            waited.append(writer.is_alive())

        db["bad"].upsert({"id": 3, "v": "x"})
        hooked[-1].hooks["read_arrow"] = look
        db.checkpoint()
        assert True not in waited, waited


def test_rows_that_lance_refuses_do_not_fill_the_disk_with_each_checkpoint(refusing: Refusing):
    """Each try leaves what Lance wrote before it refused; no vacuum deletes that for a day."""
    hooked = []
    inner = refusing.env.tables

    def tables(*args):
        hooked.append(inner(*args))
        return hooked[-1]

    def refuse(pin, *_) -> None:
        if pin.folder.startswith("tables/bad-"):
            raise LanceRefusedError(REASON)

    def used() -> int:
        folders = (refusing.root / "tables").glob("bad-*")
        return sum(p.stat().st_size for f in folders for p in f.rglob("*") if p.is_file())

    refusing.env, refusing.error = replace(refusing.env, tables=tables), None
    with refusing.open() as db:
        made(db)
        hooked[-1].hooks["commit"] = refuse
        db["bad"].upsert([{"id": i, "v": "x" * 20} for i in range(1_000)])
        db.checkpoint()
        first = used()
        for number in range(20):
            db["good"].upsert({"id": number, "v": "x"})
            db.checkpoint()
        db.vacuum(dry_run=False)
        assert used() < 4 * first


def test_a_file_that_the_system_refused_once_is_read_later(refusing: Refusing):
    hooked, refuses = [], [False]
    inner = refusing.env.tables

    def tables(*args):
        hooked.append(inner(*args))
        hooked[-1].hooks["read_arrow"] = refuse
        return hooked[-1]

    def refuse(_pin) -> None:
        if refuses[0]:
            raise UnavailableError("too many open files")

    refusing.env = replace(refusing.env, tables=tables)
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        expected = rows(db)
    refuses[0] = True
    with refusing.open() as db:
        refuses[0] = False
        refusing.error = None
        for number in range(2):
            db["good"].upsert({"id": number, "v": "x"})
            db.checkpoint()
        assert rows(db) == expected
        assert not fallbacks(db)


@pytest.mark.parametrize("opened_anew", [False, True])
def test_a_full_table_is_tried_again_by_a_checkpoint_with_nothing_else_to_flush(
    refusing: Refusing, *, opened_anew: bool
):
    refusing.env = replace(refusing.env, fallback_bytes_max=2_000)
    with refusing.open() as db:
        made(db)
        db["bad"].upsert([{"id": i, "v": "x" * 20} for i in range(100)])
        number = db.checkpoint().number
        assert db.checkpoint().number == number  # refused again: nothing to publish
        with pytest.raises(LanceRefusedError):
            db["bad"].delete(1)
        seq, expected = db.seq, rows(db)
        if not opened_anew:
            refusing.error = None
            db.checkpoint()
            db["bad"].delete(1)
            assert (db.seq, rows(db)) == (seq + 1, expected[:1] + expected[2:])
    refusing.error = None
    with refusing.open() as db:
        db.checkpoint()
        assert not fallbacks(db)
        expected = rows(db)
        db["bad"].delete(2)
        assert len(rows(db)) == len(expected) - 1
        found = db.changes(since=0, tables=["bad"])["bad"].read_all()
        assert found.num_rows == db.seq - seq + 100
        assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("more", [False, True])
def test_refused_rows_are_put_into_history_once_though_the_answer_was_lost(
    refusing: Refusing, *, more: bool
):
    files = RefusingRecords()
    refusing.env = replace(refusing.env, files=files)
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        changes = db.changes(since=0, tables=["bad"])["bad"].read_all()
        expected, refusing.error = rows(db), None
        files.refusals = 2
        with pytest.raises(UnavailableError):
            db.checkpoint()
        if more:
            db["good"].upsert({"id": 1, "v": "x"})
        db.checkpoint()
        assert not fallbacks(db)
        assert db.changes(since=0, tables=["bad"])["bad"].read_all() == changes
    with refusing.open() as db:
        assert rows(db) == expected
        assert db.changes(since=0, tables=["bad"])["bad"].read_all() == changes
        assert db.verify(deep=True).is_sound


def test_a_checkpoint_that_publishes_nothing_frees_no_log(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
):
    """The newest record may be one whose name a power cut takes: its rows need the log still."""
    files = RefusingRecords()
    refusing.env = replace(refusing.env, files=files)
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        db["good"].upsert({"id": 1, "v": "x"})
        files.refusals = 2
        with pytest.raises(UnavailableError):
            db.checkpoint()
        owner, freed = db._parts.owner, []
        owner.checkpointer.refresh()  # as the news do
        monkeypatch.setattr(owner.wal, "retire", freed.append)
        db.checkpoint()
        assert fallbacks(db)
        assert freed == []
        monkeypatch.undo()
        db["good"].upsert({"id": 2, "v": "x"})
        db.checkpoint()
        assert len(db["good"]) == 3
