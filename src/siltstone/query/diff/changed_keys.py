"""Changed keys: the keys of a table that may differ at two seqs, as its change feed has them.

None: they are many, or the feed does not know them (the past in between is not kept, the table is
another one, or its columns are others), and the rows are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.read.read_union import KeyedReader
from siltstone.errors import SchemaMismatchError, SnapshotExpiredError
from siltstone.formats.keys import Key
from siltstone.query.changes.change_feed import Feeds, Part, WholeTable, of_versions
from siltstone.query.changes.change_plan import cut
from siltstone.query.diff.windows import in_key_order

CHANGES_MAX = 100_000
"""So many changes are looked up by their keys, which are in memory; more are read in order."""


def changed_keys(
    feeds: Feeds, name: str, some: KeyedReader, others: KeyedReader, first: int, last: int
) -> list[Key] | None:
    """Return the keys that changed in (first, last], in order; see the module."""
    if _columns(some) != _columns(others):
        return None
    try:
        upto, count = cut(feeds, name, first, last, CHANGES_MAX)
        if upto < last or count > CHANGES_MAX:
            return None
        feed = feeds.of(name, first, last)
    except (SnapshotExpiredError, SchemaMismatchError):
        return None
    codec, found = feed.table_schema.codec, set[Key]()
    for part in feed.parts:
        for batch in _keys_of(part, feed.table_schema):
            found.update(codec.keys(batch))
    return in_key_order(found, codec)


def _columns(reader: KeyedReader) -> dict[int, pa.DataType]:
    schema = reader.table_schema
    return {schema.ids[field.name]: field.type for field in schema.arrow}


def _keys_of(part: Part, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    names = list(table_schema.codec.names)
    if isinstance(part, WholeTable):
        stored = dict(zip(table_schema.arrow.names, part.stored(table_schema), strict=True))
        for batch in part.reader.scan([str(stored[name]) for name in names]):
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)
        return
    places = [table_schema.arrow.names.index(name) for name in names]
    for _, _, *columns in of_versions(part, table_schema):
        yield pa.RecordBatch.from_arrays([columns[place] for place in places], names=names)
