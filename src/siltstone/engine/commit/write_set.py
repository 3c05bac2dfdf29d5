"""Write set: all changes of one transaction, converted and checked in its own thread.

The leader of a group only admits, logs and applies write sets: every step that can fail because of
a value, or needs Lance, was done before. Catalog changes come first, then rows, under one seq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.commit.recent_writes import Keys, Written
from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import run_of
from siltstone.engine.levels.load_keys import FiledCodes
from siltstone.engine.order.key_range import RangePredicate
from siltstone.formats.keys import Codes, Key
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, Pin, Tag
from siltstone.formats.rows import Row
from siltstone.storage.tables.keys.key_places import PinnedKeys
from siltstone.storage.tables.tables import PinnedTable

BLIND = None
ROW_BYTES = 130
SIZED = frozenset((str, bytes, list, tuple, dict))


class RowPart(msgspec.Struct, frozen=True, eq=False):
    """A few rows and deletes of one table, as tuples."""

    table: int
    incarnation: int
    table_schema: TableSchema
    upserts: list[Row]
    row_keys: list[Key]
    deletes: list[Key]

    def keys(self) -> Keys:
        """Return the keys written."""
        return Keys([*self.row_keys, *self.deletes])

    @property
    def entry(self) -> group.RowsEntry:
        """What the log has of it."""
        return group.RowsEntry(self.incarnation, self.table_schema.id, self.upserts, self.deletes)

    @property
    def rows(self) -> int:
        return len(self.upserts) + len(self.deletes)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of the rows; they bound memtables, groups and frames."""
        size = ROW_BYTES * (len(self.upserts) + len(self.deletes))
        for row in self.upserts:
            for value in row:
                if type(value) in SIZED:
                    size += len(value)  # type: ignore[arg-type]
        return size


class BatchPart(msgspec.Struct, frozen=True, eq=False):
    """Many rows (or deletes, by key columns) of one table, as Arrow; no key twice."""

    table: int
    incarnation: int
    table_schema: TableSchema
    batch: pa.RecordBatch
    codes: Codes
    op: int
    blob: pa.Buffer

    def keys(self) -> Keys:
        """Return the keys written, as sorted codes."""
        return Keys(codes=run_of(self.codes, 0).codes)

    @property
    def rows(self) -> int:
        return self.batch.num_rows

    @property
    def nbytes(self) -> int:
        return self.batch.nbytes + 33 * self.batch.num_rows


class AdvancePart(msgspec.Struct, frozen=True, eq=False):
    """A table moves to a staged version: a plain table, or the first load of a keyed one."""

    table: int
    incarnation: int
    from_version: int
    entry: group.Advance | group.Compact
    rows: int
    base: Base | None = None
    nbytes: int = 0

    def keys(self) -> Keys:
        """Return the keys written: a load counts as all keys, a plain table has none."""
        return Keys(is_all=self.base is not None)


class AttachPart(msgspec.Struct, frozen=True, eq=False):
    """Staged rows of one table that become a run at the commit's seq.

    `opened` is their dataset, `codes` are those of their keys: sorted, or in its key runs, which
    `keys_of` opens.
    """

    table: int
    incarnation: int
    table_schema: TableSchema
    entry: group.Attach
    rows: int
    codes: Codes | FiledCodes
    opened: PinnedTable
    keys_of: Callable[[Pin], PinnedKeys]
    nbytes: int = 0

    def keys(self) -> Keys:
        """Return the keys written, as codes."""
        if isinstance(self.codes, FiledCodes):
            return Keys(filed=self.codes)
        return Keys(codes=self.codes)


Part = RowPart | BatchPart | AdvancePart | AttachPart


class ReadSet(msgspec.Struct):
    """The reads of a serializable transaction: keys by incarnation, and predicates of scans.

    A scan without a predicate is None. Up to the seq `checked` no commit conflicts with the scans;
    the committer raises it while it admits.
    """

    keys: dict[int, set[Key]] = msgspec.field(default_factory=dict)
    scans: dict[int, list[Filter | RangePredicate | None]] = msgspec.field(default_factory=dict)
    versions: dict[int, int] = msgspec.field(default_factory=dict)
    checked: int = 0


class FewRows(msgspec.Struct, frozen=True, eq=False):
    """Some parts that are rows, as recent writes and the log take them, in the same order."""

    written: Sequence[Written]
    entries: list[group.Entry]


def few_rows(parts: Sequence[Part]) -> FewRows | None:
    """Return parts as the leader takes them; None if some are not a few rows."""
    written: list[Written] = []
    entries: list[group.Entry] = []
    for part in parts:
        if type(part) is not RowPart:
            return None
        keys = [*part.row_keys, *part.deletes] if part.deletes else part.row_keys
        written.append((part.incarnation, Keys(keys), part.table_schema.codec.code))
        entries.append(part.entry)
    return FewRows(written, entries)


class WriteSet(msgspec.Struct, frozen=True, eq=False):
    """One transaction, ready to be admitted.

    `read_seq` is the seq of its reads; `BLIND` means that it read nothing and has no conflicts.
    `unmoved` are tags that have to be unchanged, each with its name (None: there was none): those
    that it sets or removes, and those that keep what it tags. `staged_us` is the time at which the
    first file that it names was begun, None if it names no file. `planned` is the catalog by whose
    tables and schemas its rows were made, if it has rows alone: to that one it fits. `few` is what
    its own thread prepared of a few rows for the leader, if it has no `reads`; it belongs to
    `parts`. `app_since` is that of its token's app (`TokenApp`), if that was known when it began.
    """

    number: int
    read_seq: int | None
    parts: Sequence[Part]
    changes: Sequence[group.Entry] = ()
    token: group.Token | None = None
    claim: int | None = None
    app_since: int | None = None
    reads: ReadSet | None = None
    is_sync: bool = True
    rows: int = 0
    nbytes: int = 0
    unmoved: Sequence[tuple[str, Tag | None]] = ()
    staged_us: int | None = None
    planned: Catalog | None = None
    few: FewRows | None = None


class Receipt(msgspec.Struct, frozen=True):
    """The result of a commit: its seq, the number of rows written, and its transaction id.

    `rows` of a delete by keys are those that lived, and None for more than 10,000 keys.

    Examples:
        >>> receipt = orders.delete([1, 99])
        >>> receipt.rows, receipt.seq == db.seq
        (1, True)
    """

    seq: int
    rows: int | None
    transaction_id: str = ""
