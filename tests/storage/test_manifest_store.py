"""The chain of records has one next record, whoever races for it, and what is leased stays."""

import random
from pathlib import Path

import msgspec
import pytest

from siltstone.errors import (
    BusyError,
    CorruptionError,
    FencedError,
    InvariantError,
    ReplacedError,
    RequestError,
    UnavailableError,
)
from siltstone.formats.manifest import Record
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import ManifestStore, claim_epoch, initialise
from tests.crash.manifest_scenario import ROOT, add, make_store, marks, raise_floor, store_on
from tests.support.simulated_files import Fault, Kind, SimFiles, When


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles()
    make_store(files)
    return files


@pytest.fixture
def store(files: SimFiles) -> ManifestStore:
    return store_on(files)


def publish_many(store: ManifestStore, count: int) -> Record:
    record = store.newest()
    for _ in range(count):
        record = store.publish(msgspec.structs.replace, base=record)
    return record


def test_a_publish_is_the_next_record_with_the_change_and_a_token_of_its_own(store):
    first = store.newest()
    second = store.publish(add("a"), base=first)
    assert (first.number, second.number, marks(second)) == (1, 2, ("a",))
    assert first.writer != second.writer
    assert second.time_us > first.time_us
    assert store.newest() == second == store.read(2)


def test_a_lost_race_applies_the_change_again_on_the_winner(files, store):
    base = store.newest()
    other = store_on(files, "b")
    other.publish(add("theirs"), base=other.publish(add("more"), base=base))
    assert marks(store.publish(add("ours"), base=base)) == ("more", "theirs", "ours")


def test_the_winners_name_is_durable_before_the_change_is_applied_to_it(files, store):
    base = store.newest()
    store_on(files, "b").publish(add("theirs"), base=base)
    seen = []

    def change(record: Record) -> Record:
        seen.append(files.trace[-1].what)
        return add("ours")(record)

    store.publish(change, base=base)
    assert seen[1] == "sync_dir"


def test_a_change_may_refuse_the_winner(files, store):
    base = store.newest()
    claim_epoch(store_on(files, "b"), base)

    def change(record: Record) -> Record:
        if record.epoch != base.epoch:
            raise FencedError(base.epoch, record.epoch)
        return add("ours")(record)

    with pytest.raises(FencedError):
        store.publish(change, base=base)
    assert store.numbers() == [1, 2]


def test_a_change_that_is_done_already_publishes_nothing(store):
    record = store.publish(add("a"), base=store.newest())
    assert store.publish(add("a"), base=record) is record
    assert store.numbers() == [1, 2]


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), CorruptionError("f", None, "gone")])
def test_a_change_that_misses_files_of_an_older_record_is_applied_to_the_newest(
    files, store, error: Exception
):
    base = store.newest()
    other = store_on(files, "b")

    def change(record: Record) -> Record:
        if record is base:  # a vacuum came: another publish has won already
            other.publish(add("theirs"), base=base)
            raise error
        return add("ours")(record)

    assert marks(store.publish(change, base=base)) == ("theirs", "ours")


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), CorruptionError("f", None, "gone")])
def test_a_change_that_misses_files_of_the_newest_record_raises_what_it_found(
    store, error: Exception
):
    def change(_: Record) -> Record:
        raise error

    with pytest.raises(type(error), match="gone"):
        store.publish(change, base=store.newest())
    assert store.numbers() == [1]


def test_a_publish_that_always_loses_gives_up_after_its_attempts(files, store):
    other = store_on(files, "b")

    def change(record: Record) -> Record:
        other.publish(msgspec.structs.replace, base=record)
        return msgspec.structs.replace(record)

    with pytest.raises(BusyError, match="5 publishes"):
        store.publish(change, base=store.newest(), attempts=5)


@pytest.mark.parametrize(
    "change",
    [{"store_id": "x"}, {"epoch": 0}, {"last_seq": 4, "flushed_seq": 4}, {"oldest_seq": 0}],
)
def test_a_publish_never_goes_back(store, change):
    record = store.publish(
        lambda r: msgspec.structs.replace(r, epoch=1, last_seq=5, flushed_seq=5, oldest_seq=1),
        base=store.newest(),
    )
    with pytest.raises(InvariantError):
        store.publish(lambda r: msgspec.structs.replace(r, **change), base=record)


class LostAnswer:
    """Files whose `create_if_absent` succeeds and then says that the name was taken (NFS does).

    Not `is_durable`: the answer is lost before the name is synced.
    """

    def __init__(self, files: SimFiles, *, is_durable: bool = True) -> None:
        self._files, self._is_durable = files, is_durable

    def create_if_absent(self, path: Path, data: bytes) -> bool:
        if self._is_durable:
            assert self._files.create_if_absent(path, data)
        else:
            self._files.write(path, data)
        return False

    def __getattr__(self, name: str):
        return getattr(self._files, name)


def test_a_success_that_was_told_as_a_lost_race_is_found_by_its_token(files):
    store = store_on(LostAnswer(files))  # type: ignore[arg-type]
    assert store.publish(add("a"), base=store.newest()).number == 2
    assert store.numbers() == [1, 2]


def test_a_success_that_was_told_as_a_lost_race_is_durable_when_it_returns(files):
    unsynced = LostAnswer(files, is_durable=False)
    store_on(unsynced).publish(add("a"), base=store_on(files).newest())  # type: ignore[arg-type]
    for image in files.images(random.Random(1)):
        assert marks(store_on(image.files).newest()) == ("a",), image.label


def test_a_link_that_was_made_and_reported_failed_is_published_once(files, store):
    base = store.newest()
    link = files.operations + 5  # read the base; open, pwrite, sync, link
    files.faults = [Fault(link, Kind.EIO, When.AFTER)]
    record = store.publish(add("a"), base=base)
    assert files.trace[link - 1].what == "link"
    assert (marks(record), record.number, store.newest()) == (("a",), 3, record)


def test_a_full_disk_is_unavailable_and_leaves_no_file(files, store):
    base, before = store.newest(), files.tree()
    files.faults = [Fault(1, Kind.ENOSPC, is_sticky=True)]
    with pytest.raises(UnavailableError, match="No space"):
        store.publish(add("a"), base=base)
    files.faults = []
    temporaries = {path for path, _ in files.tree()} - {path for path, _ in before}
    assert not temporaries
    assert store.publish(add("a"), base=base).number == 2


def vacuum(store: ManifestStore, floor: int) -> None:
    raise_floor(store, floor)
    for number in store.numbers(below_floor=True):
        if number < floor and (lock := store.try_exclusive(number)):
            store._files.unlink(store.path(number))
            lock.release()


def test_a_sleeper_that_revives_a_vacuumed_number_publishes_above_the_floor(files, store):
    sleeper, base = store_on(files, "sleeper"), store.newest()
    publish_many(store, 9)
    vacuum(store, 8)
    record = sleeper.publish(add("late"), base=base)
    assert (record.number, marks(record)) == (11, ("late",))
    assert store.numbers(below_floor=True) == [8, 9, 10, 11]


@pytest.mark.parametrize("above", range(4))
def test_a_sleeper_is_found_out_at_every_distance_from_the_floor(files, store, above):
    base = publish_many(store, 2)
    publish_many(store, 5)
    vacuum(store, base.number + 1 + above)
    record = store_on(files, "sleeper").publish(add("late"), base=base)
    newest = store.newest()
    assert marks(newest) == marks(record) == ("late",)
    assert newest.number == record.number == base.number + 6
    assert min(store.numbers(below_floor=True)) == store.kept().number


@pytest.mark.parametrize("name", ["٠" * 19 + "٧.json", "٩" * 20 + ".json", "9" * 20 + ".json.tmp"])
def test_what_has_no_name_of_a_record_is_none(files, store, name):
    publish_many(store, 3)
    files.write(store.folder / name, b"x")
    assert store.numbers() == store.numbers(below_floor=True) == [1, 2, 3, 4]
    assert store.publish(add("a"), base=store.newest()).number == 5


def test_news_looks_at_the_floor_first(files, store):
    reader, old = store_on(files, "reader"), store.newest()
    assert reader.newer_record(old) is None
    newest = publish_many(store, 4)
    assert reader.newer_record(old) == newest
    vacuum(store, 4)
    assert not files.exists(store.path(2))
    assert reader.newer_record(old) == newest
    assert reader.newer_record(newest) is None


def test_a_race_is_lost_to_a_record_that_a_vacuum_took_together_with_our_new_files(files, store):
    """Who slept finds neither its files nor the record that gave them up; nobody replaced it."""
    base, sleepers = store.newest(), store_on(files, "sleeper", first_missing=lambda *_: "a file")
    publish_many(store, 4)
    vacuum(store, 4)
    assert not files.exists(store.path(base.number + 1))

    def change(record: Record) -> Record:
        return record if record.number == 5 else add("ours")(record)

    assert sleepers.publish(change, base=base).number == 5


def test_a_dead_record_below_the_floor_is_seen_only_by_number(files, store):
    publish_many(store, 4)
    raise_floor(store, 4)
    assert store.numbers() == [4, 5]
    assert store.numbers(below_floor=True) == [1, 2, 3, 4, 5]
    assert store.read(2).number == 2
    vacuum(store, 4)
    with pytest.raises(FileNotFoundError):
        store.read(2)


def test_the_floor_only_rises_and_only_to_a_record(files, store):
    publish_many(store, 4)
    assert store.kept().number == 0
    raise_floor(store, 3)
    raise_floor(store, 2)
    assert store.kept().number == 3
    with pytest.raises(InvariantError):
        raise_floor(store, 6)
    lock = files.lock(store.folder / "FLOOR.lock")
    with pytest.raises(BusyError):
        raise_floor(store, 4)
    lock.release()
    raise_floor(store, 4)
    assert store.kept().number == 4


def test_a_leased_record_survives_vacuum_until_its_last_lease_ends(files, store):
    publish_many(store, 2)
    first, second = store.lease(2), store.lease(2)
    assert first
    assert second
    vacuum(store, 3)
    assert store.numbers(below_floor=True) == [2, 3]
    with first, second:
        assert first.is_held
    assert not first.is_held
    vacuum(store, 3)
    assert store.numbers(below_floor=True) == [3]


def test_no_lease_on_what_is_vacuumed_or_about_to_be(files, store):
    publish_many(store, 3)
    assert store.lease(9) is None
    lock = store.try_exclusive(2)
    assert lock
    assert store.lease(2) is None
    lock.release()
    raise_floor(store, 3)
    assert store.lease(2) is None
    island = store.lease(2, below_floor=True)
    assert island
    assert store.try_exclusive(2) is None
    island.release()
    assert store.try_exclusive(99) is None


def thin(store: ManifestStore, kept: set[int], upto: int) -> None:
    """Thin, as a vacuum does."""
    assert store.replace_floor(store.kept(), Floor.of(kept, upto))
    for number in store.numbers(below_floor=True):
        if not store.kept().keeps(number) and (lock := store.try_exclusive(number)):
            store._files.unlink(store.path(number))
            lock.release()


@pytest.mark.parametrize("base", range(2, 9))
def test_a_sleeper_that_revives_a_thinned_number_publishes_above_the_newest(files, store, base):
    publish_many(store, base - 1)
    sleeper, known = store_on(files, "sleeper"), store.newest()
    publish_many(store, 10 - base)
    thin(store, {2, 5}, 9)
    record = sleeper.publish(add("late"), base=known)
    assert (record.number, marks(record)) == (11, ("late",))
    assert store.newest() == record
    assert store.numbers(below_floor=True) == store.numbers() == [2, 5, 9, 10, 11]


def test_a_publisher_whose_record_was_kept_by_a_thinning_finds_it_published(files, store):
    """It sleeps between its record and its look at FLOOR; others build on the record meanwhile."""
    publish_many(store, 3)
    sleeper, base = store_on(files, "sleeper"), store.newest()
    meant = sleeper._stamp(add("late")(base), base)
    assert sleeper._create(meant)
    publish_many(store, 4)
    thin(store, {2, meant.number}, 8)
    assert sleeper._attempt(meant, base) == meant
    assert store.read(meant.number) == meant


def test_news_looks_at_what_was_thinned(files, store):
    reader, old = store_on(files, "reader"), store.newest()
    newest = publish_many(store, 7)
    thin(store, {1}, 7)
    assert not files.exists(store.path(2))
    assert reader.newer_record(old) == newest


def test_no_lease_on_what_is_about_to_be_thinned(store):
    publish_many(store, 9)
    before = store.lease(4)
    assert before
    assert store.replace_floor(store.kept(), Floor.of({2, 6}, 9))
    assert store.numbers() == [2, 6, 9, 10]
    assert store.lease(4) is None
    assert store.lease(5) is None
    for number in (2, 6, 9, 10):
        lease = store.lease(number)
        assert lease
        lease.release()
    thin(store, {2, 6}, 9)
    assert store.numbers(below_floor=True) == [2, 4, 6, 9, 10]
    before.release()
    thin(store, {2, 6}, 9)
    assert store.numbers(below_floor=True) == [2, 6, 9, 10]


def test_a_floor_is_not_replaced_by_one_that_was_made_from_another(store):
    publish_many(store, 9)
    seen = store.kept()
    assert store.replace_floor(seen, Floor.of({2, 6}, 9))
    assert not store.replace_floor(seen, Floor.of({4}, 9))
    assert store.kept() == Floor.of({2, 6}, 9)
    raise_floor(store, 4)  # thinned
    assert store.kept() == Floor.of({2, 6}, 9)
    raise_floor(store, 6)
    assert store.kept() == Floor.of({6}, 9)
    raise_floor(store, 9)
    assert store.kept() == Floor(9)
    with pytest.raises(InvariantError):
        store.replace_floor(Floor(9), Floor(11))


class AskedMeanwhile(RealFiles):
    """A vacuum asks whether anybody leases a record just when we do."""

    asked = 3

    def lock(self, path, *, shared=False, create=False):
        if shared and self.asked:
            self.asked -= 1
            return None
        return super().lock(path, shared=shared, create=create)


def test_a_vacuum_that_only_asks_who_leases_a_record_is_no_vacuumed_record(tmp_path):
    initialise(RealFiles(), tmp_path / "s")
    files = AskedMeanwhile()
    lease = ManifestStore(files, tmp_path / "s").lease(1)
    assert lease is not None
    assert lease.number == 1
    assert not files.asked


class LateLocks:
    """Files in which a record is vacuumed between its look-up and its lock."""

    def __init__(self, files: SimFiles) -> None:
        self._files = files

    def lock(self, path: Path, *, shared: bool = False, create: bool = False):
        lock = self._files.lock(path, shared=shared, create=create)
        self._files.unlink(path)
        return lock

    def __getattr__(self, name: str):
        return getattr(self._files, name)


def test_no_lease_on_an_island_that_went_while_it_was_locked(files, store):
    publish_many(store, 3)
    raise_floor(store, 3)
    assert store_on(LateLocks(files)).lease(2, below_floor=True) is None  # type: ignore[arg-type]


def test_a_lease_on_the_newest_record_comes_with_it(store):
    newest = publish_many(store, 3)
    record, lease = store.lease_newest()
    assert (record, lease.number) == (newest, newest.number)
    assert store.try_exclusive(record.number) is None
    lease.release()


def test_reading_and_leasing_write_nothing(files, store):
    publish_many(store, 2)
    before = files.operations
    record, lease = store.lease_newest()
    store.newer_record(record)
    lease.release()
    done = {operation.what for operation in files.trace[before:]}
    assert done <= {"read", "list", "open"}
    assert not {path for path, _ in files.tree() if "lock" in path}


def test_initialise_makes_a_store_with_an_id_of_its_own_and_then_finds_it(tmp_path):
    files = RealFiles()
    first = initialise(files, tmp_path / "deep" / "shop")
    assert (first.number, first.epoch, len(first.store_id)) == (1, 0, 32)
    assert initialise(files, tmp_path / "deep" / "shop") == first
    assert initialise(files, tmp_path / "other").store_id != first.store_id
    (tmp_path / "empty").mkdir()
    assert initialise(files, tmp_path / "empty").number == 1


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda p: p.write_text("x"), RequestError, "is a file"),
        (lambda p: (p.mkdir(), (p / "notes.txt").touch()), RequestError, "holds 'notes.txt'"),
        (
            lambda p: ((p / "manifest").mkdir(parents=True), (p / "manifest" / "x").touch()),
            RequestError,
            "holds 'x'",
        ),
        (
            lambda p: ((p / "manifest").mkdir(parents=True), (p / "wal").mkdir()),
            CorruptionError,
            "no record",
        ),
    ],
)
def test_initialise_refuses_what_is_no_store_and_writes_nothing(tmp_path, make, error, sentence):
    path = tmp_path / "shop"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=sentence):
        initialise(RealFiles(), path)
    assert sorted(tmp_path.rglob("*")) == before


def test_initialise_below_a_file_or_where_nothing_can_be_made_is_one_clear_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="below a file"):
        initialise(RealFiles(), tmp_path / "file" / "shop")
    with pytest.raises(UnavailableError, match="cannot make a store in /proc/shop"):
        initialise(RealFiles(), Path("/proc/shop"))


def test_what_is_no_store_has_no_newest_record(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RequestError, match="not a siltstone store"):
            ManifestStore(RealFiles(), path).newest()


def test_two_processes_that_make_one_store_agree_on_it():
    files = SimFiles()
    made: list[Record] = []

    class Slow(LostAnswer):
        """Lets another process make record 1 just before us."""

        def create_if_absent(self, path: Path, data: bytes) -> bool:
            made.append(make_store(files))
            return files.create_if_absent(path, data)

    assert initialise(Slow(files), ROOT) == made[0]  # type: ignore[arg-type]


def test_a_record_under_another_number_is_damage(files, store):
    publish_many(store, 1)
    files.write(store.path(3), files.read(store.path(2)))
    with pytest.raises(CorruptionError, match="it holds record 2"):
        store.newest()


def test_the_newest_record_follows_the_one_that_a_job_worked_on(files, store):
    known = publish_many(store, 3)
    record, lease = store.lease_newest(known)
    assert record == known
    lease.release()
    later = publish_many(store, 2)
    record, lease = store.lease_newest(known)
    assert record == later
    lease.release()


@pytest.mark.parametrize("records_of_the_copy", [0, 1, 5])
def test_an_older_copy_in_the_place_of_the_store_does_not_follow(files, store, records_of_the_copy):
    first = store.newest()
    known = publish_many(store, 3)
    for number in range(first.number + 1, known.number + 1):  # the older copy has not these
        files.unlink(store.path(number))
    publish_many(store_on(files, "another writer"), records_of_the_copy)
    with pytest.raises(ReplacedError):
        store.lease_newest(known)
