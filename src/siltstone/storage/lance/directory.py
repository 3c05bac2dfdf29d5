"""Lance directory: the `__manifest` dataset of Lance's directory namespace, for readers only.

    object_id (key)   object_type           location             metadata, base_objects: null
    db                namespace             null
    db$t              table                 tables/db.t-1/base

Another object type would keep reads working and break every write of other clients, so there are
only these two. A feature flag that no writer knows stops writers: they would overwrite the whole
table, and their list would differ from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from siltstone.storage.tables.tables import Listed

FOLDER = "__manifest"
FENCE = {"lance.namespace.manifest.writer_feature_flags": str(1 << 62)}
KEPT_S = 3_600.0
_KEY = {b"lance-schema:unenforced-primary-key:position": b"0"}
SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


def rows(listed: Sequence[Listed]) -> pa.RecordBatch:
    """Return the rows that list namespaces and tables."""
    columns = [
        [item.name for item in listed],
        [item.kind for item in listed],
        [item.folder for item in listed],
        [None] * len(listed),
        [None] * len(listed),
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
