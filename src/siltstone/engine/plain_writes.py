"""Plain writes: what one transaction does to one plain table, as a private line of staged versions.

    version read ──append / overwrite / delete──▶ staged pin ──▶ staged pin     named by nobody
                                                      commit: an `advance` frame names the last

Each operation is staged at once, so the transaction reads its own writes. If the table moved before
the commit, appends are put on the new version (same data files); anything else is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from siltstone.engine.filtering import Filter
from siltstone.engine.reader import PlainReader, Readers
from siltstone.engine.shape import Shape
from siltstone.engine.write_set import AdvancePart
from siltstone.errors import RequestError
from siltstone.formats import group
from siltstone.formats.manifest import Pin
from siltstone.storage.tables import POSITION, Staged, Tables


class PlainWrites:
    """Uncommitted versions of one incarnation. One transaction, one thread at a time."""

    def __init__(
        self,
        table: int,
        incarnation: int,
        folder: str,
        shape: Shape,
        start: Pin | None,
        tables: Tables,
    ) -> None:
        self.table, self.incarnation, self.shape = table, incarnation, shape
        self._folder, self._tables = folder, tables
        self._start, self.pin = start, start
        self._appends: list[Staged] | None = []
        self.rows = 0

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to commit."""
        return self.pin is not self._start

    def reader(self, readers: Readers) -> PlainReader:
        """Return the table as the transaction sees it."""
        return readers.plain(self.shape, self.pin)

    def _existing(self) -> Pin:
        if self.pin is None:
            self.pin = self._tables.create(self._folder, self.shape.arrow)
        return self.pin

    def append(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows; return how many."""
        before = self.pin
        start = self._existing()
        staged = self._tables.stage(self._folder, start, batches)
        if not staged.rows:
            self.pin = before
            return 0
        return self._put(start, staged)

    def attach(self, folder: str, pin: Pin, staged: Staged) -> int:
        """Add rows that were staged against `pin`, of the dataset in `folder`; return how many.

        Raises:
            SchemaMismatchError: Their columns were renamed or dropped since.
            RequestError: The table lives in another dataset since (it was truncated).
        """
        if not staged.rows:
            return 0
        if self.pin is not None and folder != self._folder:
            raise RequestError("the table was truncated since the rows were staged; stage again")
        if self.pin is not None:
            return self._put(self.pin, staged)
        if folder == self._folder:
            return self._put(pin, staged)
        # Truncated by this transaction: the staged rows alone, where they are.
        self._folder, self._appends = folder, None
        nothing = self._tables.rewrite(folder, pin, drop=np.arange(pin.rows), batches=())
        return self._put(nothing, staged)

    def _put(self, start: Pin, staged: Staged) -> int:
        self.pin = self._tables.commit(self._folder, start, staged)
        if self._appends is not None:
            self._appends.append(staged)
        self.rows += staged.rows
        return staged.rows

    def overwrite(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Replace all rows; return how many there are now."""
        start = self._existing()
        self._appends = None
        self.pin = self._tables.overwrite(self._folder, start, self.shape.arrow, batches)
        self.rows += self.pin.rows
        return self.pin.rows

    def delete_where(self, wanted: Filter) -> int:
        """Delete the rows that match; return how many."""
        if self.pin is None:
            return 0
        names = {name: name for name in wanted.columns}
        batches = self._tables.open(self._folder, self.pin).scan(
            sorted(wanted.columns), prefilter=wanted.prefilter(names), positions=True
        )
        found = [wanted.keep(batch).column(POSITION).to_numpy() for batch in batches]
        drop = np.concatenate(found) if found else np.zeros(0, np.int64)
        if len(drop):
            self._appends = None
            self.pin = self._tables.rewrite(self._folder, self.pin, drop=drop, batches=())
            self.rows += len(drop)
        return len(drop)

    def alter(
        self, shape: Shape, *, rename: dict[str, str], drop: list[str], add: list[pa.Field]
    ) -> None:
        """Change the columns to those of `shape`."""
        self.shape = shape
        self._appends = None
        if self.pin is None:  # a version of its own: who appends meanwhile finds the table moved
            self.pin = self._tables.create(self._folder, shape.arrow)
        else:
            self.pin = self._tables.alter(self._folder, self.pin, rename=rename, drop=drop, add=add)

    def part(self) -> AdvancePart | None:
        """Return what to commit, None if there is nothing."""
        if self.pin is None or not self.is_dirty:
            return None
        version = 0 if self._start is None else self._start.version
        entry = group.Advance(self.incarnation, version, self.pin)
        return AdvancePart(self.table, self.incarnation, version, entry, self.rows)

    def rebase(self, newest: Pin | None, refuse: Callable[[], None]) -> None:
        """Put the appends on `newest`, which won; `refuse` if there are other changes."""
        if self._appends is None:
            refuse()
            return
        self._start = self.pin = newest
        pin = self._existing()
        for staged in self._appends:
            pin = self._tables.commit(self._folder, pin, staged)
        self.pin = pin
