"""Reading: the rows of scan tasks on their way to the JVM.

    through a region   [i32 rows, ..: see `layout`] ..   the JVM answers a byte for each that it has
                                                         used; up to `SLOTS` are on the way
    as a stream        [i32 n > 0, n bytes of an Arrow stream] ..

Both end with a number: END, or FAILED and an answer with the error. GROWN and an answer with the
place of a larger region come between batches.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from siltstone.errors import LimitError
from siltstone.spark.daemon.layout import bytes_of, fitting, put
from siltstone.spark.daemon.messages import Channel
from siltstone.spark.daemon.regions import MEMORY, SLOT_BYTES, SLOTS, MemoryBudget, Region

END, GROWN, FAILED = -1, -2, -3
STREAM_BYTES = 1 << 20


class RegionWriter:
    """Sends batches through the region of one connection, which it makes when it needs it."""

    def __init__(self, channel: Channel, budget: MemoryBudget) -> None:
        self._channel, self._budget = channel, budget
        self.region: Region | None = None
        self._used, self._slot = 0, 0

    def open(self) -> Region | None:
        """Return the region for the next task; None: there is no memory for one."""
        if self.region is None:
            self.region = self._budget.region_of()
        return self.region

    def send(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Send batches of flat columns, until the JVM has used them all.

        Raises:
            LimitError: There is no memory for a row.
            Ended: The JVM needs no more.
        """
        try:
            for batch in batches:
                self._send(batch)
        finally:
            self._drain()

    def end(self) -> None:
        """Give up a region that a large row made large; the JVM has used all batches.

        Its connection is kept, and would keep the memory from reads of others for as long.
        """
        if self.region is not None and self.region.slot_bytes > SLOT_BYTES:
            self.close()

    def close(self) -> None:
        """Give the region up."""
        if self.region is not None:
            self.region.close()
            self.region, self._slot = None, 0

    def _send(self, batch: pa.RecordBatch) -> None:
        assert self.region is not None
        for piece in fitting(batch, self.region.slot_bytes):
            if not piece.num_rows:
                continue
            region = self._fitting(bytes_of(piece))
            if self._used == SLOTS:
                self._acknowledged()
            self._channel.send(put(piece, region.address, self._slot * region.slot_bytes))
            self._slot, self._used = (self._slot + 1) % SLOTS, self._used + 1

    def _fitting(self, size: int) -> Region:
        """Return the region, a new one if its slots are too small."""
        assert self.region is not None
        if size <= self.region.slot_bytes:
            return self.region
        self._drain()
        old = self.region
        new = self._budget.region_of(size)
        if new is None:
            raise LimitError(
                f"a row takes {size} bytes, and {SLOTS} of that size are more than {MEMORY} leaves"
                f" ({self._budget.left} of {self._budget.bytes_max} bytes); raise it",
                bytes_max=self._budget.bytes_max,
            )
        self.region, self._slot = new, 0
        old.close()
        self._channel.number(GROWN)
        self._channel.answer(new.place())
        return new

    def _drain(self) -> None:
        while self._used:
            self._acknowledged()

    def _acknowledged(self) -> None:
        self._channel.receive(1)
        self._used -= 1


def send_stream(channel: Channel, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Send batches as an Arrow stream, without the number at its end.

    Raises:
        Ended: The JVM needs no more.
    """
    with pa.PythonFile(_Chunks(channel), "w") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


class _Chunks(io.RawIOBase):
    """A file whose bytes go to the JVM in pieces."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def writable(self) -> bool:
        """It is only written."""
        return True

    def write(self, data: Any, /) -> int:
        """Send bytes, all of them."""
        view = memoryview(data)
        for first in range(0, len(view), STREAM_BYTES):
            piece = view[first : first + STREAM_BYTES]
            self._channel.number(len(piece))
            self._channel.send(piece)
        return len(view)
