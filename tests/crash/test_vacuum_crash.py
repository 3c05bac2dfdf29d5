"""A vacuum that is cut off at any step leaves a store in which all that is named can be read.

It trims the past, raises FLOOR, unlinks records and sweeps files, of keyed, plain, loaded and
truncated tables; a tag keeps a seq far below. Whatever a power cut makes of its unsynced writes,
the store opens as it was, is sound, and a next vacuum takes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from siltstone.maintenance.gc.sweep import StoppedError
from tests.crash.moments import IS_LONG, chance, some
from tests.crash.store_life import (
    Answer,
    Camera,
    Life,
    Shot,
    images_of,
    open_store,
    rows_of,
    smaller,
    tried,
)
from tests.crash.store_life import answer as answer_of
from tests.crash.store_scenarios import (
    ALL_AGES_S,
    CHECKPOINT,
    MERGE,
    OPEN,
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

OPTIONS = smaller(retention_s=0)
STEPS = [
    *[OPEN, create(), create("u"), create_plain()],
    *[upsert(1, 2, 3), append(1), bulk(1, 2, name="u"), CHECKPOINT, MERGE],
    *[delete(1), append(2), step("tag", lambda db: db.tag("audit"))],
    *[bulk(3, 4), CHECKPOINT, upsert(5, v="w"), append(3), MERGE],
    step("truncate", lambda db: db["u"].truncate()),
    *[upsert(7, name="u"), delete(2), CHECKPOINT, MERGE, bulk(8, 9), upsert(6)],
]


def lived() -> Life:
    life = Life(SimFiles(), OPTIONS)
    for each in STEPS:
        life.do(each)
    return life


def answers(files: SimFiles) -> tuple[Answer, Answer]:
    """Return what a reader sees now and at the tag; the change feed may lose its past."""
    db = open_store(files, options=OPTIONS)
    with db.snapshot(tag="audit") as tagged:
        return rows_of(answer_of(db)), answer_of(tagged)


Photographs = tuple[list[Shot], tuple[Answer, Answer]]


@pytest.fixture(scope="module")
def photographed() -> Photographs:
    """Return the machine at each moment of a vacuum, and the answers; tests look at copies."""
    life = lived()
    expected = answers(life.files.killed())
    camera = Camera(life)
    life.files.faults = [camera]
    life.do(VACUUM)
    camera.take("at the end")
    life.abandon()
    return camera.shots, expected


def require_whole(files: SimFiles, expected: tuple[Answer, Answer], label: str) -> None:
    assert answers(files) == expected, label
    machine = files.killed()
    db = open_store(machine, options=OPTIONS)
    report = db.verify(deep=True)
    assert report.is_sound, f"{label}: {report}"
    db.vacuum(dry_run=False, grace_s=ALL_AGES_S)
    assert db.vacuum(dry_run=False, grace_s=ALL_AGES_S).files == (), label
    assert answers(machine.killed()) == expected, label


def test_a_vacuum_cut_off_at_any_step_loses_nothing_that_is_named(
    photographed: Photographs,
) -> None:
    shots, expected = photographed
    assert len(shots) > 60
    rng = chance("cut off")
    for shot in tried(shots, rng, 6):
        for label, files in images_of(shot, rng):
            require_whole(files, expected, label)


def test_a_vacuum_killed_at_any_step_loses_nothing_that_is_named(
    photographed: Photographs,
) -> None:
    shots, expected = photographed
    for shot in tried(shots, chance("killed"), 4):
        require_whole(shot.files.killed(), expected, shot.label)


@pytest.mark.parametrize("seed", range(2 if IS_LONG else 1))
def test_a_vacuum_after_a_vacuum_that_was_cut_off_may_be_cut_off_too(
    photographed: Photographs, seed: int
) -> None:
    shots, expected = photographed
    rng = chance(seed)
    for shot in tried(shots, rng, 2):
        for label, files in images_of(shot, rng):
            life = Life(files, OPTIONS)
            life.open()
            camera = Camera(life)
            files.faults = [camera]
            life.store.vacuum(dry_run=False, grace_s=ALL_AGES_S)
            files.faults = ()
            life.abandon()
            for again in tried(camera.shots, rng, 2):
                for deeper, last in images_of(again, rng):
                    require_whole(last, expected, f"{label}; {deeper}")


def test_a_process_that_reads_beside_a_vacuum_that_was_cut_off_sees_all_rows(
    photographed: Photographs,
) -> None:
    shots, (now, _) = photographed
    for shot in tried(shots, chance("beside"), 12):
        files = shot.files.killed()
        with open_store(files, read_only=True, options=OPTIONS) as beside:
            assert rows_of(answer_of(beside)) == now, shot.label


def test_a_vacuum_that_is_told_to_stop_between_any_two_steps_leaves_the_rest_to_the_next_one() -> (
    None
):
    """As at an end of the owner whose time is over."""
    machine, steps = lived().files.killed(), count()
    expected = answers(machine.killed())
    open_store(machine.killed(), options=OPTIONS)._parts.owner.vacuum.run(
        grace_s=ALL_AGES_S, step=lambda: next(steps)
    )
    for number in some(range(next(steps)), chance("told"), 6):
        files, looks = machine.killed(), count()
        db = open_store(files, options=OPTIONS)

        def step_or_stop(looks: Iterator[int] = looks, number: int = number) -> None:
            if next(looks) == number:
                raise StoppedError

        with pytest.raises(StoppedError):
            db._parts.owner.vacuum.run(grace_s=ALL_AGES_S, step=step_or_stop)
        assert rows_of(answer_of(db)) == expected[0], number
        db.close()
        db = open_store(files, options=OPTIONS)
        assert db.verify(deep=True).is_sound, number
        db.vacuum(dry_run=False, grace_s=ALL_AGES_S)
        assert db.vacuum(dry_run=False, grace_s=ALL_AGES_S).files == (), number
        assert answers(files.killed()) == expected, number
