"""A backup or a restore that is cut off at any step leaves what was whole whole, and nothing half.

What is left of a backup is none, or the whole one; older ones beside it restore as before. What is
left of a restore is refused, or the whole store. Running either again completes it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from siltstone.errors import RequestError
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.backup import Backuper, backups, read_backup
from siltstone.maintenance.backup.restore import Restorer
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.manifest.manifest_store import RESTORING, ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Jobs
from tests.crash.moments import chance
from tests.crash.store_life import (
    OPTIONS,
    ROOT,
    Answer,
    Camera,
    Life,
    Shot,
    _names,
    answer,
    images_of,
    open_store,
    rows_of,
    tried,
)
from tests.crash.store_scenarios import (
    CHECKPOINT,
    MERGE,
    OPEN,
    append,
    bulk,
    create,
    create_plain,
    delete,
    step,
    upsert,
)
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

TARGET = Path("/data/backups")
AGAIN = Path("/data/again")
BEFORE = [OPEN, create(), create_plain(), upsert(1, 2, 3), append(1), CHECKPOINT, MERGE]
AFTER = [
    *[delete(1), append(2), step("tag", lambda db: db.tag("audit", 3)), bulk(4, 5)],
    *[CHECKPOINT, upsert(6), MERGE, append(7), bulk(8, 9)],
]


def name() -> str:
    return f"{next(_names):032x}"


def back_up(files: SimFiles) -> None:
    jobs = Jobs(files, ROOT, lambda: 1, name)
    site = Site(
        ROOT, files, ManifestStore(files, ROOT), fake_lance(ROOT, files), jobs, lambda: 1, name
    )
    Backuper(site).run(TARGET, incremental=True)


def restore(files: SimFiles, seq: int) -> None:
    Restorer(files, TARGET, now_us=lambda: 1, new_token=name).run(AGAIN, seq=seq)


def open_again(files: SimFiles, options: Options = OPTIONS) -> LocalStore:
    env = Env(
        files=files,
        tables=lambda root, files, verify: fake_lance(root, files, token=name),
        now_us=lambda: 1,
        new_token=name,
        warm_up=lambda: None,
    )
    return LocalStore.open(AGAIN, options, env=env)


def seqs(files: SimFiles) -> list[int]:
    if not files.is_dir(TARGET):
        return []
    return [read_backup(files, path).seq for path in backups(files, TARGET)]


def lived() -> tuple[Life, dict[int, Answer]]:
    """Return a life with one backup, and with commits since that only the log holds."""
    life = Life(SimFiles(), OPTIONS)
    for each in BEFORE:
        life.do(each)
    back_up(life.files)
    expected = {life.seq: rows_of(answer(life.store))}
    for each in AFTER:
        life.do(each)
    expected[life.seq] = rows_of(answer(life.store))
    return life, expected


def require_restored(files: SimFiles, seq: int, expected: dict[int, Answer], label: str) -> None:
    restore(files, seq)
    db = open_again(files)
    assert (db.seq, rows_of(answer(db))) == (seq, expected[seq]), label
    assert db.verify(deep=True).findings == (), label


def photographed_backup() -> tuple[list[Shot], dict[int, Answer]]:
    life, expected = lived()
    camera = Camera(life)
    life.files.faults = [camera]
    back_up(life.files)
    camera.take("at the end")
    life.abandon()
    return camera.shots, expected


def test_a_backup_cut_off_at_any_step_is_none_and_the_older_one_is_whole() -> None:
    shots, expected = photographed_backup()
    assert len(shots) > 60
    first, second = expected
    rng = chance(1)
    for shot in tried(shots, rng, 12):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            found = seqs(files)
            assert found in ([first], [first, second]), label
            require_restored(files.killed(), found[-1], expected, label)
            require_restored(files.killed(), first, expected, label)


def test_a_backup_after_one_that_was_cut_off_is_whole() -> None:
    shots, expected = photographed_backup()
    rng = chance(2)
    for shot in tried(shots, rng, 8):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            open_store(files).close()  # after a power cut the log alone knows the last commits
            back_up(files)
            require_restored(files, max(expected), expected, label)


def test_the_first_backup_cut_off_at_any_step_is_refused_or_whole() -> None:
    life = Life(SimFiles(), OPTIONS)
    for each in BEFORE:
        life.do(each)
    expected = {life.seq: rows_of(answer(life.store))}
    camera = Camera(life)
    life.files.faults = [camera]
    back_up(life.files)
    camera.take("at the end")
    life.abandon()
    rng = chance(3)
    for shot in tried(camera.shots, rng, 8):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            if not seqs(files):
                with pytest.raises(RequestError):
                    restore(files, life.seq)
                back_up(files)
            require_restored(files, life.seq, expected, label)


def test_a_restore_cut_off_at_any_step_is_refused_or_whole_and_run_again_completes_it() -> None:
    life, expected = lived()
    back_up(life.files)
    life.abandon()
    camera = Camera(life)
    life.files.faults = [camera]
    seq = max(expected)
    restore(life.files, seq)
    camera.take("at the end")
    assert len(camera.shots) > 60
    rng = chance(4)
    opened = 0
    for shot in tried(camera.shots, rng, 8):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            if files.is_dir(AGAIN) and files.list(AGAIN):
                opened += require_refused_or_whole(files.killed(), expected[seq], label)
            names = files.list(AGAIN) if files.is_dir(AGAIN) else []
            begun = [name for name in names if not name.startswith(".")]
            if not begun or RESTORING in begun:  # else it is done
                restore(files, seq)
            db = open_again(files)
            assert (db.seq, rows_of(answer(db))) == (seq, expected[seq]), label
            assert db.verify(deep=True).findings == (), label
    assert opened


def require_refused_or_whole(files: SimFiles, expected: Answer, label: str) -> bool:
    try:
        db = open_again(files)
    except RequestError:
        return False
    assert rows_of(answer(db)) == expected, label
    db["t"].insert({"id": 1000, "v": "used"})
    used = rows_of(answer(db))
    db.close()
    if files.exists(AGAIN / "RESTORING"):  # the next try must not undo what was written since
        restore(files, max_seq(files))
    assert rows_of(answer(open_again(files))) == used, label
    return True


def max_seq(files: SimFiles) -> int:
    return max(seqs(files))


def nothing_unsynced(files: SimFiles) -> SimFiles:
    """Return the disk that a power cut leaves if it takes all that nobody synced."""
    first = next(iter(files.images(random.Random(5))))
    assert first.label == "nothing unsynced"
    return first.files


def test_a_backup_that_returned_and_a_restore_that_returned_survive_a_power_cut() -> None:
    life, expected = lived()
    seq = max(expected)
    back_up(life.files)
    life.abandon()
    left = nothing_unsynced(life.files)
    assert seqs(left) == sorted(expected)
    for each in expected:
        require_restored(left.killed(), each, expected, "the backup")
    restore(life.files, seq)
    db = open_again(nothing_unsynced(life.files))
    assert (db.seq, rows_of(answer(db))) == (seq, expected[seq])
    assert db.verify(deep=True).findings == ()
