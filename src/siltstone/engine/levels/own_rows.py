"""Own rows: what one transaction has written to one keyed table, above all levels.

    FEW ──a batch, a scan, another schema, or more than `FEW_MAX`──▶ MANY
    the newest row of each key,                                      a memtable
    as a tuple in a dict

Most transactions write a few rows, and read them by key or not at all: so rows stay tuples. A scan
needs them as a memtable, like every other level, and from then on rows go there. One transaction,
one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.memtable import TAIL_ROWS_MAX, Found, Memtable
from siltstone.formats.keys import Key
from siltstone.formats.log.group import DELETE
from siltstone.formats.rows import Row

OWN_SEQ: Final = 1
FEW_MAX: Final = TAIL_ROWS_MAX
_EVERYTHING = 1 << 62
_NOT_HERE: Row = ()


class OwnRows:
    """See the module.

    `few` has the rows while they are few, a deleted one as None, in the order in which their keys
    were first written; all have the schema that was given at first. `written` counts what was
    written, also what a later write of the same key replaced.
    """

    __slots__ = ("_memtable", "_table_schema", "few", "written")

    def __init__(self, table_schema: TableSchema) -> None:
        self._table_schema = table_schema
        self.few: dict[Key, Row | None] | None = {}
        self.written = 0
        self._memtable: Memtable | None = None

    def append(
        self,
        table_schema: TableSchema,
        upserts: Sequence[Row],
        keys: Sequence[Key],
        deletes: Sequence[Key],
    ) -> None:
        """Add rows (with their keys), then deletes; no key is in both, or twice."""
        added, few = len(upserts) + len(deletes), self.few
        self.written += added
        if few is not None and len(few) + added <= FEW_MAX:
            few.update(zip(keys, upserts, strict=True))
            few.update(dict.fromkeys(deletes))
        else:
            self.whole().append_rows(table_schema, upserts, keys, deletes, OWN_SEQ)

    def whole(self) -> Memtable:
        """Return all rows as a memtable, to which later ones are added."""
        memtable, few = self._memtable, self.few
        if memtable is None or few is not None:
            memtable = self._memtable = Memtable(self._table_schema)
            rows = {} if few is None else few
            keys = [key for key, row in rows.items() if row is not None]
            deletes = [key for key, row in rows.items() if row is None]
            upserts = [row for row in rows.values() if row is not None]
            memtable.append_rows(self._table_schema, upserts, keys, deletes, OWN_SEQ)
            self.few = None  # last: an interrupt above leaves the rows where they are
        return memtable

    def newest(self, schema_id: int) -> dict[Key, Row | None] | None:
        """Return the newest row of each key, None for a deleted one.

        None if they are not a few tuples of the schema with this id.
        """
        if self.few is not None:
            return self.few if self._table_schema.id == schema_id else None
        contents = self.whole().contents
        tail = contents.tail
        if contents.chunks or tail.table_schema.id != schema_id:
            return None
        return {
            key: None if tail.ops[place] == DELETE else tail.rows[place]
            for key, place in tail.index.items()
        }

    def find(self, key: Key) -> Found | None:
        """Return what was written last for a key, None if nothing was."""
        few = self.few
        if few is None:
            return self.whole().find(key, _EVERYTHING)
        row = few.get(key, _NOT_HERE)
        if row is _NOT_HERE:
            return None
        schema = self._table_schema
        return Found(None if row is None else schema.rows.to_user(row), schema, OWN_SEQ)
