"""A table or a snapshot that travels to another process reads there; a transaction says why not.

What comes back only reads. A transaction is uncommitted work of its process, and stays there.
"""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import pyarrow as pa
import pytest

import siltstone as st
from tests.server.house import House, house_at
from tests.server.stores import opened

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
AGAIN: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda handle: pickle.loads(pickle.dumps(handle)),
    "an old pickle": lambda handle: pickle.loads(pickle.dumps(handle, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy inside": lambda handle: copy.deepcopy({"x": [handle]})["x"][0],
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with house_at(tmp_path / "shop") as made:
        made.owner.create_table("t", data=ROWS, primary_key="id")
        made.owner.create_table("p", data=ROWS)
        yield made
        gc.collect()


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("door", House.DOORS)
@pytest.mark.parametrize("name", ["t", "p"])
def test_a_table_comes_back_as_a_table_that_only_reads(
    house: House, door: str, how: str, name: str
) -> None:
    table = getattr(house, door)[name]
    again = AGAIN[how](table)
    assert isinstance(again, st.Table)
    assert (again.name, again.primary_key, again.schema) == (name, table.primary_key, table.schema)
    assert again.to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    table.delete_where("id = 1")
    assert again.count() == 2  # it follows the newest rows
    for write in (again.truncate, lambda: again.delete_where("id = 2")):
        with pytest.raises(st.ReadOnlyError):
            write()
    assert len(pickle.dumps(again)) < 3_000
    assert AGAIN[how](again).count() == 2


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("door", House.DOORS)
def test_a_snapshot_comes_back_at_its_seq(house: House, door: str, how: str) -> None:
    store = getattr(house, door)
    with store.snapshot() as past:
        store["t"].truncate()
        store.drop_table("p")
        with AGAIN[how](past) as again:
            assert isinstance(again, st.Snapshot)
            assert (again.seq, sorted(again.tables())) == (past.seq, ["p", "t"])
            assert again["t"].get(2) == {"id": 2, "v": "b"}
            assert again["p"].count() == 3
            assert again.sql("SELECT count(*) FROM t").fetchall() == [(3,)]
            with AGAIN[how](again) as third:
                assert third["t"].count() == 3
        with pytest.raises(st.ClosedError):
            again["t"].count()
        assert past["t"].count() == 3


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("door", House.DOORS)
def test_a_transaction_and_its_tables_say_why_they_cannot(
    house: House, door: str, how: str
) -> None:
    with getattr(house, door).transaction() as tx:
        tx["t"].upsert({"id": 9}, "null")
        for handle in (tx, tx["t"]):
            with pytest.raises(st.RequestError, match=r"transaction.* process .*snapshot"):
                AGAIN[how](handle)
        tx["t"].upsert({"id": 10}, "null")  # it goes on
    assert house.owner["t"].count() == 5


def test_a_renamed_table_is_found_and_a_dropped_one_is_not(house: House) -> None:
    renamed, dropped = (pickle.dumps(house.owner[name]) for name in ("t", "p"))
    house.owner.rename_table("t", "u")
    house.owner.drop_table("p")
    house.owner.create_table("p", data=ROWS)
    assert pickle.loads(renamed).name == "u"
    with pytest.raises(st.TableNotFoundError):
        pickle.loads(dropped).count()


def test_another_store_at_the_path_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        db.create_table("t", data=ROWS)
        with db.snapshot() as past:
            travelling = [pickle.dumps(db["t"]), pickle.dumps(past)]
    shutil.rmtree(tmp_path / "s")
    with opened(tmp_path / "s") as db:
        db.create_table("t", data=ROWS)
        for each in travelling:
            with pytest.raises(st.RequestError, match="was pickled of"):
                pickle.loads(each)


def test_a_closed_handle_does_not_travel(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        table = db.create_table("t", data=ROWS)
        past = db.snapshot()
        past.close()
        with pytest.raises(st.ClosedError):
            pickle.dumps(past)
    with pytest.raises(st.ClosedError):
        pickle.dumps(table)


def test_a_snapshot_that_the_store_does_not_keep_says_so(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        db.create_table("t", data=ROWS, primary_key="id")
        with db.snapshot() as past:
            travelling = pickle.dumps(past)
        for step in range(3):
            db["t"].upsert({"id": step}, "null")
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.SnapshotExpiredError):
            pickle.loads(travelling)


def test_only_durable_rows_travel(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, sync_interval_ms=600_000) as db:
        db.create_table("t", data=ROWS, primary_key="id")
        with db.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 4}, "null")
        assert pickle.loads(pickle.dumps(db["t"])).count() == 4
        with db.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 5}, "null")
        with db.snapshot() as past, pickle.loads(pickle.dumps(past)) as again:
            assert again["t"].count() == 5


def counted(handle: Any) -> int:
    """Count in a worker."""
    return handle.count() if isinstance(handle, st.Table) else handle["t"].count()


def test_spawned_workers_take_handles(house: House) -> None:
    context = multiprocessing.get_context("spawn")
    with house.owner.snapshot() as past:
        house.owner["t"].delete([1])
        handles = [house.owner["t"], house.socket["p"], past]
        with context.Pool(1) as pool:
            assert pool.map(counted, handles) == [2, 3, 3]
        with ProcessPoolExecutor(1, mp_context=context) as workers:
            assert [*workers.map(counted, handles)] == [2, 3, 3]
            with house.owner.transaction() as tx:
                future = workers.submit(counted, tx)
                with pytest.raises(st.RequestError, match="transaction"):
                    future.result(60)


def test_joblib_takes_handles(house: House) -> None:
    with house.owner.snapshot() as past:
        house.owner["t"].delete([1])
        handles = [house.owner["t"], house.http["p"], past]
        work = (joblib.delayed(counted)(handle) for handle in handles)
        assert joblib.Parallel(n_jobs=2)(work) == [2, 3, 3]
