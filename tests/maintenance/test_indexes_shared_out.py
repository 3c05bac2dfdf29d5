"""Indexes whose segments are built by tasks elsewhere find what those that are built here find."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import lance
import pytest

import siltstone as st
from siltstone.admin import merge_store, optimize_store, vacuum_store
from siltstone.api.store import Store
from siltstone.errors import UnavailableError
from siltstone.maintenance.compaction.optimize import Optimized
from siltstone.maintenance.index import index_plan
from siltstone.maintenance.index.index_plan import Execute, IndexTask, Unfit
from siltstone.maintenance.merge import merge
from siltstone.storage.lance.write import writer
from siltstone.storage.tables.values import BuiltSegment, Segment
from tests.storage.searches import SCHEMA, WORDS, check, rows

PART, PARTS = 400, 6
KINDS: dict[str, st.IndexKind] = {"place": "vector", "words": "fts", "id": "btree"}


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A table in parts, with an index of each kind that is not built yet."""
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    monkeypatch.setattr(writer, "_MIDDLE_ROWS", 100)
    monkeypatch.setattr(index_plan, "SHARE_ROWS", PART)
    with st.connect(tmp_path / "db", background=False) as found:
        table = found.create_table("t", SCHEMA, "id")
        for n in range(PARTS):
            fold(found, n * PART)
        for column, kind in KINDS.items():
            table.create_index(column, kind, build=False)
        yield found


def fold(db: Store, first: int, count: int = PART, *, seed: int = 0) -> None:
    db["t"].upsert(rows(first, count, seed=seed))
    db.checkpoint()
    db.merge()


def here(db: Store, between: Callable[[], object] = lambda: None) -> Execute:
    """Run tasks as another process would; `between` happens when they are done."""

    def execute(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        given = pickle.loads(pickle.dumps(tasks))
        done = [task.run(str(db.path)) for task in given]
        between()
        return pickle.loads(pickle.dumps(done))

    return execute


def optimized(db: Store, execute: Execute) -> Optimized:
    """Bring the indexes up to date; the files of a table of few rows are left as they are."""
    found = optimize_store(db.path, "t", target_rows=2, build=execute)
    assert isinstance(found, Optimized)
    refresh(db)
    return found


def refresh(db: Store) -> None:
    assert db._parts.owner is not None
    db._parts.owner.checkpointer.refresh()


def segments(db: Store, name: str) -> list[Segment]:
    (storage,) = db._core.state().view.record.keyed
    opened = db._parts.site.tables.reader.open(storage.base)
    return [one for one in opened.segments if one.index.startswith(f"{name}.")]


def covered(db: Store, name: str) -> list[tuple[int, int]]:
    return sorted(span for segment in segments(db, name) for span in segment.covered)


def look(db: Store) -> None:
    """Compare searches and a filter with what all rows say, here and for a client by path."""
    every = db["t"].to_arrow().to_pylist()
    check(lance.dataset(db.path / "tables/t-1/base"))
    for word in WORDS:
        found = db["t"].search(word, k=10_000, column="words").to_pylist()
        wanted = {row["id"] for row in every if word in row["words"].split()}
        assert {row["id"] for row in found} == wanted
    assert db["t"].count("id >= 700") == sum(row["id"] >= 700 for row in every)


def lags(db: Store) -> dict[str, int]:
    return {index.name: index.lagging_rows for index in db["t"].indexes()}


def test_a_large_index_is_built_by_up_to_four_tasks_over_disjoint_parts(db: Store) -> None:
    seen: list[IndexTask] = []

    def execute(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        seen.extend(tasks)
        return here(db)(tasks)

    done = optimized(db, execute)
    assert (done.segments, done.indexed_rows) == (12, 3 * PART * PARTS)
    assert len(seen) == 12
    for name in KINDS:
        assert len(segments(db, name)) == 4
        assert covered(db, name) == [(n * PART, (n + 1) * PART) for n in range(PARTS)]
    assert set(lags(db).values()) == {0}
    recall = {index.name: index.recall for index in db["t"].indexes()}
    assert (recall["place"] or 0) >= 0.95
    look(db)
    assert db.verify(deep=True).is_sound


def test_a_small_index_is_one_task(db: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_plan, "SHARE_ROWS", PART * PARTS)
    assert optimized(db, here(db)).segments == 3
    look(db)


def test_tasks_run_in_a_process_of_their_own(db: Store, tmp_path: Path) -> None:
    given, taken = tmp_path / "tasks", tmp_path / "done"
    program = (
        "import pickle, sys\n"
        "root, given, taken = sys.argv[1:]\n"
        "tasks = pickle.load(open(given, 'rb'))\n"
        "pickle.dump([task.run(root) for task in tasks], open(taken, 'wb'))\n"
    )

    def execute(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        given.write_bytes(pickle.dumps(tasks))
        command = [sys.executable, "-c", program, str(db.path), str(given), str(taken)]
        subprocess.run(command, check=True)
        return pickle.loads(taken.read_bytes())

    assert optimized(db, execute).segments == 12
    look(db)
    assert db.verify(deep=True).is_sound


def test_a_task_that_runs_twice_leaves_garbage_which_vacuum_takes(db: Store) -> None:
    def twice(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        [task.run(str(db.path)) for task in tasks]
        return here(db)(tasks)

    optimized(db, twice)
    folders = list((db.path / "tables/t-1/base/_indices").iterdir())
    assert len(folders) == 24
    look(db)
    db.checkpoint()
    vacuum_store(db.path, dry_run=False, grace_s=0)
    left = {path.name for path in (db.path / "tables/t-1/base/_indices").iterdir()}
    assert left >= {one.id for name in KINDS for one in segments(db, name)}
    assert len(left) == 12
    look(db)


def test_a_vacuum_without_grace_spares_the_segments_of_a_running_job(db: Store) -> None:
    done = optimized(db, here(db, lambda: vacuum_store(db.path, dry_run=False, grace_s=0)))
    assert done.segments == 12
    look(db)
    assert db.verify(deep=True).is_sound


def test_segments_over_parts_that_were_rewritten_meanwhile_are_not_put(db: Store) -> None:
    def rewrite() -> None:
        found = db.optimize("t")
        assert isinstance(found, Optimized)
        assert found.segments == 3

    assert optimized(db, here(db, rewrite)).segments == 0
    for name in KINDS:
        assert covered(db, name) == [(0, PARTS * PART)]
    look(db)
    assert db.verify(deep=True).is_sound


def test_rows_that_are_hidden_meanwhile_are_not_found(db: Store) -> None:
    def move() -> None:
        fold(db, 0, 2 * PART, seed=1)

    optimized(db, here(db, move))
    assert lags(db)["place"] == lags(db)["words"] == 0
    look(db)
    assert db.verify(deep=True).is_sound


def test_of_an_index_that_is_dropped_meanwhile_nothing_is_put(db: Store) -> None:
    turns: list[int] = []

    def drop() -> None:
        turns.append(1)
        if len(turns) == 1:
            db["t"].drop_index("words")

    optimized(db, here(db, drop))
    assert segments(db, "words") == []
    assert lags(db) == {"place": 0, "id": 0}


def test_a_task_that_fails_ends_the_build_and_nothing_is_put(db: Store) -> None:
    def failing(tasks: Sequence[IndexTask]) -> Iterator[BuiltSegment | Unfit]:
        yield tasks[0].run(str(db.path))
        raise UnavailableError("the executor is gone")

    with pytest.raises(UnavailableError, match="the executor is gone"):
        optimize_store(db.path, "t", target_rows=2, build=failing)
    refresh(db)
    assert [segments(db, name) for name in KINDS] == [[], [], []]
    assert optimized(db, here(db)).segments == 12
    look(db)


def test_a_share_whose_rows_do_not_fit_leaves_them_to_the_scan(
    db: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def partly(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        done = list(here(db)(tasks))
        return [Unfit("too few to train on"), *done[1:]]

    optimized(db, partly)
    assert "too few to train on" in caplog.text
    (lacking,) = [name for name, rows_ in lags(db).items() if rows_]
    assert len(segments(db, lacking)) == 3
    look(db)


def test_a_merge_shares_out_what_an_index_lacks_then(db: Store) -> None:
    optimized(db, here(db))
    ran: list[int] = []
    for n in range(PARTS, 3 * PARTS):
        db["t"].upsert(rows(n * PART, PART))
    db.checkpoint()
    merge_store(db.path, build=here(db, lambda: ran.append(1)))
    refresh(db)
    assert ran
    assert lags(db)["place"] == 0
    look(db)
