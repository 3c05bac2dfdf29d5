"""A vacuum takes the public name of a manifest away with it, whoever promotes it meanwhile.

A process that read its record before the vacuum gives public names again that the vacuum has just
taken away. Whatever runs between two steps of either, and wherever the vacuum is cut off, no
version of ours is ever taken for one that somebody wrote by path, and what was so written stays.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.errors import SiltstoneError
from siltstone.maintenance.gc.sweep import DEAD, Ages, Removed, Sweep
from siltstone.maintenance.merge.merge import shown_pins
from siltstone.storage.lance.external import external_tables
from siltstone.storage.tables import promotion
from siltstone.storage.tables.promotion import public_name
from tests.crash.moments import IS_LONG, chance, some
from tests.crash.store_life import ROOT, Life
from tests.crash.store_scenarios import CHECKPOINT, MERGE, append, upsert
from tests.crash.test_vacuum_beside_crash import (
    Place,
    Visited,
    chosen,
    open_as_owner,
    place,  # noqa: F401 - a fixture
    vacuum_store,
)
from tests.support.simulated_files import Fault, SimFiles, SimulatedCrash

NAME = "tables/t-1"
FOLDER = ROOT / NAME
PUBLIC = FOLDER / "_versions"
ALL = (1, 2, 3)
GONE, NEWEST = (1, 2), 3
IMAGES = 10_000 if IS_LONG else 8
Work = Callable[[SimFiles], object]


def path_of(version: int) -> str:
    return f"{NAME}/_siltstone/token{version}/{public_name(version)}"


def made(theirs: int = 0) -> SimFiles:
    """Three versions of ours, all promoted; `theirs` was written by path in the place of ours."""
    files = SimFiles()
    for version in ALL:
        private = ROOT / path_of(version)
        files.mkdir(private.parent)
        files.write(private, f"ours {version}".encode())
        files.sync_dir(private.parent)
    shown(files, ALL, NEWEST)
    if theirs:
        files.unlink(PUBLIC / public_name(theirs))
        files.write(PUBLIC / public_name(theirs), b"theirs")
        files.sync_dir(PUBLIC)
    return files


def shown(files: SimFiles, versions: tuple[int, ...], newest: int) -> None:
    """Promote what a record names."""
    wanted = {version: ROOT / path_of(version) for version in versions}
    promotion.link(files, FOLDER, wanted, newest)
    promotion.unlink_stale(files, FOLDER, set(wanted), newest)
    promotion.clear(files, FOLDER)


def promote_older(files: SimFiles) -> None:
    """Promote what the record before the newest one names, as far as it is there."""
    with contextlib.suppress(FileNotFoundError):
        shown(files, GONE, GONE[-1])


def delete(files: SimFiles) -> None:
    """Delete the two older versions, as a vacuum does."""
    sweep = Sweep(files, ROOT)
    shown(files, (NEWEST,), NEWEST)
    sweep.delete([Removed(path_of(version), 6, DEAD) for version in GONE], {NAME})


def vacuum_again(files: SimFiles) -> None:
    """Delete whatever nothing names, as a next vacuum does."""
    sweep = Sweep(files, ROOT)
    garbage = sweep.garbage({path_of(NEWEST)}, set(), Ages(math.inf, math.inf))
    shown(files, (NEWEST,), NEWEST)
    sweep.delete(garbage, {NAME})


def strangers(files: SimFiles) -> list[str]:
    found = external_tables.manifests(files, ROOT, NAME)
    return [files.read(ROOT / path).decode() for _, path in found]


def require_clean(files: SimFiles, label: str, theirs: int = 0) -> None:
    """Only the newest version is there and shown, and what others wrote, aside."""
    expected = ["theirs"] if theirs else []
    assert strangers(files) == expected, label
    shown(files, (NEWEST,), NEWEST)
    assert strangers(files) == expected, label
    names = [name for name in files.list(PUBLIC) if not name.startswith(".")]
    assert names == [public_name(NEWEST)], label
    assert files.read(PUBLIC / names[0]) == f"ours {NEWEST}".encode(), label


def raced(work: Work, other: Work, theirs: int, check: Callable[[SimFiles, str], None]) -> int:
    """Do `work` with `other` before each of its calls in turn; return how many calls it has."""
    for at in itertools.count(1):
        files = made(theirs)
        visited = Visited(files, at, lambda files=files: other(files))
        work(visited)  # type: ignore[arg-type]
        if visited.calls < at:
            return at
        check(files, f"before call {at}")
    raise AssertionError


@pytest.mark.parametrize("theirs", [0, 2])
def test_who_promotes_an_older_record_between_two_steps_of_a_vacuum_leaves_no_stranger(
    theirs: int,
) -> None:
    calls = raced(delete, promote_older, theirs, lambda f, label: require_clean(f, label, theirs))
    assert calls > 30


@pytest.mark.parametrize("theirs", [0, 2])
def test_a_vacuum_between_two_steps_of_who_promotes_an_older_record_leaves_no_stranger(
    theirs: int,
) -> None:
    calls = raced(promote_older, delete, theirs, lambda f, label: require_clean(f, label, theirs))
    assert calls > 10


def test_a_manifest_that_a_vacuum_hides_while_it_is_looked_for_stays_ours() -> None:
    """The vacuum hides the manifest before one call of a promotion, and goes on before another."""
    for first in itertools.count(1):
        for later in range(first + 1, first + 16):
            files = made()
            private = ROOT / path_of(1)
            hides = Visited(files, first, lambda f=files: f.rename(private, f.temporary(private)))  # noqa: B023
            goes_on = Visited(hides, later, lambda f=files: vacuum_again(f))  # type: ignore[arg-type]
            promote_older(goes_on)  # type: ignore[arg-type]
            if hides.calls < first:
                assert first > 20
                return
            require_clean(files, f"hidden before call {first}, gone before {later}")


def test_a_vacuum_that_dies_while_it_takes_public_names_away_leaves_them_to_the_next() -> None:
    def begun(files: SimFiles) -> list[Removed]:
        """What a vacuum is about to delete has its public names again."""
        shown(files, (NEWEST,), NEWEST)
        garbage = [Removed(path_of(version), 6, DEAD) for version in GONE]
        promotion.link(files, FOLDER, {v: ROOT / path_of(v) for v in GONE}, GONE[-1])
        return garbage

    whole = made()
    garbage, first = begun(whole), whole.operations
    Sweep(whole, ROOT).delete(garbage, {NAME})
    last = whole.operations
    assert last - first > 10
    rng = random.Random(1)
    for step in range(first + 1, last + 1):
        files = made()
        garbage = begun(files)
        files.faults = [Fault(step)]
        with pytest.raises(SimulatedCrash):
            Sweep(files, ROOT).delete(garbage, {NAME})
        images = [("killed", files.killed())]
        images += [(each.label, each.files) for each in itertools.islice(files.images(rng), IMAGES)]
        for label, left in images:
            assert strangers(left) == [], f"step {step}, {label}"
            vacuum_again(left)
            require_clean(left, f"step {step}, {label}")
            places = [(ROOT / path_of(version)).parent for version in GONE]
            private = [left.list(each) for each in places if left.is_dir(each)]
            assert not any(private), f"step {step}, {label}"


def strangers_of(files: SimFiles) -> list[Path]:
    tables = [ROOT / "tables" / name for name in files.list(ROOT / "tables")]
    folders = [top / inside for top in tables for inside in ("", "base")]
    aside = [folder / "_siltstone/strangers" for folder in folders]
    return [each / name for each in aside if files.is_dir(each) for name in files.list(each)]


def test_a_store_whose_older_record_is_promoted_before_any_step_of_a_vacuum_has_no_stranger(
    place: Place,  # noqa: F811
) -> None:
    def run(at: int) -> int:
        files = place.machine.killed()
        db = open_as_owner(files)
        site = db._parts.site
        older = site.manifests.newest()
        steps = (append(20), upsert(20), CHECKPOINT, MERGE, append(21), upsert(21), CHECKPOINT)
        for each in (*steps, MERGE):
            each.act(Life(files, db=db))

        def promote() -> None:
            for pins in shown_pins([older]).values():
                with contextlib.suppress(SiltstoneError):
                    site.tables.names.promote(pins, pins[-1])

        visited = Visited(files, at, promote)
        vacuum_store(visited)  # type: ignore[arg-type]
        for _ in range(2):
            for each in (append(22 + _), upsert(22), CHECKPOINT, MERGE):
                each.act(Life(files, db=db))
            vacuum_store(files)
        assert strangers_of(files) == [], f"before call {at}"
        return visited.calls

    count = run(0)
    for at in (*chosen(count, "promotes", 4), *some(range(count - 60, count), chance("tail"), 4)):
        run(at)


def test_a_name_that_a_killed_process_gave_ours_among_what_is_set_aside_goes_with_it() -> None:
    files = made()
    aside = FOLDER / "_siltstone" / promotion.EXTERNAL_DIRECTORY
    files.mkdir(aside)
    files.link(ROOT / path_of(1), aside / f".{public_name(1)}.left.manifest")
    assert strangers(files) == []
    delete(files)
    require_clean(files, "after the vacuum")
