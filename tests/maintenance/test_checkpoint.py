"""A checkpoint changes no answer, whenever it fails, and whoever reads or writes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec
import pytest

import siltstone as st
from siltstone.errors import BusyError, UnavailableError
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore, claim_epoch
from tests.engine.seams import (
    WAIT_S,
    GatedFiles,
    HookedTables,
    Threads,
    fake_env,
    open_store,
    until,
)

SCHEMA = {"id": "int64", "v": "int64"}


class Failing:
    """Fails the first `times` calls."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    def __call__(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            raise UnavailableError("No space left on device")


class RefusingRecords(RealFiles):
    """Files that make a record but refuse its answer and the next one, `refusals` times."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    def below(self, root: Path) -> Self:
        """Stay this one: a test says of it, not of a copy, what fails."""
        del root
        return self

    def create_if_absent(self, path: Path, data) -> bool:
        if self.refusals and path.suffix == ".json":
            self.refusals -= 1
            if self.refusals:
                super().create_if_absent(path, data)
            raise OSError(5, "Input/output error", str(path))
        return super().create_if_absent(path, data)


def rows(table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def feed(db) -> list[tuple[int, str, int]]:
    found = db.changes()["t"].read_all().to_pylist()
    return [(row["_seq"], row["_op"], row["id"]) for row in found]


@pytest.mark.parametrize("step", ["create", "stage", "commit"])
def test_rows_of_a_failed_flush_stay_readable_and_are_taken_again(
    tmp_path: Path, step: str
) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert([{"id": n, "v": n} for n in range(10)])
        hooked[0].hooks[step] = Failing()
        with pytest.raises(UnavailableError):
            db.checkpoint()
        table.upsert({"id": 3, "v": 33})
        expected = {**{n: n for n in range(10)}, 3: 33}
        assert rows(table) == expected
        record = db.checkpoint()
        assert record.flushed_seq == db.seq
        assert rows(table) == expected
        changed = feed(db)
        assert len(changed) == len(set(changed)) == 11
    with open_store(tmp_path / "db", fake_env()) as again:
        assert rows(again["t"]) == expected


def test_an_active_row_beats_the_sealed_one_of_a_flush_that_fails(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        hooked[0].hooks["stage"] = Failing(3)
        for version in range(3):
            table.upsert({"id": 1, "v": version})
            with pytest.raises(UnavailableError):
                db.checkpoint()
            assert table.get(1)["v"] == version
        table.delete(1)
        assert table.get(1) is None
        assert table.count() == 0
        db.checkpoint()
        assert table.get(1) is None
        for seq, version in ((2, 0), (3, 1), (4, 2)):
            with db.snapshot(seq=seq) as past:
                assert past["t"].get(1)["v"] == version


def test_each_row_version_of_a_flush_keeps_its_own_seq(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        for version in range(3):
            table.upsert({"id": 1, "v": version})
        db.checkpoint()
    with open_store(tmp_path / "db", fake_env()) as again:
        assert feed(again) == [(seq, "upsert", 1) for seq in (2, 3, 4)]
        for seq, version in ((2, 0), (3, 1), (4, 2)):
            with again.snapshot(seq=seq) as past:
                assert rows(past["t"]) == {1: version}


@pytest.mark.parametrize("with_news", [False, True])
def test_a_record_whose_answer_was_lost_is_not_flushed_a_second_time(
    tmp_path: Path, *, with_news: bool
) -> None:
    files = RefusingRecords()
    with open_store(tmp_path / "db", fake_env(files)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        files.refusals = 2
        with pytest.raises(UnavailableError):
            db.checkpoint()
        assert rows(table) == {1: 1}
        table.upsert({"id": 2, "v": 2})
        if with_news:
            db.merge()
            assert rows(table) == {1: 1, 2: 2}
        db.checkpoint()
        assert rows(table) == {1: 1, 2: 2}
        assert feed(db) == [(2, "upsert", 1), (3, "upsert", 2)]
        assert [entry.seq for entry in db.log()] == [3, 2, 1]
    with open_store(tmp_path / "db", fake_env()) as again:
        assert feed(again) == [(2, "upsert", 1), (3, "upsert", 2)]


def test_an_owner_whose_epoch_is_over_publishes_nothing_and_takes_nothing_over(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        manifests = db._parts.site.manifests
        # As the next owner does, where a file system's locks keep nobody out.
        claimed = claim_epoch(manifests, manifests.newest())
        with pytest.raises(st.FencedError):
            db.checkpoint()
        with pytest.raises(st.FencedError):
            db._parts.owner.checkpointer.refresh()
        assert manifests.newest() == claimed
        assert rows(table) == {1: 1}


def test_a_commit_goes_on_while_a_flush_stands_still(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert({"id": 1, "v": 1})
        arrived, go = threading.Event(), threading.Event()

        def stand_still(*_: object) -> None:
            arrived.set()
            assert go.wait(WAIT_S)

        hooked[0].hooks["stage"] = stand_still
        threads = Threads()
        threads.start(db.checkpoint)
        assert arrived.wait(WAIT_S)
        table.upsert({"id": 2, "v": 2})
        db.create_table("later", SCHEMA, primary_key="id").upsert({"id": 5, "v": 5})
        table.add_column("note", "string")
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
        go.set()
        threads.join()
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
        assert db["later"].get(5) == {"id": 5, "v": 5}
        db.checkpoint()
        assert table.get(1) == {"id": 1, "v": 1, "note": None}


def test_writers_are_refused_while_the_flush_is_blocked_and_go_on_afterwards(
    tmp_path: Path,
) -> None:
    hooked: list[HookedTables] = []
    env = fake_env(hooked=hooked)
    options = {
        "background": True,
        "memtable_bytes_max": 20_000,
        "sealed_generations_max": 1,
        "room_timeout_s": 0.2,
    }
    with open_store(tmp_path / "db", env, **options) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        go = threading.Event()
        hooked[0].hooks["stage"] = lambda *_: go.wait(WAIT_S)
        acknowledged = 0

        def write_on() -> None:
            nonlocal acknowledged
            while acknowledged < 10_000:
                table.upsert({"id": acknowledged, "v": 0})
                acknowledged += 1

        with pytest.raises(BusyError):
            write_on()
        assert table.count() == acknowledged > 0
        assert table.get(0) == {"id": 0, "v": 0}
        go.set()
        committer = db._core.committer
        until(lambda: committer.active_bytes < 20_000 and not committer.state.view.sealed)
        table.upsert({"id": -1, "v": -1})
        assert table.count() == acknowledged + 1
    with open_store(tmp_path / "db", fake_env()) as again:
        assert again["t"].count() == acknowledged + 1


def test_a_flush_upon_a_record_of_a_clock_that_was_ahead_writes_its_rows_once(
    tmp_path: Path,
) -> None:
    hooked: list[HookedTables] = []
    with open_store(tmp_path / "db", fake_env(hooked=hooked)) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        manifests = ManifestStore(RealFiles(), db.path)
        manifests.publish(
            lambda record: msgspec.structs.replace(record, gc_horizon_us=1 << 60),
            base=manifests.newest(),
        )
        db._parts.owner.checkpointer.refresh()
        staged: list[object] = []
        hooked[0].hooks["stage"] = lambda folder, *_: staged.append(folder)
        table.upsert({"id": 1, "v": 1})
        db.checkpoint()
        assert len(staged) == 2, "history and commits"
        assert rows(table) == {1: 1}


def test_a_checkpoint_with_nothing_new_publishes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "db", fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        assert db.checkpoint().number == db.checkpoint().number


def test_large_values_count_with_their_size(tmp_path: Path) -> None:
    """Else the memtables grow past every bound before anybody thinks of a checkpoint."""
    schema = {"id": "int64", "v": "binary"}
    with open_store(tmp_path / "db", fake_env(), memtable_bytes_max=1 << 20) as db:
        table = db.create_table("t", schema, primary_key="id")
        for n in range(40):
            table.upsert({"id": n, "v": bytes(64_000)})
        assert db._core.state().view.record.flushed_seq > 20
        assert table.count() == 40


def test_a_transaction_too_large_for_a_frame_is_refused_and_nothing_else_happens(
    tmp_path: Path,
) -> None:
    schema = {"id": "int64", "v": "binary"}
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", schema, primary_key="id")
        big = bytes(16 << 20)
        with pytest.raises(st.RequestError):
            table.upsert([{"id": n, "v": big} for n in range(17)])
        table.upsert({"id": 1, "v": b"small"})
        assert table.to_arrow().to_pylist() == [{"id": 1, "v": b"small"}]


def test_commits_that_race_a_close_are_acknowledged_or_refused_and_never_in_doubt(
    tmp_path: Path,
) -> None:
    for attempt in range(5):
        root = tmp_path / f"db{attempt}"
        db = open_store(root, fake_env(GatedFiles()))
        table = db.create_table("t", SCHEMA, primary_key="id")
        acknowledged: list[int] = []
        refusals: list[Exception] = []

        def write(writer: int) -> None:
            for n in range(100_000):
                try:
                    table.upsert({"id": writer * 100_000 + n, "v": n})  # noqa: B023
                except st.SiltstoneError as error:
                    refusals.append(error)  # noqa: B023
                    return
                acknowledged.append(writer * 100_000 + n)  # noqa: B023

        threads = Threads()
        for writer in range(4):
            threads.start(write, writer)
        until(lambda: len(acknowledged) > 20)  # noqa: B023
        db.close()
        threads.join()
        assert {type(error) for error in refusals} == {st.ClosedError}
        with open_store(root, fake_env()) as again:
            assert set(again["t"].to_arrow()["id"].to_pylist()) == set(acknowledged)


def test_a_commit_waits_for_no_read_of_lance_when_a_record_is_adopted(tmp_path: Path) -> None:
    hooked: list[HookedTables] = []
    env = fake_env(hooked=hooked)
    with open_store(tmp_path / "db", env, memory_bytes_max=1 << 20) as db:
        table = db.create_table("t", {**SCHEMA, "pad": "string"}, primary_key="id")
        beside: list[int] = []

        def commit_beside(*_: object) -> None:
            row = {"id": -1, "v": len(beside), "pad": ""}
            other = threading.Thread(target=table.upsert, args=(row,))
            other.start()
            other.join(WAIT_S)
            assert not other.is_alive(), "a commit waits for Lance"
            beside.append(1)

        hooked[0].hooks["open"] = commit_beside
        # More than the share of what stays in memory, and less than what stops a writer.
        table.upsert([{"id": n, "v": n, "pad": "x" * 1000} for n in range(300)])
        db.checkpoint()
        assert table.get(7)["v"] == 7
        assert beside
        assert table.count() == 301


class UnfairLock:
    """A lock that one thread never gets, as beside one that takes it again at once.

    Before that thread is told so for the first time, `first` happens.
    """

    def __init__(self, first: Callable[[], object]) -> None:
        self._real, self._unlucky = threading.Lock(), threading.get_ident()
        self._first, self._left = first, 10
        self.release = self._real.release

    def acquire(self, timeout: float) -> bool:
        if threading.get_ident() != self._unlucky:
            return self._real.acquire(timeout=timeout)
        if self._left == 10:
            self._first()
        self._left -= 1
        assert self._left, "it waits for a turn that nobody needs any more"
        return False


def test_who_waits_for_a_turn_goes_on_once_others_flushed_all_that_it_wanted(tmp_path: Path):
    with open_store(tmp_path / "s", fake_env()) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})

        def by_another_thread() -> None:
            threads = Threads()
            threads.start(db.checkpoint)
            threads.join()

        db._parts.owner.checkpointer._lock = UnfairLock(by_another_thread)
        db.checkpoint()
        assert db._parts.owner.committer.state.view.record.flushed_seq == db.seq
