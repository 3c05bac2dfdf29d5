"""A repair sets right what can be proven, and only names the rest; a second one finds nothing.

One test per line of the table in docs/repair.md.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

import siltstone
from siltstone.admin import with_orphans
from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.errors import CorruptionError, OwnedError, SiltstoneError, SnapshotExpiredError
from siltstone.formats import manifest
from siltstone.maintenance.repair.verify import WARNING
from siltstone.open.environment import Storage
from siltstone.options import Options
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.wal.segments import find_segments
from tests.maintenance.stores import Clock, UnsyncedFiles, env_of, open_store, paths, rows
from tests.support.fake_lance import fake_lance

KEYED = {"id": "int64", "v": "string"}


class Place:
    """A closed store, its damage, and what it held."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = UnsyncedFiles()

    @property
    def manifests(self) -> ManifestStore:
        return ManifestStore(self.files, self.root)

    @property
    def records(self) -> list[Path]:
        return sorted((self.root / "manifest").glob("*.json"))

    def storage(self):
        tables = fake_lance(self.root, self.files)
        readers = Readers(
            tables.reader, tables.keys, PastRecords(self.manifests), index_bytes_max=1 << 20
        )
        clock = Clock()
        jobs = Jobs(self.files, self.root, clock, random_token)
        site = Site(self.root, self.files, self.manifests, tables, jobs, clock)
        return Storage(site, readers)

    def repair(self, **options):
        return self.storage().repairer().run(**options)

    def repair_store(self, *, dry_run: bool = True):
        found = self.repair(dry_run=dry_run)
        return with_orphans(found, self.root, Options(segment_bytes=65_536), env_of())

    def verify(self, *, deep: bool = True):
        return self.storage().verifier().run(deep=deep)

    def content(self) -> dict[str, list[tuple]]:
        with open_store(self.root) as db:
            return {name: rows(db[name]) for name in db.tables()}

    def bytes(self) -> dict[str, bytes]:
        return {name: (self.root / name).read_bytes() for name in paths(self.root)}

    def repaired(self, expected: dict[str, list[tuple]], steps: int, *, deep: bool = False):
        """Preview, repair, and see that all is there, that it stays so, and that it was all."""
        before = self.bytes()
        preview = self.repair(deep=deep)
        assert self.bytes() == before
        assert preview.is_dry_run
        done = self.repair(dry_run=False, deep=deep)
        assert done.steps == preview.steps
        assert len(done.steps) == steps, done
        assert done.is_whole, done
        self.require_whole(expected)
        return done

    def require_whole(self, expected: dict[str, list[tuple]]) -> None:
        report = self.verify()
        assert report.is_sound, report
        before = self.bytes()
        again = self.repair(dry_run=False, deep=True)
        assert (again.steps, again.unproven) == ((), ())
        assert self.bytes() == before
        assert self.content() == expected
        with open_store(self.root) as db:
            db["t"].upsert({"id": 500, "v": "after"})
            db.checkpoint()
            db.merge()
            db["t"].delete(500)
            assert db.verify(deep=True).is_sound
        assert self.content() == expected
        before = self.bytes()
        assert self.repair(dry_run=False, deep=True).steps == ()
        assert self.bytes() == before


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A base, history above it, plain versions, and commits that only the log has."""
    with open_store(tmp_path / "s", segment_bytes=1 << 20) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        for n in range(4):
            db["t"].upsert([{"id": i, "v": f"v{n}"} for i in range(n, n + 10)])
            db["p"].append([{"id": n, "v": "a"}])
            db.checkpoint()
            db.merge()
        db["t"].upsert({"id": 100, "v": "in the log"})
        db["p"].append([{"id": 100, "v": "in the log"}])
    return Place(tmp_path / "s")


def past_of(place: Place) -> dict[int, dict[str, list[tuple]]]:
    """Return what each seq shows."""
    found = {}
    with open_store(place.root) as db:
        for seq in range(2, db.seq + 1):
            with db.snapshot(seq=seq) as past:
                found[seq] = {name: rows(past[name]) for name in past.tables()}
    return found


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_sound_store_is_left_as_it_is(place):
    expected = place.content()
    place.repaired(expected, 0, deep=True)
    assert not (place.root / "quarantine").exists()


def test_a_damaged_newest_record_that_only_claimed_an_epoch(place):
    expected = place.content()
    newest = place.records[-1]
    damage(newest)
    with pytest.raises(CorruptionError):
        open_store(place.root)
    done = place.repaired(expected, 1)
    assert "nothing that was committed is lost" in str(done)
    note = json.loads((place.root / done.quarantine / "MANIFEST.json").read_text())
    (moved,) = note["files"]
    assert moved["from"] == f"manifest/{newest.name}"
    assert (place.root / done.quarantine / moved["to"]).is_file()


def test_a_damaged_newest_record_that_merged(place):
    with open_store(place.root) as db:
        db.checkpoint()
        db["t"].upsert({"id": 3, "v": "later"})
        db.merge()
    expected = place.content()
    for path in place.records[-2:]:
        damage(path)
    place.repaired(expected, 2)


def test_several_damaged_newest_records(place):
    for _ in range(3):
        place.content()
    expected = place.content()
    for path in place.records[-3:]:
        damage(path)
    place.repaired(expected, 3)


def test_newest_records_that_are_gone_file_and_all(place):
    for _ in range(3):
        place.content()
    expected = place.content()
    for path in place.records[-3:]:
        path.unlink()
    with pytest.raises(SiltstoneError):
        open_store(place.root)
    done = place.repaired(expected, 1)
    assert "epoch" in str(done)


def test_a_damaged_newest_record_that_flushed_what_the_log_has_no_more_is_only_named(place):
    with open_store(place.root, segment_bytes=65_536) as db:
        db["t"].upsert([{"id": n, "v": "x" * 500} for n in range(300)])
        db.checkpoint()
        db["t"].upsert([{"id": n, "v": "y" * 500} for n in range(300)])
        db.checkpoint()
    damage(place.records[-1])
    before = place.bytes()
    done = place.repair(dry_run=False, deep=True)
    assert (done.steps, done.is_whole) == ((), False)
    assert place.records[-1].name in str(done)
    assert place.bytes() == before


def test_a_newest_record_whose_base_is_damaged_gets_it_from_history(place):
    expected = place.content()
    record = place.manifests.newest()
    (storage,) = record.keyed
    tables = fake_lance(place.root, place.files)
    files = tables.reader.files(storage.base)
    truth = past_of(place)
    for file in files:
        if "/data/" in file.path:
            damage(place.root / file.path)
    with pytest.raises(CorruptionError):
        place.content()
    done = place.repaired(expected, 5, deep=True)  # and the four records that named it
    assert "folds it again" in str(done)
    assert {seq: past_of(place)[seq] for seq in truth} == truth
    with open_store(place.root) as db:
        db["t"].upsert({"id": 500, "v": "after"})
        db["t"].delete(500)
        db.checkpoint()
        db.merge()
        assert {name: rows(db[name]) for name in db.tables()} == expected
        gc.collect()  # closed stores of this process, and their leases
        db._owner().vacuum._retention_s = 0
        db.vacuum(dry_run=False, grace_s=0)
    assert place.content() == expected
    assert place.verify().findings == ()


def test_a_newest_record_whose_history_is_damaged_gives_way_to_the_one_before(place):
    """A merge does not touch history; an optimize of it does, and the one before is whole."""
    with open_store(place.root) as db:
        db.checkpoint()
        db.optimize(target_rows=100)
        newest = [place.manifests.read(number) for number in place.manifests.numbers()[-2:]]
        before, after = [record.keyed[0].history for record in newest]
        db["t"].upsert({"id": 3, "v": "later"})
    expected = place.content()
    tables = fake_lance(place.root, place.files)
    known = {file.path for file in tables.reader.files(before)}
    new = [f.path for f in tables.reader.files(after) if f.path not in known]
    for path in new:
        if "/data/" in path:
            (place.root / path).unlink()
    place.repaired(expected, 2, deep=True)  # the optimize's, and the epoch since


def test_damaged_data_that_every_record_needs_is_only_named(place):
    record = place.manifests.newest()
    folder = f"{record.keyed[0].folder}/.history"
    data = next((place.root / folder / "data").iterdir())
    damage(data)
    before = place.bytes()
    done = place.repair(dry_run=False, deep=True)
    assert (done.steps, done.is_whole) == ((), False)
    assert data.name in str(done)
    assert place.bytes() == before


def test_a_damaged_older_record_is_replaced_and_vacuum_goes_on(place):
    expected = place.content()
    for path in place.records[1:-2:2]:
        damage(path)
    with open_store(place.root) as db, pytest.raises(CorruptionError):
        db.vacuum(dry_run=False)
    place.repaired(expected, len(place.records[1:-3:2]))
    with open_store(place.root) as db:
        db._owner().vacuum._retention_s = 0
        db.vacuum(dry_run=False, grace_s=0)
    assert place.content() == expected


def test_seqs_that_a_lost_record_served_are_refused_and_never_answered_wrongly(place):
    truth = past_of(place)
    whole = place.root.with_name("whole")
    shutil.copytree(place.root, whole)
    for number in range(1, len(place.records) - 1):
        shutil.rmtree(place.root)
        shutil.copytree(whole, place.root)
        damage(place.records[number])
        place.repair(dry_run=False)
        refused = 0
        with open_store(place.root) as db:
            for seq, expected in truth.items():
                try:
                    with db.snapshot(seq=seq) as past:
                        found = {name: rows(past[name]) for name in past.tables()}
                except SnapshotExpiredError:
                    refused += 1
                else:
                    assert found == expected, (number, seq)
        assert refused <= 3


def test_a_damaged_first_record_is_replaced(place):
    expected = place.content()
    damage(place.records[0])
    place.repaired(expected, 1)


def test_a_damaged_island_goes_and_its_tag_is_refused_and_named_until_it_is_removed(place):
    with open_store(place.root) as db:
        db.tag("early", 4)
        db.checkpoint()
        db._owner().vacuum._retention_s = 0
        db.vacuum(dry_run=False, grace_s=0)
    expected = place.content()
    damage(place.records[0])
    assert place.manifests.kept().number > int(place.records[0].stem)
    done = place.repair(dry_run=False)
    assert len(done.steps) == 1
    assert {"tag 'early' at seq 4" in finding.message for finding in done.unproven} == {True}
    with open_store(place.root) as db:
        with pytest.raises(SnapshotExpiredError):
            db.snapshot(tag="early")
        db.untag("early")
    place.require_whole(expected)


def test_what_a_repair_leaves_of_a_damaged_past_is_what_a_verification_finds(place, tmp_path):
    """A neighbour that stands in may serve a tag as well: then nothing is left."""
    with open_store(place.root) as db:
        db.tag("early", 4)
    wholes = []
    for number, record in enumerate(place.records[:-1]):
        hurt = Place(tmp_path / f"hurt {number}")
        shutil.copytree(place.root, hurt.root)
        damage(hurt.root / "manifest" / record.name)
        done = hurt.repair(dry_run=False)
        assert done.is_whole == hurt.verify().is_sound, (number, done)
        wholes.append(done.is_whole)
    assert any(wholes)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_lost_floor_is_written_again(place, is_gone):
    with open_store(place.root) as db:
        db._owner().vacuum._retention_s = 0
        db.vacuum(dry_run=False, grace_s=0)
    expected = place.content()
    floor = place.root / "manifest/FLOOR"
    text = floor.read_bytes()
    if is_gone:
        floor.unlink()
    else:
        floor.write_bytes(b"siltstone-floor 6 9")
        with pytest.raises(CorruptionError):
            open_store(place.root)
    assert not place.verify().is_sound
    preview = place.repair()
    assert len(preview.steps) == 1
    place.repair(dry_run=False)
    assert floor.read_bytes() == text
    place.require_whole(expected)


def test_a_record_of_another_store_is_put_aside(place):
    expected = place.content()
    newest = place.manifests.newest()
    external = replace(newest, store_id="ab" * 16, number=newest.number + 1, writer="w")
    (place.root / f"manifest/{external.number:020d}.json").write_bytes(manifest.encode(external))
    assert not place.verify().is_sound
    done = place.repaired(expected, 1)
    assert "of store abab" in str(done)


def test_a_lost_mark_is_a_warning_that_the_next_owner_ends(place):
    expected = place.content()
    for text in (b"", b"nonsense" * 5, None):
        (place.root / "wal/MARK").unlink()
        if text is not None:
            (place.root / "wal/MARK").write_bytes(text)
        (found,) = place.verify().findings
        assert (found.severity, "MARK" in found.path) == (WARNING, True)
        place.repaired(expected, 0)
        assert place.verify().findings == ()


def test_a_torn_tail_is_copied_to_quarantine_by_the_next_owner(place):
    expected = place.content()
    record = place.manifests.newest()
    found = find_segments(place.files, place.root / "wal", bytes.fromhex(record.store_id))
    newest = max((s for s in found if s.header), key=lambda s: s.age)
    data = newest.path.read_bytes()
    end = len(data.rstrip(b"\0"))
    end += -end % 8
    newest.path.write_bytes(data[:end] + b"siltfrm\n torn" + data[end + 13 :])
    assert place.verify().is_sound
    place.repaired(expected, 0)
    assert list((place.root / "quarantine").glob("*.tail"))


def test_a_damaged_log_is_only_named(place):
    record = place.manifests.newest()
    found = find_segments(place.files, place.root / "wal", bytes.fromhex(record.store_id))
    newest = max((s for s in found if s.header), key=lambda s: s.age)
    data = bytearray(newest.path.read_bytes())
    data[4096 + 200] ^= 1
    newest.path.write_bytes(data)
    before = place.bytes()
    done = place.repair(dry_run=False)
    assert (done.steps, done.is_whole) == ((), False)
    assert "wal" in str(done)
    assert place.bytes() == before


def test_a_damaged_record_above_a_damaged_log_is_only_named(place):
    record = place.manifests.newest()
    found = find_segments(place.files, place.root / "wal", bytes.fromhex(record.store_id))
    newest = max((s for s in found if s.header), key=lambda s: s.age)
    newest.path.write_bytes(newest.path.read_bytes()[: 4096 + 200])
    damage(place.records[-1])
    before = place.bytes()
    done = place.repair(dry_run=False)
    assert (done.steps, done.is_whole) == ((), False)
    assert place.bytes() == before


def test_what_an_interrupted_restore_left_behind_is_put_aside(place):
    expected = place.content()
    (place.root / "RESTORING").write_bytes(b"BACKUP")
    place.repaired(expected, 1)


def test_a_store_that_somebody_owns_is_only_repaired_when_it_is_closed(place):
    expected = place.content()
    db = open_store(place.root)
    assert db.repair().steps == ()
    assert db.repair(dry_run=False).steps == ()
    damage(place.records[1])
    assert len(db.repair().steps) == 1
    before = place.bytes()
    with pytest.raises(OwnedError):
        db.repair(dry_run=False)
    assert place.bytes() == before
    db.close()
    place.repaired(expected, 1)


@pytest.mark.parametrize("is_torn", [False, True])
def test_the_record_of_a_dead_job_is_put_aside_beside_a_live_owner_too(place, is_torn):
    expected = place.content()
    tokens = iter("ab")
    jobs = Jobs(place.files, place.root, Clock(), lambda: next(tokens))
    with jobs.begin("optimize", ("t",)) as job:
        job.append(b"{}")
    if is_torn:
        jobs.path("a").write_bytes(b"torn")
    db = open_store(place.root)
    with jobs.begin("merge", ("t",)):
        done = db.repair(dry_run=False)
        assert [step.path for step in done.steps] == ["jobs/a.json"]
        assert [seen.id for seen in jobs.list()] == ["b"]
    assert db.repair(dry_run=False).steps == ()
    db.close()
    place.require_whole(expected)


def test_jobs_that_were_begun_before_a_record_was_lost_begin_again(place):
    place.content()
    begun = Clock()()
    damage(place.records[-1])
    place.repair(dry_run=False)
    assert place.manifests.newest().gc_horizon_us > begun


def test_files_that_nobody_published_are_put_aside_after_the_grace_period(place):
    expected = place.content()
    young, old = (place.root / "tables" / name for name in ("young.lance", "old.lance"))
    for path in (young, old):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    before = place.bytes()
    preview = place.repair_store()
    assert [step.path for step in preview.steps] == ["tables/old.lance"]
    assert place.bytes() == before
    done = place.repair_store(dry_run=False)
    assert done.steps == preview.steps
    (moved,) = (place.root / done.quarantine).glob("*-old.lance")
    assert moved.read_bytes() == b"x"
    assert young.exists()
    assert not old.exists()
    assert place.repair_store(dry_run=False).steps == ()
    assert place.content() == expected


def test_files_that_nobody_published_are_left_to_the_vacuum_of_an_owner(place):
    old = place.root / "tables" / "old.lance"
    old.write_bytes(b"x")
    os.utime(old, (1, 1))
    with open_store(place.root) as db:
        assert place.repair_store(dry_run=False).steps == ()
        assert old.exists()
        db.vacuum(dry_run=False)
    assert not old.exists()


def test_what_was_put_aside_can_be_put_back(place):
    place.content()
    before = place.bytes()
    newest = place.records[-1]
    damage(newest)
    damaged = newest.read_bytes()
    done = place.repair(dry_run=False)
    folder = place.root / done.quarantine
    for moved in json.loads((folder / "MANIFEST.json").read_text())["files"]:
        (folder / moved["to"]).replace(place.root / moved["from"])
    assert newest.read_bytes() == damaged
    assert {name for name in before if (place.root / name).read_bytes() != before[name]} <= {
        f"manifest/{newest.name}",
        "LOCK",
    }


def test_a_store_without_a_record_is_only_named(place):
    for path in place.records:
        path.unlink()
    done = place.repair(dry_run=False)
    assert (done.steps, done.is_whole) == ((), False)


def test_lance_tables_are_repaired_by_the_public_names(tmp_path):
    path = tmp_path / "shop"
    with siltstone.connect(path, background=False) as db:
        db.create_table("t", KEYED, primary_key="id")
        for n in range(3):
            db["t"].upsert([{"id": i, "v": f"v{n}"} for i in range(n, n + 10)])
            db.checkpoint()
            db.merge()
        expected = rows(db["t"])
    data = next((path / "tables").glob("*/base/data/*"))
    base = max((path / "tables").glob("*/base/data/*"), key=lambda p: p.stat().st_mtime_ns)
    damage(base)
    found = siltstone.repair(path, deep=True)
    assert "folds it again" in str(found)
    assert data.exists()
    assert siltstone.repair(path, dry_run=False, deep=True).steps == found.steps
    with siltstone.connect(path, background=False) as db:
        assert rows(db["t"]) == expected
        db["t"].upsert({"id": 50, "v": "x"})
        db.checkpoint()
        db.merge()
        assert db["t"].count() == len(expected) + 1
        gc.collect()
        db._owner().vacuum._retention_s = 0
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).findings == ()
