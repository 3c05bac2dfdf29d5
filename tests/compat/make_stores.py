"""Make the golden stores of the present format: `python -m tests.compat.make_stores`.

    stores/<format>/<state>.tar.xz  a store as its owner left it, or as a kill left it
    stores/<format>/<state>.json    what it answered before (`answers`)
    stores/<format>/SHA256          the digests of both

A state that is there is not made again: its bytes stand for what users of this format have on their
disks. Stores of another format, which nothing reads any more, are deleted.
Each state (`lives`) is of a process of its own, that ends by SIGKILL. In an archive also empty
directories and the ages of files are kept, and git changes neither.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from siltstone.formats.store_format import STORE_FORMAT
from tests.compat import lives

ALL_STORES = Path(__file__).with_name("stores")
STORES = ALL_STORES / str(STORE_FORMAT)
REPOSITORY = Path(__file__).parents[2]


def digests(folder: Path) -> str:
    """Return a line per file of a format: sha256 and name."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in {".xz", ".json"})
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in paths)


def make(target: Path, states: Iterable[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for state in states:
            root, said = Path(folder) / state, target / f"{state}.json"
            command = [sys.executable, "-m", "tests.compat.make_stores", "--live", state]
            done = subprocess.run([*command, str(root), str(said)], cwd=REPOSITORY, check=False)
            if done.returncode != -signal.SIGKILL or not said.exists():
                raise SystemExit(f"{state} ended with {done.returncode}")
            _require_portable(root, folder)
            with tarfile.open(target / f"{state}.tar.xz", "w:xz", preset=9) as archive:
                archive.add(root, state, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _require_portable(root: Path, folder: str) -> None:
    """Refuse a store that says where it was: nobody could move it."""
    files = [path for path in root.rglob("*") if path.is_file()]
    named = [path for path in files if folder.encode() in path.read_bytes()]
    if named:
        raise SystemExit(f"these name {folder}: {named}")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.compat.make_stores")
    parser.add_argument("--live", nargs=3, metavar=("STATE", "ROOT", "SAID"))
    parser.add_argument("--into", type=Path, default=STORES)
    given = parser.parse_args()
    if given.live:
        state, root, said = given.live
        lives.live(state, Path(root), Path(said))
    states = [state for state in lives.STATES if not (given.into / f"{state}.tar.xz").exists()]
    if not states:
        raise SystemExit("each state is there, and is made again only in another format")
    for path in ALL_STORES.iterdir():
        if path != STORES:
            shutil.rmtree(path)
    given.into.mkdir(parents=True, exist_ok=True)
    make(given.into, states)
    (given.into / "SHA256").write_text(digests(given.into))


if __name__ == "__main__":
    main()
