"""Adoption: the loads in un-merged history whose files a merge makes parts of base, as they are.

    attach ──▶ checkpoint ──▶ merge ──▶ vacuum
    a frame    a record       base has  history has the load until
    names the  names it in    the files, no kept seq below the merge
    load       history        too       needs it

The rows that later commits replaced or deleted are hidden from the first. A load with many of them
would be rewritten soon, so the merge writes the others as it does any rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.overlay import Lives, Overlay
from siltstone.formats.manifest import Pin
from siltstone.formats.schema import history_name
from siltstone.formats.types.widening import is_pair
from siltstone.storage.tables.tables import TableRewriter
from siltstone.storage.tables.values import AdoptedLoad

HIDDEN_SHARE_MAX = 0.2
"""Of more hidden rows a part may be rewritten; see docs/adr/0043."""


def adoptable(
    tables: TableRewriter, base: Pin, table_schema: TableSchema, overlay: Overlay
) -> tuple[Sequence[AdoptedLoad], Overlay]:
    """Return the loads to adopt, and the overlay without their levels.

    Columns go by their ids: a load lacks those that were added since, and keeps no dropped one.
    """
    loads: list[AdoptedLoad] = []
    others: list[Lives] = []
    for level in overlay.levels:
        load = _adopted(level, table_schema)
        if load is not None and tables.adopts(base, load.pin, load.columns):
            loads.append(load)
        else:
            others.append(level)
    return loads, replace(overlay, levels=tuple(others))


def _adopted(level: Lives, table_schema: TableSchema) -> AdoptedLoad | None:
    """Return how base would take the files of a level; None: it is no load, or is worn."""
    source = level.source
    table = source.table if isinstance(source, HistoryRun) else None
    if not isinstance(source, HistoryRun) or not isinstance(table, Attached):
        return None
    if not {*map(history_name, table_schema.initials())} <= {*table.schema.names}:
        return None  # its files would have nulls where base has the initial value
    kinds = {
        history_name(i): table_schema.arrow.field(n).type for i, n in table_schema.names.items()
    }
    if any(each.name in kinds and is_pair(each.type, kinds[each.name]) for each in table.schema):
        return None  # its files have another type
    # The ordinals of a load's rows are their positions: it is one dataset, of one seq.
    gone = np.flatnonzero(~level.kept.to_numpy(zero_copy_only=False))
    if len(gone) > HIDDEN_SHARE_MAX * table.rows:
        return None
    stored = {name: history_name(i) for i, name in table_schema.names.items()}
    columns = tuple((old, new) for new, old in stored.items() if old in table.schema.names)
    return AdoptedLoad(table.pin, columns, gone)
