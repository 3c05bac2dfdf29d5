"""Part file: one open file of `formats.parts`, read with `pread`; each block is checked.

No file is mapped: what the disk cannot give, or somebody cut, is an error here, and would end the
process there. A file that is damaged, cut or deleted is *lost*, and says no more: its rows are
taken from Lance. So nothing that happens to a file changes a result.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from siltstone.formats.parts import part_file
from siltstone.formats.parts.flat_rows import UnfitRowsError
from siltstone.formats.parts.part_file import Blocks, Group, PartFoot, PartIdentity, groups_of

_LOOK_READS = 1 << 10
"""So many reads between two looks whether the file is still there; its time of use is then set."""


Place = tuple[bytes, int]
"""The block with a row, and the index of the row there."""


class _LostBlockError(Exception):
    """A block is not what was written."""


class PartFile:
    """The rows of one part, by their offsets. Threads may share it.

    All that changes is `is_lost`, and a count that may lose some. The file is closed when nobody
    holds this any more.
    """

    def __init__(self, path: Path, descriptor: int, foot: PartFoot, schema: pa.Schema) -> None:
        """Take over an open file; `open_part` makes it."""
        self.path, self._descriptor, self._salt = path, descriptor, foot.salt
        self._groups: tuple[Group, ...] = groups_of(schema)
        self._blocks = [Blocks(each) for each in foot.groups]
        self._names = schema.names
        self._reads = 0
        self.is_lost = False
        self.nbytes = sum(each.nbytes for each in self._blocks) + 4096

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Close the file."""
        if not is_ending():
            with suppress(OSError):
                os.close(self._descriptor)

    def row(self, offset: int) -> dict[str, object] | None:
        """Return one row as Python values; None: the file is lost.

        Raises:
            OverflowError, ValueError: Python has no value for one in it.
        """
        try:
            row = self._groups[0].row(*self._block(0, offset))
            if len(self._groups) == 1:
                return row
            for at in range(1, len(self._groups)):
                row |= self._groups[at].row(*self._block(at, offset))
        except _LostBlockError:
            self.is_lost = True
            return None
        return {name: row[name] for name in self._names}

    def take(self, offsets: Sequence[int], names: Sequence[str]) -> pa.RecordBatch | None:
        """Return columns of some rows, in their order; None: the file is lost, or they are many.

        It reads the groups of these columns alone, and each row by itself; so take few.
        """
        found = self.places(offsets, names)
        return None if found is None else self.columns(found, names)

    def places(self, offsets: Sequence[int], names: Sequence[str]) -> dict[int, list[Place]] | None:
        """Return where some rows are in each group of some columns; None: the file is lost."""
        wanted = {*names}
        try:
            return {
                at: self._each(at, offsets)
                for at, group in enumerate(self._groups)
                if not wanted.isdisjoint(group.schema.names)
            }
        except _LostBlockError:
            self.is_lost = True
            return None

    def columns(
        self, found: Mapping[int, Sequence[Place]], names: Sequence[str]
    ) -> pa.RecordBatch | None:
        """Return columns of rows at the places `found`, also of other files of the same columns.

        None: one batch cannot hold them.
        """
        arrays: dict[str, pa.Array] = {}
        try:
            for at, places in found.items():
                mine = [name for name in names if name in self._groups[at].schema.names]
                arrays |= zip(mine, self._groups[at].batch(places, mine), strict=True)
        except UnfitRowsError:  # texts of over 2 GiB: Lance has its own way
            return None
        fields = {field.name: field for at in found for field in self._groups[at].schema}
        schema = pa.schema([fields[name] for name in names])
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=schema)

    def _each(self, group: int, offsets: Sequence[int]) -> list[Place]:
        """Return the block of each row, and the row in it; neighbours share one."""
        blocks, held = self._blocks[group], dict[int, bytes]()
        rows: list[Place] = []
        for offset in offsets:
            number, start, size, index = blocks.at(offset)
            block = held.get(number)
            if block is None:
                block = held[number] = self._read(number, start, size)
            rows.append((block, index))
        return rows

    def _block(self, group: int, offset: int) -> tuple[bytes, int]:
        number, start, size, index = self._blocks[group].at(offset)
        return self._read(number, start, size), index

    def _read(self, number: int, start: int, size: int) -> bytes:
        """Return a block of the file.

        Raises:
            _LostBlockError: It is not the one that was written there.
        """
        self._reads += 1
        if self.is_lost or not self._reads % _LOOK_READS:
            self._look()
        try:
            block = os.pread(self._descriptor, size, start)
        except OSError as error:
            raise _LostBlockError from error
        if len(block) < size or not part_file.is_sound(block, self._salt, number):
            raise _LostBlockError
        return block

    def _look(self) -> None:
        """Note that the file is in use, for who evicts; let go of it if somebody deleted it.

        Raises:
            _LostBlockError: It was deleted: its space is free only when it is closed.
        """
        try:
            if self.is_lost or not os.fstat(self._descriptor).st_nlink:
                raise _LostBlockError
            os.utime(self._descriptor)
        except OSError as error:
            raise _LostBlockError from error


def open_part(path: Path, identity: PartIdentity, schema: pa.Schema) -> PartFile | None:
    """Return the file of some rows; None: there is none, or it is not sound, or not ours alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        foot = _foot(descriptor, identity)
        if foot is None:
            os.close(descriptor)
            return None
        os.utime(descriptor)
    except OSError:
        with suppress(OSError):
            os.close(descriptor)
        return None
    return PartFile(path, descriptor, foot, schema)


def _foot(descriptor: int, identity: PartIdentity) -> PartFoot | None:
    found = os.fstat(descriptor)
    if not is_private(found) or not stat.S_ISREG(found.st_mode):
        return None
    size = found.st_size
    trailer = os.pread(descriptor, part_file.TRAILER_BYTES, max(0, size - part_file.TRAILER_BYTES))
    length = part_file.foot_bytes(trailer, size)
    if length is None:
        return None
    body = os.pread(descriptor, length, size - part_file.TRAILER_BYTES - length)
    return part_file.decode_foot(body, trailer, identity.encoded)


def is_private(found: os.stat_result) -> bool:
    """Say whether something belongs to this user, and nobody else may read or write it."""
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077
