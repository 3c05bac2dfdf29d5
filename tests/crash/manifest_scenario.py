"""What the crash and fault tests of the manifest run: a store is made, changed, its past cut."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from siltstone.formats.manifest import Record, Tag
from siltstone.storage.files.files import Files
from siltstone.storage.manifest.manifest_store import ManifestStore, initialise

ROOT = Path("/data/shop")


def store_on(files: Files, process: str = "a", **options: Any) -> ManifestStore:
    tokens = count(1)
    return ManifestStore(
        files, ROOT, now_us=lambda: 1, new_token=lambda: f"{process}{next(tokens)}", **options
    )


def make_store(files: Files) -> Record:
    tokens = count(1)
    return initialise(files, ROOT, now_us=lambda: 1, new_token=lambda: f"first{next(tokens)}")


def add(name: str):
    """Return a change that is done when `name` is in the record, however it came there."""

    def change(record: Record) -> Record:
        return record if name in marks(record) else marked(record, name)

    return change


def marks(record: Record) -> tuple[str, ...]:
    """Return what the changes of `add` left in a record: its tags, in the order of the changes."""
    return tuple(tag.name for tag in record.catalog.tags)


def marked(record: Record, name: str) -> Record:
    tags = (*record.catalog.tags, Tag(name, 0, 0))
    catalog = msgspec.structs.replace(record.catalog, tags=tags)
    return msgspec.structs.replace(record, catalog=catalog)


def raise_floor(store: ManifestStore, number: int) -> None:
    """Give up all records below one, as a vacuum does."""
    seen = store.kept()
    assert store.replace_floor(seen, seen.above(number))


@dataclass
class Progress:
    """What was begun and what was acknowledged, in order."""

    begun: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    floor: int = 0


def run(files: Files, progress: Progress) -> None:
    for step in steps(files, progress):
        step()


def steps(files: Files, progress: Progress) -> Iterator:
    """Yield the parts of the scenario: two processes publish in turn, with stale bases."""
    yield lambda: make_store(files)
    mine, theirs = store_on(files, "mine"), store_on(files, "theirs")

    def publish(store: ManifestStore, name: str, base: int) -> None:
        progress.begun.append(name)
        store.publish(add(name), base=store.read(base) if base else store.newest())
        progress.acknowledged.append(name)

    def cut(number: int) -> None:
        raise_floor(theirs, min(number, theirs.newest().number))
        progress.floor = number

    yield lambda: publish(mine, "a", 0)
    yield lambda: publish(theirs, "b", 1)
    yield lambda: publish(mine, "c", 1)
    yield lambda: cut(2)
    yield lambda: publish(theirs, "d", 2)
    yield lambda: cut(3)
    yield lambda: publish(mine, "e", 0)


def check(files: Files, progress: Progress) -> None:
    """The store holds all that was acknowledged, nothing that was not begun, and goes on."""
    record = make_store(files)
    store = store_on(files, "after")
    assert store.newest() == record
    held = list(marks(record))
    assert len(set(held)) == len(held), "a change was applied twice"
    assert set(progress.acknowledged) <= set(held) <= set(progress.begun)
    assert progress.floor <= store.kept().number <= record.number
    for number in store.numbers():
        found = marks(store.read(number))
        assert found == tuple(held[: len(found)])
    later = store.publish(add("later"), base=record)
    assert marks(later) == (*marks(record), "later")
    assert store.newest() == later
