"""Vacuum thins the records within the retention, and each kept seq answers as it did before."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import CorruptionError
from siltstone.maintenance.backup.backup import Backuper
from siltstone.maintenance.retention import islands_of
from tests.maintenance.stores import EAGER, Clock, data_paths, open_store, paths, rows

KEYED = {"id": "int64", "v": "int64"}
FOLDS = 8


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def real_lance():
    return False


class Told:
    """A store with many folds, and what each of its seqs showed when it was the newest."""

    def __init__(self, root: Path, clock: Clock, *, real_lance: bool) -> None:
        self.root, self.clock, self.answers = root, clock, {}
        self.options = {"real_lance": real_lance, "bounds": EAGER, "retention_s": 86_400}
        self.open()
        self.db.create_table("t", KEYED, primary_key="id")
        self.db.create_table("p", KEYED)
        for step in range(FOLDS):
            self.fold(step)

    def open(self) -> None:
        self.db = open_store(self.root, self.clock, **self.options)

    def fold(self, step: int) -> None:
        for seq in range(3):
            self.db["t"].upsert([{"id": (step + n) % 7, "v": 10 * step + seq} for n in range(4)])
            self.note()
        self.db["t"].delete(step % 7)
        self.note()
        self.db["p"].append([{"id": step, "v": step}])
        self.note()
        self.db.checkpoint()
        self.db.merge()
        self.clock.move(seconds=60)

    def note(self) -> None:
        self.answers[self.db.seq] = self.shown(self.db)

    def shown(self, source) -> tuple:
        return rows(source["t"]), rows(source["p"])

    def vacuum(self) -> st.Vacuumed:
        return self.db.vacuum(dry_run=False, grace_s=0)

    @property
    def manifests(self):
        return self.db._parts.site.manifests

    def thinned(self) -> list[int]:
        """Return the numbers of the records that are gone, between FLOOR and the newest."""
        there, floor = set(self.manifests.numbers(below_floor=True)), self.manifests.kept().number
        return [n for n in range(max(1, floor), self.manifests.newest().number) if n not in there]

    def check(self, db=None) -> None:
        db = db or self.db
        for seq, told in self.answers.items():
            with db.snapshot(seq=seq) as past:
                assert self.shown(past) == told, seq
        keys = {row[0] for row in self.answers[max(self.answers)][0]}
        for since in self.answers:
            copy = {row[0] for row in self.answers[since][0]}
            fed = db.changes(since, max(self.answers), ["t"])["t"].read_all()
            for row in fed.select(["_op", "id"]).to_pylist():
                (copy.discard if row["_op"] == "delete" else copy.add)(row["id"])
            assert copy == keys, since
        assert db.verify(deep=True).findings == ()


@pytest.fixture
def told(tmp_path, clock, real_lance):
    told = Told(tmp_path / "s", clock, real_lance=real_lance)
    yield told
    told.db.close()


@pytest.mark.parametrize("real_lance", [False, True], ids=["fake", "lance"])
def test_each_seq_and_each_range_of_changes_answers_as_before(told):
    before = len(data_paths(told.root))
    assert told.vacuum().files
    assert len(told.thinned()) > FOLDS
    assert len(data_paths(told.root)) < before
    told.check()
    told.fold(FOLDS)
    told.vacuum()
    told.check()
    assert told.manifests.newest().may_be_thinned


def test_vacuums_come_to_rest(told):
    """The second one thins what was newest before the first."""
    told.vacuum()
    told.vacuum()
    newest = told.manifests.newest()
    assert told.vacuum().files == ()
    assert told.manifests.newest() == newest


def test_a_store_with_thinned_records_opens_again_and_serves_readers_beside(told):
    told.vacuum()
    with open_store(told.root, told.clock, read_only=True) as beside:
        told.check(beside)
    told.db.close()
    told.open()
    told.check()


def test_recent_records_stay(tmp_path, clock):
    with open_store(tmp_path / "s", clock, retention_s=86_400) as db:
        db.create_table("t", KEYED, primary_key="id")
        for step in range(5):
            db["t"].upsert([{"id": 1, "v": step}])
            db.checkpoint()
            db.merge()
        numbers = db._parts.site.manifests.numbers()
        db.vacuum(dry_run=False, grace_s=0)
        assert db._parts.site.manifests.numbers()[: len(numbers)] == numbers
        assert db._parts.site.manifests.newest().may_be_thinned is False
        clock.move(seconds=601)
        db["t"].upsert([{"id": 1, "v": 9}])
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert not set(numbers[1:]) & set(db._parts.site.manifests.numbers())


def test_a_preview_names_the_thinned_records_and_changes_nothing(told):
    before = paths(told.root)
    preview = told.db.vacuum(grace_s=0)
    assert paths(told.root) == before
    named = {file.path for file in preview.files if file.why == "an older record serves its seqs"}
    assert len(named) > FOLDS
    told.vacuum()
    assert not named & paths(told.root)


def test_a_record_that_somebody_reads_by_stays_until_the_lease_ends(told):
    seq = list(told.answers)[len(told.answers) // 2]
    with told.db.snapshot(seq=seq) as past, open_store(told.root, told.clock, read_only=True) as at:
        assert told.vacuum().spared
        assert told.shown(past) == told.answers[seq]
        assert told.shown(at) == told.answers[max(told.answers)]
    held = len(told.manifests.numbers(below_floor=True))
    told.vacuum()
    assert len(told.manifests.numbers(below_floor=True)) < held + 3  # what it publishes itself
    told.check()


def test_a_reader_of_another_process_that_stood_on_a_thinned_record_goes_on(told):
    with open_store(told.root, told.clock, read_only=True) as beside:
        told.fold(FOLDS)
        told.fold(FOLDS + 1)
        told.vacuum()
        assert told.shown(beside) in told.answers.values()
        told.check(beside)


@pytest.mark.parametrize("nth", range(0, 5 * FOLDS, 7))
def test_a_tag_that_was_set_before_keeps_its_record_and_one_set_later_is_served(told, nth):
    seq = list(told.answers)[nth]
    told.db.tag("before", seq)
    told.vacuum()
    told.db.tag("later", list(told.answers)[nth + 2])
    told.check()
    told.clock.move(days=3)
    told.fold(FOLDS)
    told.vacuum()
    told.fold(FOLDS + 1)
    told.vacuum()
    for name, tagged in told.db.tags().items():
        with told.db.snapshot(tag=name) as past:
            assert told.shown(past) == told.answers[tagged]
    assert told.db.verify(deep=True).findings == ()


def test_no_record_is_thinned_that_serves_a_tag(told):
    tagged = list(told.answers)[2::5]
    for seq in tagged:
        told.db.tag(f"tag{seq}", seq)
    records = [told.manifests.read(number) for number in told.manifests.numbers()]
    serving = {record.number for record, _ in islands_of(records, tagged).serving}
    told.vacuum()
    assert len(serving) > FOLDS - 2
    assert serving <= set(told.manifests.numbers())
    assert told.thinned()


def test_a_lost_record_is_named_and_never_passes_for_a_thinned_one(told):
    numbers = told.manifests.numbers()
    lost = numbers[len(numbers) // 2]
    told.manifests.path(lost).unlink()
    told.vacuum()
    assert told.thinned() == [lost]
    assert told.manifests.kept().upto == 0
    findings = told.db.verify().findings
    assert [finding.message for finding in findings if f"{lost} to {lost}" in finding.message]


def test_a_kept_record_that_is_lost_among_thinned_ones_is_named(told):
    seq = list(told.answers)[len(told.answers) // 2]
    told.db.tag("kept", seq)
    told.vacuum()
    (lost, *_) = told.manifests.kept().kept
    told.manifests.path(lost).unlink()
    told.db.close()
    with open_store(told.root, told.clock, retention_s=86_400, bounds=EAGER) as db:
        findings = db.verify().findings
        assert [f.message for f in findings if f"{lost} to {lost}" in f.message]
        assert db._parts.site.manifests.kept().keeps(lost)
        db.vacuum(dry_run=False, grace_s=0)
        assert db._parts.site.manifests.kept().keeps(lost)
        for number in db._parts.site.manifests.numbers()[:-1]:
            db._parts.site.manifests.path(number).unlink()
    told.open()
    with pytest.raises(CorruptionError, match="missing"):
        rows(told.db.snapshot(seq=seq)["t"])


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])
def test_a_backup_of_a_thinned_store_has_its_present_and_its_tags(told, tmp_path):
    tagged = list(told.answers)[len(told.answers) // 3]
    told.vacuum()
    told.db.tag("audit", tagged)
    told.vacuum()
    Backuper(told.db._parts.site).run(tmp_path / "b")
    st.restore(tmp_path / "b", tmp_path / "r")
    with st.connect(tmp_path / "r", background=False) as restored:
        assert told.shown(restored) == told.answers[max(told.answers)]
        with restored.snapshot(tag="audit") as past:
            assert told.shown(past) == told.answers[tagged]
        assert restored.verify(deep=True).is_sound  # its commits are ahead of the real clock


@pytest.mark.parametrize("real_lance", [True], ids=["lance"])
@pytest.mark.parametrize("wrong", [None, b"siltstone-floor 6 damaged"])
def test_a_repair_writes_floor_again_for_all_records_that_exist(told, wrong):
    told.vacuum()
    before = told.manifests.kept()
    told.db.close()
    floor = told.root / "manifest" / "FLOOR"
    floor.unlink()
    if wrong:
        floor.write_bytes(wrong)
    assert st.repair(told.root, dry_run=False).is_whole
    told.open()
    assert told.manifests.kept().number == before.number
    told.check()
