"""A tagged seq, and each kept one, answers what it did, whichever records serve its tables."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as hs

import siltstone as st
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.maintenance.backup.backup import Backuper
from siltstone.maintenance.backup.restore import Restorer
from siltstone.maintenance.flush.bulk_load import load
from siltstone.maintenance.thinning import BOUNDS, Bounds
from tests.maintenance.stores import EAGER, Clock, open_store, rows

KEYED = {"id": "int64", "v": "int64"}
TABLES = ("a", "b")
ON_A_TABLE = ("load", "stage", "upsert", "delete", "truncate", "alter", "recreate", "merge_one")
ON_A_SEQ = ("tag", "tag", "tag", "hold")
ON_THE_STORE = ("checkpoint", "merge", "vacuum", "hour", "day", "untag", "release", "reopen")
STEPS = hs.one_of(
    hs.tuples(hs.sampled_from(ON_A_TABLE), hs.sampled_from(TABLES)),
    hs.tuples(hs.sampled_from(ON_A_SEQ), hs.integers(0, 5)),
    hs.tuples(hs.sampled_from(ON_THE_STORE)),
)
MERGES = [("upsert", "a"), ("merge",), ("upsert", "b"), ("merge",)]
LATER = [("day",), ("day",), *MERGES, ("vacuum",)]


def load_into(db, name: str, value: int, ids=range(5)) -> None:
    """Load rows in files of their own: straight to base, if the table never had a row."""
    table = catalogs.find(db._core.state().view.catalog, name)
    schema = table_schema_of(catalogs.schema_of(table))
    batch = pa.table({"id": [*ids], "v": [value] * len([*ids])})
    load(db._core, table, schema, batch, may_repeat=True, bytes_min=1)


def shown(source) -> dict:
    return {name: (source[name].schema.names, rows(source[name])) for name in source.tables()}


class Past:
    """A store with two keyed tables, and what each of its seqs showed when it was the newest."""

    def __init__(self, root: Path, bounds: Bounds = BOUNDS, retention_s: float = 86_400) -> None:
        self.root, self.clock, self.count = root, Clock(), 0
        self.options = {"load_rows_min": 2, "bounds": bounds, "retention_s": retention_s}
        self.answers: dict[int, dict] = {}
        self.held: list[st.Snapshot] = []
        self.db = open_store(root, self.clock, **self.options)
        for name in TABLES:
            self.db.create_table(name, KEYED, primary_key="id")
            self.note()

    def note(self) -> None:
        self.answers[self.db.seq] = shown(self.db)

    def play(self, steps) -> None:
        for what, *on in steps:
            self.count += 1
            getattr(self, what)(*on)
            self.note()

    def load(self, name: str) -> None:
        load_into(self.db, name, self.count, [(self.count + n) % 7 for n in range(3)])

    def stage(self, name: str) -> None:
        task = self.db.stage(name, missing="null")
        names = [field for field in self.db[name].schema.names if field not in KEYED]
        rows = {"id": [self.count % 7, 9], "v": [self.count] * 2} | {n: [0, 0] for n in names}
        piece = task.run_through(self.db._core.tables.writer, pa.table(rows))
        with self.db.transaction() as tx:
            tx.attach(task, [piece])

    def upsert(self, name: str) -> None:
        rows = [{"id": (self.count + n) % 7, "v": self.count} for n in range(3)]
        self.db[name].upsert(rows, missing="null")

    def delete(self, name: str) -> None:
        self.db[name].delete(self.count % 7)

    def truncate(self, name: str) -> None:
        self.db[name].truncate()

    def alter(self, name: str) -> None:
        extra = [field for field in self.db[name].schema.names if field not in KEYED]
        if extra:
            self.db[name].drop_column(extra[0])
        else:
            self.db[name].add_column(f"x{self.count}", "int64")

    def recreate(self, name: str) -> None:
        self.db.drop_table(name)
        self.note()
        self.db.create_table(name, KEYED, primary_key="id")

    def merge_one(self, name: str) -> None:
        self.db.checkpoint()
        self.db.merge(name)

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def merge(self) -> None:
        self.db.checkpoint()
        self.db.merge()

    def vacuum(self) -> None:
        self.db.vacuum(dry_run=False, grace_s=0)

    def hour(self) -> None:
        self.clock.move(seconds=3_600)

    def day(self) -> None:
        self.clock.move(days=0.7)

    @property
    def kept(self) -> list[int]:
        tagged = set(self.db.tags().values())
        return [seq for seq in self.answers if seq >= self.oldest or seq in tagged]

    @property
    def oldest(self) -> int:
        return self.db.status().oldest_seq

    def tag(self, back: int) -> None:
        """Tag the kept seq that is so many of them back."""
        self.db.tag(f"tag{self.count}", self.kept[-1 - back % len(self.kept)])

    def untag(self) -> None:
        for name in [*self.db.tags()][:1]:
            self.db.untag(name)

    def hold(self, back: int) -> None:
        self.held.append(self.db.snapshot(seq=self.kept[-1 - back % len(self.kept)]))

    def release(self) -> None:
        self.held = self.held[1:]

    def reopen(self) -> None:
        self.held = []
        self.db.close()
        self.db = open_store(self.root, self.clock, **self.options)

    def check(self) -> None:
        for snapshot in self.held:
            assert shown(snapshot) == self.answers[snapshot.seq]
        for seq in self.kept:
            with self.db.snapshot(seq=seq) as past:
                assert shown(past) == self.answers[seq], seq
        assert self.db.verify(deep=True).findings == ()

    def check_a_backup(self, folder: Path) -> None:
        assert Backuper(self.db._parts.site).run(folder / "b").lost_tags == ()
        site = self.db._parts.site
        restorer = Restorer(
            site.files, folder / "b", now_us=self.clock, new_token=lambda: uuid.uuid4().hex
        )
        restorer.run(folder / "r")
        with open_store(folder / "r", self.clock, **self.options) as restored:
            for seq in {*self.db.tags().values(), self.db.seq}:
                with restored.snapshot(seq=seq) as past:
                    assert shown(past) == self.answers[seq], seq
            assert restored.verify(deep=True).is_sound


@pytest.fixture
def past(tmp_path):
    past = Past(tmp_path / "s", retention_s=0)
    yield past
    past.db.close()


@pytest.mark.parametrize("how", ["load", "stage"])
def test_a_tag_between_the_first_loads_of_two_tables_outlives_a_vacuum(past, how):
    past.play([(how, "a")])
    seq = past.db.seq
    past.play([(how, "b")])
    past.db.tag("between", seq)
    past.note()
    past.play([("checkpoint",), *MERGES, *MERGES, ("vacuum",)])
    assert past.oldest > seq
    with past.db.snapshot(tag="between") as tagged:
        assert shown(tagged) == past.answers[seq]
    past.check()


@pytest.mark.parametrize("how", ["load", "stage"])
def test_a_backup_has_a_tag_between_the_first_loads_of_two_tables(past, tmp_path, how):
    past.play([(how, "a")])
    past.db.tag("between", past.db.seq)
    past.note()
    past.play([(how, "b"), *MERGES, ("vacuum",)])
    past.check_a_backup(tmp_path)


def test_the_history_stays_by_which_a_tag_is_read(past):
    past.play([("load", "a"), ("checkpoint",), ("upsert", "a"), ("tag", 0), *MERGES, *MERGES])
    past.play([("vacuum",), *MERGES, ("vacuum",)])
    assert past.oldest > max(past.db.tags().values())
    past.check()


def test_one_record_is_kept_for_a_tag_if_it_serves_all_tables(past):
    past.play([("load", "a"), ("load", "b"), ("merge",)])
    past.db.tag("all", past.db.seq)
    past.note()
    past.play([step for t in "ab" for step in (("upsert", t), ("merge_one", t), ("vacuum",))])
    past.play([*MERGES, *MERGES, ("vacuum",)])
    numbers = past.db._parts.site.manifests.numbers
    assert len(numbers(below_floor=True)) - len(numbers()) == 1
    past.check()


def errors(verified: st.Verified) -> list[str]:
    return [finding.message for finding in verified.findings if finding.severity == "error"]


def test_verify_names_a_tag_that_no_record_serves_any_more(past):
    past.play([("load", "a"), ("load", "b"), ("tag", 1), *MERGES, *MERGES, ("vacuum",)])
    manifests = past.db._parts.site.manifests
    assert errors(past.db.verify()) == []
    for number in set(manifests.numbers(below_floor=True)) - set(manifests.numbers()):
        manifests.path(number).unlink()
    for deep in (False, True):
        found = errors(past.db.verify(deep=deep))
        assert ["tag 'tag3' at seq 3: table 'a' cannot be read there" in m for m in found] == [1, 0]
        assert ["tag 'tag3' at seq 3: table 'b' cannot be read there" in m for m in found] == [0, 1]


@pytest.mark.parametrize(("vacuums", "deep", "names"), [(1, False, 1), (0, False, 0), (0, True, 1)])
def test_verify_names_a_kept_seq_whose_record_is_lost(tmp_path, vacuums, deep, names):
    """The oldest seq; and, if it is deep, each one at which what is read changes its record."""
    past = Past(tmp_path / "s")
    past.play([("load", "a"), ("checkpoint",)])
    lost = past.db._parts.site.manifests.newest().number
    if vacuums:
        past.play([("day",), ("day",), ("vacuum",)])
        lost = past.db._parts.site.manifests.kept().number
    past.play([("upsert", "a"), ("merge",)])
    assert errors(past.db.verify(deep=deep)) == []
    for number in range(lost, past.db._parts.site.manifests.newest().number):
        past.db._parts.site.manifests.path(number).unlink()
    found = errors(past.db.verify(deep=deep))
    assert len([message for message in found if "table 'a'" in message]) == names, found
    past.db.close()


@pytest.mark.parametrize("bounds", [BOUNDS, EAGER], ids=["usual", "eager"])
@settings(max_examples=20)
@given(hs.lists(STEPS, min_size=6, max_size=30))
@example([("load", "a"), ("load", "b"), ("tag", 1)])
def test_what_is_kept_answers_as_it_did_and_a_restored_backup_does(bounds, steps):
    with tempfile.TemporaryDirectory() as folder:
        past = Past(Path(folder) / "s", bounds)
        try:
            past.play([*steps, ("vacuum",)])
            past.check()
            past.play(LATER)
            past.check()
            past.check_a_backup(Path(folder))
        finally:
            past.db.close()
