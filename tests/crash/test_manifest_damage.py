"""A damaged record or FLOOR is found and named, never read as other data."""

import msgspec
import pytest
import xxhash

from siltstone.errors import CorruptionError, UnsupportedFormatError
from siltstone.formats import manifest
from siltstone.formats.manifest import Catalog, Tag, TokenApp
from siltstone.formats.store_format import STORE_FORMAT
from siltstone.storage.manifest.manifest_store import ManifestStore
from tests.crash.manifest_scenario import make_store, raise_floor, store_on
from tests.support.simulated_files import SimFiles


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles()
    make_store(files)
    catalog = Catalog(tags=(Tag("v1", 3, 5),), apps=(TokenApp("etl", 2, 9),))
    store = store_on(files)
    store.publish(
        lambda r: msgspec.structs.replace(r, catalog=catalog, last_seq=12), base=store.newest()
    )
    raise_floor(store, 1)
    return files


@pytest.fixture
def store(files: SimFiles) -> ManifestStore:
    return store_on(files)


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x20, 0x80, 0xFF])
def test_no_flipped_byte_of_a_record_is_read(
    files: SimFiles, store: ManifestStore, mask: int
) -> None:
    path = store.path(2)
    whole = files.read(path)
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= mask
        files.replace(path, damaged, durable=False)
        with pytest.raises(CorruptionError) as found:
            store.newest()
        assert found.value.path == path, f"byte {offset}"


def test_no_truncated_extended_or_zeroed_record_is_read(
    files: SimFiles, store: ManifestStore
) -> None:
    path = store.path(2)
    whole = files.read(path)
    cuts = [whole[:size] for size in range(len(whole))]
    zeroed = [whole[:size] + bytes(len(whole) - size) for size in range(len(whole))]
    for damaged in (*cuts, *zeroed, whole + b"\0", whole + b"\n", whole + whole, b"\0" + whole):
        files.replace(path, damaged, durable=False)
        with pytest.raises(CorruptionError):
            store.newest()


def test_every_other_digit_of_the_format_is_damage(files: SimFiles, store: ManifestStore) -> None:
    path = store.path(2)
    whole = files.read(path)
    ours = b"%d" % STORE_FORMAT
    for digits in (b"0", b"1", b"5", b"0" + ours, ours + b"1", b"", b"-1", ours + b".0"):
        head = b"siltstone-manifest %s "
        damaged = whole.replace(head % ours, head % digits)
        assert damaged != whole
        files.replace(path, damaged, durable=False)
        with pytest.raises(CorruptionError):
            store.newest()


@pytest.mark.parametrize("other", [STORE_FORMAT - 1, STORE_FORMAT + 1])
def test_a_record_of_another_format_is_unsupported_and_not_changed(
    files: SimFiles, store: ManifestStore, other: int
) -> None:
    path = store.path(2)
    head, body = b"siltstone-manifest %d " % other, b"anything that it likes\n"
    files.replace(path, head + xxhash.xxh3_64_hexdigest(head + body).encode() + b"\n" + body)
    before = files.tree()
    with pytest.raises(UnsupportedFormatError) as refused:
        store.newest()
    found = (refused.value.found, refused.value.known, refused.value.path)
    assert found == (other, STORE_FORMAT, path)
    assert files.tree() == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"store_id": 1}', b"\xff"])
def test_a_body_that_is_no_record_is_damage_whatever_its_checksum_says(body: bytes) -> None:
    head = b"siltstone-manifest %d " % STORE_FORMAT
    data = head + xxhash.xxh3_64_hexdigest(head + body).encode() + b"\n" + body
    with pytest.raises(CorruptionError, match="not a record"):
        manifest.decode(data, "x")


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x20, 0xFF])
def test_no_damaged_floor_is_read(files: SimFiles, store: ManifestStore, mask: int) -> None:
    path = store.folder / "FLOOR"
    whole = files.read(path)
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= mask
        for bad in (bytes(damaged), whole[:offset]):
            files.replace(path, bad, durable=False)
            with pytest.raises(CorruptionError):
                store.kept()


def test_a_chain_whose_records_are_all_gone_is_damage_and_not_an_empty_store(
    files: SimFiles, store: ManifestStore
) -> None:
    for number in store.numbers():
        files.unlink(store.path(number))
    for look in (store.newest, lambda: make_store(files)):
        with pytest.raises(CorruptionError):
            look()
    files.unlink(store.folder / "FLOOR")
    files.unlink(store.folder / "FLOOR.lock")
    files.mkdir(store.folder.parent / "tables")
    before = files.tree()
    with pytest.raises(CorruptionError):
        make_store(files)
    assert files.tree() == before
