"""What is leased stays whole: for readers at any distance below the newest record, at any moment.

A lease that is asked for a line too early, or one record off, is met by chance alone. So a vacuum
goes by before each line that a reader beside the owner runs while it looks for what is new, and
views are held at each distance below the record of a merge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.admin import follow_vacuum
from siltstone.api.store import Store
from siltstone.engine.recover.following import Follower
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.maintenance.stores import Clock, env_of, open_store, rows
from tests.support.traced import EveryLine

KEYED = {"id": "int64", "v": "int64"}
LOOK = (
    Follower.state,
    Follower._look,
    ManifestStore.lease_newest,
    ManifestStore.lease,
    ManifestStore._shared,
    ManifestStore._is_kept,
)
COUNT = (
    Vacuum._run,
    Vacuum._settled,
    Vacuum._census,
    Vacuum._unlink,
)
LINES_MIN = 25


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(tmp_path: Path, clock: Clock):
    with open_store(tmp_path / "s", clock, retention_s=0) as store:
        store.create_table("t", KEYED, primary_key="id")
        store.create_table("p", KEYED)
        generation(store, 0)
        yield store


def write(db: Store, step: int) -> None:
    db["t"].upsert([{"id": n, "v": step} for n in range(3)])
    db["p"].overwrite([{"id": step, "v": step}])


def generation(db: Store, step: int) -> None:
    """Publish two records: of a checkpoint, and of a merge."""
    write(db, step)
    db.checkpoint()
    db.merge()


def attach(db: Store) -> None:
    """Commit rows of `t` in files that a frame alone names."""
    definition, table_schema = db["t"]._table_schema()
    more = pa.table({"id": [100, 101], "v": [7, 7]})
    load(db._core, definition, table_schema, more, may_repeat=True, bytes_min=1)


Lines = set[tuple[CodeType, int, int]]


class AtNewLine:
    """Calls `meddle` once, before the first line of `functions` that is not in `seen` yet.

    A line counts twice: what goes wrong the second time that it runs may be something else.
    """

    def __init__(
        self, seen: Lines, meddle: Callable[[], object], *functions: Callable[..., object]
    ) -> None:
        self._seen, self._meddle = seen, meddle
        self._runs: Counter[tuple[CodeType, int]] = Counter()
        self._lines = EveryLine(self._line, *functions)
        self.has_meddled = False

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__()

    def _line(self, frame: FrameType) -> None:
        line = frame.f_code, frame.f_lineno
        self._runs[line] += 1
        at = (*line, min(2, self._runs[line]))
        if not self.has_meddled and at not in self._seen:
            self._seen.add(at)
            self.has_meddled = True
            self._meddle()


def answers(source) -> list[list[tuple]]:
    return [rows(source[name]) for name in ("t", "p")]


@pytest.mark.parametrize("is_beside", [False, True], ids=["owner", "beside"])
@pytest.mark.parametrize("above", range(5))
def test_a_view_at_any_distance_below_the_newest_record_keeps_what_it_names(
    db: Store, clock: Clock, above: int, is_beside: bool
) -> None:
    attach(db)
    reader = open_store(db.path, read_only=True) if is_beside else db
    expected = answers(db)
    snapshot = reader.snapshot()  # it has read nothing yet
    db.checkpoint()
    for step in range(1, 1 + above):
        (db.checkpoint, db.merge)[step % 2]()
        db["t"].upsert({"id": step, "v": -step})
        db["p"].append({"id": -step, "v": step})
    clock.move(seconds=3_600)  # all files are old
    for _ in range(2):
        db.vacuum(dry_run=False, grace_s=0)
        assert answers(snapshot) == expected
    if is_beside:
        reader.close()


@pytest.mark.parametrize("above", range(1, 6))
def test_a_leased_record_keeps_the_past_that_it_reads_at_any_distance_below_the_floor(
    tmp_path: Path, clock: Clock, above: int
) -> None:
    with open_store(tmp_path / "s", clock, retention_s=86_400) as db:
        db.create_table("t", KEYED, primary_key="id")
        db.create_table("p", KEYED)
        generation(db, 0)
        write(db, 1)
        db.checkpoint()
        reader = open_store(db.path, read_only=True)
        snapshot, expected = reader.snapshot(), answers(db)
        leased = db._parts.site.manifests.newest()
        for step in range(1, 1 + above):  # a merge is the next record
            if step % 2:
                db.merge()
            else:
                write(db, step)
                db.checkpoint()
        floor = db._parts.site.manifests.newest().number
        clock.move(days=2)
        write(db, 9)
        db.checkpoint()
        report = db.vacuum(dry_run=False, grace_s=0)
        assert (report.floor, floor - leased.number) == (floor, above)
        assert f"record {leased.number}: leased" in report.spared
        (kept,) = db._parts.site.manifests.newest().keyed
        assert kept.history_from <= leased.keyed[0].merged_seq
        assert answers(snapshot) == expected
        reader.close()


def test_a_reader_sees_a_whole_store_at_whatever_line_of_its_look_a_vacuum_goes_by(
    db: Store,
) -> None:
    step, lines, is_over = 0, Lines(), False

    def meddle() -> None:
        db.merge()  # what was newest goes, and the log that it needs is still there
        db.vacuum(dry_run=False, grace_s=0)

    with open_store(db.path, read_only=True) as reader:
        while not is_over:
            step += 1
            write(db, step)
            db.checkpoint()
            with AtNewLine(lines, meddle, *LOOK) as at:
                snapshot = reader.snapshot()
            is_over = not at.has_meddled
            meddle()
            assert answers(snapshot) == [[(n, step) for n in range(3)], [(step, step)]]
            snapshot.close()
    assert len(lines) > LINES_MIN


def test_a_tag_that_is_set_at_any_line_of_a_vacuum_keeps_its_seq_or_is_refused(
    db: Store, clock: Clock
) -> None:
    """Its lease ends as the tag is there, and the owner knows nothing of the vacuum."""
    step, lines, is_over = 0, Lines(), False
    while not is_over:
        step += 1
        generation(db, step)
        expected, snapshot = answers(db), db.snapshot()
        generation(db, -step)
        tags: list[str] = []

        def tag(then: st.Snapshot = snapshot, done: list[str] = tags) -> None:
            with suppress(st.SnapshotExpiredError):
                db.tag("late", then.seq)
                done.append("late")
            then.close()
            db._parts.owner.checkpointer.renew()

        with AtNewLine(lines, tag, *COUNT) as at:
            follow_vacuum(db.path, db.options, env_of(clock), dry_run=False, grace_s=0)
        is_over = not at.has_meddled
        for name in tags:
            with db.snapshot(tag=name) as then:
                assert answers(then) == expected
            db.untag(name)
        snapshot.close()
    assert len(lines) > LINES_MIN
