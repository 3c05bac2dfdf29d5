"""A store has the lowest format that it needs; an older program refuses a higher one by name."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from siltstone.errors import (
    CorruptionError,
    FencedError,
    InvariantError,
    UnavailableError,
    UnsupportedFormatError,
)
from siltstone.formats import manifest
from siltstone.storage.manifest.manifest_store import ManifestStore, claim_epoch
from siltstone.storage.manifest.store_format import StoreFormat
from tests.crash.manifest_scenario import make_store, store_on
from tests.support.simulated_files import Fault, Kind, SimFiles


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles()
    make_store(files)
    return files


@pytest.fixture
def store(files: SimFiles) -> ManifestStore:
    return store_on(files)


def format_of(store: ManifestStore) -> StoreFormat:
    return StoreFormat(store, store.newest(), lambda: None)


def test_a_new_store_is_of_the_first_format(store: ManifestStore) -> None:
    assert store.newest().format == 1
    files = store._files  # pyright: ignore[reportPrivateUsage]
    assert files.read(store.path(1)).startswith(b"siltstone-manifest 1 ")


def test_a_format_that_is_had_writes_nothing(files: SimFiles, store: ManifestStore) -> None:
    format_of(store).require(1)
    before = files.tree()
    held = format_of(store)
    held.require(1)
    assert files.tree() == before


def test_a_higher_format_is_one_durable_record_and_stays(
    files: SimFiles, store: ManifestStore
) -> None:
    held = format_of(store)
    held.require(2)
    assert (store.newest().number, store.newest().format) == (2, 2)
    held.require(2)
    held.require(1)
    format_of(store).require(2)
    assert store.newest().number == 2
    claim_epoch(store, store.newest())
    assert store.newest().format == 2
    for image in files.images(random.Random(1)):
        assert store_on(image.files).newest().format == 2, image.label


def test_two_that_raise_the_format_at_once_publish_it_once(
    files: SimFiles, store: ManifestStore
) -> None:
    ours, theirs = format_of(store), format_of(store_on(files, "b"))
    theirs.require(2)
    ours.require(2)
    assert store.newest().number == 2


def test_a_reader_of_format_1_refuses_the_store_by_name(
    files: SimFiles, store: ManifestStore
) -> None:
    format_of(store).require(2)
    older = replace(manifest._FILE, format=1)  # pyright: ignore[reportPrivateUsage]
    path = str(store.path(2))
    with pytest.raises(UnsupportedFormatError, match=r"has format 2, .* up to 1; upgrade"):
        older.decode(files.read(store.path(2)), path)


def test_an_owner_of_an_older_epoch_raises_no_format(files: SimFiles, store: ManifestStore) -> None:
    late = format_of(store)
    claim_epoch(store_on(files, "b"), store.newest())
    with pytest.raises(FencedError):
        late.require(2)
    assert store.newest().format == 1


def test_a_disk_that_refuses_the_record_refuses_the_format(
    files: SimFiles, store: ManifestStore
) -> None:
    held = format_of(store)
    files.faults = [Fault(files.operations, Kind.EIO, is_sticky=True)]
    with pytest.raises(UnavailableError):
        held.require(2)
    files.faults = ()
    assert store.newest().format == 1
    held.require(2)
    assert store.newest().format == 2


def test_no_publish_goes_back_to_a_lower_format(store: ManifestStore) -> None:
    format_of(store).require(2)
    with pytest.raises(InvariantError, match="format 2 -> 1"):
        store.publish(lambda r: msgspec.structs.replace(r, format=1), base=store.newest())


def test_a_record_that_says_another_format_than_its_first_line_is_damage(
    store: ManifestStore,
) -> None:
    record = msgspec.structs.replace(store.newest(), format=2)
    data = manifest._FILE.encode(record, 1)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(CorruptionError, match="line 1 is not of format 2"):
        manifest.decode(data, "x")
    with pytest.raises(InvariantError):
        manifest.encode(msgspec.structs.replace(record, format=manifest.MANIFEST_FORMAT + 1))
