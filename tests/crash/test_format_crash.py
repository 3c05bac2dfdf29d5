"""A store is of format 2 before anything of format 2 is in its log, wherever it is cut off."""

from __future__ import annotations

import itertools
import random

import pytest

from siltstone.errors import RequestError
from siltstone.local.store import LocalStore
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.crash.moments import IS_LONG
from tests.crash.store_life import ROOT, open_store
from tests.support.simulated_files import Fault, Image, SimFiles, SimulatedCrash

IMAGES = 10_000 if IS_LONG else 1


def live(files: SimFiles) -> None:
    db = open_store(files)
    try:
        db.create_table("old", {"id": "int64"}, primary_key="id")
        create_new(db)
    finally:
        stop(db)


def stop(db: LocalStore) -> None:
    """Stop the thread of a store whose process was killed."""
    owner = db._parts.owner  # pyright: ignore[reportPrivateUsage]
    assert owner is not None
    owner.syncer.stop()


def create_new(db: LocalStore) -> None:
    """Create a table that needs format 2."""
    db._core.require_format(2)  # pyright: ignore[reportPrivateUsage]
    db.create_table("new", {"id": "int64"}, primary_key="id")


def format_of(files: SimFiles) -> int:
    """Return the format that an older program finds, before anything is opened."""
    try:
        return ManifestStore(files, ROOT).newest().format
    except RequestError:
        return 0


def test_a_frame_of_format_2_is_never_found_under_a_record_of_format_1() -> None:
    whole = SimFiles()
    live(whole)
    steps = whole.operations
    assert format_of(whole) == 2
    rng, found = random.Random(1), set()
    for step in range(1, steps + 1):
        files = SimFiles([Fault(step)])
        with pytest.raises(SimulatedCrash):
            live(files)
        killed = Image(f"killed at {step}", files.killed())
        for image in [killed, *itertools.islice(files.images(rng), IMAGES)]:
            before = format_of(image.files)
            db = open_store(image.files)
            state = (before, "new" in db.tables())
            assert state in {(0, False), (1, False), (2, False), (2, True)}, image.label
            found.add(state)
            if not state[1]:
                create_new(db)
            assert format_of(image.files) == 2, image.label
            assert format_of(next(image.files.images(rng)).files) == 2, image.label
            stop(db)
    assert (2, False) in found, "no crash was between the record and the frame"
