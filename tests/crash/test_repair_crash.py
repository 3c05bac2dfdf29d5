"""A repair that is cut off at any step is completed by the next one, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from siltstone.engine.read.past import PastRecords
from siltstone.engine.read.reader import Readers
from siltstone.formats.manifest import Pin
from siltstone.open.environment import Storage
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Jobs
from tests.crash.moments import chance
from tests.crash.store_life import (
    OPTIONS,
    ROOT,
    Answer,
    Camera,
    Life,
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
    create,
    create_plain,
    delete,
    upsert,
)
from tests.support.fake_lance import fake_lance
from tests.support.simulated_files import SimFiles

STEPS = [
    *[OPEN, create(), create_plain(), upsert(1, 2, 3), append(1), CHECKPOINT, MERGE],
    *[upsert(4), delete(1), CHECKPOINT, MERGE, upsert(5), append(2)],
]


def storage_of(files: SimFiles) -> Storage:
    manifests = ManifestStore(files, ROOT, now_us=lambda: 1, new_token=next_name)
    tables = fake_lance(ROOT, files, token=next_name)
    readers = Readers(tables.reader, tables.keys, PastRecords(manifests), index_bytes_max=1 << 20)
    jobs = Jobs(files, ROOT, lambda: 1, next_name)
    site = Site(ROOT, files, manifests, tables, jobs, lambda: 1, next_name)
    return Storage(site, readers)


def next_name() -> str:
    return f"{next(_names):032x}"


def flip(files: SimFiles, path) -> None:
    data = bytearray(files.read(path))
    data[len(data) // 2] ^= 1
    files.replace(path, bytes(data))


def damage_newest_records(files: SimFiles) -> None:
    manifests = ManifestStore(files, ROOT)
    for number in manifests.numbers()[-2:]:
        flip(files, manifests.path(number))


def damage_base(files: SimFiles) -> None:
    (storage,) = ManifestStore(files, ROOT).newest().keyed
    tables = fake_lance(ROOT, files)
    for file in tables.reader.files(storage.base):
        if "/data/" in file.path:
            flip(files, ROOT / file.path)


def damage_floor_and_an_old_record(files: SimFiles) -> None:
    manifests = ManifestStore(files, ROOT)
    files.replace(ROOT / "manifest/FLOOR", b"nonsense")
    flip(files, manifests.path(manifests.numbers(below_floor=True)[2]))


@pytest.mark.parametrize(
    "damage", [damage_newest_records, damage_base, damage_floor_and_an_old_record]
)
def test_a_repair_cut_off_at_any_step_is_completed_by_the_next(
    damage: Callable[[SimFiles], None],
) -> None:
    life = Life(SimFiles(), OPTIONS)
    for step in STEPS:
        life.do(step)
    life.close()
    for _ in range(2):  # epochs that nothing but a record knows
        open_store(life.files).close()
    expected, seq = rows_of(answer(open_store(life.files.killed()))), life.seq
    life.files = life.files.killed()
    damage(life.files)
    camera = Camera(life)
    life.files.faults = [camera]
    done = storage_of(life.files).repairer().run(dry_run=False, deep=True)
    camera.take("at the end")
    assert done.steps
    assert done.is_whole
    assert len(camera.shots) > 10
    rng = chance(damage.__name__)
    for shot in tried(camera.shots, rng, 4):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            require_repaired(files, seq, expected, label)


def test_a_repair_cut_off_at_any_step_gives_no_base_a_number_that_others_know() -> None:
    """The records of the last merge are damaged: what its number showed is not shown again."""
    life = Life(SimFiles(), OPTIONS)
    for step in [OPEN, create(), upsert(1, 2, 3), CHECKPOINT, MERGE, upsert(4), delete(1)]:
        life.do(step)
    life.do(CHECKPOINT)
    manifests = ManifestStore(life.files, ROOT)
    before = manifests.newest()
    life.do(MERGE)
    life.close()
    known = base_of(life.files)
    expected, seq = rows_of(answer(open_store(life.files.killed()))), life.seq
    life.files = life.files.killed()
    for number in manifests.numbers():
        if number > before.number:
            flip(life.files, manifests.path(number))
    camera = Camera(life)
    life.files.faults = [camera]
    assert storage_of(life.files).repairer().run(dry_run=False, deep=True).is_whole
    camera.take("at the end")
    rng = chance(7)
    for shot in tried(camera.shots, rng, 4):
        for label, files in [(shot.label, shot.files.killed()), *images_of(shot, rng)]:
            require_repaired(files, seq, expected, label)
            assert base_of(files).version > known.version, label  # it merged once more


def base_of(files: SimFiles) -> Pin:
    (storage,) = ManifestStore(files, ROOT).newest().keyed
    assert storage.base is not None
    return storage.base


def require_repaired(files: SimFiles, seq: int, expected: Answer, label: str) -> None:
    done = storage_of(files).repairer().run(dry_run=False, deep=True)
    assert done.is_whole, f"{label}: {done}"
    again = storage_of(files).repairer().run(dry_run=False, deep=True)
    assert (again.steps, again.unproven) == ((), ()), label
    db = open_store(files)
    assert (db.seq, rows_of(answer(db))) == (seq, expected), label
    db["t"].insert({"id": 1000, "v": "after"})
    db["t"].delete(1000)
    db.checkpoint()
    db.merge()
    assert rows_of(answer(db)) == expected, label
    assert storage_of(files).verifier().run(deep=False).is_sound, label
