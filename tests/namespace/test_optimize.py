"""An optimize of a plain table is one more version to other Lance clients, and none loses by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from siltstone.api.store import Store
from siltstone.maintenance.compaction.compaction import Optimized
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import ids, make, opened, rows


def numbers(db: Store) -> list[int]:
    with db.transaction() as tx:
        found = [version.pin.version for version in tx.lance.versions("t").versions]
        tx.rollback()
    return found


@pytest.mark.parametrize("has_stable_ids", [False, True])
@pytest.mark.parametrize("has_index", [False, True])
def test_a_client_finds_the_same_rows_and_goes_on_from_its_number(
    db: Store, ns: SiltstoneNamespace, has_stable_ids: bool, has_index: bool
) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=30, enable_stable_row_ids=has_stable_ids)
    if has_index:
        opened(ns, "t").create_scalar_index("id", "BTREE")
    opened(ns, "t").delete("id % 10 = 3")
    left = [i for i in range(100) if i % 10 != 3]
    stale = opened(ns, "t")
    renewed = (1, 90) if has_index else (0, 0)  # the index lacks all rows of the new file
    assert db.optimize() == Optimized(("t",), 4, 1, 90, *renewed)
    assert ids(opened(ns, "t")) == left == ids(stale)
    for wanted in (5, 13, 45, 99):
        found = opened(ns, "t").to_table(filter=f"id = {wanted}").num_rows
        assert found == (wanted in left)
    assert opened(ns, "t").version == stale.version + 1 + has_index
    stale.insert(rows(200, 203))
    opened(ns, "t").delete("id = 200")
    assert ids(opened(ns, "t")) == [*left, 201, 202]
    assert sorted(db["t"].to_arrow()["id"].to_pylist()) == [*left, 201, 202]
    assert numbers(db) == list(range(1, opened(ns, "t").version + 1))
    db.checkpoint()
    assert db.verify(deep=True).is_sound


def test_a_file_of_which_a_client_deleted_a_tenth_is_written_anew(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 100))
    opened(ns, "t").delete("id < 9")
    assert db.optimize() == Optimized((), 0, 0, 0)
    opened(ns, "t").delete("id = 50")
    stale = opened(ns, "t")
    assert db.optimize() == Optimized(("t",), 1, 1, 90)
    left = [i for i in range(9, 100) if i != 50]
    assert ids(opened(ns, "t")) == left == ids(stale)
    assert [f.num_deletions for f in opened(ns, "t").get_fragments()] == [0]
    assert db.optimize() == Optimized((), 0, 0, 0)
    stale.delete("id = 10")
    assert ids(opened(ns, "t")) == [i for i in left if i != 10]
    assert numbers(db) == list(range(1, opened(ns, "t").version + 1))
    assert db.verify(deep=True).is_sound


def test_files_that_an_index_covers_and_others_become_one_without_a_hole_in_the_numbers(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 60), max_rows_per_file=30)
    opened(ns, "t").create_scalar_index("id", "BTREE")
    opened(ns, "t").insert(rows(60, 90))
    stale = opened(ns, "t")
    # Those that it covers, then the index over all of them, then these.
    assert db.optimize() == Optimized(("t",), 4, 2, 150, 1, 90)
    assert len(opened(ns, "t").get_fragments()) == 1
    assert numbers(db) == list(range(1, opened(ns, "t").version + 1))
    stale.delete("id < 10")
    assert ids(opened(ns, "t")) == list(range(10, 90))
    assert opened(ns, "t").to_table(filter="id = 45").num_rows == 1
    assert opened(ns, "t").to_table(filter="id = 75").num_rows == 1


def test_a_delete_that_a_client_planned_below_it_is_not_lost(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=30)
    stale = opened(ns, "t")
    db.optimize()
    try:
        stale.delete("id < 50")
    except OSError as error:  # Lance may ask its caller to do it again
        assert "conflict" in str(error).lower()  # noqa: PT017 - or it was done
        opened(ns, "t").delete("id < 50")
    assert ids(opened(ns, "t")) == list(range(50, 100))
    assert sorted(db["t"].to_arrow()["id"].to_pylist()) == list(range(50, 100))


def test_a_client_that_wins_is_built_upon_or_left_alone(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 100), max_rows_per_file=30)
    run = db._parts.owner.optimizer._compact
    appended = []

    def compact(tasks):
        for task in tasks:
            if not appended:
                appended.append(opened(ns, "t").insert(rows(100, 110)))
                opened(ns, "t").delete("id = 7")
            yield run(task)

    found = db._parts.owner.optimizer.optimize(execute=compact)
    assert found == Optimized(("t",), 5, 1, 109)
    assert ids(opened(ns, "t")) == [i for i in range(110) if i != 7]


def notes(first: int, end: int) -> pa.Table:
    places = np.random.default_rng(first).normal(size=(end - first, 4)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(places.ravel()), 4)
    words = [f"word{n % 3} stone" for n in range(first, end)]
    return pa.table({"id": list(range(first, end)), "v": words, "place": flat})


def check_searches(ns: SiltstoneNamespace) -> None:
    dataset = opened(ns, "t")
    everything = ids(dataset)
    found = dataset.to_table(columns=["id"], full_text_query="stone")["id"].to_pylist()
    assert sorted(found) == everything
    some = dataset.to_table(columns=["id"], full_text_query="stone", limit=9)["id"].to_pylist()
    assert len(set(some)) == 9
    search = {"column": "place", "q": np.zeros(4, np.float32), "k": 9, "nprobes": 99}
    nearest = dataset.to_table(columns=["id"], nearest=search)["id"].to_pylist()
    exact = dataset.to_table(columns=["id"], nearest={**search, "use_index": False})
    assert nearest == exact["id"].to_pylist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("has_stable_ids", [False, True])
def test_an_optimize_leaves_the_indexes_by_which_a_client_searches(
    db: Store, ns: SiltstoneNamespace, has_stable_ids: bool
) -> None:
    make(ns, "t", notes(0, 300), max_rows_per_file=100, enable_stable_row_ids=has_stable_ids)
    opened(ns, "t").create_index("place", "IVF_FLAT", num_partitions=1)
    opened(ns, "t").create_scalar_index("v", "INVERTED")
    indexes = {index.name for index in opened(ns, "t").describe_indices()}
    check_searches(ns)
    first = db.optimize()
    assert first.files_before == (3 if has_stable_ids else 0)
    check_searches(ns)
    for n in range(3):
        opened(ns, "t").insert(notes(300 + 10 * n, 310 + 10 * n))
    assert db.optimize().files_before == 3
    check_searches(ns)
    nearest = {"column": "place", "q": np.zeros(4, np.float32), "k": 50, "nprobes": 99}
    gone = opened(ns, "t").to_table(columns=["id"], nearest=nearest)["id"].to_pylist()
    opened(ns, "t").delete(f"id IN ({', '.join(map(str, gone))})")
    check_searches(ns)
    db.optimize()
    check_searches(ns)
    assert {index.name for index in opened(ns, "t").describe_indices()} == indexes
    assert len(ids(opened(ns, "t"))) == 280
    assert db.verify(deep=True).is_sound


@pytest.mark.filterwarnings("ignore")
def test_a_clients_index_that_came_while_files_were_joined_is_kept(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "t", notes(0, 300), max_rows_per_file=100, enable_stable_row_ids=False)

    def index_first(tasks: Any) -> Any:
        if not opened(ns, "t").describe_indices():
            opened(ns, "t").create_index("place", "IVF_FLAT", num_partitions=1)
            opened(ns, "t").create_scalar_index("v", "INVERTED")
        return [task.run(str(db.path)) for task in tasks]

    db._owner().optimizer.optimize(None, execute=index_first)
    assert len(opened(ns, "t").describe_indices()) == 2
    check_searches(ns)
