"""Source: the interface of one level above base for reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.chunk import Chunk, Slice
from siltstone.engine.levels.memtable import Found
from siltstone.formats.keys import Key


class Source(Protocol):
    """A level above base: row versions of one table over some seqs."""

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...

    def find(self, key: Key, seq: int) -> Found | None: ...

    def parts(self, seq: int) -> tuple[Slice, ...]: ...

    def rows_kept(
        self,
        parts: Sequence[Slice],
        kept: pa.BooleanArray,
        table_schema: TableSchema,
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]: ...

    def chunks_upto(self, seq: int) -> Iterable[Chunk]: ...
