"""A snapshot of the past leases each record once: a lease is an open file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

import pytest

import siltstone as st
from siltstone.storage.files.locks import Lock
from siltstone.storage.manifest.manifest_store import Lease
from tests.maintenance.stores import open_store

KEYED = {"id": "int64", "v": "int64"}
ASKS: dict[str, Callable[[st.Snapshot], object]] = {
    "versions": lambda then: then.versions("t0"),
    "get": lambda then: then["t0"].get(1),
    "scan": lambda then: then["t0"].to_arrow(),
}


def merged_since(root: Path, tables: int) -> st.Store:
    """Return a store with a tag below the last merge of its tables."""
    db = open_store(root)
    for number in range(tables):
        db.create_table(f"t{number}", KEYED, primary_key="id")
    for turn in range(2):
        for number in range(tables):
            db[f"t{number}"].upsert({"id": 1, "v": turn})
        db.checkpoint()
        db.merge()
        if not turn:
            db.tag("then")
    return db


def open_files() -> int:
    """Count the open files but those of key runs: a store has a bound for these of its own."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(link.readlink().suffix != ".run" for link in links)


@pytest.mark.parametrize("ask", ASKS)
def test_what_is_asked_of_the_past_again_opens_no_file_that_stays_open(
    tmp_path: Path, ask: str
) -> None:
    with merged_since(tmp_path / "db", 1) as db, db.snapshot(tag="then") as then:
        first = ASKS[ask](then)
        before = open_files()
        for _ in range(50):
            assert ASKS[ask](then) == first
        assert open_files() <= before


def test_tables_that_one_record_serves_are_leased_with_one_open_file(tmp_path: Path) -> None:
    with merged_since(tmp_path / "db", 8) as db:
        before = open_files()
        with db.snapshot(tag="then") as then:
            assert open_files() <= before + 1
            assert [then[name].get(1) for name in then.tables()] == [{"id": 1, "v": 0}] * 8
        assert open_files() <= before + 1  # the view remembers a reader of the past, with its lease


class Told:
    """A lock that asks, as it is let go, whether its lease can still be found."""

    def __init__(self, leases: WeakValueDictionary[int, Lease]) -> None:
        self.fd, self._leases, self.found = 3, leases, list[Lease | None]()

    def release(self) -> None:
        self.found.append(self._leases.get(1))
        self.fd = -1


def test_a_lease_that_ends_is_found_by_nobody() -> None:
    """Who shares it by then would read under a lease that holds nothing."""
    leases = WeakValueDictionary[int, Lease]()
    lock = Told(leases)
    lease = leases[1] = Lease(1, cast("Lock", lock))
    del lease
    assert lock.found == [None]
