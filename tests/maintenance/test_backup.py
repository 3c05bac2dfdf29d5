# pyright: basic
"""A backup holds one seq of all tables, whole or not at all; a restore makes a store of it.

Over 400 lines: backups and restores of one store, good and bad, and of what became of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

import siltstone
from siltstone.errors import (
    BusyError,
    CorruptionError,
    ReplacedError,
    RequestError,
    SiltstoneError,
    SnapshotExpiredError,
    UnavailableError,
)
from siltstone.maintenance.backup.backup import Backuper, backups, read_backup
from siltstone.maintenance.backup.restore import Restorer
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from tests.engine.seams import jobs_of
from tests.maintenance.stores import Clock, open_store, paths, rows
from tests.support.fake_lance import fake_lance

KEYED = {"id": "int64", "v": "string"}


def content(store) -> dict[str, list[tuple]]:
    return {name: rows(store[name]) for name in store.tables()}


@pytest.fixture
def db(tmp_path: Path):
    """Keyed and plain tables, flushed, merged, and rows and versions that only the log names."""
    with open_store(tmp_path / "s") as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        store.create_table("empty", KEYED, primary_key="id")
        store["t"].upsert([{"id": n, "v": "old"} for n in range(20)])
        store["p"].append([{"id": 1, "v": "a"}])
        store.checkpoint()
        store.merge()
        store["t"].delete([3, 4])
        store.checkpoint()
        store["t"].upsert({"id": 5, "v": "new"})
        store["p"].append([{"id": 2, "v": "b"}])
        yield store


def beside(store, directory: Path, **options):
    """Back up by the path alone, so without a checkpoint."""
    return Backuper(site_beside(store)).run(directory, **options)


def site_beside(store, **parts) -> Site:
    """Return the storage of a store as another process has it, but for `parts`."""
    files, root = store._parts.site.files, store.path
    found = Site(root, files, ManifestStore(files, root), fake_lance(root, files), jobs_of(root))
    return dataclasses.replace(found, now_us=Clock(), **parts)


def restored(directory: Path, target: Path, **choice):
    clock = Clock()
    restorer = Restorer(
        RealFiles(), directory, now_us=clock, new_token=lambda: os.urandom(16).hex()
    )
    restorer.run(target, **choice)
    return open_store(target)


def test_a_restored_store_has_exactly_the_rows_of_the_backup(db, tmp_path):
    expected = content(db)
    made = db.backup(tmp_path / "b")
    db["t"].upsert({"id": 99, "v": "later"})
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert (made.seq, again.seq) == (db.seq - 1, db.seq - 1)
        assert content(again) == expected
        assert again.verify(deep=True).findings == ()
        again["t"].upsert({"id": 100, "v": "x"})
        again["p"].append([{"id": 3, "v": "c"}])
        for step in (again.checkpoint, again.merge):
            step()
        assert again["t"].get(100) == {"id": 100, "v": "x"}
        assert again.verify(deep=True).findings == ()
    with open_store(tmp_path / "r") as again:
        assert again["t"].count() == len(expected["t"]) + 1


def test_a_backup_beside_an_owner_takes_the_log_along_and_writes_nothing_there(db, tmp_path):
    before = {name: (db.path / name).read_bytes() for name in paths(db.path)}
    made = beside(db, tmp_path / "b")
    assert {name: (db.path / name).read_bytes() for name in paths(db.path)} == before
    assert made.seq == db.seq
    expected = content(db)
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert content(again) == expected


def test_a_read_only_handle_sees_a_restored_store_that_nobody_owned_yet(db, tmp_path):
    expected = content(db)
    beside(db, tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "r").close()
    shutil.rmtree(tmp_path / "r")
    Restorer(RealFiles(), tmp_path / "b", now_us=Clock(), new_token=lambda: "ab" * 16).run(
        tmp_path / "r"
    )
    with open_store(tmp_path / "r", read_only=True) as reader:
        assert content(reader) == expected


def test_bulk_rows_that_only_a_frame_names_are_in_the_backup(db, tmp_path):
    task = db.stage("t", "upsert")
    piece = task.run_through(db._core.tables.writer, pa.table({"id": [70, 71], "v": ["x", "y"]}))
    with db.transaction() as tx:
        tx.attach(task, [piece])
    expected = content(db)
    beside(db, tmp_path / "b")
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert content(again) == expected
        again.checkpoint()
        assert content(again) == expected


def test_an_incremental_backup_copies_only_what_is_new_and_the_older_one_stays(db, tmp_path):
    first, then = content(db), db.seq
    db.backup(tmp_path / "b")
    db["t"].upsert({"id": 50, "v": "z"})
    second = db.backup(tmp_path / "b", incremental=True)
    assert 0 < second.copied < second.files
    again = db.backup(tmp_path / "b", incremental=True)
    assert (again.copied, again.seq) == (0, second.seq)
    assert [b.seq for b in siltstone.backups(tmp_path / "b")] == [then, second.seq]
    with restored(tmp_path / "b", tmp_path / "r1", seq=then) as old:
        assert content(old) == first
    with restored(tmp_path / "b", tmp_path / "r2") as new:
        assert content(new) == content(db)


def test_a_backup_is_chosen_by_a_moment(db, tmp_path):
    made = db.backup(tmp_path / "b")
    (path,) = backups(RealFiles(), tmp_path / "b")
    time_us = read_backup(RealFiles(), path).time_us
    assert time_us == db.log(1)[0].time.timestamp() * 1e6
    with restored(tmp_path / "b", tmp_path / "r", at_us=time_us) as again:
        assert again.seq == made.seq
    with pytest.raises(RequestError, match=f"its seqs are \\[{made.seq}\\]"):
        restored(tmp_path / "b", tmp_path / "r2", at_us=time_us - 1)
    with pytest.raises(RequestError, match="give either a seq or a time"):
        restored(tmp_path / "b", tmp_path / "r2", at_us=time_us, seq=1)


def test_a_file_that_is_damaged_in_the_backup_is_copied_again_by_the_next(db, tmp_path):
    db.backup(tmp_path / "b")
    file = next((tmp_path / "b/files/tables").rglob("*.arrow"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?")
    assert db.backup(tmp_path / "b", incremental=True).copied == 1
    assert file.read_bytes() == whole


def test_a_damaged_or_missing_file_of_the_backup_is_named_and_there_is_no_store(db, tmp_path):
    db.backup(tmp_path / "b")
    (path,) = backups(RealFiles(), tmp_path / "b")
    backup = read_backup(RealFiles(), path)
    names = [f"files/{file.path}" for file in backup.files] + [backup.log.path]
    for number, name in enumerate(names):
        file, target = tmp_path / "b" / name, tmp_path / f"r{number}"
        whole = file.read_bytes()
        for damage in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-1], None):
            file.unlink()
            if damage is not None:
                file.write_bytes(damage)
            with pytest.raises(CorruptionError, match=file.name):
                restored(tmp_path / "b", target)
            with pytest.raises(RequestError, match="half restored"):
                open_store(target)
        file.write_bytes(whole)
        restored(tmp_path / "b", target).close()
        shutil.rmtree(target)


def test_a_damaged_manifest_of_a_backup_is_named(db, tmp_path):
    db.backup(tmp_path / "b")
    (path,) = backups(RealFiles(), tmp_path / "b")
    whole = path.read_bytes()
    for damage in (whole[:-1], whole[:50], b"", b"x" + whole[1:]):
        path.write_bytes(damage)
        with pytest.raises(CorruptionError, match=path.name):
            restored(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_damaged_file_of_the_store_is_named_and_no_backup_is_made(db, tmp_path):
    db.backup(tmp_path / "first")
    data = next((db.path / "tables").rglob("*.arrow"))
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptionError, match=data.name):
        beside(db, tmp_path / "b")
    assert backups(RealFiles(), tmp_path / "b") == []
    with pytest.raises(RequestError, match="no such backup"):
        restored(tmp_path / "b", tmp_path / "r")


def test_what_a_backup_and_a_restore_refuse(db, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/note").touch()
    for bad in ("full", "s", "s/inside"):
        with pytest.raises(RequestError):
            db.backup(tmp_path / bad)
    db.backup(tmp_path / "b")
    with pytest.raises(RequestError, match="incremental"):
        db.backup(tmp_path / "b")
    with open_store(tmp_path / "other") as other, pytest.raises(RequestError, match="another"):
        other.backup(tmp_path / "b", incremental=True)
    for bad in ("full", "s"):
        with pytest.raises(RequestError, match="not empty"):
            restored(tmp_path / "b", tmp_path / bad)
    with pytest.raises(RequestError, match="holds no backups"):
        restored(tmp_path / "full", tmp_path / "r")
    with pytest.raises(RequestError, match="no such backup"):
        restored(tmp_path / "b", tmp_path / "r", seq=1)


def test_one_backup_at_a_time_goes_into_a_directory(db, tmp_path):
    db.backup(tmp_path / "b")
    lock = RealFiles().lock(tmp_path / "b/STORE")
    with pytest.raises(BusyError, match="another backup"):
        db.backup(tmp_path / "b", incremental=True)
    assert lock is not None
    lock.release()


def test_hard_links_take_no_space_and_a_copy_made_of_them_is_one(db, tmp_path):
    db.backup(tmp_path / "b", link=True)
    linked = [p for p in (tmp_path / "b/files").rglob("*") if p.is_file()]
    assert all(path.stat().st_nlink > 1 for path in linked)
    expected = content(db)
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert content(again) == expected
        ours, theirs = (
            {p.stat().st_ino for p in root.rglob("*") if p.is_file()}
            for root in (tmp_path / "r", tmp_path / "b")
        )
        assert not ours & theirs


def test_a_link_across_file_systems_is_refused_with_a_reason(db, tmp_path):
    class Far(type(db._parts.site.files)):
        def link(self, old, new):
            if old.is_relative_to(db.path) and not new.is_relative_to(db.path):
                raise OSError(18, os.strerror(18))
            super().link(old, new)

    backuper = Backuper(dataclasses.replace(db._parts.site, files=Far()))
    with pytest.raises(UnavailableError, match="use copies"):
        backuper.run(tmp_path / "b", link=True)


def test_a_vacuum_while_a_backup_copies_takes_none_of_its_files(db, tmp_path):
    expected, done = content(db), []

    def vacuum(what: str, _done: int, _all: int) -> None:
        if not done:
            done.append(what)
            for n in range(3):
                db["t"].upsert({"id": 60 + n, "v": "z"})
                db["p"].overwrite([{"id": n, "v": "over"}])
                db.checkpoint()
                db.merge()
            db._owner().vacuum._retention_s = 0
            assert db.vacuum(dry_run=False, grace_s=0).files

    beside(db, tmp_path / "b", on_progress=vacuum)
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert content(again) == expected


def test_an_owner_that_goes_on_while_the_log_is_read_does_not_disturb_a_backup(db, tmp_path):
    """The record is leased, then its segments are recycled: the backup begins at a newer one."""

    moves = []

    class Moving(ManifestStore):
        def lease_newest(self):
            found = super().lease_newest()
            if len(moves) < 3:
                moves.append(found[0].number)
                for n in range(200):
                    db["t"].upsert({"id": 1000 + n, "v": "x" * 500})
                db.checkpoint()
                db["t"].upsert({"id": 77, "v": f"{len(moves)}"})
            return found

    files = db._parts.site.files
    backuper = Backuper(site_beside(db, manifests=Moving(files, db.path)))
    backuper.run(tmp_path / "b")
    assert len(set(moves)) == 3
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert content(again) == content(db)


def test_tags_of_a_table_go_with_it_also_if_only_the_log_says_so(db, tmp_path):
    with db.transaction() as tx:
        tx.lance.tag_table("t", "kept", 4)
        tx.lance.tag_table("p", "gone", 4)
    db.checkpoint()
    db.drop_table("p")
    assert beside(db, tmp_path / "b").lost_tags == ()
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert [tag.name[-5:] for tag in again._core.state().view.catalog.tags] == ["/kept"]


def test_the_past_of_a_restored_store_ends_where_it_says_and_tags_keep_theirs(db, tmp_path):
    db.tag("early", 4)
    early = content(db.snapshot(seq=4))
    db.checkpoint()
    db.merge()
    db["t"].upsert({"id": 8, "v": "w"})
    merged = db._core.state().view.levels
    at = max(levels.storage.merged_seq for levels in merged.values())
    now = content(db.snapshot(seq=at))
    made = db.backup(tmp_path / "b")
    assert made.lost_tags == ()
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert again.tags() == {"early": 4}
        assert content(again.snapshot(tag="early")) == early
        assert content(again.snapshot(seq=at)) == now
        with pytest.raises(SnapshotExpiredError):
            again.snapshot(seq=at - 1)
        changed = again.changes(since=at)["t"].read_all()
        assert changed.column("id").to_pylist() == [8]
        again._owner().vacuum._retention_s = 0
        again.vacuum(dry_run=False, grace_s=0)
        assert content(again.snapshot(tag="early")) == early
        assert again.verify(deep=True).findings == ()


def test_tokens_and_transactions_are_those_of_the_backup(db, tmp_path):
    with db.transaction(token=("app", 7)) as tx:
        tx["t"].upsert({"id": 1, "v": "once"})
    before = db.log(1)[0].transaction
    db.backup(tmp_path / "b")
    with db.transaction() as tx:
        tx["t"].upsert({"id": 2, "v": "lost"})
    lost = db.log(1)[0].transaction
    with restored(tmp_path / "b", tmp_path / "r") as again:
        with again.transaction(token=("app", 7)) as twice:
            twice["t"].upsert({"id": 1, "v": "twice"})
        assert again["t"].get(1) == {"id": 1, "v": "once"}
        assert again.outcome(before) == "committed"
        with again.transaction() as other:
            other["t"].upsert({"id": 3, "v": "other"})
        assert again.outcome(lost) == "not committed"


def test_an_old_owner_whose_path_the_restored_store_takes_goes_no_further(tmp_path):
    path = tmp_path / "s"
    old = open_store(path)
    old.create_table("t", KEYED, primary_key="id")
    old["t"].upsert({"id": 1, "v": "a"})
    old.backup(tmp_path / "b")
    for n in range(5):
        old["t"].upsert({"id": n, "v": "b"})
        old.checkpoint()
    path.rename(tmp_path / "gone")
    expected = {"t": [(1, "a")]}
    with restored(tmp_path / "b", path) as new:
        before = new._parts.site.manifests.newest()
        with pytest.raises(ReplacedError):  # what is there is another store
            old["t"].upsert({"id": 7, "v": "into the old log"})
        with pytest.raises(ReplacedError):
            old.checkpoint()
        with pytest.raises(ReplacedError):
            old._parts.site.manifests.publish(replace, base=old._core.state().view.record)
        assert new._parts.site.manifests.newest() == before
        assert content(new) == expected
        new["t"].upsert({"id": 2, "v": "b"})
        new.checkpoint()
    with contextlib.suppress(SiltstoneError):
        old.close()
    with open_store(path) as new:
        assert content(new) == {"t": [(1, "a"), (2, "b")]}
        assert new.verify(deep=True).findings == ()


def test_a_restored_store_can_be_backed_up_and_restored(db, tmp_path):
    expected = content(db)
    db.backup(tmp_path / "b")
    with restored(tmp_path / "b", tmp_path / "r") as again:
        with pytest.raises(RequestError, match="another store"):
            again.backup(tmp_path / "b", incremental=True)
        again.backup(tmp_path / "b2")
    with restored(tmp_path / "b2", tmp_path / "r2") as third:
        assert content(third) == expected


def test_an_empty_store_has_a_backup(tmp_path):
    with open_store(tmp_path / "s") as store:
        store.backup(tmp_path / "b")
    with restored(tmp_path / "b", tmp_path / "r") as again:
        assert (again.seq, again.tables()) == (0, [])
        again.create_table("t", KEYED, primary_key="id")


def test_a_backup_of_lance_tables_by_the_public_names(tmp_path):
    path = tmp_path / "shop"
    with siltstone.connect(path, background=False, segment_bytes=65_536) as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        store["t"].upsert([{"id": n, "v": "x"} for n in range(100)])
        store["p"].append([{"id": 1, "v": "a"}])
        store.checkpoint()
        store.merge()
        store["t"].delete(3)
        heard = []
        made = store.backup(tmp_path / "b", on_progress=lambda *step: heard.append(step))
        assert heard[-1][1:] == (heard[-1][2],) * 2
        assert heard[-1][2] <= made.nbytes
        assert {backup.seq for backup in siltstone.backups(tmp_path / "b")} == {store.seq}
        expected = content(store)
    siltstone.restore(tmp_path / "b", tmp_path / "r", at="2999-01-01T00:00Z")
    with siltstone.connect(tmp_path / "r", background=False) as again:
        assert content(again) == expected
        again["t"].upsert({"id": 3, "v": "y"})
        again["p"].append([{"id": 2, "v": "b"}])
        again.checkpoint()
        again.merge()
        assert again["t"].count() == 100
        assert again.verify(deep=True).findings == ()


# --- two lines of one store


@pytest.mark.parametrize("commits", [2, 4], ids=["fewer", "as many"])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_store_that_was_rolled_back_to_a_copy_spoils_no_backup_of_what_it_lost(
    tmp_path, commits, is_flushed
):
    """Its records have the same numbers as those that it lost, and the same id of the store."""
    root, copy, target = tmp_path / "s", tmp_path / "copy", tmp_path / "b"
    with open_store(root) as db:
        db.create_table("t", KEYED, primary_key="id").upsert({"id": 0, "v": "both"})
        db.checkpoint()
    shutil.copytree(root, copy)
    for line, count in (("lost", 4), ("kept", commits)):
        with open_store(root) as db:
            for number in range(count):
                db["t"].upsert({"id": number, "v": line})
            if is_flushed:
                db.checkpoint()
            if line == "lost":
                seq = db.backup(target).seq
                before = paths(target)
            else:
                with pytest.raises(RequestError, match="another history of this store"):
                    db.backup(target, incremental=True)
                assert paths(target) == before
                assert db.backup(tmp_path / "b2").seq == db.seq
        if line == "lost":
            shutil.rmtree(root)
            shutil.copytree(copy, root)
    siltstone.restore(target, tmp_path / "r", seq=seq)
    with open_store(tmp_path / "r") as db:
        assert {row["v"] for row in db["t"].to_arrow().to_pylist()} == {"lost"}


def test_a_damaged_record_of_an_older_backup_is_no_other_line(db, tmp_path):
    db.backup(tmp_path / "b")
    (record,) = (tmp_path / "b" / "files" / "manifest").iterdir()
    record.write_bytes(record.read_bytes()[:-9] + b"damaged!\n")
    assert db.backup(tmp_path / "b", incremental=True).copied == 1
    assert siltstone.restore(tmp_path / "b", tmp_path / "r").seq == db.seq
