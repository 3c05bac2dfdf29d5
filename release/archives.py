"""Archives: a wheel and a source archive, and what has to be in them, no more and no less."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
STEM = f"siltstone-{VERSION}"
JAR = "siltstone/spark/jars/siltstone-4.3.jar"
_INFO = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
_ORIGINAL = "pyproject.toml.orig"
"""Newer ones of uv tidy up our file in a source archive, and put it there as it was, too."""


def build(into: Path) -> tuple[Path, Path]:
    """Build both archives of the working copy; return the wheel and the source archive."""
    command = [ROOT / "bin" / "uv", "build", "--quiet", "--out-dir", into]
    subprocess.run(command, cwd=ROOT, check=True)
    return into / f"{STEM}-py3-none-any.whl", into / f"{STEM}.tar.gz"


def names_in(archive: Path) -> set[str]:
    """Return the names of the files of an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {each.filename for each in opened.infolist() if not each.is_dir()}
    with tarfile.open(archive) as opened:
        return {each.name for each in opened if not each.isdir()}


def wanted_in(archive: Path) -> set[str]:
    """Return the names that an archive of this version has to have."""
    ours = tracked()
    if archive.suffix == ".whl":
        sources = {name.removeprefix("src/") for name in ours if name.startswith("src/")}
        return sources | {JAR} | {f"{STEM}.dist-info/{name}" for name in _INFO}
    named = {"README.md", "LICENSE", "pyproject.toml", *_included()}
    kept = {name for name in ours if name.startswith("src/") or _is_of(name, named)}
    return {f"{STEM}/{name}" for name in kept | {f"src/{JAR}", "PKG-INFO"}}


def differences(archive: Path) -> list[str]:
    """Return what an archive lacks, and what it has that is none of ours."""
    found, wanted = names_in(archive) - {f"{STEM}/{_ORIGINAL}"}, wanted_in(archive)
    lacks = [f"{archive.name} lacks {name}" for name in sorted(wanted - found)]
    return lacks + [f"{archive.name} has {name}" for name in sorted(found - wanted)]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, as text."""
    return sha256(path.read_bytes()).hexdigest()


def dated(changes: str, version: str) -> str | None:
    """Return the day of a version in the text of the change log; None: it has none there."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", changes, re.MULTILINE
    )
    return found[1] if found else None


def tracked() -> list[str]:
    """Return the names of the files that git has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name]


def _included() -> list[str]:
    return PROJECT["tool"]["uv"]["build-backend"]["source-include"]


def _is_of(name: str, named: set[str]) -> bool:
    folder = name.partition("/")[0]
    return name in named or f"{folder}/**" in named
