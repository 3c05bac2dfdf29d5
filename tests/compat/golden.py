"""Golden: the committed stores, unpacked, and how it is seen that nothing in one changed."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from tests.compat.answers import Answers, from_text
from tests.compat.make_stores import STORES

GOLDEN = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))


def unpacked(state: str, folder: Path) -> Path:
    """Unpack a store below `folder`; return its root."""
    with tarfile.open(STORES / f"{state}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / state


def expected(state: str) -> Answers:
    return from_text((STORES / f"{state}.json").read_text())


def tree(root: Path) -> dict[str, tuple[str, int]]:
    """Return what is below `root`: bytes and ages by path."""
    paths = [path for path in root.rglob("*") if path.is_file()]
    digests = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)
    found = {str(p.relative_to(root)): (text, p.stat().st_mtime_ns) for p, text in digests}
    folders = [path for path in root.rglob("*") if path.is_dir()]
    return found | {f"{p.relative_to(root)}/": ("", p.stat().st_mtime_ns) for p in folders}
