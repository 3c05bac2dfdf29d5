# pyright: basic
"""A table that Lance refuses holds up no other one, and no row of it is lost, hidden or changed.

Its flushed rows are in a file of ours that the record names; all that reads levels reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.errors import (
    CorruptionError,
    InvariantError,
    LanceRefusedError,
    UnavailableError,
)
from siltstone.formats.manifest import Fallback, Pin
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.restore import Restorer
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.lance_tables import lance_tables
from tests.engine.seams import HookedTables, fake_env, open_store
from tests.formats.test_accepted_values import KINDS
from tests.maintenance.stores import Clock

KEYED = {"id": "int64", "v": "string"}
REASON = "Lance panicked while it wrote"


class Refusing:
    """Opens stores whose tables refuse the rows of `bad`, as long as `error` is one."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.error = root, Clock(), InvariantError(REASON)
        self.calls = 0
        self.env = replace(fake_env(now_us=self.clock), load_rows_min=2)
        self.env = replace(self.env, tables=self._hooked(self.env.tables))

    def _hooked(self, tables: Callable) -> Callable:
        def made(*args: object) -> HookedTables:
            found = HookedTables(tables(*args))
            found.hooks["stage"] = self.refuse
            return found

        return made

    def refuse(self, pin: Pin, *_: object) -> None:
        if pin.folder.startswith("tables/bad-") and pin.folder.endswith("/.history"):
            self.calls += 1
            if self.error is not None:
                raise self.error

    def open(self, *, read_only: bool = False) -> LocalStore:
        options = Options(background=False, segment_bytes=65_536)
        return LocalStore.open(self.root, options, env=self.env, read_only=read_only)


@pytest.fixture
def refusing(tmp_path: Path) -> Refusing:
    return Refusing(tmp_path / "shop")


def fallbacks(db: LocalStore) -> list[Fallback]:
    return [each for s in db._core.state().view.record.keyed for each in s.fallbacks]


def rows(source, name: str = "bad") -> list[tuple]:
    return sorted(tuple(row.values()) for row in source[name].to_arrow().to_pylist())


def made(db: LocalStore) -> None:
    for name in ("bad", "good"):
        db.create_table(name, KEYED, primary_key="id")


def write(db: LocalStore, number: int) -> None:
    """Two commits of `bad`, one of both tables."""
    db["bad"].upsert([{"id": i, "v": f"{number}-{i}"} for i in range(number, number + 3)])
    db["bad"].delete(number)
    with db.transaction() as tx:
        for name in ("bad", "good"):
            tx[name].upsert({"id": 100 + number, "v": str(number)})


def test_the_others_are_flushed_and_the_log_is_free_again(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        for number in range(12):
            write(db, number)
            seq, expected = db.seq, rows(db)
            db.checkpoint()
            assert db._core.state().view.record.flushed_seq == seq
            assert rows(db) == expected
            assert not db._core.state().view.sealed
        assert db.status().wal_segments == 2
        assert len(db["good"]) == 12
        assert len(fallbacks(db)) <= 4  # a ladder, however many checkpoints
    with refusing.open(read_only=True) as db:
        assert rows(db) == expected
    with refusing.open() as db:
        assert rows(db) == expected
        assert db["bad"].get(111) == {"id": 111, "v": "11"}
        assert db["bad"].get(0) is None
        assert db.verify(deep=True).is_sound


def test_the_next_checkpoint_tries_again_and_lance_takes_all_rows(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        write(db, 2)
        db.checkpoint()
        names = [each.pin.path for each in fallbacks(db)]
        expected, refusing.error = rows(db), None
        db["good"].upsert({"id": 1, "v": "x"})  # of another table alone
        db.checkpoint()
        assert not fallbacks(db)
        assert rows(db) == expected
        db.merge()
        assert rows(db) == expected
        assert all((refusing.root / name).exists() for name in names)  # an older record names it
        refusing.clock.move(days=8)
        db["good"].upsert({"id": 2, "v": "x"})
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        assert not any((refusing.root / name).exists() for name in names)
        assert rows(db) == expected
        assert db.verify(deep=True).is_sound


class Oracle:
    """What `bad` was at each seq, and how each of its commits changed it."""

    def __init__(self) -> None:
        self.states: dict[int, list[tuple]] = {}
        self.changes: list[tuple] = []

    def step(self, db: LocalStore, work: Callable[[], object], *new: tuple) -> None:
        work()
        self.changes.extend((db.seq, *each) for each in new)
        self.states[db.seq] = rows(db)

    def check(self, db: LocalStore) -> None:
        for seq in self.states:
            self.check_at(db, seq)
        found = db.changes(since=0, tables=["bad"])["bad"].read_all().to_pylist()
        assert [tuple(row.values()) for row in found] == self.changes

    def check_at(self, db: LocalStore, seq: int) -> None:
        with db.snapshot(seq=seq) as past:
            assert rows(past) == self.states[seq], f"at seq {seq}"


def attach(db: LocalStore, load: pa.Table) -> None:
    stage = db.stage("bad", "upsert")
    piece = stage.run_through(db._core.tables.writer, load.to_batches())
    with db.transaction() as tx:
        tx.attach(stage, [piece])


def checkpoint_after(db: LocalStore, name: str = "good") -> None:
    db[name].upsert({"id": 8, "v": "e"})
    db.checkpoint()
    db.merge()


def test_each_seq_is_read_as_it_was(refusing: Refusing):  # noqa: PLR0915 - one life
    """Before, during and after the refusal; with loads, deletes, merges, a tag and vacuums."""
    oracle = Oracle()
    with refusing.open() as db:
        made(db)
        bad = db["bad"]
        refusing.error = None
        oracle.step(db, lambda: bad.upsert({"id": 1, "v": "a"}), ("upsert", 1, "a"))
        db.checkpoint()
        refusing.error = InvariantError(REASON)
        oracle.step(db, lambda: bad.upsert({"id": 2, "v": "b"}), ("upsert", 2, "b"))
        db.checkpoint()
        load = pa.table({"id": [1, 5, 6], "v": ["l", "l", "l"]})
        loaded = [("upsert", number, "l") for number in (1, 5, 6)]
        oracle.step(db, lambda: attach(db, load), *loaded)
        oracle.step(db, lambda: bad.delete([5, 2]), ("delete", 5, None), ("delete", 2, None))
        db.checkpoint()
        oracle.step(db, lambda: bad.upsert({"id": 6, "v": "c"}), ("upsert", 6, "c"))
        db.checkpoint()
        assert len(fallbacks(db)) == 2  # with the load between
        db.merge()
        db.optimize()
        oracle.check(db)
        tagged = db.seq
        db.tag("kept")
    with refusing.open() as db:
        oracle.check(db)
        checkpoint_after(db)
        oracle.check(db)
        refusing.error = None
        bad = db["bad"]
        oracle.step(db, lambda: bad.upsert({"id": 7, "v": "d"}), ("upsert", 7, "d"))
        db.checkpoint()
        db.merge()
        db.optimize()
        oracle.check(db)
        refusing.clock.move(days=8)
        checkpoint_after(db, "bad")
        db.vacuum(dry_run=False, grace_s=0)
        oracle.check_at(db, tagged)
    with refusing.open() as db:
        oracle.check_at(db, tagged)


def test_columns_come_and_go_while_the_table_is_refused(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        bad = db["bad"]
        bad.upsert({"id": 1, "v": "one"})
        before = db.seq
        db.checkpoint()
        bad.add_column("n", "int64")
        bad.upsert({"id": 2, "v": "two", "n": 2})
        db.checkpoint()
        bad.rename_column("v", "w")
        bad.drop_column("n")
        bad.add_column("n", "string")
        bad.upsert({"id": 3, "w": "three", "n": "3"})
        db.checkpoint()
        expected = [(1, "one", None), (2, "two", None), (3, "three", "3")]
        assert rows(db) == expected
    refusing.error = None
    with refusing.open() as db:
        assert rows(db) == expected
        with db.snapshot(seq=before) as past:
            assert rows(past) == [(1, "one")]
        db["good"].upsert({"id": 1, "v": "x"})
        db.checkpoint()
        db.merge()
        assert rows(db) == expected
        with db.snapshot(seq=before) as past:
            assert rows(past) == [(1, "one")]


@pytest.mark.parametrize("way", ["drop", "truncate"])
def test_a_drop_or_a_truncate_ends_the_retries(refusing: Refusing, way: str):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        seq, expected = db.seq, rows(db)
        db.checkpoint()
        write(db, 2)  # refused rows, and sealed ones of a table that is dropped
        if way == "drop":
            db.drop_table("bad")
        else:
            db["bad"].truncate()
        refusing.calls = 0
        db.checkpoint()
        db["good"].upsert({"id": 1, "v": "x"})
        db.checkpoint()
        assert not refusing.calls
        with db.snapshot(seq=seq) as past:
            assert rows(past) == expected
        names = [each.pin.path for each in fallbacks(db)]
        assert names
        for _ in range(2):  # the record that the retention keeps names them, once
            assert all((refusing.root / name).exists() for name in names)
            refusing.clock.move(days=8)
            checkpoint_after(db)
            db.vacuum(dry_run=False, grace_s=0)
        assert not any((refusing.root / name).exists() for name in names)


def test_a_full_table_takes_no_more_rows_and_the_others_do(refusing: Refusing):
    refusing.env = replace(refusing.env, fallback_bytes_max=2_000)
    with refusing.open() as db:
        made(db)
        db["bad"].upsert([{"id": i, "v": "x" * 20} for i in range(100)])
        db.checkpoint()
        seq, expected = db.seq, rows(db)
        for work in (
            lambda: db["bad"].upsert({"id": 1, "v": "no"}),
            lambda: db["bad"].insert({"id": 1000, "v": "no"}),
            lambda: db["bad"].delete(1),
            lambda: db["bad"].delete_where("id = 1"),
        ):
            with pytest.raises(LanceRefusedError, match=f"bad-1.*at most 2000.*{REASON}; nothing"):
                work()
        tx = db.transaction()
        for name in ("good", "bad"):
            tx[name].upsert({"id": 1, "v": "no"})
        with pytest.raises(UnavailableError):
            tx.commit()
        assert (db.seq, rows(db), len(db["good"])) == (seq, expected, 0)
        db["good"].upsert({"id": 1, "v": "yes"})
        refusing.error = None
        db.checkpoint()
        db["bad"].upsert({"id": 1, "v": "yes"})
        assert db["bad"].get(1) == {"id": 1, "v": "yes"}
    refusing.error = InvariantError(REASON)
    with refusing.open() as db:
        db["bad"].upsert([{"id": i, "v": "x" * 20} for i in range(100)])
        db.checkpoint()
        with pytest.raises(LanceRefusedError):
            db["bad"].upsert({"id": 1, "v": "no"})
        db["bad"].truncate()
        db["bad"].upsert({"id": 1, "v": "anew"})
        assert rows(db) == [(1, "anew")]


def test_what_the_system_refuses_fails_the_checkpoint_as_before(refusing: Refusing):
    refusing.error = UnavailableError("no space left; free some, then try again")
    with refusing.open() as db:
        made(db)
        write(db, 1)
        expected = rows(db)
        with pytest.raises(UnavailableError, match="no space left"):
            db.checkpoint()
        assert not fallbacks(db)
        assert rows(db) == expected
        refusing.error = None
        db.checkpoint()
        assert not fallbacks(db)
        assert rows(db) == expected


def test_status_verify_and_the_log_name_the_table_and_why(
    refusing: Refusing, caplog: pytest.LogCaptureFixture
):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        with caplog.at_level(logging.WARNING):
            db.checkpoint()
        assert [each for each in caplog.messages if "bad" in each and REASON in each]
        (bad, good) = db.status().tables
        assert (bad.refused, good.refused) == (REASON, None)
        assert f"Lance refuses rows: {REASON}" in str(db.status())
        found = [each for each in db.verify().findings if REASON in each.message]
        assert [(each.severity, each.path) for each in found] == [
            ("warning", fallbacks(db)[0].pin.path)
        ]
        assert db.verify().is_sound


def test_a_flipped_byte_of_the_file_is_named_and_never_read(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        path = refusing.root / fallbacks(db)[0].pin.path
    whole = path.read_bytes()
    data = bytearray(whole)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with refusing.open() as db:
        with pytest.raises(CorruptionError, match=r"rows\.arrow"):
            rows(db)
        assert db.status().tables[0].refused == REASON
        write(db, 2)  # of this table, too: without a look at its rows
        refusing.error = None
        db.checkpoint()
        db.merge()
        assert rows(db, "good") == [(101, "1"), (102, "2")]
        names = [each.pin.path for each in fallbacks(db)]
        assert names[0] == str(path.relative_to(refusing.root))
        assert len(names) == 2  # what cannot be read is not joined with what can
    path.write_bytes(whole)
    with refusing.open() as db:
        assert rows(db) == [(3, "2-3"), (4, "2-4"), (101, "1"), (102, "2")]
        checkpoint_after(db)
        assert not fallbacks(db)
    with refusing.open(read_only=True) as db:
        assert rows(db) == [(3, "2-3"), (4, "2-4"), (101, "1"), (102, "2")]
    refusing.error = InvariantError(REASON)
    with refusing.open() as db:
        write(db, 3)
        db.checkpoint()
        path = refusing.root / fallbacks(db)[0].pin.path
    path.unlink()
    with pytest.raises(CorruptionError, match=r"rows\.arrow"), refusing.open(read_only=True) as db:
        rows(db)
    with refusing.open(read_only=True) as db:
        damaged = db.verify(deep=True).findings
        found = {each.path for each in damaged if each.severity == "error"}
        assert found == {str(path.relative_to(refusing.root))}


def test_a_backup_has_the_rows_and_a_restored_store_goes_on(refusing: Refusing, tmp_path: Path):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        write(db, 2)
        db.checkpoint()
        expected = rows(db)
        db.backup(tmp_path / "backups")
    restored = tmp_path / "again"
    Restorer(
        RealFiles(), tmp_path / "backups", now_us=refusing.clock, new_token=lambda: "ab" * 16
    ).run(restored)
    refusing.error = None
    refusing.root = restored
    with refusing.open() as db:
        assert rows(db) == expected
        assert db.verify(deep=True).is_sound
        write(db, 3)
        db.checkpoint()
        assert not fallbacks(db)


def test_tasks_of_other_processes_see_the_rows(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        write(db, 1)
        db.checkpoint()
        with db.snapshot() as now:
            tasks = now.scan_tasks("bad")
            found = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
        assert sorted(tuple(row.values()) for row in found) == rows(db)


def test_merges_fold_what_lies_below_the_first_refused_row(refusing: Refusing):
    with refusing.open() as db:
        made(db)
        refusing.error = None
        write(db, 1)
        db.checkpoint()
        flushed = db.seq
        refusing.error = InvariantError(REASON)
        write(db, 2)
        db.checkpoint()
        expected = rows(db)
        assert db.merge().seq
        stored = {s.folder: s for s in db._core.state().view.record.keyed}
        assert stored["tables/bad-1"].merged_seq == fallbacks(db)[0].first_seq - 1 == flushed
        assert stored["tables/good-2"].merged_seq == db.seq
        assert rows(db) == expected


TYPES = [kind for kind in KINDS if kind != pa.json_(pa.string())]  # that one has no keyed table


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_value_of_any_type_is_the_same_behind_the_file(refusing: Refusing, kind: pa.DataType):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", kind)])
    given = pa.table({"id": [1, 2], "v": pa.nulls(2, kind)}, schema=schema)
    with refusing.open() as db:
        db.create_table("bad", schema, primary_key="id")
        db["bad"].upsert(given)
        db.checkpoint()
        expected = db["bad"].to_arrow()
        assert fallbacks(db)
    with refusing.open() as db:
        assert db["bad"].to_arrow().equals(expected)


def test_an_error_of_lance_itself_is_one_of_the_table(tmp_path: Path):
    """With real Lance: whatever its Rust code says of a write that no system refused."""
    hooked: list[HookedTables] = []

    def tables(root: Path, files, verify: str) -> HookedTables:
        hooked.append(HookedTables(lance_tables(root, files, verify)))
        return hooked[-1]

    env = replace(fake_env(), tables=tables)
    with open_store(tmp_path / "shop", env) as db:
        made(db)
        write(db, 1)
        expected = rows(db)

        def refuse(pin: Pin, *_: object) -> None:
            if pin.folder.startswith("tables/bad-"):
                raise LanceRefusedError("the write failed: LanceError(Arrow)")

        hooked[-1].hooks["commit"] = refuse  # while the record is published, too
        db.checkpoint()
        assert fallbacks(db)
        assert rows(db) == expected
        del hooked[-1].hooks["commit"]
        write(db, 2)
        expected = rows(db)
        db.checkpoint()
        assert not fallbacks(db)
        assert rows(db) == expected
