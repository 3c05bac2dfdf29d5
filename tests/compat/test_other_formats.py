"""A store or backup of another format, lower or higher, is refused by name, and stays as it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

import siltstone as st
from siltstone import admin
from siltstone.cli import main
from siltstone.errors import CorruptionError, UnsupportedFormatError
from siltstone.formats import frame
from siltstone.namespace import SiltstoneNamespace
from tests.compat.diary import OPTIONS
from tests.compat.golden import tree

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
