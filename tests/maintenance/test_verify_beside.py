"""Verify, backup and repair beside a live owner: no false alarm, and nothing in its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from siltstone.maintenance.backup.restore import Restorer
from siltstone.open.environment import Env, Storage
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import ManifestStore, random_token, system_time_us
from siltstone.storage.wal import segments
from tests.engine.seams import Threads, until
from tests.maintenance.stores import UnsyncedFiles, open_store
from tests.support.fake_lance import fake_lance

KEYED = {"id": "int64", "v": "string"}
ACCOUNTS, LOOKS = 20, 4
APPENDS_MAX = 60  # each makes a version, and all versions are looked at again and again


class Bank:
    """An owner that transfers without pause, and flushes, merges and vacuums all the time."""

    def __init__(self, root: Path) -> None:
        self.db = open_store(root)
        self.db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        self.db.create_table("p", KEYED)
        self.db["t"].upsert([{"id": n, "v": 100} for n in range(ACCOUNTS)])
        self.db._owner().vacuum._retention_s = 0
        self.is_open = True

    def transfer(self) -> None:
        n = 0
        while self.is_open:
            n += 1
            with self.db.transaction() as tx:
                for key, change in ((n % ACCOUNTS, -1), ((n * 7 + 3) % ACCOUNTS, 1)):
                    tx["t"].update(key, v=tx["t"].get(key)["v"] + change)
                if n % 20 == 0 and n <= 20 * APPENDS_MAX:
                    tx["p"].append([{"id": n, "v": "x" * 100}])

    def maintain(self) -> None:
        while self.is_open:
            for step in (self.db.checkpoint, self.db.merge, self.db.optimize):
                step()
            self.db.vacuum(dry_run=False, grace_s=60)


def fake_env_of(files: RealFiles) -> Env:
    return Env(files=files, tables=lambda root, files, _: fake_lance(root, files))


def test_nothing_is_found_beside_an_owner_at_full_work_and_every_backup_is_one_moment(tmp_path):
    bank, threads, files = Bank(tmp_path / "s"), Threads(), UnsyncedFiles()
    threads.start(bank.transfer)
    threads.start(bank.maintain)
    try:
        for number in range(LOOKS):
            root, before = bank.db.path, bank.db.seq
            until(lambda: bank.db.seq > before + 20)  # noqa: B023 - it is called here
            storage = Storage.of(root, Options(), fake_env_of(files))
            report = storage.verifier().run(deep=number % 2 == 0)
            assert report.findings == (), report
            assert storage.repairer().run(dry_run=False).steps == ()
            storage.backuper().run(tmp_path / "b", incremental=True)
    finally:
        bank.is_open = False
        threads.join()
    bank.db.close()
    restorer = Restorer(RealFiles(), tmp_path / "b", now_us=system_time_us, new_token=random_token)
    seqs = [backup.seq for _, backup in restorer.list()]
    assert len(seqs) == LOOKS
    for number, seq in enumerate(seqs[:: LOOKS // 2]):
        restorer.run(tmp_path / f"r{number}", seq=seq)
        with open_store(tmp_path / f"r{number}") as db:
            values = db["t"].to_arrow().column("v").to_pylist()
            assert (db.seq, sum(values), len(values)) == (seq, 100 * ACCOUNTS, ACCOUNTS)
            assert db.verify(deep=True).is_sound


def test_an_owner_that_begins_while_the_log_is_read_is_no_damage(tmp_path, monkeypatch):
    root, files = tmp_path / "s", UnsyncedFiles()
    with open_store(root) as db:
        db.create_table("t", KEYED, "id")
    of_segment, openings = segments.read_header, [1]

    def after_an_opening(*args):
        if openings:
            openings.pop()
            open_store(root).close()
        return of_segment(*args)

    storage = Storage.of(root, Options(), fake_env_of(files))
    monkeypatch.setattr(segments, "read_header", after_an_opening)
    assert storage.verifier().run().findings == ()
    assert not openings


@pytest.mark.parametrize("is_one_lost", [False, True])
def test_records_that_a_vacuum_gives_up_between_two_looks_are_not_lost(
    tmp_path, monkeypatch, is_one_lost
):
    root, files = tmp_path / "s", UnsyncedFiles()
    with open_store(root) as db:
        db.create_table("p", KEYED)
        for n in range(4):
            db["p"].append([{"id": n, "v": "x"}])
            db.checkpoint()
        manifests = db._parts.site.manifests
        first, *between, newest = manifests.numbers()
        lease, runs = ManifestStore.lease, []

        def vacuumed_before_the_second(self, number, *, below_floor=False):
            if number > first and not runs:
                runs.append(number)
                manifests.replace_floor(Floor(), Floor(between[-1] if is_one_lost else newest))
                for each in between:
                    (root / "manifest" / f"{each:020d}.json").unlink()
            return lease(self, number, below_floor=below_floor)

        monkeypatch.setattr(ManifestStore, "lease", vacuumed_before_the_second)
        report = Storage.of(root, Options(), fake_env_of(files)).verifier().run()
        assert runs
        assert len(between) > 1
        lost = [f"records {between[-1]} to {between[-1]}, before it, are lost"] * is_one_lost
        assert [found.message.partition(";")[0] for found in report.findings] == lost
        assert report.records == 2
