"""A merge whose rows are written by tasks elsewhere makes the same base as one that writes them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import siltstone as st
from siltstone.maintenance.merge.merge import Deferred, Merged
from tests.maintenance.stores import open_store, rows

SCHEMA = {"id": "int64", "v": "int64", "s": "string"}


def row(n: int, v: int) -> dict:
    return {"id": n, "v": v, "s": f"{n}/{v}"}


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def db(request, tmp_path: Path):
    with open_store(tmp_path / "db", real_lance=request.param) as store:
        yield store


def run_here(db, seen: list | None = None):
    def execute(tasks):
        tasks = pickle.loads(pickle.dumps(tasks))
        if seen is not None:
            seen.extend(tasks)
        return [task.run_on(db._parts.site.tables) for task in tasks]

    return execute


def merge(db, execute) -> Merged | Deferred:
    found = db._parts.owner.merger.merge(execute=execute)
    db._parts.owner.checkpointer.refresh()
    return found


def test_rows_of_every_kind_are_the_same_after_it(db) -> None:
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([row(n, 0) for n in range(50)])
    db.checkpoint()
    merge(db, run_here(db))
    table.upsert([row(n, 1) for n in range(10, 30)])
    db.checkpoint()
    table.delete(list(range(5, 15)))
    table.upsert([row(n, 2) for n in range(28, 60, 3)])
    db.checkpoint()
    table.upsert([row(59, 3)])
    expected, past = rows(table), db.seq - 2
    before = rows(db.snapshot(seq=past)["t"])
    seen: list = []
    found = merge(db, run_here(db, seen))
    assert isinstance(found, Merged)
    assert len(seen) >= 2
    assert rows(table) == expected
    assert rows(db.snapshot(seq=past)["t"]) == before
    db.checkpoint()
    merge(db, run_here(db))
    assert rows(table) == expected
    with open_store(db.path, read_only=True, real_lance=not _is_fake(db)) as other:
        assert rows(other["t"]) == expected


def test_a_column_that_was_added_and_one_that_was_renamed_are_in_the_new_base(db) -> None:
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([row(n, 0) for n in range(5)])
    db.checkpoint()
    merge(db, run_here(db))
    table.upsert([row(1, 1)])
    table.add_column("w", "int32")
    table.rename_column("s", "text")
    table.upsert([{"id": 2, "v": 9, "text": "x", "w": 7}])
    db.checkpoint()
    expected = sorted(map(str, table.to_arrow().to_pylist()))
    merge(db, run_here(db))
    assert sorted(map(str, table.to_arrow().to_pylist())) == expected


def test_all_rows_deleted_leave_an_empty_base(db) -> None:
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([row(n, 0) for n in range(5)])
    db.checkpoint()
    merge(db, run_here(db))
    table.delete(list(range(5)))
    db.checkpoint()
    merge(db, run_here(db))
    assert rows(table) == []
    table.upsert([row(1, 1)])
    assert rows(table) == [(1, 1, "1/1")]


def test_a_task_that_fails_leaves_everything_as_it_was(db) -> None:
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([row(n, 0) for n in range(5)])
    db.checkpoint()

    def fail(tasks):
        run_here(db)(tasks)
        raise st.UnavailableError("an executor was lost")

    with pytest.raises(st.UnavailableError, match="executor"):
        merge(db, fail)
    assert rows(table) == [(n, 0, f"{n}/0") for n in range(5)]
    merge(db, run_here(db))
    assert rows(table) == [(n, 0, f"{n}/0") for n in range(5)]


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_merge_to_what_they_were(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    with open_store(tmp_path / "db") as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for turn in range(12):
            keys = random.choice(40, random.integers(1, 15), replace=False).tolist()
            if random.random() < 0.3:
                table.delete(keys)
            else:
                table.upsert([row(key, turn) for key in keys])
            if random.random() < 0.6:
                db.checkpoint()
            if random.random() < 0.4:
                expected = rows(table)
                merge(db, run_here(db))
                assert rows(table) == expected


def test_tasks_run_in_another_process_by_the_path_alone(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert([row(n, 0) for n in range(20)])
        db.checkpoint()

        def elsewhere(tasks):
            script = (
                "import pickle, sys\n"
                "tasks, path = pickle.load(sys.stdin.buffer)\n"
                "pickle.dump([task.run(path) for task in tasks], sys.stdout.buffer)\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", script],
                input=pickle.dumps((tasks, str(db.path))),
                capture_output=True,
                check=True,
                timeout=60,
            )
            return pickle.loads(done.stdout)

        merge(db, elsewhere)
        assert rows(table) == [(n, 0, f"{n}/0") for n in range(20)]
        assert db.verify(deep=True).is_sound


def _is_fake(db) -> bool:
    return type(db._parts.site.tables.reader).__name__ == "FakeReader"
