"""Format check: finds out whether a siltstone of another format wrote a store, before all else.

    newest record    its format is that of the store: a change of the bytes of any file raises it
    FLOOR            replaced without a record
    headers of log   an owner writes its segments before its first checkpoint

Damaged files do not count here; later reads report them. It makes no write call, and costs a
listing and 4 KiB per segment.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from siltstone.errors import CorruptionError
from siltstone.formats.log.frame import HEADER_BYTES, decode_header
from siltstone.storage.files.files import ABSENT, Files, refusals
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.wal.segments import parse_name, read_part

_DAMAGED = (CorruptionError, *ABSENT)


def refuse_others(files: Files, root: Path) -> None:
    """Check that no siltstone of another format wrote a store.

    Raises:
        UnsupportedFormatError: One did; nothing was changed.
        UnavailableError: The file system refuses.
    """
    manifests = ManifestStore(files, root)
    with suppress(*_DAMAGED):
        manifests.kept()
    with suppress(*_DAMAGED):
        for number in manifests.numbers(below_floor=True)[-1:]:
            manifests.read(number)
    with refusals(f"cannot read the log of {root}"), suppress(*ABSENT):
        for name in filter(parse_name, files.list(root / "wal")):
            path = root / "wal" / name
            with suppress(FileNotFoundError):  # recycled since it was listed
                decode_header(read_part(files, path, 0, HEADER_BYTES), path)
