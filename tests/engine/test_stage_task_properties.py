"""Whatever is staged, in whatever pieces, a table holds what one writer would have put there."""

from __future__ import annotations

import pickle
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.write import bulk
from siltstone.engine.write.stage_task import sorter_of
from siltstone.storage.tables.keys import staged_keys
from tests.maintenance.stores import open_store

SCHEMA = {"k": "string", "n": "int64", "rank": "int64"}

ROW = some.tuples(some.sampled_from("abcdefgh"), some.one_of(some.none(), some.integers(0, 3)))
PIECES = some.lists(some.lists(ROW, max_size=5), min_size=1, max_size=3)
JOB = some.tuples(some.sampled_from(["upsert", "insert", "delete"]), some.booleans(), PIECES)
MORE = some.tuples(some.sampled_from(["upsert", "delete"]), some.booleans(), PIECES)
JOBS = some.tuples(some.booleans(), JOB, some.lists(MORE, max_size=2))
OTHER = some.sampled_from(["upsert", "delete", "checkpoint", "merge", "reopen"])

Model = dict[str, tuple[int, int | None]]


class DuplicateInModelError(Exception):
    pass


def expected(
    model: Model, op: str, pieces: list[list[tuple[str, int | None]]], number: int, *, ordered: bool
) -> Model:
    """Return the table after the job, as one writer would do it."""
    rows = [row for piece in pieces for row in piece]
    keys = [key for key, _ in rows]
    if op == "delete":
        return {key: value for key, value in model.items() if key not in keys}
    if len(set(keys)) < len(keys) and not ordered:
        raise DuplicateInModelError
    if op == "insert" and set(keys) & set(model):
        raise DuplicateInModelError
    if ordered:
        rows.sort(key=lambda row: -1 if row[1] is None else row[1])  # stable, nulls first
    return {**model, **{key: (number, rank) for key, rank in rows}}


def staged(
    db: Store, op: str, pieces: list[list[tuple[str, int | None]]], number: int, *, ordered: bool
) -> tuple[st.StageTask, list[st.Staged]]:
    stage = db.stage("t", op, order_by="rank" if ordered and op != "delete" else None)
    found = []
    for rows in pieces:
        batch = pa.record_batch(
            {
                "k": pa.array([key for key, _ in rows], pa.string()),
                "n": pa.array([number] * len(rows), pa.int64()),
                "rank": pa.array([rank for _, rank in rows], pa.int64()),
            }
        )
        task = pickle.loads(pickle.dumps(stage))
        tables = db._core.tables
        written = task.run_through(tables.writer, batch, 0, sorter_of(task, tables.keys))
        found.append(pickle.loads(pickle.dumps(written)))
    return stage, found


def run_jobs(db: Store, over: bool, jobs: list[tuple], number: int) -> None:
    """Commit all jobs at once."""
    written = [staged(db, op, pieces, number, ordered=ordered) for op, ordered, pieces in jobs]
    with db.transaction() as tx:
        if over:
            tx["t"].truncate()
        for stage, pieces in written:
            tx.attach(stage, pieces)


def content(source: object) -> Model:
    rows = source["t"].to_arrow().to_pylist()  # type: ignore[index]
    found = {row["k"]: (row["n"], row["rank"]) for row in rows}
    assert len(found) == len(rows)
    return found


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    steps=some.lists(some.one_of(JOBS, OTHER), max_size=8), keyed_from=some.sampled_from([1, 999])
)
def test_jobs_leave_what_one_writer_would_leave_at_every_seq(
    tmp_path_factory: pytest.TempPathFactory, steps: list, keyed_from: int
) -> None:
    with (
        patch.object(staged_keys, "ROWS_MIN", keyed_from),
        patch.object(bulk, "COVERED_ROWS_MIN", keyed_from),
    ):
        _run_steps(tmp_path_factory, steps)


def _run_steps(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    path = tmp_path_factory.mktemp("jobs") / "s"
    db = open_store(path)
    db.create_table("t", SCHEMA, primary_key="k")
    model: Model = {}
    at: dict[int, Model] = {db.seq: model}
    for number, step in enumerate(steps):
        if step == "reopen":
            db.close()
            db = open_store(path)
        else:
            model = advance(db, model, step, number)
        at[db.seq] = model
        assert content(db) == model
    for source in (db, open_store(path, read_only=True)):
        for seq, wanted in at.items():
            with source.snapshot(seq=seq) as snapshot:
                assert content(snapshot) == wanted
    db.close()


def advance(db: Store, model: Model, step: object, number: int) -> Model:
    if isinstance(step, tuple):
        over, first, more = step
        wanted, jobs = {} if over else model, [first, *more]
        try:
            for op, ordered, pieces in jobs:
                wanted = expected(wanted, op, pieces, number, ordered=ordered)
        except DuplicateInModelError:
            seq = db.seq
            with pytest.raises(st.DuplicateKeyError):
                run_jobs(db, over, jobs, number)
            assert db.seq == seq
            return model
        run_jobs(db, over, jobs, number)
        return wanted
    if step == "upsert":
        db["t"].upsert([{"k": "a", "n": number}, {"k": "z", "n": number}], missing="null")
        return {**model, "a": (number, None), "z": (number, None)}
    if step == "delete":
        db["t"].delete(["b", "z"])
        return {key: value for key, value in model.items() if key not in {"b", "z"}}
    getattr(db, str(step))()
    return model
