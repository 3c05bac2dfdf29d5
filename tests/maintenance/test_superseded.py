"""The owner vacuums when merges have replaced much, and not again at once."""

from __future__ import annotations

import contextlib
import threading

from siltstone.errors import CorruptionError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.maintenance.gc import superseded
from siltstone.maintenance.gc.superseded import Superseded
from siltstone.maintenance.schedule.scheduler import Scheduler
from tests.maintenance.idle_work import IdleWork
from tests.maintenance.stores import open_store

MIB = 1 << 20


class Reader:
    """Knows the files of pins, by name; a name says the size: a32 has 32 MiB."""

    def __init__(self) -> None:
        self.bases: dict[str, list[str]] = {}

    def files(self, pin: Pin) -> list[InventoryFile]:
        if pin.path not in self.bases:
            raise CorruptionError(pin.path, None, "it is lost")
        names = self.bases[pin.path]
        return [InventoryFile(f"t/base/{n}", int(n[1:]) * MIB, "") for n in names]


class Life:
    """Merges, one after the other, and a clock."""

    def __init__(self) -> None:
        self.reader, self.number, self.now = Reader(), 0, 0.0
        self.counted = Superseded(self.reader, clock=lambda: self.now)

    def merge(self, *files: str, is_lost: bool = False) -> bool:
        """Publish a base of these files; return whether a vacuum is due."""
        self.number += 1
        path = f"t/base/_siltstone/{self.number}/m"
        if not is_lost:
            self.reader.bases[path] = list(files)
        pin = Pin(self.number, path, 1, "", 1, "")
        keyed = (KeyedStorage(1, "t", base=pin),)
        self.record = Record("s", self.number, 1, "w", self.number, keyed=keyed)
        return self.counted.wants_vacuum(self.record)


def test_a_vacuum_is_due_once_when_more_is_replaced_than_the_least():
    life = Life()
    assert not life.merge("a40", "b30", "c30")
    assert not life.merge("a40", "b30", "d30")
    assert not life.merge("a40", "e30", "d30")
    assert life.merge("f40", "e30", "d30")
    assert not life.counted.wants_vacuum(life.record)
    assert not life.merge("g40", "e30", "d30")


def test_of_large_bases_a_share_must_be_replaced():
    life = Life()
    assert not life.merge("a1000", "b200", "c40")
    assert not life.merge("a1000", "d200", "c40")
    assert life.merge("a1000", "e200", "c40")
    assert superseded.SHARE == 0.25


def test_a_vacuum_rests_nine_times_as_long_as_it_took_even_if_it_failed():
    life = Life()
    life.merge("a100")
    assert life.merge("b100")

    def fails() -> None:
        life.now += 2.0
        raise OSError

    with contextlib.suppress(OSError):
        life.counted.timed(fails)
    assert not life.merge("c100")
    life.now = 19.9
    assert not life.counted.wants_vacuum(life.record)
    life.now = 20.0
    assert life.counted.wants_vacuum(life.record)


def test_a_base_that_cannot_be_read_is_left_to_who_reads_it():
    life = Life()
    life.merge("a100")
    assert not life.merge("b100", is_lost=True)
    assert life.merge("c100")


def test_the_scheduler_vacuums_when_it_is_asked_to_and_not_before(tmp_path):
    ran, wanted = threading.Event(), [False, False, True]

    def wants() -> bool:
        return bool(wanted) and wanted.pop(0)

    with open_store(tmp_path / "s") as db:
        work = IdleWork(
            vacuum=ran.set,
            wants_vacuum=wants,
        )
        scheduler = Scheduler(
            db._core.committer,
            work,
            memory_bytes_max=1 << 30,
            memtable_bytes_max=MIB,
            sealed_generations_max=1,
            room_timeout_s=1.0,
            is_background=True,
        )
        scheduler.start()
        assert ran.wait(60)
        scheduler.stop()
        assert not wanted
