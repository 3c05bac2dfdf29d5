"""Indexes are built from the path alone, beside an owner and without one; no row is rewritten."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import CaughtUp, index_store, merge_store
from siltstone.api.store import Store
from siltstone.maintenance.index.index_plan import Execute, IndexTask, Unfit
from siltstone.storage.tables.values import BuiltSegment
from tests.storage.searches import ORIGIN, SCHEMA, rows

ROWS = 2_000
SHAPE = pa.schema([*SCHEMA, ("many", pa.int64()), ("few", pa.string())])
KINDS: dict[str, st.IndexKind] = {
    "few": "bitmap",
    "many": "btree",
    "place": "vector",
    "words": "fts",
}
ALL_BUILT = CaughtUp(("t",), len(KINDS), len(KINDS) * ROWS)


def batch(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    found = pa.Table.from_batches([rows(first, count)])
    found = found.append_column("many", pa.array([n * 7 % 1_000 for n in ids]))
    return found.append_column("few", pa.array([f"state {n % 3}" for n in ids]))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    """A merged table with an index of each kind that is not built yet."""
    with st.connect(tmp_path / "db", background=False) as found:
        table = found.create_table("t", SHAPE, "id")
        table.upsert(batch(0, ROWS))
        found.checkpoint()
        found.merge()
        for column, kind in KINDS.items():
            table.create_index(column, kind, build=False)
        yield found


def elsewhere(path: Path, behind: Callable[[], object] = lambda: None) -> Execute:
    """Run tasks as another process would; `behind` happens when they are done."""

    def run(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
        done = [task.run(str(path)) for task in pickle.loads(pickle.dumps(tasks))]
        behind()
        return pickle.loads(pickle.dumps(done))

    return run


def lost(tasks: Sequence[IndexTask]) -> Iterable[BuiltSegment | Unfit]:
    raise st.UnavailableError("an executor was lost")


def lags(db: Store) -> dict[str, int]:
    assert db._parts.owner is not None
    db._parts.owner.checkpointer.refresh()  # takes over what was published
    return {index.name: index.lagging_rows for index in db["t"].indexes()}


def answers(table: st.Table) -> list[object]:
    return [
        sorted(table.to_arrow(["id"], "many BETWEEN 20 AND 40")["id"].to_pylist()),
        sorted(table.to_arrow(["id"], "few = 'state 1'")["id"].to_pylist()),
        table.search("slate", k=50, column="words", columns=["id"]).to_pylist(),
        table.search(ORIGIN, k=20, column="place", columns=["id"]).to_pylist(),
    ]


def test_indexes_built_elsewhere_answer_as_those_that_the_owner_builds(
    db: Store, tmp_path: Path
) -> None:
    shutil.copytree(db.path, tmp_path / "copy")
    assert index_store(db.path, build=elsewhere(db.path)) == ALL_BUILT
    assert lags(db) == dict.fromkeys(KINDS, 0)
    with st.connect(tmp_path / "copy", background=False) as alone:
        alone.optimize()
        assert lags(alone) == dict.fromkeys(KINDS, 0)
        assert answers(db["t"]) == answers(alone["t"])
        recalls = [{i.name: i.recall for i in each["t"].indexes()} for each in (db, alone)]
    assert recalls[0] == recalls[1]
    assert recalls[0]["place"] is not None
    assert db.verify(deep=True).is_sound
    assert index_store(db.path, "t", build=lost) == CaughtUp((), 0, 0)


def test_a_store_without_an_owner_gets_its_indexes(db: Store) -> None:
    db.close()
    assert index_store(db.path, "t", build=elsewhere(db.path)) == ALL_BUILT
    with st.connect(db.path, background=False) as store:
        assert lags(store) == dict.fromkeys(KINDS, 0)


def test_by_default_this_process_builds(db: Store) -> None:
    assert index_store(db.path) == ALL_BUILT
    assert lags(db) == dict.fromkeys(KINDS, 0)


def test_files_of_base_are_left_as_they_are(db: Store) -> None:
    table = db["t"]
    for n in range(3):
        table.upsert(batch(ROWS + n, 1))
        db.checkpoint()
        db.merge()
    data = db.path / "tables/t-1/base/data"
    before = sorted(path.name for path in data.iterdir())
    index_store(db.path)
    assert sorted(path.name for path in data.iterdir()) == before


def test_a_build_that_fails_changes_nothing_and_the_next_call_builds(db: Store) -> None:
    with pytest.raises(st.UnavailableError, match="an executor was lost"):
        index_store(db.path, build=lost)
    assert lags(db) == dict.fromkeys(KINDS, ROWS)
    assert index_store(db.path) == ALL_BUILT


def test_a_merge_stays_though_the_builds_behind_it_fail(
    db: Store, caplog: pytest.LogCaptureFixture
) -> None:
    db["t"].upsert(batch(ROWS, 100))
    db.checkpoint()
    found = merge_store(db.path, build=lost)
    assert isinstance(found, st.Merged)
    assert found.rows == 100
    assert "an executor was lost" in caplog.text
    assert lags(db) == dict.fromkeys(KINDS, ROWS + 100)


def test_a_base_that_is_rewritten_meanwhile_is_planned_again(db: Store) -> None:
    table, plans = db["t"], list[int]()

    def rewrite() -> None:
        plans.append(len(plans))
        if plans == [0]:
            table.upsert(batch(0, ROWS).set_column(3, "many", pa.array([5] * ROWS)))
            db.checkpoint()
            merge_store(db.path, build=lost)  # the new parts have no segments yet

    assert index_store(db.path, build=elsewhere(db.path, rewrite)) == ALL_BUILT
    assert plans == [0, 1]
    assert lags(db) == dict.fromkeys(KINDS, 0)
    assert table.count("many = 5") == ROWS
    assert answers(table)[0] == []
    assert db.verify(deep=True).is_sound


def test_a_table_that_is_dropped_meanwhile_gets_no_segment(db: Store) -> None:
    def drop() -> None:
        db.drop_table("t")
        db.checkpoint()

    assert index_store(db.path, build=elsewhere(db.path, drop)) == CaughtUp((), 0, 0)
    assert db.verify(deep=True).is_sound


def test_a_table_that_only_the_log_knows_and_a_plain_one_have_nothing_to_build(db: Store) -> None:
    db.create_table("new", SHAPE, "id")
    db.create_table("plain", SHAPE)
    for name in ("new", "plain"):
        assert index_store(db.path, name, build=lost) == CaughtUp((), 0, 0)


def test_no_store_no_table_and_no_attempt_are_refused(db: Store, tmp_path: Path) -> None:
    with pytest.raises(st.RequestError, match="no such directory"):
        index_store(tmp_path / "nowhere")
    with pytest.raises(st.TableNotFoundError, match="nope"):
        index_store(db.path, "nope")
    with pytest.raises(st.RequestError, match="attempts"):
        index_store(db.path, attempts=0)
    assert lags(db) == dict.fromkeys(KINDS, ROWS)
