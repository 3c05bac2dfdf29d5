# pyright: basic
"""The log of commits has a bounded number of parts, and every commit in it answers as before."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from siltstone.errors import RequestError, SnapshotExpiredError, UnavailableError
from siltstone.local.store import LocalStore
from siltstone.maintenance.backup.restore import Restorer
from siltstone.maintenance.flush.commit_parts import (
    COMMIT_PARTS_MAX,
    JOINED_MAX,
    groups_of,
    joined,
    put_on,
)
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from tests.engine.seams import HookedTables, fake_env
from tests.engine.seams import open_store as open_hooked
from tests.maintenance.stores import Clock, env_of, rows
from tests.nightly import by_day

KEYED = {"id": "int64", "v": "int64"}
PARTS_MAX = 4
Sizes = list[int]
Spans = list[tuple[int, int]]


def spans_of(rows: Sizes) -> Spans:
    found, start = [], 0
    for each in rows:
        found.append((start, start + each))
        start += each
    return found


def joined_once(rows: Sizes, parts_max: int) -> tuple[Sizes, int]:
    """Return the rows of the parts after one checkpoint joined some, and how many it wrote."""
    spans = spans_of(rows)
    groups = groups_of(spans, parts_max)
    assert all(len(group) > 1 for group in groups)
    gone = {span for group in groups for span in group}
    made = [(group[0][0], group[-1][1]) for group in groups]
    left = sorted([*made, *(span for span in spans if span not in gone)])
    assert [end for _, end in left[:-1]] == [first for first, _ in left[1:]]
    return [end - first for first, end in left], sum(end - first for first, end in made)


def test_a_year_of_checkpoints_has_a_bounded_number_of_parts_and_rewrites_few_rows():
    parts: Sizes = []
    written, most = 0, 0
    count = 20_000
    for _ in range(count):
        parts, wrote = joined_once(parts, COMMIT_PARTS_MAX)
        parts.append(50)
        written, most = written + wrote, max(most, len(parts))
    assert most <= COMMIT_PARTS_MAX
    assert written <= 12 * 50 * count
    assert max(parts) <= 2 * sum(parts) / 16


@given(some.lists(some.sampled_from([1, 2, 50, 3_000, 70_000, 900_000]), max_size=400))
@settings(max_examples=by_day(30, 100))
def test_whatever_checkpoints_bring_the_parts_stay_bounded(rows: Sizes):
    parts: Sizes = []
    for each in rows:
        parts, _ = joined_once(parts, COMMIT_PARTS_MAX)
        parts.append(each)
        assert len(parts) <= COMMIT_PARTS_MAX


def test_large_and_small_parts_in_turn_are_bounded_too():
    parts: Sizes = []
    for index in range(2_000):
        parts, _ = joined_once(parts, COMMIT_PARTS_MAX)
        parts += [1 << (index % 20)]
    assert len(parts) <= COMMIT_PARTS_MAX


def test_a_log_of_thousands_of_parts_is_joined_over_some_checkpoints():
    parts = [1] * 10_000
    steps = 0
    while len(parts) >= COMMIT_PARTS_MAX:
        before = len(parts)
        parts, _ = joined_once(parts, COMMIT_PARTS_MAX)
        assert before - len(parts) <= 2 * JOINED_MAX
        steps += 1
    assert steps < 20


class Logged:
    """A store whose every commit is a part of the log of commits, until a checkpoint joins some."""

    def __init__(self, root: Path, *, real_lance: bool, retention_s: float = 604_800) -> None:
        self.clock, self.real_lance, self.retention_s = Clock(), real_lance, retention_s
        self.ids: dict[int, str] = {}
        self.times: dict[int, dt.datetime] = {}
        self.shown: dict[int, list] = {}
        self.root = root
        self.db = self.opened()
        self.db.create_table("t", KEYED, primary_key="id")

    def opened(self, root: Path | None = None, *, read_only: bool = False) -> LocalStore:
        env = env_of(self.clock, real_lance=self.real_lance)
        options = Options(background=False, segment_bytes=65_536, retention_s=self.retention_s)
        env = replace(env, commit_parts_max=PARTS_MAX)
        return LocalStore.open(root or self.root, options, env=env, read_only=read_only)

    def write(self, count: int) -> None:
        for value in range(count):
            self.clock.move(seconds=60)
            with self.db.transaction(token=("app", self.db.seq)) as tx:
                tx["t"].upsert({"id": value % 3, "v": self.db.seq})
            assert tx.receipt is not None
            self.ids[tx.receipt.seq] = tx.receipt.transaction_id
            self.times[tx.receipt.seq] = self.db.log(limit=1)[0].time
            self.shown[tx.receipt.seq] = rows(self.db["t"])
            self.db.checkpoint()

    def check(self, db: LocalStore) -> None:
        """Each commit is known by its id, its token and its time."""
        self.clock.move(seconds=60)
        log = {entry.seq: entry for entry in db.log(limit=1000)}
        for seq, name in self.ids.items():
            assert db.outcome(name) == "committed"
            assert (log[seq].transaction, log[seq].token) == (name, ("app", seq - 1))
            assert (log[seq].time, log[seq].tables, log[seq].rows) == (self.times[seq], ("t",), 1)
            with db.snapshot(at=self.times[seq] + dt.timedelta(seconds=30)) as past:
                assert (past.seq, rows(past["t"])) == (seq, self.shown[seq])

    @property
    def pin(self):
        return self.db._parts.site.manifests.newest().commits

    @property
    def spans(self) -> Spans:
        return self.db._core.tables.reader.open(self.pin).spans

    @property
    def seqs(self) -> list[tuple[int, int]]:
        """The seqs of each part, by its file."""
        files = self.db._core.tables.reader.files(self.pin)
        return sorted(file.seqs for file in files if file.seqs is not None)


@pytest.fixture(params=[False, True], ids=["fake", "real"])
def real_lance(request):
    return request.param


@pytest.fixture
def logged(tmp_path: Path, real_lance):
    made = Logged(tmp_path / "db", real_lance=real_lance)
    yield made
    made.db.close()


def test_each_commit_of_joined_parts_is_found_by_id_token_and_time(logged):
    logged.write(11)
    assert len(logged.spans) < PARTS_MAX + 1 < 11
    logged.check(logged.db)
    with pytest.raises(RequestError):
        logged.db.outcome("999-1")
    logged.db.close()
    logged.db = logged.opened()
    logged.check(logged.db)
    with logged.db.transaction(token=("app", 3)) as tx:
        assert tx.is_applied
    assert logged.db.verify(deep=True).findings == ()


def test_joined_parts_follow_each_other_by_seq(logged):
    logged.write(11)
    seqs = logged.seqs
    assert (seqs[0][0], seqs[-1][1]) == (1, logged.db.seq)
    assert [high + 1 for _, high in seqs[:-1]] == [low for low, _ in seqs[1:]]
    opened = logged.db._core.tables.reader.open(logged.pin)
    found = [seq for batch in opened.scan(["seq"]) for seq in batch.column("seq").to_pylist()]
    assert found == list(range(1, logged.db.seq + 1))


def test_a_reader_of_an_older_record_reads_on_while_parts_are_joined_and_vacuumed(logged):
    logged.write(3)
    with logged.opened(read_only=True) as reader, logged.db.snapshot() as snapshot:
        before = [entry.seq for entry in reader.log(limit=1000)]
        ids = dict(logged.ids)
        logged.write(9)
        logged.db.vacuum(dry_run=False, grace_s=0)
        assert snapshot["t"].count() == 3
        assert [reader.outcome(name) for name in ids.values()] == ["committed"] * len(ids)
        assert [e.seq for e in reader.log(limit=1000)][-len(before) :] == before
    logged.db.vacuum(dry_run=False, grace_s=0)
    logged.check(logged.db)


def test_a_backup_and_its_restore_have_the_joined_parts(logged, tmp_path):
    logged.write(9)
    logged.db.backup(tmp_path / "b")
    site = logged.db._parts.site
    restorer = Restorer(RealFiles(), tmp_path / "b", now_us=logged.clock, new_token=site.new_token)
    restorer.run(tmp_path / "r")
    with logged.opened(tmp_path / "r") as again:
        again.checkpoint()
        for name in logged.ids.values():
            assert again.outcome(name) == "committed"
        assert [e.seq for e in again.log(limit=1000)][-10:] == list(range(10, 0, -1))
        assert again.verify(deep=True).findings == ()


def test_vacuum_drops_whole_joined_parts_below_the_retention(tmp_path, real_lance):
    logged = Logged(tmp_path / "db", real_lance=real_lance, retention_s=0)
    with logged.db:
        logged.write(8)
        (low, high), *_ = logged.seqs
        assert high > low
        logged.db.merge()
        logged.write(1)
        logged.db.merge()
        for _ in range(2):
            logged.db.vacuum(dry_run=False, grace_s=0)
        assert logged.seqs[0][0] > high
        with pytest.raises(SnapshotExpiredError):
            logged.db.outcome(logged.ids[high])
        assert logged.db.outcome(logged.ids[logged.db.seq]) == "committed"


def test_parts_that_a_vacuum_dropped_meanwhile_are_not_brought_back(logged):
    logged.write(PARTS_MAX - 2)
    tables, pin = logged.db._core.tables, logged.pin
    made = joined(tables, pin, 2)
    assert made
    trimmed = tables.rewriter.rewrite(pin, drop=np.array([0]), batches=())
    assert put_on(tables, trimmed, made) == trimmed
    assert len(tables.reader.open(put_on(tables, pin, made)).spans) == 1


def test_a_damaged_part_stays_apart_and_keeps_no_row_in_the_log(tmp_path, caplog):
    logged = Logged(tmp_path / "db", real_lance=True)
    logged.write(PARTS_MAX - 1)
    files = logged.db._core.tables.reader.files(logged.pin)
    (first,) = [file.path for file in files if file.seqs is not None and file.seqs[0] == 1]
    logged.db.close()
    for path in (tmp_path / "db" / first).parent.glob("*.lance"):
        if path.samefile(tmp_path / "db" / first):
            data = bytearray(path.read_bytes())
            data[40] ^= 1
            path.write_bytes(data)
    logged.db = logged.opened()
    with logged.db, caplog.at_level(logging.WARNING):
        for value in range(2):  # without tokens, for which the damaged part would be read
            logged.db["t"].upsert({"id": value, "v": value})
            logged.db.checkpoint()
        record = logged.db._core.state().view.record
        assert record.flushed_seq == logged.db.seq
        assert len(logged.spans) > PARTS_MAX
        assert "stay apart" in caplog.text
        assert first in caplog.text
        assert any(first in str(each) for each in logged.db.verify(deep=True).findings)


def test_without_space_to_join_parts_a_checkpoint_flushes_all_the_same(tmp_path):
    hooked: list[HookedTables] = []
    env = replace(fake_env(hooked=hooked), commit_parts_max=PARTS_MAX)

    def refuse(*_: object) -> None:
        raise UnavailableError("No space left on device")

    with open_hooked(tmp_path / "db", env) as db:
        db.create_table("t", KEYED, primary_key="id")
        hooked[0].hooks["compact"] = refuse
        for value in range(PARTS_MAX + 2):
            db["t"].upsert({"id": value, "v": value})
            assert db.checkpoint().flushed_seq == db.seq
        commits = db._core.state().view.record.commits
        assert len(db._core.tables.reader.open(commits).spans) == PARTS_MAX + 2
        hooked[0].hooks.clear()
        db["t"].upsert({"id": 0, "v": 0})
        db.checkpoint()
        commits = db._core.state().view.record.commits
        assert len(db._core.tables.reader.open(commits).spans) == 2
