"""Address: where the socket of a store lies: a private directory, a name from the store's identity.

    $XDG_RUNTIME_DIR/siltstone/<hash>.sock, else <temporary directory>/siltstone-<user>/<hash>.sock

It follows from the directory (device, inode), not from the owner: it can be named in LOCK before
anybody listens there, and an owner finds what a killed one left.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from siltstone.errors import UnavailableError

_ADDRESS_BYTES_MAX = 107  # sun_path, with its closing zero


def address_of(identity: tuple[int, int]) -> Path:
    """Return where the socket of a store lies: a private directory, a name from its identity.

    Raises:
        UnavailableError: There is no such directory that is short enough and ours alone.
    """
    name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16] + ".sock"
    refusals: list[str] = []
    for folder in _folders():
        address = folder / name
        if len(os.fsencode(address)) > _ADDRESS_BYTES_MAX:
            refusals.append(f"{address} is longer than {_ADDRESS_BYTES_MAX} bytes")
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            refusals.append(f"{folder}: {error}")
            continue
        is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if stat.S_ISDIR(found.st_mode) and is_private:
            return address
        refusals.append(f"{folder} is not a directory of ours alone (mode 0700)")
    raise UnavailableError(f"no place for the socket: {'; '.join(refusals)}")


def _folders() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    temporary = [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - ours alone, checked
    folders = [folder / f"siltstone-{os.geteuid()}" for folder in temporary]
    return [Path(runtime) / "siltstone", *folders] if runtime else folders
