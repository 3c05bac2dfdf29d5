"""A stream that is behind a change of its table's columns reads on, in the columns of today.

One that meets the change while it runs ends, where a column is gone: see `test_stream_protocol`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable

import pyarrow as pa
import pytest

import siltstone as st
from tests.spark.followed_stores import SOURCE, World
from tests.spark.micro_batches import Checkpoint, KilledError, Run

TEXTS = {"seq": "int64", "op": "string", "row": "string"}


def as_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.drop_columns(["_seq", "_op"]).to_pylist()
    texts = pa.array([json.dumps(row) for row in rows], pa.string())
    return pa.RecordBatch.from_arrays([batch["_seq"], batch["_op"], texts], names=list(TEXTS))


@pytest.fixture
def followed(world: World) -> World:
    world.b.create_table("texts", TEXTS)
    return world


def run(world: World, checkpoint: Checkpoint, **more: object) -> Run:
    return Run(checkpoint, world.source(**more), world.sink("texts"), as_texts)


def add_a_column(world: World) -> None:
    world.a["t"].add_column("n", "string")
    world.a["t"].upsert({"id": 1, "v": 1, "n": "x"})


def rename_a_column(world: World) -> None:
    world.a["t"].rename_column("v", "w")
    world.upsert_w()


def drop_a_column_and_add_one_of_its_name(world: World) -> None:
    world.a["t"].drop_column("v")
    world.a["t"].add_column("v", "int64")
    world.a["t"].upsert({"id": 1, "v": 100})


def make_the_table_anew(world: World) -> None:
    world.a.drop_table("t")
    world.elsewhere()
    world.a.create_table("t", {"n": "string", "v": "int64", "id": "int64"}, primary_key="id")
    world.elsewhere()
    world.a["t"].upsert([{"id": 1, "v": 100, "n": "x"}, {"id": 50, "v": 500}], missing="null")


def pass_the_name_on(world: World) -> None:
    world.a["other"].add_column("n", "string")
    world.a["other"].upsert([{"id": 7, "v": 7, "n": "x"}])
    world.a.rename_table("t", "former")
    world.a["former"].upsert({"id": 1, "v": 1})
    world.a.create_table("third", SOURCE, primary_key="id")
    world.a.rename_table("other", "t")
    world.a.create_table("other", SOURCE, primary_key="id")
    world.upsert()


WITHIN = [add_a_column, rename_a_column, drop_a_column_and_add_one_of_its_name]
CHANGES = [*WITHIN, make_the_table_anew, pass_the_name_on]


def behind(world: World, checkpoint: Checkpoint, change: Callable[[World], None]) -> int:
    """Let a query that has read the first rows fall behind a change; return the seq it has read."""
    world.upsert()
    with run(world, checkpoint) as query:
        query.finish()
    world.b["texts"].truncate()
    read = json.loads(checkpoint.offsets[-1])["seq"]
    world.upsert()
    world.delete()
    world.upsert()
    change(world)
    world.elsewhere()
    return read


def arrived(world: World) -> list[tuple]:
    rows = world.b["texts"].to_arrow().to_pylist()
    return sorted(((r["seq"], r["op"], json.loads(r["row"])) for r in rows), key=repr)


def wanted(world: World, checkpoint: Checkpoint, since: int) -> list[tuple]:
    """Return the changes of each batch, in the columns of today by their names."""
    names = world.a["t"].schema.names
    ends = [json.loads(offset)["seq"] for offset in checkpoint.offsets]
    spans = [span for span in itertools.pairwise(ends) if span[0] >= since]
    rows = [
        (row["_seq"], row["_op"], {name: row.get(name) for name in names})
        for span in spans
        for row in world.a.changes(*span, ["t"])["t"].read_all().to_pylist()
    ]
    return sorted(rows, key=repr)


def check_copy(world: World, first: dict[int, dict]) -> None:
    copy, key = dict(first), "id"
    for _, op, row in sorted(arrived(world), key=lambda r: (r[0], r[1] != "delete")):
        if op == "delete":
            copy.pop(row[key], None)
        else:
            copy[row[key]] = row
    assert copy == {row[key]: row for row in world.a["t"].to_arrow().to_pylist()}


@pytest.mark.parametrize("rows_max", [1, 5])
@pytest.mark.parametrize("change", CHANGES)
def test_a_query_behind_a_change_of_columns_reads_on_batch_by_batch(
    followed: World, change: Callable[[World], None], rows_max: int
) -> None:
    checkpoint = Checkpoint()
    since = behind(followed, checkpoint, change)
    with run(followed, checkpoint, maxRowsPerTrigger=rows_max) as query:
        assert query.finish() > 1
        assert query.finish() == 0
    check_exact(followed, checkpoint, change, since)
    followed.upsert_w() if change is rename_a_column else followed.upsert()
    with run(followed, checkpoint, maxRowsPerTrigger=rows_max) as query:
        assert query.finish() == 1
    check_exact(followed, checkpoint, change, since)


@pytest.mark.parametrize("change", CHANGES)
def test_a_batch_that_was_logged_before_a_change_of_columns_is_read_after_it(
    followed: World, change: Callable[[World], None]
) -> None:
    checkpoint = Checkpoint()

    def logged_then_changed(world: World) -> None:
        with contextlib.suppress(KilledError), run(world, checkpoint) as query:
            query.finish(("staged", 1))
        change(world)

    since = behind(followed, checkpoint, logged_then_changed)
    assert len(checkpoint.offsets) == len(checkpoint.commits) + 1
    with run(followed, checkpoint) as query:
        assert query.finish() == 2
    check_exact(followed, checkpoint, change, since)


def check_exact(
    world: World, checkpoint: Checkpoint, change: Callable[[World], None], since: int
) -> None:
    if change in WITHIN:
        until = json.loads(checkpoint.offsets[-1])["seq"]
        feed = world.a.changes(since, until, ["t"])["t"].read_all().to_pylist()
        rows = [(r.pop("_seq"), r.pop("_op"), r) for r in feed]
        assert arrived(world) == sorted(rows, key=repr)
    else:
        assert arrived(world) == wanted(world, checkpoint, since)
        with world.a.snapshot(seq=since) as then:
            check_copy(world, {row["id"]: row for row in then["t"].to_arrow().to_pylist()})


def test_a_query_behind_a_table_with_another_type_is_told_both(followed: World) -> None:
    checkpoint = Checkpoint()
    followed.upsert()
    with contextlib.suppress(KilledError), run(followed, checkpoint) as query:
        query.finish(("logged", 1))
    followed.a.drop_table("t")
    followed.a.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    with (
        run(followed, checkpoint) as query,
        pytest.raises(st.SchemaMismatchError, match="'v' of type string, not int64"),
    ):
        query.finish()
    assert followed.b["texts"].count() == 0


def test_a_column_that_comes_while_a_query_catches_up_waits_for_the_next_run(
    followed: World,
) -> None:
    checkpoint = Checkpoint()
    since = behind(followed, checkpoint, add_a_column)
    with run(followed, checkpoint, maxRowsPerTrigger=1) as query:
        assert query.plan()
        query.execute(len(checkpoint.offsets) - 1, None)
        followed.a["t"].add_column("later", "string")
        followed.a["t"].upsert({"id": 2, "v": 2, "later": "y"}, "null")
        query.drain()
    feed = followed.a.changes(since, tables=["t"])["t"].read_all().drop_columns(["later"])
    rows = [(r.pop("_seq"), r.pop("_op"), r) for r in feed.to_pylist()]
    assert arrived(followed) == sorted(rows, key=repr)
