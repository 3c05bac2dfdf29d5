"""A stream from a table to a table is exact, wherever a run of it ends and the next one begins.

Over 400 lines: source and sink are one protocol, driven here without Spark by the same few steps.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.spark.context.options import FeedOptions
from siltstone.spark.streams import feed
from siltstone.spark.writes.writer import PieceWriter
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import own
from tests.cli.shell import Shell
from tests.maintenance.stores import Clock
from tests.spark.followed_stores import (
    SOURCE,
    World,
    as_copy,
    as_log,
    fed,
    followed,
    in_order,
)
from tests.spark.micro_batches import STEPS, Checkpoint, KilledError, Run

HAPPENS = ("upsert", "upsert", "delete", "truncate", "elsewhere", "checkpoint", "merge", "vacuum")
kills = some.none() | some.tuples(some.sampled_from(STEPS), some.integers(0, 6))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some.lists(some.tuples(some.lists(some.sampled_from(HAPPENS), max_size=4), kills)),
       some.sampled_from([None, 1, 5]))  # fmt: skip
def test_each_change_arrives_once_wherever_runs_are_killed(
    steps: list[tuple[list[str], tuple[str, int] | None]], rows_max: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, checkpoint = World(Path(folder)), Checkpoint()
        more = {} if rows_max is None else {"maxRowsPerTrigger": rows_max}
        source = world.source(**more)
        try:
            for happens, kill in [*steps, (["upsert"], None)]:
                for what in happens:
                    getattr(world, what)()
                with contextlib.suppress(KilledError):
                    world.follow(checkpoint, source, kill)
            world.follow(checkpoint, source)
            assert in_order(world.log()) == in_order(fed(world.a, 1))
            tokens = [entry.token for entry in world.b.log(1000) if entry.token]
            assert {app for app, _ in tokens} == {checkpoint.query}
            assert tokens == sorted(set(tokens), reverse=True)
        finally:
            world.close()


def test_a_batch_has_at_most_the_rows_asked_for_or_one_commit(world: World) -> None:
    for n in range(6):
        world.a["t"].upsert([{"id": 10 * n + k, "v": n} for k in range(10)])
    world.a["t"].upsert([{"id": k, "v": 7} for k in range(50)])
    world.a["t"].delete([1, 2, 3])
    checkpoint = Checkpoint()
    world.follow(checkpoint, world.source(maxRowsPerTrigger=25))
    rows = [entry.rows for entry in world.b.log(100) if entry.token][::-1]
    assert rows == [20, 20, 20, 50, 3]
    assert world.follow(checkpoint, world.source(maxRowsPerTrigger=25)) == 0


@pytest.mark.parametrize("start", ["latest", 2])
def test_a_query_that_starts_at_a_seq_has_the_changes_after_it(world: World, start: object) -> None:
    world.upsert()
    world.upsert()
    since = world.a.seq if start == "latest" else 2
    checkpoint = Checkpoint()
    with pytest.raises(KilledError):  # before its first commit
        world.follow(checkpoint, world.source(start), ("logged", 0))
    world.upsert()
    world.delete()
    world.follow(checkpoint, world.source(start))
    changes = world.a.changes(since, tables=["t"])["t"].read_all().to_pylist()
    assert in_order(world.log()) == in_order([tuple(row.values()) for row in changes])


def test_a_query_from_earliest_begins_with_the_rows_of_a_trimmed_past(tmp_path: Path) -> None:
    with st.connect(tmp_path / "a", background=False, retention="0s") as db:
        db.create_table("t", SOURCE, primary_key="id")
        for n in range(4):
            db["t"].upsert([{"id": n, "v": n}, {"id": 9, "v": n}])
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        options = FeedOptions.parse({"uri": str(db.path), "table": "t", "startingSeq": "earliest"})
        db.serve_local()
        reader = feed.FeedReader(options, feed.describe(options))
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = [part.value for part in reader.partitions(start, end)]
        rows = [tuple(r.values()) for task in tasks for b in task.read() for r in b.to_pylist()]
        seq = db.status().oldest_seq
        assert sorted(rows) == [
            (seq, "upsert", *row) for row in [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)]
        ]
        reader.stop()


def as_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.field("_op") == "delete").select(["id"])


def test_a_copy_by_upserts_and_one_by_deletes_follow_the_table(world: World) -> None:
    upserts, deletes = Checkpoint(), Checkpoint()
    copy = world.sink("copy", order_by="version")
    for _ in range(4):
        world.upsert()
        with Run(upserts, world.source(), copy, as_copy) as run:
            run.finish()
        world.delete()
        with Run(deletes, world.source(), world.sink("copy", op="delete"), as_keys) as run:
            run.finish()
    found = world.b["copy"].to_arrow(["id", "v"]).sort_by("id")
    assert found.to_pylist() == world.a["t"].to_arrow().sort_by("id").to_pylist()


def test_of_equal_keys_in_a_batch_the_last_by_order_counts_else_they_are_refused(
    world: World,
) -> None:
    for _ in range(5):
        world.upsert()
    checkpoint = Checkpoint()
    with (
        Run(checkpoint, world.source(), world.sink("copy"), as_copy) as run,
        pytest.raises(st.DuplicateKeyError) as caught,
    ):
        run.finish()
    assert caught.value.table == "copy"
    assert world.b["copy"].count() == 0
    with Run(checkpoint, world.source(), world.sink("copy", order_by="version"), as_copy) as run:
        run.finish()
    found = world.b["copy"].to_arrow(["id", "v"]).sort_by("id")
    assert found.to_pylist() == world.a["t"].to_arrow().sort_by("id").to_pylist()


def test_a_null_key_is_refused_and_nothing_is_written(world: World) -> None:
    def without_keys(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = as_copy(batch)
        return rows.set_column(0, "id", pa.nulls(rows.num_rows, pa.int64()))

    world.upsert()
    with (
        Run(Checkpoint(), world.source(), world.sink("copy"), without_keys) as run,
        pytest.raises(st.SchemaMismatchError, match="id"),
    ):
        run.finish()
    assert world.b["copy"].count() == 0


def test_complete_mode_replaces_all_rows_with_each_batch(world: World) -> None:
    checkpoint, copy = Checkpoint(), world.sink("copy")
    for _ in range(3):
        world.upsert()
        with Run(checkpoint, world.source(), copy, as_copy, is_overwrite=True) as run:
            run.finish()
        newest = world.a["t"].to_arrow(filter=f"v = {world.count}").sort_by("id").to_pylist()
        assert world.b["copy"].to_arrow(["id", "v"]).sort_by("id").to_pylist() == newest


def test_an_aborted_batch_leaves_no_rows_and_spends_no_token(world: World) -> None:
    world.upsert()
    before = set(world.b.path.rglob("*.lance"))
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        run.plan()
        run.checkpoint.commits.add(0)
        run.plan()
        ends = [json.loads(text) for text in run.checkpoint.offsets]
        messages = run.stage(list(run.rows(*ends)))
        assert set(world.b.path.rglob("*.lance")) > before
        run.sink().abort([*messages, None], 1)
        assert set(world.b.path.rglob("*.lance")) == before
        run.drain()
    assert in_order(world.log()) == in_order(fed(world.a, 1))


# the tag


def tags(db: st.Store) -> dict[str, int]:
    return {name: seq for name, seq in db.tags().items() if name.startswith("spark-")}


def test_the_tag_keeps_the_changes_over_a_kill_until_they_are_committed(tmp_path: Path) -> None:
    clock = Clock()
    with followed(tmp_path, clock) as (db, source, sink):
        checkpoint = Checkpoint()
        with (
            contextlib.suppress(KilledError),
            Run(checkpoint, source, sink, as_log) as run,
        ):
            run.finish(("logged", 1))
        assert list(tags(db).values()) == [1]
        for step in range(3):
            clock.move(days=1.5)
            db["t"].upsert([{"id": n, "v": step} for n in range(3)])
            db["t"].truncate()
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        wanted = fed(db, 1)
        with Run(checkpoint, source, sink, as_log) as run:
            run.finish()
        with Run(checkpoint, source, sink, as_log) as run:
            run.finish()
        assert len(tags(db)) == 1
        assert next(iter(tags(db).values())) >= wanted[-1][0]
        found = [tuple(row.values()) for row in db["log"].to_arrow().to_pylist()]
        assert in_order(found) == in_order(wanted)


def test_a_query_gone_for_longer_than_the_tag_lasts_gets_an_error_with_the_oldest_seq(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with followed(tmp_path, clock) as (db, source, sink):
        checkpoint = Checkpoint()
        with Run(checkpoint, source, sink, as_log) as run:
            run.finish()
        assert len(tags(db)) == 1
        for _ in range(3):
            clock.move(days=8)
            db["t"].upsert({"id": 1, "v": 9})
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        assert tags(db) == {}
        with (
            Run(checkpoint, source, sink, as_log) as run,
            pytest.raises(st.SnapshotExpiredError) as caught,
        ):
            run.finish()
        assert caught.value.oldest_seq == db.status().oldest_seq


def test_the_command_line_shows_the_tag_and_takes_it_away(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.upsert()
    world.follow(Checkpoint(), world.source())
    ((name, seq),) = tags(world.a).items()
    shell = Shell(world.a.path, capsys)
    assert shell.json("tag", "ls", "--db", world.a.path) == [{"tag": name, "seq": seq}]
    assert shell("tag", "rm", name, "--yes", "--db", world.a.path) == 0, shell.err
    assert tags(world.a) == {}


def test_an_idle_query_keeps_its_tag_young_and_lets_the_past_go(world: World) -> None:
    now = [0.0]
    world.upsert()
    checkpoint = Checkpoint()
    with Run(checkpoint, world.source(), world.sink(), as_log, clock_s=lambda: now[0]) as run:
        run.finish()
        before = tags(world.a)
        world.elsewhere()
        assert run.finish() == 0
        now[0] += 700
        assert run.finish() == 1
        now[0] += 700
        world.elsewhere()
        assert run.finish() == 1
        after = tags(world.a)
    assert before.keys() == after.keys()
    assert max(after.values()) > max(before.values())


# what changes meanwhile


def test_a_column_that_is_added_comes_with_the_next_run(world: World) -> None:
    world.upsert()
    checkpoint = Checkpoint()
    with Run(checkpoint, world.source(), world.sink(), as_log) as run:
        run.finish()
        world.a["t"].add_column("note", "string")
        world.a["t"].upsert({"id": 50, "v": 1, "note": "x"})
        run.finish()
    assert in_order(world.log()) == in_order([row[:4] for row in fed(world.a, 1)])
    with Run(checkpoint, world.source(), world.sink(), as_log) as run:
        assert run.schema.fieldNames() == ["_seq", "_op", "id", "v", "note"]


def test_a_column_that_is_gone_ends_the_run_by_its_name(world: World) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        run.finish()
        world.a["t"].rename_column("v", "w")
        world.upsert_w()
        with pytest.raises(st.SchemaMismatchError, match="no column 'v'"):
            run.finish()


# owners


def test_a_stream_needs_no_owner(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.upsert()
    world.close()
    checkpoint = Checkpoint()
    assert world.follow(checkpoint, world.source()) == 2
    with st.connect(world.b.path, read_only=True) as db:
        assert db["log"].count() == 4
    with st.connect(world.a.path, read_only=True) as db:
        assert len(tags(db)) == 1


def test_a_batch_that_was_logged_is_read_after_a_power_loss_without_an_owner(
    tmp_path: Path,
) -> None:
    world, checkpoint = World(tmp_path), Checkpoint()
    world.a.checkpoint()
    world.upsert()
    with contextlib.suppress(KilledError):
        world.follow(checkpoint, world.source(), ("logged", 1))
    world.close()
    mark = world.a.path / "wal" / "MARK"  # never synced: what it says may be older than the log
    mark.write_bytes(b"\0" * mark.stat().st_size)
    world.follow(checkpoint, world.source())
    with (
        st.connect(world.a.path, read_only=True) as a,
        st.connect(world.b.path, read_only=True) as b,
    ):
        found = [tuple(row.values()) for row in b["log"].to_arrow().to_pylist()]
        assert in_order(found) == in_order(fed(a, 1))


def test_an_owner_that_serves_nobody_is_named(tmp_path: Path) -> None:
    with st.connect(tmp_path / "a", background=False) as db:
        db.create_table("t", SOURCE, primary_key="id")
        options = FeedOptions.parse({"uri": str(db.path), "table": "t", "startingSeq": "latest"})
        reader = feed.FeedReader(options, feed.describe(options))
    ownership = own(RealFiles(), tmp_path / "a")  # in this process `connect` gives a handle
    ownership.announce(epoch=1 << 20)
    with pytest.raises(st.OwnedError, match="serve_local"):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    ownership.release()


# bad input


def test_what_cannot_be_followed_is_refused(world: World) -> None:
    world.a.create_table("plain", SOURCE)
    for table, kind in (("plain", st.RequestError), ("nope", st.TableNotFoundError)):
        with pytest.raises(kind, match=table):
            feed.describe(FeedOptions.parse({**world.source(), "table": table}))
    with (
        pytest.raises(st.SnapshotExpiredError, match="99"),
        Run(Checkpoint(), world.source(99), world.sink(), as_log) as run,
    ):
        run.finish()
    with (
        Run(Checkpoint(), world.source(), world.sink(), as_log) as run,
        pytest.raises(st.RequestError, match="another source"),
    ):
        run.reader.latestOffset({"version": 1}, run.reader.getDefaultReadLimit())


@pytest.mark.parametrize("table", ["dropped", "renamed"])
def test_a_table_that_is_gone_ends_the_run_by_its_name(world: World, table: str) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        run.drain()
        if table == "dropped":
            world.a.drop_table("t")
        else:
            world.a.rename_table("t", "u")
        with pytest.raises(st.TableNotFoundError, match="no table 't'"):
            run.drain()
    assert len(world.log()) == 4


def test_a_table_that_is_made_anew_arrives_as_deletes_and_its_new_rows(world: World) -> None:
    world.upsert()
    checkpoint = Checkpoint()
    with Run(checkpoint, world.source(), world.sink(), as_log) as run:
        run.drain()
        world.a.drop_table("t")
        world.a.create_table("t", SOURCE, primary_key="id")
        world.upsert()
        run.drain()
    rows: dict[int, int] = {}
    for _, op, key, value in sorted(world.log()):
        rows.pop(key, None) if op == "delete" else rows.update({key: value})
    assert rows == {row["id"]: row["v"] for row in world.a["t"].to_arrow().to_pylist()}


# what happens to the target between the last task and the commit


def staged(world: World, run: Run) -> tuple[list, int]:
    run.drain()
    world.upsert()
    assert run.plan()
    offsets = run.checkpoint.offsets
    batch = run.rows(json.loads(offsets[-2]), json.loads(offsets[-1]))
    return run.stage(list(batch)), len(offsets) - 1


def test_a_target_that_got_a_column_or_lost_its_rows_takes_the_batch(world: World) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        batch = staged(world, run)
        world.b["log"].add_column("extra", "string")
        run.commit(*batch)
    assert world.b["log"].count() == 8
    with Run(Checkpoint(), world.source(), world.sink("copy", order_by="version"), as_copy) as run:
        batch = staged(world, run)
        world.b["copy"].truncate()
        run.commit(*batch)
    assert world.b["copy"].count() == 4


def test_a_target_that_is_dropped_is_named_and_nothing_is_written(world: World) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        batch = staged(world, run)
        world.b.drop_table("log")
        with pytest.raises(st.TableNotFoundError, match="no table 'log'"):
            run.commit(*batch)
    assert "log" not in world.b.tables()


def test_a_batch_that_is_aborted_or_committed_again_after_its_commit_stays_as_it_is(
    world: World,
) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        batch = staged(world, run)
        run.commit(*batch)
        before = world.log()
        run.sink().abort(*batch)
        run.commit(*batch)
    assert world.log() == before
    assert len(before) == 8
    world.b.checkpoint()
    assert world.b.verify(deep=True).is_sound


def test_batches_may_leave_numbers_out_but_never_go_back(world: World) -> None:
    world.upsert()
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        messages, _ = staged(world, run)
        run.commit(messages, 7)
        with pytest.raises(st.RequestError, match="was never applied and the app is at batch 7"):
            run.commit(messages, 5)
    assert world.b["log"].count() == 8


def test_a_sink_travels_to_executors_as_what_stages_the_rows_of_its_batch(world: World) -> None:
    with Run(Checkpoint(), world.source(), world.sink(), as_log) as run:
        assert isinstance(pickle.loads(pickle.dumps(run.sink())), PieceWriter)
