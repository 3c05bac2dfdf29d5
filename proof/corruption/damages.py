"""Damages: what may have happened to a file; each is what the file holds then, None for nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 512
GARBAGE = bytes(range(1, 200))
KINDS = ("flip", "invert", "cut", "zeros", "garbage", "missing", "swapped", "older")


@dataclass(frozen=True, slots=True)
class Damage:
    """`kind` at `at` (a byte, a length or a block; 0 where it is of the whole file)."""

    path: str
    kind: str
    at: int = 0


def every(root: Path) -> Iterator[Damage]:
    """Yield all damages of all files of a store."""
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        path, size = file.relative_to(root).as_posix(), file.stat().st_size
        for at in range(size):
            yield Damage(path, "flip", at)
            yield Damage(path, "invert", at)
            yield Damage(path, "cut", at)
        for at in range(0, size, BLOCK_BYTES):
            yield Damage(path, "zeros", at)
        for kind in ("garbage", "missing", "swapped", "older"):
            yield Damage(path, kind)


def drawn(root: Path, rng: random.Random) -> Damage:
    """Draw a damage: first the kind of file, then its damage, so that no kind is seldom."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    kind_of_file = rng.choice(sorted({kind_of(file.relative_to(root)) for file in files}))
    file = rng.choice([f for f in files if kind_of(f.relative_to(root)) == kind_of_file])
    path, size = file.relative_to(root).as_posix(), file.stat().st_size
    kind = rng.choice(KINDS)
    whole = kind not in {"flip", "invert", "cut", "zeros"}
    at = 0 if whole or not size else rng.randrange(size)
    return Damage(path, kind, at // BLOCK_BYTES * BLOCK_BYTES if kind == "zeros" else at)


def kind_of(path: Path) -> str:
    """Return what a file of a store is: a record, a segment of the log, Lance's data, ..."""
    if path.parts[0] in {"tables", "commits"}:
        folder = next((p for p in path.parts[1:-1] if p.startswith("_") or p == "data"), "")
        return f"{path.parts[0]} {folder} {path.suffix}"
    return f"{path.parts[0]} {path.suffix or path.name}"


def applied(root: Path, damage: Damage) -> bytes | None:
    """Return what the file holds with the damage in it; as it is where that changes nothing."""
    path = root / damage.path
    data, at = path.read_bytes(), damage.at
    if damage.kind in {"flip", "invert"} and data:
        mask = 0x01 if damage.kind == "flip" else 0xFF
        return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    if damage.kind == "cut":
        return data[:at]
    if damage.kind == "zeros":
        return data[:at] + bytes(len(data[at : at + BLOCK_BYTES])) + data[at + BLOCK_BYTES :]
    if damage.kind == "garbage":
        return data + GARBAGE
    if damage.kind in {"swapped", "older"}:
        return _other(root, path, is_older=damage.kind == "older")
    return None if damage.kind == "missing" else data


def _other(root: Path, path: Path, *, is_older: bool) -> bytes:
    """Return what another file of the kind holds; `is_older`: the one before it in its folder."""
    kind = kind_of(path.relative_to(root))
    names = [p for p in path.parent.iterdir() if p.is_file()] if is_older else root.rglob("*")
    alike = sorted(p for p in names if p.is_file() and kind_of(p.relative_to(root)) == kind)
    at = alike.index(path)
    return alike[at - 1].read_bytes()  # the first is given the last
