"""After a vacuum each range of changes is answered whole, as before it, or refused as expired.

What is kept begins at the oldest seq, or at the oldest tag for a time: from there on all versions
and all definitions are known. A tag below it is an island: it can be read, and no feed leads away
from it. A feed from seq 0 begins with the rows of one seq, where the past of a table is not known
to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.engine.read.kept import kept_from
from siltstone.joined.store import JoinedStore
from siltstone.maintenance.flush.bulk_load import load
from siltstone.query.changes.change_task import ChangeTask
from tests.cli.shell import Shell
from tests.maintenance.stores import Clock, open_store
from tests.query.test_changes_of_names import apply, copies
from tests.server.rest import Rest
from tests.server.stores import joined_to

SCHEMA = {"id": "int64", "v": "int64"}
Feeds = dict[str, list[dict[str, Any]]]


def rename_and_add_columns(db: st.Store, settle: Callable[[], object]) -> None:
    """A column's name passes to another one: read by the wrong names, values move."""
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.upsert([{"id": n, "v": n} for n in range(3)])
    settle()
    table.rename_column("v", "w")
    table.add_column("v", "int64")
    table.upsert([{"id": 1, "w": 10, "v": 100}, {"id": 5, "w": 50, "v": 500}])
    settle()
    table.drop_column("w")
    table.delete(2)
    table.rename_column("v", "w")
    table.upsert({"id": 6, "w": 6})
    settle()
    table.upsert({"id": 7, "w": 7})


def truncate_again_and_again(db: st.Store, settle: Callable[[], object]) -> None:
    table = db.create_table("t", SCHEMA, primary_key="id")
    for step in range(4):
        table.upsert([{"id": n, "v": step} for n in range(step + 2)])
        table.delete(0)
        settle()
        table.truncate()
    table.upsert({"id": 9, "v": 9})
    settle()


def tables_that_come_and_go(db: st.Store, settle: Callable[[], object]) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert([{"id": n, "v": n} for n in range(3)])
    db.create_table("u", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    settle()
    db.rename_table("t", "x")
    db.rename_table("u", "t")
    settle()
    db["t"].upsert({"id": 2, "v": 20})
    db.drop_table("x")
    settle()
    db.create_table("x", SCHEMA, primary_key="id").upsert({"id": 4, "v": 4})
    settle()
    db["x"].upsert({"id": 5, "v": 5})
    db.drop_table("t")


def bulk_loads(db: st.Store, settle: Callable[[], object]) -> None:
    """What is loaded at once goes straight to base: the feed reads it from there."""
    table = db.create_table("t", SCHEMA, primary_key="id")
    table.rename_column("v", "w")
    load_into(db, "t", [{"id": n, "w": n} for n in range(5)])
    settle()
    table.add_column("v", "int64")
    table.upsert({"id": 1, "w": 1, "v": 1})
    settle()
    table.truncate()
    load_into(db, "t", [{"id": n, "w": 2 * n, "v": n} for n in range(3)])
    settle()
    table.rename_column("w", "x")
    settle()
    table.delete([0, 2])


def load_into(db: st.Store, name: str, rows: list[dict[str, int]]) -> None:
    definition, table_schema = db[name]._table_schema()
    load(db._core, definition, table_schema, rows, may_repeat=True, bytes_min=1)


LIVES = [rename_and_add_columns, truncate_again_and_again, tables_that_come_and_go, bulk_loads]


class Life:
    """A store, and what its feeds said before each vacuum."""

    def __init__(
        self, path: Path, tagged: str, *, days: float = 1.5, real_lance: bool = False
    ) -> None:
        self.path, self.clock = path, Clock()
        kept_s = int(days * 86_400)
        self.db = open_store(path, self.clock, retention_s=kept_s, real_lance=real_lance)
        self._tagged, self._steps = tagged, 0

    def settle(self) -> None:
        """Merge and look at a part of it from a new record, which is old a day later."""
        self._steps += 1
        if self._steps == 1 and self._tagged == "island":
            self.db.tag("audit")
        if self._steps == 1 and self._tagged == "followed":
            self.db.tag("stream", lasts="400d")
        self.db.checkpoint()
        if self._steps % 2:
            self.db.merge()
        self.clock.move(days=1)

    def vacuum(self) -> None:
        self.db.vacuum(dry_run=False, grace_s=0)

    @property
    def kept(self) -> int:
        return kept_from(self.db._core.state())


def feeds_of(db: st.Store | JoinedStore, since: int, until: int) -> Feeds:
    found = db.changes(since, until)
    return {name: feed.read_all().to_pylist() for name, feed in found.items()}


def ranges(seq: int) -> Iterator[tuple[int, int]]:
    yield from ((since, until) for until in range(seq + 1) for since in range(until + 1))


@pytest.fixture(params=["alone", "island", "followed"])
def tagged(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("live", LIVES)
def test_each_range_of_changes_is_as_before_the_vacuum_or_expired(
    tmp_path: Path, live: Callable[..., None], tagged: str
) -> None:
    life = Life(tmp_path / "db", tagged)
    with life.db as db:
        live(db, life.settle)
        before = {span: feeds_of(db, *span) for span in ranges(db.seq)}
        then = [copies(db, seq) for seq in range(db.seq + 1)]
        last = db.seq
        life.vacuum()
        kept = life.kept
        assert 0 < kept < last
        for since, until in ranges(last):
            if until < kept or 0 < since < kept:
                with pytest.raises(st.SnapshotExpiredError) as found:
                    db.changes(since, until)
                assert f"seq {until if until < kept else since}:" in str(found.value)
                assert found.value.oldest_seq == kept
            elif since:
                assert feeds_of(db, since, until) == before[since, until], (since, until)
            else:
                check_beginning(feeds_of(db, 0, until), before[0, until], then[until], kept)


def check_beginning(feeds: Feeds, before: Feeds, then: dict, kept: int) -> None:
    """A feed for who has nothing: the rows of one seq, and then all versions after it."""
    assert sorted(feeds) == sorted(then)
    for name, rows in feeds.items():
        assert apply({}, iter([dict(row) for row in rows])) == then[name]
        snapshot = [row for row in rows if row["_op"] == "snapshot"]
        assert snapshot == rows[: len(snapshot)]
        begins = {row["_seq"] for row in snapshot} or {0, kept}
        assert max(begins) <= kept
        after = [[row for row in before[name] if row["_seq"] > begin] for begin in begins]
        assert rows[len(snapshot) :] in after, (name, begins)


@pytest.mark.parametrize("live", LIVES)
def test_tasks_and_counts_are_refused_where_the_feed_is(
    tmp_path: Path, live: Callable[..., None], tagged: str
) -> None:
    life = Life(tmp_path / "db", tagged, real_lance=True)
    with life.db as db:
        live(db, life.settle)
        last = db.seq
        life.vacuum()
        for since, until in [*ranges(last)][:: max(1, last // 5)]:
            try:
                feeds = feeds_of(db, since, until)
            except st.SnapshotExpiredError:
                check_refused(db, since, until)
            else:
                check_tasks(db, since, until, feeds)
        oldest, tags = db.status().oldest_seq, set(db.tags().values())
        for seq in range(1, last + 1):
            for name in ("t", "x"):
                check_begin(db, name, seq, is_kept=seq >= oldest or seq in tags)


def check_refused(db: st.Store, since: int, until: int) -> None:
    for name in ("t", "x"):
        with pytest.raises(st.SnapshotExpiredError):
            db.change_tasks(name, since, until)
        with pytest.raises(st.SnapshotExpiredError):
            db.changes_upto(name, since, 10, until)


def check_tasks(db: st.Store, since: int, until: int, feeds: Feeds) -> None:
    for name, rows in feeds.items():
        tasks = db.change_tasks(name, since, until, rows_max=2)
        assert in_order(rows_of_tasks(tasks)) == in_order(rows), (since, until)
        assert db.changes_upto(name, since, 1000, until) == (until, len(rows))


def check_begin(db: st.Store, name: str, seq: int, *, is_kept: bool) -> None:
    """A stream that begins at a seq has the rows of then, or is told that they are gone."""
    if not is_kept:
        with pytest.raises(st.SnapshotExpiredError):
            db.change_tasks(name, seq, seq, begins=True)
    elif name in copies(db, seq):
        rows = rows_of_tasks(db.change_tasks(name, seq, seq, begins=True))
        assert apply({}, iter(rows)) == copies(db, seq)[name]


def rows_of_tasks(tasks: list[ChangeTask]) -> list[dict[str, Any]]:
    return [row for task in tasks for batch in task.read() for row in batch.to_pylist()]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_seq"], row["id"], row["_op"], repr(row)))


@pytest.mark.parametrize("live", LIVES)
def test_what_was_planned_before_a_vacuum_is_read_whole_after_it_or_refused(
    tmp_path: Path, live: Callable[..., None], tagged: str
) -> None:
    """A batch of Spark that is tried again after hours."""
    life = Life(tmp_path / "db", tagged, real_lance=True)
    with life.db as db:
        live(db, life.settle)
        names = [name for name in ("t", "x") if name in db.tables()]
        spans = [(name, since) for name in names for since in range(db.seq)]
        planned = {span: db.change_tasks(*span, rows_max=2) for span in spans}
        streams = {span: db.changes(span[1], tables=[span[0]])[span[0]] for span in spans}
        wanted = {span: feeds_of(db, span[1], db.seq)[span[0]] for span in spans}
        for _ in range(2):
            db.create_table(f"n{db.seq}", SCHEMA, primary_key="id")
            life.settle()
            life.settle()
            life.vacuum()
        for span, tasks in planned.items():
            for read in (
                lambda tasks=tasks: rows_of_tasks(tasks),
                lambda stream=streams[span]: stream.read_all().to_pylist(),
            ):
                try:
                    rows = read()
                except st.SnapshotExpiredError:
                    continue
                assert in_order(rows) == in_order(wanted[span]), span


def test_other_doors_refuse_what_the_owner_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(tmp_path / "db", "island", real_lance=True)
    with life.db as db, ExitStack() as open_:
        rename_and_add_columns(db, life.settle)
        life.vacuum()
        kept, last = life.kept, db.seq
        joined = open_.enter_context(joined_to(db))
        reader = open_.enter_context(open_store(life.path, read_only=True, real_lance=True))
        rest = Rest(db.serve(port=0))
        open_.callback(rest.close)
        for other in (joined, reader):
            for since, until in ((0, kept - 1), (1, last), (kept - 1, kept)):
                with pytest.raises(st.SnapshotExpiredError):
                    other.changes(since, until)
                with pytest.raises(st.SnapshotExpiredError):
                    other.change_tasks("t", since, until)
            assert feeds_of(other, kept, last) == feeds_of(db, kept, last)
        for since, until in ((0, kept - 1), (1, last)):
            answer = rest.get(f"/v1/changes?since={since}&until={until}&tables=t")
            assert answer.status in (400, 404, 410), answer.body
            assert f"keeps seq {kept}" in answer.json["error"]
        life.db.checkpoint()
        shell = Shell(life.path, capsys)
        for past in (["--until", kept - 1], ["--tag", "audit"], ["--since", "1"]):
            assert shell("changes", "--db", life.path, *past) == 3
            assert f"keeps seq {kept}" in shell.err
        assert shell("changes", "--db", life.path, "--since", kept) == 0


@pytest.mark.parametrize("live", LIVES)
def test_the_log_of_commits_is_told_whatever_of_their_tables_is_gone(
    tmp_path: Path, live: Callable[..., None], tagged: str
) -> None:
    life = Life(tmp_path / "db", tagged)
    with life.db as db:
        live(db, life.settle)
        before = {entry.seq: entry for entry in db.log(1000)}
        life.vacuum()
        kept = life.kept
        found = {entry.seq: entry for entry in db.log(1000)}
        assert sorted(found) == list(range(min(found), db.seq + 1))
        for seq, entry in found.items():
            if seq not in before:
                continue
            assert len(entry.tables) == len(before[seq].tables)
            assert (entry.time, entry.rows) == (before[seq].time, before[seq].rows)
            if seq >= kept:
                assert entry.tables == before[seq].tables


def test_a_table_that_nothing_remembers_is_told_by_its_number(tmp_path: Path) -> None:
    life = Life(tmp_path / "db", "alone", days=0)
    with life.db as db:
        db.create_table("first", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        db.tag("audit", 1)
        db.create_table("gone", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        db.drop_table("gone")
        db["first"].truncate()
        db["first"].upsert({"id": 2, "v": 2})
        db["first"].truncate()
        life.settle()
        life.settle()
        life.vacuum()
        told = [entry.tables for entry in reversed(db.log()) if entry.rows]
        assert told == [("first",), ("#2",), ("#3",)]
