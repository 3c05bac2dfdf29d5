"""Address: where the socket of a store lies: a private directory, a name from the store's identity.

    $XDG_RUNTIME_DIR/siltstone/<hash>.sock, else <temporary directory>/siltstone-<user>/<hash>.sock

It follows from the directory (device, inode), not from the owner: it can be named in LOCK before
anybody listens there, and an owner finds what a killed one left.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from siltstone.errors import UnavailableError
from siltstone.paths import private_folders

_ADDRESS_BYTES_MAX = 107  # sun_path, with its closing zero


def address_of(identity: tuple[int, int]) -> Path:
    """Return where the socket of a store lies: a private directory, a name from its identity.

    Raises:
        UnavailableError: There is no such directory that is short enough and ours alone.
    """
    name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16] + ".sock"
    refusals: list[str] = []
    for folder in private_folders(refusals):
        address = folder / name
        if len(os.fsencode(address)) <= _ADDRESS_BYTES_MAX:
            return address
        refusals.append(f"{address} is longer than {_ADDRESS_BYTES_MAX} bytes")
    raise UnavailableError(f"no place for the socket: {'; '.join(refusals)}")
