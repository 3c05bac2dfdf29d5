"""Golden bytes: what some values are on a disk in the present format, in the folders beside.

A change of them is another format (`formats.store_format`). After its number was raised,
`SILTSTONE_GOLDENS=write pytest tests/formats tests/compat` writes them again.
"""

from __future__ import annotations

import os
from pathlib import Path


def golden(name: str, data: bytes) -> bytes:
    """Return the committed bytes of the value that is `data` today."""
    path = Path(__file__).parent / name
    if os.environ.get("SILTSTONE_GOLDENS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return path.read_bytes()
