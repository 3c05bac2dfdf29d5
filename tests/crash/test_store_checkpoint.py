"""A checkpoint that fails or is cut off loses nothing, shows everything, and is taken again."""

from __future__ import annotations

import random

import pytest

from siltstone.errors import SiltstoneError, UnavailableError
from tests.crash.moments import chance, some
from tests.crash.store_life import answer, open_store, smaller
from tests.support.simulated_files import Fault, Kind, SimFiles, When

KEYED = {"id": "int64", "v": "string"}


def filled() -> tuple[SimFiles, object]:
    files = SimFiles()
    db = open_store(files)
    db.create_table("t", KEYED, primary_key="id")
    db["t"].upsert([{"id": i, "v": "old"} for i in range(4)])
    return files, db


def steps_of_a_checkpoint() -> list[int]:
    files, db = filled()
    first = files.operations
    db.checkpoint()
    return some(range(first + 1, files.operations + 1), chance("checkpoint"))


def reopened_if_poisoned(files: SimFiles, db: object) -> object:
    """The seal writes a header to the log; should that fail, only a reopen helps."""
    if not db._core.committer.poisoned:
        return db
    db.close()
    return open_store(files)


@pytest.mark.parametrize("kind", [Kind.EIO, Kind.ENOSPC])
def test_rows_stay_readable_through_a_failed_flush_and_each_is_flushed_once(kind):
    failed, steps = 0, steps_of_a_checkpoint()
    for at in steps:
        files, db = filled()
        before = answer(db)
        files.faults = [Fault(at, kind, is_sticky=True)]
        try:
            db.checkpoint()
        except SiltstoneError:
            failed += 1
        files.faults = ()
        assert answer(db) == before, at
        db = reopened_if_poisoned(files, db)
        db["t"].upsert({"id": 2, "v": "new"})
        after = answer(db)
        record = db.checkpoint()
        assert record.flushed_seq == db.seq == 3
        assert not db._core.state().view.sealed
        assert answer(db) == after, at
        image = next(files.images(random.Random(at)))
        assert answer(open_store(image.files)) == after, at
    assert failed > len(steps) // 2


def test_a_checkpoint_whose_record_was_published_unheard_does_not_flush_its_rows_twice():
    for at in steps_of_a_checkpoint():
        files, db = filled()
        files.faults = [Fault(at, Kind.EIO, When.AFTER, is_sticky=True)]
        with pytest.raises(SiltstoneError):
            db.checkpoint()
        files.faults = ()
        db = reopened_if_poisoned(files, db)
        db.checkpoint()
        record = db._core.state().view.record
        history = record.keyed[0].history
        assert (history.rows, record.commits.rows) == (4, 2), at


def test_a_crash_between_flush_and_retire_recovers_from_the_record_and_skips_the_log():
    files, db = filled()
    before = answer(db)
    end = files.operations
    db.checkpoint()
    link = [n for n, s in enumerate(files.trace, 1) if n > end and s.what == "link"][-1]
    published = link + 2  # the record's name, and the sync of it
    again, other = filled()
    again.faults = [Fault(published)]
    with pytest.raises(BaseException, match=f"step {published}"):
        other.checkpoint()
    recovered = open_store(again.killed())
    assert recovered._core.state().view.record.flushed_seq == 2
    assert answer(recovered) == before
    assert recovered["t"].upsert({"id": 9}, missing="null").seq == 3


def test_a_commit_that_is_durable_does_not_fail_because_the_checkpoint_after_it_does():
    rows = [{"id": i, "v": "x" * 100} for i in range(600)]
    whole, db = filled_to_the_brim()
    first = whole.operations
    db["t"].upsert(rows)
    flush = next(n for n, s in enumerate(whole.trace, 1) if n > first and "tables" in s.path.parts)
    files, db = filled_to_the_brim()
    files.faults = [Fault(flush, Kind.ENOSPC, is_sticky=True)]
    assert db["t"].upsert(rows).seq == 2
    assert db["t"].count() == 600
    with pytest.raises(UnavailableError):
        db["t"].upsert(rows)  # there is no room: the memtable is full and cannot be flushed
    assert (db.seq, db["t"].count()) == (2, 600)
    files.faults = ()
    assert db["t"].upsert(rows).seq == 3
    assert not db._core.state().view.sealed


def filled_to_the_brim() -> tuple[SimFiles, object]:
    files = SimFiles()
    db = open_store(files, options=smaller(memtable_bytes_max=4096, sealed_generations_max=1))
    db.create_table("t", KEYED, primary_key="id")
    return files, db
