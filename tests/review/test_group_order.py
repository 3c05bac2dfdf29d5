"""Members of one group take effect in seq order, and an answer of admission names what was lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.maintenance.flush.bulk_load import load
from tests.engine.seams import GatedFiles, Threads, fake_env, open_store, until

SCHEMA = {"id": "int64", "v": "int64"}


class Group:
    """Makes one commit group out of commits that each have a thread."""

    def __init__(self, root: Path) -> None:
        self.gate = GatedFiles()
        self.store: Store = open_store(root, fake_env(self.gate))
        self.table = self.store.create_table("t", SCHEMA, primary_key="id")
        self.table.upsert({"id": -1, "v": 0})

    def commit(self, *members: object) -> list[object]:
        """Run `members` as one group behind a commit that waits at the gate."""
        threads = Threads()
        results: list[object] = [None] * len(members)
        self.gate.hold()
        threads.start(self.table.upsert, {"id": -1, "v": 0})
        self.gate.wait()
        queue = self.store._core.committer
        for index, work in enumerate(members):
            threads.start(self._keep, results, index, work)
            until(lambda index=index: len(queue._queue) > index)
        self.gate.release()
        threads.join()
        return results

    def _keep(self, results: list[object], index: int, work: object) -> None:
        try:
            results[index] = work()
        except Exception as error:  # noqa: BLE001 - what a caller would get
            results[index] = error


@pytest.fixture
def group(tmp_path: Path):
    made = Group(tmp_path / "db")
    yield made
    made.gate.release()
    made.store.close()


def attach(store: Store, rows: pa.Table, *, may_repeat: bool = True) -> st.Receipt:
    definition, table_schema = store["t"]._table_schema()
    return load(store._core, definition, table_schema, rows, may_repeat=may_repeat, bytes_min=1)


def test_a_row_before_a_bulk_commit_of_its_group_is_older_than_the_bulk(group: Group) -> None:
    row, bulk = group.commit(
        lambda: group.table.upsert({"id": 1, "v": 1}),
        lambda: attach(group.store, pa.table({"id": [1, 2], "v": [7, 7]})),
    )
    assert (row.seq + 1, bulk.rows) == (bulk.seq, 2)
    assert group.table.get(1) == {"id": 1, "v": 7}
    assert sorted(r["v"] for r in group.table.to_arrow(filter="id > 0").to_pylist()) == [7, 7]
    group.store.checkpoint()
    group.store.merge()
    assert group.table.get(1) == {"id": 1, "v": 7}


def test_a_bulk_insert_outlives_a_column_that_came_while_it_was_staged(group: Group) -> None:
    new = pa.table({"id": [1, 2], "v": [7, 7]})
    altered, bulk = group.commit(
        lambda: group.table.add_column("note", "string"),
        lambda: attach(group.store, new, may_repeat=False),
    )
    assert isinstance(altered, st.Receipt)
    assert isinstance(bulk, st.Receipt)
    for step in (lambda: None, group.store.checkpoint, group.store.merge):
        step()
        assert group.table.get(2) == {"id": 2, "v": 7, "note": None}


def test_a_bulk_upsert_conflicts_with_a_column_that_came_while_it_was_staged(group: Group) -> None:
    _, bulk = group.commit(
        lambda: group.table.add_column("note", "string"),
        lambda: attach(group.store, pa.table({"id": [1, 2], "v": [7, 7]})),
    )
    assert isinstance(bulk, st.ConflictError)


@pytest.mark.parametrize("missing", ["refuse", "null", "keep"])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_an_upsert_behind_a_new_column_of_its_group_knows_it(
    group: Group, missing: str, count: int
) -> None:
    """Between the two, others may have given the column values."""
    rows = [{"id": key, "v": 5} for key in range(count)]
    given = rows if count > 1 else rows[0]
    group.table.upsert({"id": 0, "v": 0})
    _, done = group.commit(
        lambda: group.table.add_column("note", "string"),
        lambda: group.table.upsert(given, missing),
    )
    if missing == "refuse":
        assert isinstance(done, st.SchemaMismatchError)
        assert "'note'" in str(done)
        assert group.table.get(0) == {"id": 0, "v": 0, "note": None}
    else:
        assert done.rows == count
        assert group.table.get(0) == {"id": 0, "v": 5, "note": None}


def test_a_bulk_commit_conflicts_with_a_rename_of_its_column(group: Group) -> None:
    _, bulk = group.commit(
        lambda: group.table.rename_column("v", "w"),
        lambda: attach(group.store, pa.table({"id": [1, 2], "v": [7, 7]})),
    )
    assert isinstance(bulk, st.ConflictError)


def test_two_batches_with_one_composite_key_conflict(group: Group) -> None:
    db = group.store
    db.create_table("pairs", {"a": "int64", "b": "string", "v": "int64"}, primary_key=["a", "b"])
    batch = pa.table({"a": range(1000), "b": ["x"] * 1000, "v": range(1000)})
    one, two = db.transaction(), db.transaction()
    one["pairs"].upsert(batch)
    two["pairs"].upsert(batch)
    one.commit()
    with pytest.raises(st.ConflictError) as caught:
        two.commit()
    assert caught.value.table == "pairs"


def test_a_conflict_of_two_batches_names_an_integer_key(group: Group) -> None:
    db = group.store
    db.create_table("big", {"id": "uint64", "v": "int64"}, primary_key="id")
    high = (1 << 63) + 5
    batch = pa.table({"id": pa.array(range(high, high + 1000), pa.uint64()), "v": range(1000)})
    one, two = db.transaction(), db.transaction()
    one["big"].upsert(batch)
    two["big"].upsert(batch)
    one.commit()
    with pytest.raises(st.ConflictError) as caught:
        two.commit()
    assert caught.value.key == high
