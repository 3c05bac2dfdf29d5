"""Effects: what a write set is in the frame of its group, and what it does to the view."""

from __future__ import annotations

import pyarrow as pa

from siltstone.engine.commit.write_set import AdvancePart, AttachPart, BatchPart, RowPart, WriteSet
from siltstone.engine.read.view import View, with_attached, with_entry, with_load, with_token
from siltstone.formats.log import group


def changes_view(write_set: WriteSet) -> bool:
    """Say whether a write set does more than to put rows into the memtables that there are."""
    if write_set.changes or write_set.token is not None:
        return True
    return any(not isinstance(part, RowPart | BatchPart) for part in write_set.parts)


def changed(view: View, write_set: WriteSet, seq: int, time_us: int) -> View:
    """Return the view after a write set, but for its rows."""
    for entry in write_set.changes:
        view = with_entry(view, entry, seq, time_us)
    for part in write_set.parts:
        if isinstance(part, AdvancePart):
            view = with_entry(view, part.entry, seq, time_us)
            if part.base is not None and isinstance(part.entry, group.Advance):
                view = with_load(view, part.entry, seq, part.base)
        elif isinstance(part, AttachPart):
            opened, table_schema = part.opened, part.table_schema
            view = with_attached(view, part.entry, seq, opened, table_schema, part.keys_of)
    if write_set.token is not None:
        view = with_token(view, write_set.token, seq, write_set.rows)
    return view


def entries_of(write_set: WriteSet, blobs: list[pa.Buffer]) -> list[group.Entry]:
    """Return what the frame has of a write set; its batches are added to `blobs`."""
    entries: list[group.Entry] = list(write_set.changes)
    for part in write_set.parts:
        if isinstance(part, BatchPart):
            entries.append(group.Batch(part.incarnation, part.table_schema.id, part.op, len(blobs)))
            blobs.append(part.blob)
        else:
            entries.append(part.entry)
    return entries
