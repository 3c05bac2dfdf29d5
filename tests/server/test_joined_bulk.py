"""A joined process plans scans and bulk commits at the owner; rows go past the socket."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.owners import owner_of

Both = tuple[st.Store, JoinedStore]

_EXECUTOR = """
import pickle, sys
import pyarrow as pa

stage = pickle.loads(sys.stdin.buffer.read())
staged = stage.run(pa.table({"id": [100, 101], "v": [1, 2]}))
sys.stdout.buffer.write(pickle.dumps(staged))
"""


def test_staged_rows_of_several_processes_are_attached_in_one_commit(both: Both) -> None:
    owner, joined = both
    stage = joined.stage("t", "upsert")
    there = subprocess.run(
        [sys.executable, "-c", _EXECUTOR],
        input=pickle.dumps(stage),
        capture_output=True,
        check=True,
    )
    here = stage.run(pa.table({"id": [1, 102], "v": [11, 3]}))
    seq = owner.seq
    with joined.transaction(token=("job", 1)) as tx:
        assert tx.attach(stage, [pickle.loads(there.stdout), here]) == 4
        assert owner["t"].count() == 2
    assert tx.seq == seq + 1
    assert owner["t"].get(1) == {"id": 1, "v": 11}
    assert owner["t"].count() == 5
    with joined.transaction(token=("job", 1)) as again:  # a driver that was killed tries again
        again.attach(stage, [here])
    assert again.seq == tx.seq


def test_an_overwrite_is_a_truncate_and_an_attach(both: Both) -> None:
    owner, joined = both
    stage = joined.stage("t", "upsert")
    staged = stage.run(pa.table({"id": [7], "v": [7]}))
    with joined.transaction() as tx:
        tx["t"].truncate()
        tx.attach(stage, [staged])
    assert owner["t"].to_arrow().to_pylist() == [{"id": 7, "v": 7}]


def test_what_cannot_be_attached_is_refused_with_the_same_error(both: Both) -> None:
    owner, joined = both
    stage = joined.stage("t", "insert")
    staged = stage.run(pa.table({"id": [1], "v": [7]}))
    found = []
    for db in (owner, joined):
        with pytest.raises(st.DuplicateKeyError) as caught, db.transaction() as tx:
            tx.attach(stage, [staged])
        found.append((str(caught.value), caught.value.table, caught.value.key))
    assert found[0] == found[1]
    assert owner["t"].count() == 2
    with pytest.raises(st.TableNotFoundError):
        joined.stage("nope")


def test_tasks_of_a_scan_are_read_without_the_owner(tmp_path: Path) -> None:
    with owner_of(tmp_path / "shop") as owner:
        joined = st.connect(tmp_path / "shop", join=True)
        rows = pa.table({"id": range(3, 3000), "v": range(3, 3000)})
        joined["t"].upsert(rows)
        joined.checkpoint()
        joined["t"].upsert({"id": 3, "v": -3})
        with joined.snapshot() as past:
            tasks = past.scan_tasks("t", ["id", "v"], "id < 100", rows_max=1000)
        changes = joined.change_tasks("t", 0)
        upto = joined.changes_upto("t", 0, 1), joined.changes_from("t")
        joined.close()
        owner.kill()
    read = pa.concat_tables(pa.Table.from_batches(list(t.read()), t.schema) for t in tasks)
    assert sorted(read["id"].to_pylist()) == list(range(1, 100))
    assert dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True))[3] == -3
    assert sum(batch.num_rows for task in changes for batch in task.read()) == 3000
    assert upto == ((2, 2), 1)


def test_a_joined_store_pickles_as_a_reader_of_its_path(both: Both) -> None:
    owner, joined = both
    with pickle.loads(pickle.dumps(joined)) as reader:
        assert reader.is_read_only
        assert reader["t"].count() == owner["t"].count()
