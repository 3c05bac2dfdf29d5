"""Staged keys: the sorted codes of rows that were staged, in files for the commit to merge.

    task      rows ─▶ data files              Lance pulls them through `KeySorter`
               └────▶ codes, sorted ─▶ .attached/<job>/<token>.run, one for 2 M rows
    commit    merges them into the key runs of the rows, and reads no key for these

A file is a key run (`formats.key_run`) that covers no part: its places are ordinals of its rows,
from 0 on. It is not synced, and nothing that stays names it: if it is missing or torn, the commit
reads the keys of its rows instead. `StageTask.discard` deletes it after the commit, too; what is
left of a task that failed is a vacuum's. It lies next to the marks of the job, in a directory that
the owner made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from siltstone.errors import CorruptionError, SiltstoneError
from siltstone.formats.key_run import (
    OFFSET_BITS,
    PIECE_ROWS,
    Entries,
    merged_pieces,
    sorted_entries,
)
from siltstone.formats.keys import Codes, KeyCodec
from siltstone.formats.manifest import KeyRun
from siltstone.storage.tables.keys.key_runs import OpenRun
from siltstone.storage.tables.values import Span, StagedKeys
from siltstone.telemetry.notices import NoticeLog

RUN_ROWS = 2 << 20
"""The rows of one file: whole parts, since Lance ends one after each 1,048,576 rows."""
ROWS_MIN = 16_384
"""Of fewer rows the commit reads the keys: files of many small tasks would cost more."""
_HASHED_ROWS = 1 << 16
"""To hash keys takes an object of Python for each, so it is done in slices."""
_log = NoticeLog(__name__)

Write = Callable[[Iterable[Entries]], KeyRun]
"""Writes a file of entries that ascend from block to block."""


class StagedKeysError(SiltstoneError):
    """Staged keys cannot be read, but the keys of their rows can."""


class KeySorter:
    """Sorts the codes of one piece's rows while they pass; 16 bytes for each of `RUN_ROWS`.

    Without a disk or memory it stages fewer codes, and raises nothing. For one thread at a time.
    """

    def __init__(self, codec: KeyCodec, write: Write) -> None:
        self._codec, self._write = codec, write
        self._held: list[Codes] = []  # of the rows since the last piece, in row order
        self._pieces: list[Entries] = []
        self._first = self._sorted = self._rows = 0
        self._is_mixed = False  # keys in order are read as fast as they are merged
        self._written: list[StagedKeys] = []
        self._has_failed = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the codes of the next rows."""
        for at in range(0, batch.num_rows, _HASHED_ROWS):
            self._unless_failed(partial(self._add, batch.slice(at, _HASHED_ROWS)))

    def ended(self) -> tuple[StagedKeys, ...]:
        """Return the files, after the last row."""
        if self._rows - self._first >= ROWS_MIN:
            self._unless_failed(self._end_run)
        return tuple(self._written)

    def _unless_failed(self, step: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            step()
        except (OSError, SiltstoneError, MemoryError) as error:
            self._has_failed, self._held, self._pieces = True, [], []
            _log.warning("the keys of some rows are left to the commit to sort: %s", error)

    def _add(self, batch: pa.RecordBatch) -> None:
        codes = self._codec.codes(batch)
        while len(codes):
            upto = min(self._sorted + PIECE_ROWS, self._first + RUN_ROWS) - self._rows
            taken, codes = codes[:upto], codes[upto:]
            self._held.append(taken.copy())  # a view would keep the batch, with all its columns
            self._rows += len(taken)
            if len(taken) == upto:
                self._end_piece()
                if self._rows == self._first + RUN_ROWS:
                    self._end_run()

    def _end_piece(self) -> None:
        ordinals = np.arange(self._sorted - self._first, self._rows - self._first, dtype=np.uint64)
        codes = np.concatenate(self._held)
        self._is_mixed |= bool((codes[1:] < codes[:-1]).any())
        self._pieces.append(sorted_entries(codes, ordinals))
        self._held, self._sorted = [], self._rows

    def _end_run(self) -> None:
        if self._held:
            self._end_piece()
        if self._is_mixed:
            run = self._write(merged_pieces(self._pieces))
            self._written.append(StagedKeys((self._first, self._rows), run))
        self._pieces, self._first, self._is_mixed = [], self._rows, False


@dataclass(frozen=True, slots=True)
class Unit:
    """Parts that come together into a new key run; their codes are staged, or are to be read."""

    spans: Mapping[int, Span]
    keys: StagedKeys | None = None

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return sum(end - first for first, end in self.spans.values())


def units_of(spans: Mapping[int, Span], staged: Sequence[StagedKeys]) -> Iterator[Unit]:
    """Yield parts, in row order, with what is staged of exactly their rows."""
    keys_at = {keys.rows[0]: keys for keys in staged}
    parts, at = [*spans.items()], 0
    while at < len(parts):
        keys = keys_at.get(parts[at][1][0])
        count = 0 if keys is None else _exactly(keys, parts, at)
        yield Unit(dict(parts[at : at + (count or 1)]), keys if count else None)
        at += count or 1


def _exactly(keys: StagedKeys, parts: Sequence[tuple[int, Span]], index: int) -> int:
    """Return how many parts, from an index on, have the rows of a file; 0: it cuts one."""
    position, last = keys.rows
    if keys.run.entries != last - position:
        return 0
    for upto in range(index, len(parts)):
        first, end = parts[upto][1]
        if first != position or end > last:
            return 0
        if end == last:
            return upto + 1 - index
        position = end
    return 0


def entries_of(unit: Unit, opened: Callable[[KeyRun], OpenRun]) -> Iterator[Entries]:
    """Yield the entries of a unit whose codes are staged, ascending.

    Raises:
        StagedKeysError: The file is missing, damaged or not of these rows.
    """
    keys = unit.keys
    assert keys is not None
    numbers = np.array([*unit.spans], np.uint64) << np.uint64(OFFSET_BITS)
    ends = np.cumsum([end - first for first, end in unit.spans.values()], dtype=np.uint64)
    starts = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])
    try:
        run = opened(keys.run)
        for codes, ordinals in run.entries():
            part = ends.searchsorted(ordinals, "right")
            if part.max() >= len(ends):
                raise CorruptionError(keys.run.path, None, f"a row beyond {keys.rows}")
            yield codes, numbers[part] | ordinals - starts[part]
    except SiltstoneError as error:
        raise StagedKeysError(str(error)) from error
