"""Arrow file: rows in a file of ours, where Lance does not take them.

    tables/<table>/.fallback/<token>/_siltstone/rows.arrow   an Arrow IPC stream, written once

It is synced before its pin is returned. The pin has the size and the checksum; no inventory does.

A crash before a record names it leaves a file that vacuum finds.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import xxhash

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import PRIVATE_DIRECTORY, Pin
from siltstone.storage.files.copying import require_same
from siltstone.storage.files.files import Buffer, Files, reading, refusals, write_parts

DIRECTORY, NAME = ".fallback", "rows.arrow"


def write(
    files: Files, root: Path, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Pin:
    """Write rows to a new file, durable on return; `folder` is new, and relative to `root`.

    The columns of `batches` are in the order of `schema`. One batch more than that is in memory.

    Raises:
        UnavailableError: The file system refuses.
    """
    name = f"{folder}/{PRIVATE_DIRECTORY}/{NAME}"
    path, written = root / name, _Written()
    with refusals(f"{path} cannot be written"):
        files.mkdir(path.parent)
        write_parts(files, path, written.parts(schema, batches))
        files.sync_dir(path.parent)
    return Pin(0, name, written.size, written.digest.hexdigest(), written.rows, "")


def read(files: Files, root: Path, pin: Pin) -> pa.Table:
    """Return the rows of a file, after its bytes were checked; they stay in memory.

    Raises:
        CorruptionError: The bytes are not those that were written, or the file is missing.
        UnavailableError: The file system refuses.
    """
    path = root / pin.path
    with reading(path):
        data = files.read(path)
    found = len(data), xxhash.xxh3_64_hexdigest(data)
    require_same(path, found, InventoryFile(pin.path, pin.size, pin.xxh3))
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


class _Written:
    """What was written so far."""

    def __init__(self) -> None:
        self.size, self.rows, self.digest = 0, 0, xxhash.xxh3_64()

    def parts(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Buffer]:
        """Yield the bytes of a stream, batch by batch."""
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, schema) as stream:
            for batch in batches:
                stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                self.rows += batch.num_rows
                yield self._taken(sink)
        yield self._taken(sink)

    def _taken(self, sink: io.BytesIO) -> bytes:
        piece = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        self.digest.update(piece)
        self.size += len(piece)
        return piece
