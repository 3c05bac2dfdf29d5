"""A handle that is dropped and not closed closes its store, and keeps what is still read of it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

import siltstone as st
from siltstone.open import shared
from siltstone.open.closing import closer
from tests.support.handles import dropped, filled, in_a_child, is_owned, settled
from tests.unchanged import connect


def test_a_dropped_handle_closes_its_store_with_a_warning(tmp_path: Path) -> None:
    db = filled(tmp_path / "s")
    with pytest.warns(ResourceWarning, match="without close") as caught:  # noqa: PT031
        del db
        settled()
    assert not is_owned(tmp_path / "s")
    assert caught[0].filename == connect.__code__.co_filename  # where it was opened
    assert in_a_child(tmp_path / "s") == "opened\n"


def test_a_cell_that_is_run_again_gets_its_store_again(tmp_path: Path) -> None:
    db = filled(tmp_path / "s")
    for number in range(10, 15):
        db = connect(tmp_path / "s")  # the old handle goes when the new one is there
        db["t"].upsert({"id": number, "v": "y"})
    settled()
    assert db["t"].count() == 10
    db.close()
    assert not is_owned(tmp_path / "s")


def test_a_dropped_name_can_be_connected_again_at_once(tmp_path: Path) -> None:
    for number in range(10):
        with dropped(tmp_path / "s"):
            db = connect(tmp_path / "s") if number else filled(tmp_path / "s")
            db = None
        with connect(tmp_path / "s", segment_bytes=65_536 << number % 2) as db:
            assert db["t"].count() == 5


def test_garbage_does_not_keep_its_options(tmp_path: Path) -> None:
    db = filled(tmp_path / "s")
    gc.disable()
    try:
        circle: list[object] = [db]
        circle.append(circle)
        with dropped(tmp_path / "s"):
            del db, circle
            with connect(tmp_path / "s", segment_bytes=131_072) as other:
                assert other["t"].count() == 5
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("got", "use"),
    [
        (lambda db: db["t"], lambda found: found.upsert({"id": 1, "v": "y"})),
        (lambda db: db["t"], lambda found: found.count()),
        (lambda db: db.snapshot(), lambda found: found["t"].count()),
        (lambda db: db.snapshot()["t"], lambda found: found.to_arrow()),
        (lambda db: db["t"].dataset(), lambda found: found.count_rows()),
        (lambda db: db.transaction(), lambda found: found["t"].upsert({"id": 9, "v": "y"})),
        (lambda db: db.transaction()["t"], lambda found: found.upsert({"id": 9, "v": "y"})),
        (lambda db: db.transaction, lambda found: found().rollback()),
    ],
)
def test_what_was_got_from_a_dropped_handle_keeps_its_store(
    tmp_path: Path, got: Callable[[st.Store], object], use: Callable[[object], object]
) -> None:
    db = filled(tmp_path / "s")
    found = got(db)
    del db
    settled()
    use(found)
    assert is_owned(tmp_path / "s")
    with dropped(tmp_path / "s"):
        del found
        gc.collect()
    assert not is_owned(tmp_path / "s")


def test_what_is_being_read_is_read_to_its_end_without_its_store(tmp_path: Path) -> None:
    db = filled(tmp_path / "s")
    db.merge()
    db["t"].upsert({"id": 8, "v": "y"})
    batches, tasks = iter(db["t"].scan()), db.snapshot().scan_tasks("t")
    result = db.sql("select id from t")
    with dropped(tmp_path / "s"):
        del db, result
        gc.collect()
    assert sum(batch.num_rows for batch in batches) == 6
    assert sum(batch.num_rows for task in tasks for batch in task.read()) == 6


def test_the_collector_may_run_under_any_lock_of_ours(tmp_path: Path) -> None:
    db = filled(tmp_path / "s")
    with dropped(tmp_path / "s"), shared._registry.lock, closer._starting:
        del db
        gc.collect()


def test_an_exception_keeps_no_store_for_longer_than_itself(tmp_path: Path) -> None:
    def fails() -> None:
        db = filled(tmp_path / "s")
        db["nonsense"]

    with dropped(tmp_path / "s"):
        with contextlib.suppress(st.TableNotFoundError):
            fails()
        gc.collect()
    assert not is_owned(tmp_path / "s")
