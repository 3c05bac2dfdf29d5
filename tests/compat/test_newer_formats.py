"""What a newer siltstone wrote is refused at every door, and not a byte of it is changed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

import siltstone as st
from siltstone import admin
from siltstone.errors import UnsupportedFormatError
from siltstone.formats import inventory, manifest
from siltstone.formats.log import frame, group
from siltstone.storage.manifest.floor import FLOOR_FORMAT
from siltstone.units import Seq
from tests.compat.diary import OPTIONS
from tests.compat.golden import FORMATS, tree, unpacked

FORM = FORMATS[0]
options: Any = OPTIONS
NEWER_RECORD = manifest.MANIFEST_FORMAT + 1


def newest_record(root: Path) -> Path:
    return max((root / "manifest").glob("*.json"))


def newer_record(root: Path) -> Path:
    path = newest_record(root)
    head, body = b"siltstone-manifest %d " % NEWER_RECORD, b"anything the future likes\n"
    path.write_bytes(head + xxhash.xxh3_64_hexdigest(head + body).encode() + b"\n" + body)
    return path


def newer_floor(root: Path) -> Path:
    head = b"siltstone-floor %d anything the future likes " % (FLOOR_FORMAT + 1)
    path = root / "manifest" / "FLOOR"
    path.write_bytes(head + xxhash.xxh3_64_hexdigest(head).encode() + b"\n")
    return path


def newest_segment(root: Path) -> Path:
    """Return the newest file that is a part of the log."""
    paths = sorted((root / "wal").glob("*.wal"))
    found = [(path, frame.decode_header(path.read_bytes(), path)) for path in paths]
    return max(p for p, header in found if header and p.name.endswith(f"{header.segment:012d}.wal"))


def newer_segment(root: Path) -> Path:
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    data[16:20] = struct.pack("<I", 2)
    data[8:16] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[16:4096])))
    path.write_bytes(data)
    return path


DOORS: dict[str, Callable[[Path], object]] = {
    "own": lambda root: st.connect(root, **options),
    "read": lambda root: st.connect(root, read_only=True),
    "join": lambda root: st.connect(root, join=True),
    "merge": admin.merge_store,
    "optimize": admin.optimize_store,
    "index": lambda root: admin.create_index_in(root, "small", "v", name="more"),
    "vacuum": lambda root: admin.vacuum_store(root, dry_run=False, grace_s=-1e9),
    "verify": admin.verify_store,
    "repair": lambda root: admin.repair(root, dry_run=False, deep=True),
    "backup": lambda root: admin.backup_store(root, root.with_name("backup")),
}


NEWER = {newer_record: NEWER_RECORD, newer_floor: FLOOR_FORMAT + 1}


@pytest.mark.parametrize("make_newer", [newer_record, newer_floor, newer_segment])
def test_a_newer_store_is_refused_at_every_door_and_not_changed(
    make_newer: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = unpacked(FORM, "tags-and-past", tmp_path)
    path = make_newer(root)
    before = tree(root)
    for name, door in DOORS.items():
        with pytest.raises(UnsupportedFormatError) as refused:
            door(root)
        newer = NEWER.get(make_newer, 2)
        assert (refused.value.path, refused.value.found) == (path, newer), name
        assert tree(root) == before, name


def test_a_newer_store_whose_job_died_is_no_case_for_repair(tmp_path: Path) -> None:
    root = unpacked(FORM, "mid-optimize", tmp_path)
    newer_record(root)
    before = tree(root)
    with pytest.raises(UnsupportedFormatError):
        admin.repair(root, dry_run=False)
    assert tree(root) == before


# A format of any file comes with one of the record, which is refused before anything is done. If
# it did not, what meets the file refuses it, and changes nothing that is older than itself.


def newer_frame(root: Path) -> Path:
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    at, end = last_frame(data)
    data[at + 16 : at + 20] = struct.pack("<I", 2)
    data[at + 8 : at + 16] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[at + 16 : end])))
    path.write_bytes(data)
    return path


def newer_entry(root: Path) -> Path:
    """Give the last commit an entry of a kind that is not known."""
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    at, end = last_frame(data)
    head, _ = group.decode(bytes(data[at + frame.FRAME_HEADER_BYTES : end]))
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(head))
    raw[2][0][3].append([99, "what the future likes"])
    text = msgspec.msgpack.encode(raw)
    header = frame.decode_header(data, path)
    assert header is not None
    *_, first_seq, last_seq, durable, checksum = struct.unpack_from("<QQQQ", data, at + 72)
    before = frame.Position(header.epoch, header.segment, at, checksum, Seq(first_seq - 1))
    payload = struct.pack("<I", len(text)) + text
    buffers, end = frame.encode_frame(
        [payload + bytes(-len(payload) % 8)], store_id=header.store_id, at=before,
        first_seq=Seq(first_seq), last_seq=Seq(last_seq), durable_offset=durable,
    )  # fmt: skip
    data[at : end.offset] = b"".join(map(bytes, buffers))
    path.write_bytes(data)
    (root / "wal" / "MARK").unlink()  # it ends elsewhere now
    return Path("wal")


def last_frame(data: bytes | bytearray) -> tuple[int, int]:
    at = end = frame.HEADER_BYTES
    while data[end : end + 8] == b"siltfrm\n":
        at = end
        end = at + frame.frame_bytes(struct.unpack_from("<Q", data, at + 24)[0])
    assert end > at
    return at, end


def newer_inventory(root: Path) -> Path:
    record = manifest.decode(newest_record(root).read_bytes(), "newest")
    base = record.keyed[0].base
    assert base is not None
    path = root / base.inventory
    path.write_bytes(inventory.encode(inventory.decode(path.read_bytes(), "old"), version=2))
    return path


@pytest.mark.parametrize("make_newer", [newer_frame, newer_entry, newer_inventory])
def test_a_newer_file_below_a_record_of_today_is_refused_by_who_meets_it(
    make_newer: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = unpacked(FORM, "dirty-log", tmp_path)
    path = make_newer(root)
    before, log = tree(root), str(newest_segment(root).relative_to(root))
    with pytest.raises(UnsupportedFormatError) as refused, st.connect(root, **options) as store:
        store["small"].to_arrow()
    assert refused.value.path == path
    after = tree(root)
    kept = ("manifest/", "inventory/", "tables/", "commits/")
    if make_newer is not newer_inventory:  # there the store opened, and its log goes on
        kept += (log,)
    names = {name for name in before if name.startswith(kept) and not name.endswith("/")}
    assert {name for name in names if after.get(name) != before[name]} == set()
