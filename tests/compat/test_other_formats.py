"""A store or backup of another format, lower or higher, is refused by name, and stays as it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

import siltstone as st
from siltstone import admin
from siltstone.cli import main
from siltstone.errors import CorruptionError, UnsupportedFormatError
from siltstone.formats import manifest
from siltstone.formats.log import frame, group
from siltstone.namespace import SiltstoneNamespace
from siltstone.units import Seq
from tests.compat.diary import OPTIONS
from tests.compat.golden import tree, unpacked

options: Any = OPTIONS
HUGE = pytest.param("9" * 5_000, id="huge")
SAID = (
    "has format {}, and this siltstone opens format {} alone; export the store with the siltstone"
    " that wrote it, or make a demo store again"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store with rows in base, in history and in the log, FLOOR, and a backup beside."""
    with st.connect(tmp_path / "s", **options) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        for number in range(3):
            table.upsert({"id": number, "v": "v"})
            db.checkpoint()
            db.merge()
        db._owner().vacuum._retention_s = 0  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        db.vacuum(dry_run=False, grace_s=-1e9)
        table.upsert({"id": 9, "v": "in history"})
        db.checkpoint()
        table.upsert({"id": 10, "v": "in the log"})
        db.backup(tmp_path / "backup")
    assert (tmp_path / "s/manifest/FLOOR").exists()
    return tmp_path / "s"


def present(root: Path) -> int:
    """Return the format of a store."""
    return int(max((root / "manifest").glob("*.json")).read_bytes().split()[1])


def sealed(head: bytes, body: bytes = b"") -> bytes:
    """Return a file of ours that begins with `head` and its checksum."""
    return head + xxhash.xxh3_64_hexdigest(head + body).encode() + b"\n" + body


def record_of(root: Path, number: object) -> Path:
    """Give the newest record another number; the rest is as it was."""
    path = max((root / "manifest").glob("*.json"))
    body = path.read_bytes().partition(b"\n")[2]
    path.write_bytes(sealed(f"siltstone-manifest {number} ".encode(), body))
    return path


def floor_of(root: Path, number: object) -> Path:
    path = root / "manifest" / "FLOOR"
    rest = path.read_bytes().split(b" ", 2)[2].rpartition(b" ")[0]
    path.write_bytes(sealed(f"siltstone-floor {number} ".encode() + rest + b" "))
    return path


def segment_of(root: Path, number: object) -> Path:
    assert isinstance(number, int)
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    data[16:20] = struct.pack("<I", number)
    data[8:16] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[16:4096])))
    path.write_bytes(data)
    return path


def newest_segment(root: Path) -> Path:
    """Return the newest file that is a part of the log."""
    paths = sorted((root / "wal").glob("*.wal"))
    found = [(path, frame.decode_header(path.read_bytes(), path)) for path in paths]
    return max(p for p, header in found if header and p.name.endswith(f"{header.segment:012d}.wal"))


def read_of_a_namespace(root: Path) -> None:
    with st.connect(root, read_only=True) as db:
        SiltstoneNamespace(db).list_tables({"id": []})


DOORS: dict[str, Callable[[Path], object]] = {
    "own": lambda root: st.connect(root, **options),
    "read": lambda root: st.connect(root, read_only=True),
    "join": lambda root: st.connect(root, join=True),
    "namespace": read_of_a_namespace,
    "merge": admin.merge_store,
    "optimize": admin.optimize_store,
    "index": lambda root: admin.create_index_in(root, "t", "v", name="more"),
    "vacuum": lambda root: admin.vacuum_store(root, dry_run=False, grace_s=-1e9),
    "verify": admin.verify_store,
    "repair": lambda root: admin.repair(root, dry_run=False, deep=True),
    "backup": lambda root: admin.backup_store(root, root.with_name("another backup")),
    "maintain": admin.maintain_store,
    "due": admin.due_of,
}


@pytest.mark.parametrize("change", [record_of, floor_of, segment_of])
@pytest.mark.parametrize("away", [-1, 1, 1_000])
def test_a_store_of_another_number_is_refused_at_every_door_and_not_changed(
    root: Path, change: Callable[[Path, object], Path], away: int
) -> None:
    ours = present(root)
    other = ours + away
    path = change(root, other)
    before = tree(root.parent)
    for name, door in DOORS.items():
        with pytest.raises(UnsupportedFormatError) as refused:
            door(root)
        assert str(refused.value) == f"{path} {SAID.format(other, ours)}", name
        found = (refused.value.path, refused.value.found, refused.value.known)
        assert found == (path, other, ours), name
        assert tree(root.parent) == before, name


@pytest.mark.parametrize("away", [-1, 1])
def test_the_command_line_says_so_in_one_line(
    root: Path, away: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = present(root)
    path = record_of(root, ours + away)
    before = tree(root.parent)
    target = str(root.with_name("t.csv"))
    for command in (["export", "t", target], ["verify"], ["repair"], ["status"], ["merge"]):
        assert main([*command, "--db", str(root)]) == 1, command
        said = capsys.readouterr().err
        assert f"{path} {SAID.format(ours + away, ours)}" in said, command
    assert tree(root.parent) == before


@pytest.mark.parametrize("number", ["x", "0", "-1", "06", "6.0", HUGE, ""])
@pytest.mark.parametrize("change", [record_of, floor_of])
def test_what_is_no_number_is_damage(
    root: Path, change: Callable[[Path, object], Path], number: str
) -> None:
    path = change(root, number)
    before = tree(root.parent)
    for name in ("read", "backup"):
        with pytest.raises(CorruptionError) as damaged:
            DOORS[name](root)
        assert damaged.value.path == path, name
    assert not admin.verify_store(root).is_sound
    assert tree(root.parent) == before


def backup_of(root: Path, number: object) -> Path:
    """Give the backup of a store another number."""
    (path,) = (root.with_name("backup")).glob("BACKUP-*.json")
    body = path.read_bytes().partition(b"\n")[2]
    path.write_bytes(sealed(f"siltstone-backup {number} ".encode(), body))
    return path


@pytest.mark.parametrize("away", [-1, 1, 1_000])
def test_a_backup_of_another_number_is_refused_before_anything_is_copied(
    root: Path, away: int
) -> None:
    ours = present(root)
    path = backup_of(root, ours + away)
    folder, target = root.with_name("backup"), root.with_name("restored")
    before = tree(root.parent)
    for door in (lambda: st.restore(folder, target), lambda: st.backups(folder)):
        with pytest.raises(UnsupportedFormatError) as refused:
            door()
        assert str(refused.value) == f"{path} {SAID.format(ours + away, ours)}"
    assert tree(root.parent) == before
    assert not target.exists()


@pytest.mark.parametrize("number", ["x", "0", "07", HUGE])
def test_a_backup_whose_number_is_none_is_damaged(root: Path, number: str) -> None:
    path = backup_of(root, number)
    with pytest.raises(CorruptionError) as damaged:
        st.restore(root.with_name("backup"), root.with_name("restored"))
    assert damaged.value.path == path
    assert not root.with_name("restored").exists()


def test_a_store_of_another_number_whose_job_died_is_no_case_for_repair(tmp_path: Path) -> None:
    root = unpacked("mid-optimize", tmp_path)
    record_of(root, present(root) - 1)
    before = tree(root)
    with pytest.raises(UnsupportedFormatError):
        admin.repair(root, dry_run=False)
    assert tree(root) == before


# All files of a store have its number, which is looked at before anything is done. If one had
# another, what meets the file refuses it, and changes nothing that is older than itself.


def frame_of(root: Path) -> Path:
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    at, end = last_frame(data)
    data[at + 16 : at + 20] = struct.pack("<I", present(root) + 1)
    data[at + 8 : at + 16] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[at + 16 : end])))
    path.write_bytes(data)
    return path


def unknown_entry(root: Path) -> Path:
    """Give the last commit an entry of a kind that is not known."""
    path = newest_segment(root)
    data = bytearray(path.read_bytes())
    at, end = last_frame(data)
    head, _ = group.decode(bytes(data[at + frame.FRAME_HEADER_BYTES : end]))
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(head))
    raw[2][0][3].append([99, "what another build likes"])
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


def inventory_of(root: Path) -> Path:
    record = manifest.decode(max((root / "manifest").glob("*.json")).read_bytes(), "newest")
    base = record.keyed[0].base
    assert base is not None
    path = root / base.inventory
    with pa.ipc.open_stream(path.read_bytes()[:-16]) as reader:
        table = reader.read_all()
    said = {**(table.schema.metadata or {}), b"siltstone.format": b"%d" % (present(root) + 1)}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(said)) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    trailer = path.read_bytes()[-16:-8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    path.write_bytes(body + trailer)
    return path


@pytest.mark.parametrize("change", [frame_of, unknown_entry, inventory_of])
def test_a_file_of_another_number_below_a_record_of_ours_is_refused_by_who_meets_it(
    change: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = unpacked("dirty-log", tmp_path)
    path = change(root)
    before, log = tree(root), str(newest_segment(root).relative_to(root))
    with pytest.raises(UnsupportedFormatError) as refused, st.connect(root, **options) as store:
        store["small"].to_arrow()
    assert refused.value.path == path
    after = tree(root)
    kept = ("manifest/", "inventory/", "tables/", "commits/")
    if change is not inventory_of:  # there the store opened, and its log goes on
        kept += (log,)
    names = {name for name in before if name.startswith(kept) and not name.endswith("/")}
    assert {name for name in names if after.get(name) != before[name]} == set()
