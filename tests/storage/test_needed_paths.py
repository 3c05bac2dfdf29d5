"""The files that versions need are the same by their manifests' bytes as by Lance itself."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.errors import CorruptionError, RequestError
from siltstone.formats.manifest import Pin, pins_of
from siltstone.maintenance.gc.sweep import distinct
from siltstone.maintenance.merge import merge
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.files.files import RealFiles
from siltstone.storage.lance.files import manifest
from siltstone.storage.lance.files.manifest import MALFORMED
from siltstone.storage.lance.lance_tables import lance_tables
from siltstone.storage.lance.read.needed_paths import FragmentPaths, LancePaths
from siltstone.storage.tables.store_tables import Tables
from tests.namespace.clients import make, opened

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
FOLDER = "tables/t-1"


@pytest.fixture(autouse=True)
def _small_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table([ids, [f"v{n}" for n in ids]], schema=SCHEMA)


def by_clients(db: Store) -> None:
    """Versions of a plain table that Lance's own clients commit, of each kind."""
    ns = SiltstoneNamespace(db)
    for name, has_stable_ids in (("p", False), ("s", True)):
        make(ns, name, rows(0, 90), max_rows_per_file=30, enable_stable_row_ids=has_stable_ids)
        opened(ns, name).delete("id % 10 = 3")
        opened(ns, name).create_scalar_index("id", "BTREE")
        opened(ns, name).insert(rows(200, 10))
        opened(ns, name).update({"v": "'u'"}, where="id < 5")
        db.checkpoint()
        opened(ns, name).optimize.optimize_indices()
        opened(ns, name).optimize.compact_files()
        opened(ns, name).add_columns({"twice": "id * 2"})
        opened(ns, name).delete("id = 7")
        opened(ns, name).drop_columns(["twice"])
        db.checkpoint()


def by_ourselves(db: Store) -> None:
    """Versions of a plain table, and of a base, a history and loads, with hidden rows and keys."""
    plain = db.create_table("mine", SCHEMA)
    keyed = db.create_table("k", SCHEMA, primary_key="id")
    keyed.upsert(rows(0, 900))
    db.checkpoint()
    db.merge()
    for step in range(6):
        plain.append(rows(step, 5))
        keyed.upsert(rows(step * 3, 40), "null")
        keyed.delete([step])
        db.checkpoint()
        db.merge()
        if step == 2:
            keyed.create_index("v", "bitmap")
            plain.delete_where("id = 3")
            keyed.add_column("w", "int64")
            db.optimize()
    plain.overwrite(rows(0, 3))
    db.checkpoint()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as found:
        yield found


def pins_in(db: Store) -> list[Pin]:
    site = db._parts.site
    records = [site.manifests.read(n) for n in site.manifests.numbers(below_floor=True)]
    return [*distinct(pin for record in records for pin in pins_of(record)).values()]


@pytest.mark.parametrize("live", [by_clients, by_ourselves])
def test_any_versions_need_the_files_that_lance_says_each_needs(db: Store, live) -> None:
    live(db)
    tables, pins = db._parts.site.tables, pins_in(db)
    assert len(pins) > 15
    said = [{file.path for file in tables.reader.files(pin)} for pin in pins]
    assert any(pin.hidden for pin in pins) == (live is by_ourselves)
    kinds = {path.split("/")[-2] for paths in said for path in paths}
    assert {"_transactions", "data"} <= kinds
    assert any("/_deletions/" in path for paths in said for path in paths)
    assert any("/_indices/" in path for paths in said for path in paths)
    assert tables.paths.needed(pins) == set().union(*said)
    for pin, paths in zip(pins, said, strict=True):
        assert tables.paths.needed([pin]) == paths
    rng = random.Random(1)
    for _ in range(30):
        some = rng.sample(range(len(pins)), rng.randrange(len(pins)))
        expected = set().union(*(said[index] for index in some))
        assert tables.paths.needed([pins[index] for index in some]) == expected


# --- what it costs


class CountingFiles(RealFiles):
    """The real files; counts the files that are read."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, path: Path) -> bytes:
        self.reads += 1
        return super().read(path)


class NoLance:
    """Stands for the reader: a version that Lance opens is one too many."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


def appended(tables: Tables, count: int) -> list[Pin]:
    pins = [tables.writer.create(FOLDER, SCHEMA)]
    for step in range(count):
        pins.append(tables.writer.append(pins[-1], rows(step, 1).to_batches()))
    return pins


def test_versions_of_one_table_cost_a_read_each_and_what_each_adds(tmp_path: Path) -> None:
    files = CountingFiles()
    tables = lance_tables(tmp_path, files)
    pins = appended(tables, 40)
    files.reads = 0
    paths = LancePaths(tables.paths._data, NoLance()).needed(pins)
    assert len([path for path in paths if "/data/" in path]) == 40
    assert files.reads == len(pins)  # the inventories are known
    known = FragmentPaths(FOLDER)
    added = [known.added((tmp_path / pin.path).read_bytes()) for pin in pins]
    assert [len(each.paths) for each in added] == [0, *[1] * 40]


# --- what is not known


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    assert number < 2048
    key = number << 3 | 2
    head = bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
    return head + bytes([len(value)]) + value


def with_body(data: bytes, body: bytes) -> bytes:
    """Return a manifest with another protobuf."""
    position, *rest = struct.unpack_from("<QHH4s", data, len(data) - 16)
    made = data[:position] + struct.pack("<I", len(body)) + body
    return made + struct.pack("<QHH4s", position, *rest)


@pytest.fixture
def two(tmp_path: Path) -> tuple[bytes, bytes]:
    """Return the manifests of two versions, one with one part more."""
    pins = appended(lance_tables(tmp_path, RealFiles()), 2)
    first, second = ((tmp_path / pin.path).read_bytes() for pin in pins[1:])
    return first, second


NEW_FRAGMENTS = {
    "a field of a fragment": field(2, field(2, field(1, b"x.lance")) + field(77, b"")),
    "an overlay": field(2, field(2, field(1, b"x.lance")) + field(11, b"")),
    "row ids in a file": field(2, field(2, field(1, b"x.lance")) + field(6, field(1, b"f"))),
    "a data file elsewhere": field(2, field(2, field(1, b"x.lance") + field(7, b""))),
    "a data file without a name": field(2, field(2, b"")),
    "a deletion file elsewhere": field(2, field(3, field(7, b""))),
    "a deletion file of a new kind": field(2, field(3, b"\x08\x09")),
    "a field of the manifest": field(77, b""),
    "base paths": field(18, b""),
    "a feature for readers": b"\x48\xc0\x00",
    "no message": b"\x12\x7f",
}


@pytest.mark.parametrize("what", NEW_FRAGMENTS)
def test_a_manifest_with_something_unknown_is_left_to_lance(
    two: tuple[bytes, bytes], what: str
) -> None:
    first, second = two
    known = FragmentPaths(FOLDER)
    (path,) = known.added(first).paths
    strange = with_body(second, manifest.body_of(second) + NEW_FRAGMENTS[what])
    for _ in range(2):
        with pytest.raises((RequestError, *MALFORMED)):
            known.added(strange)
    (other,) = known.added(second).paths  # what was refused had it, and counts as not asked
    assert other != path
    assert known.added(first).paths == set()


def test_versions_that_are_left_to_lance_are_among_the_others(db: Store) -> None:
    """Lance ignores a field that it does not know: so there may be files that we do not know."""
    table = db.create_table("t", SCHEMA)
    for step in range(4):
        table.append(rows(step, 1))
    db.checkpoint()
    site = db._parts.site
    pins = [pin for pin in pins_in(db) if pin.rows]
    strange = sorted(pins, key=lambda pin: pin.version)[-2]
    path = site.root / strange.path
    data = path.read_bytes()
    path.write_bytes(with_body(data, manifest.body_of(data) + field(77, b"")))
    made = site.tables.paths._data.inventories.pin(
        strange.version, strange.path, strange.rows, strange.inventory
    )
    found = [made if pin is strange else pin for pin in pins]
    expected = {file.path for pin in found for file in site.tables.reader.files(pin)}
    assert site.tables.paths.needed(found) == expected
    with pytest.raises(CorruptionError, match="written"):
        site.tables.paths.needed(pins)  # of the pin that the record names


@pytest.mark.parametrize("cut", [0, 10, 40, 200])
def test_a_manifest_that_is_cut_off_is_no_message(two: tuple[bytes, bytes], cut: int) -> None:
    with pytest.raises((RequestError, *MALFORMED)):
        FragmentPaths(FOLDER).added(two[1][:cut])


@pytest.mark.parametrize("what", ["changed", "missing"])
def test_a_damaged_manifest_is_named_before_anything_counts_as_unneeded(
    tmp_path: Path, what: str
) -> None:
    tables = lance_tables(tmp_path, RealFiles())
    pins = appended(tables, 3)
    path = tmp_path / pins[2].path
    data = bytearray(path.read_bytes())
    path.unlink()
    if what == "changed":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(CorruptionError, match=pins[2].path):
        tables.paths.needed(pins)
