"""A vacuum that thins, cut off at any step, leaves every seq of the retention as it was.

All records of many folds are within the retention; between the oldest and the newest ones vacuum
takes all that none of the other tables, loads and tags needs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from siltstone.local.store import LocalStore
from siltstone.maintenance.thinning import Bounds
from tests.crash.moments import chance
from tests.crash.store_life import (
    ROOT,
    Answer,
    Camera,
    Life,
    Shot,
    Step,
    answer,
    env_of,
    images_of,
    smaller,
    tried,
)
from tests.crash.store_scenarios import (
    ALL_AGES_S,
    CHECKPOINT,
    MERGE,
    VACUUM,
    append,
    bulk,
    create,
    create_plain,
    delete,
    step,
    upsert,
)
from tests.support.simulated_files import SimFiles

OPTIONS = smaller(retention_s=86_400)
EAGER = Bounds(recent_s=-1, gaps_of_retention=1)
FOLD = [CHECKPOINT, MERGE]
STEPS = [
    Step("open", lambda life: life.open(), is_commit=False),
    *[create(), create("u"), create_plain()],
    *[upsert(1, 2, 3), append(1), *FOLD, upsert(4), *FOLD, bulk(1, 2, name="u"), *FOLD],
    *[delete(1), append(2), *FOLD, step("tag", lambda db: db.tag("audit"))],
    *[upsert(5, v="w"), upsert(1, name="u"), *FOLD, VACUUM, bulk(3, 4), append(3), *FOLD],
    step("truncate", lambda db: db["u"].truncate()),
    *[upsert(7, name="u"), *FOLD, delete(2), *FOLD, bulk(8, 9), upsert(6)],
]


class Thinner(Life):
    """A life whose vacuums thin all that they may."""

    def open(self) -> None:
        self.db = open_store(self.files)


def open_store(files: SimFiles, *, read_only: bool = False) -> LocalStore:
    env = replace(env_of(files), bounds=EAGER)
    return LocalStore.open(ROOT, OPTIONS, read_only=read_only, env=env)


def answers(files: SimFiles, *, read_only: bool = False) -> dict[int, Answer]:
    """Return what a reader sees at each seq, and the changes since the first."""
    db = open_store(files, read_only=read_only)
    found: dict[int, Answer] = {0: answer(db)}
    for seq in range(1, db.seq + 1):
        with db.snapshot(seq=seq) as past:
            found[seq] = answer(past)
    return found


Photographs = tuple[list[Shot], dict[int, Answer]]


@pytest.fixture(scope="module")
def photographed() -> Photographs:
    """Return the machine at each moment of a vacuum, and the answers; tests look at copies."""
    life = Thinner(SimFiles(), OPTIONS)
    for each in STEPS:
        life.do(each)
    expected = answers(life.files.killed())
    manifests = life.store._parts.site.manifests  # pyright: ignore[reportPrivateUsage]
    before = len(manifests.numbers())
    camera = Camera(life)
    life.files.faults = [camera]
    life.do(VACUUM)
    camera.take("at the end")
    assert len(manifests.numbers()) < before - 5
    assert manifests.kept().kept  # for the tag, the load, ...
    life.abandon()
    return camera.shots, expected


def require_whole(files: SimFiles, expected: dict[int, Answer], label: str) -> None:
    assert answers(files) == expected, label
    machine = files.killed()
    db = open_store(machine)
    report = db.verify(deep=True)
    assert report.is_sound, f"{label}: {report}"
    assert not [f for f in report.findings if "lost" in f.message], label
    for _ in range(2):
        db.vacuum(dry_run=False, grace_s=ALL_AGES_S)
    assert db.vacuum(dry_run=False, grace_s=ALL_AGES_S).files == (), label
    assert answers(machine.killed()) == expected, label


def test_a_vacuum_cut_off_at_any_step_keeps_every_seq(photographed: Photographs) -> None:
    shots, expected = photographed
    rng = chance("cut off")
    for shot in tried(shots, rng, 4):
        for label, files in images_of(shot, rng):
            require_whole(files, expected, label)


def test_a_vacuum_killed_at_any_step_keeps_every_seq(photographed: Photographs) -> None:
    shots, expected = photographed
    for shot in tried(shots, chance("killed"), 2):
        require_whole(shot.files.killed(), expected, shot.label)


def test_a_process_that_reads_beside_a_vacuum_that_was_cut_off_sees_every_seq(
    photographed: Photographs,
) -> None:
    shots, expected = photographed
    for shot in tried(shots, chance("beside"), 6):
        found = answers(shot.files.killed(), read_only=True)
        assert {seq: found[seq] for seq in found if seq} == {s: expected[s] for s in found if s}
