"""Index use: decides which parts of a filter use an index of base.

The cost of an index grows with the rows that it finds, the cost of a scan with all rows: of 2 M
rows an index found 13 in 1 ms (a scan: 8), 20,000 in 42 (33), a million in 314 (169). Lance asks
the indexes of all columns of a filter, so a part that finds many rows spoils a part that finds few.
Therefore each operand of the ANDs is tried on some rows. Parts that match nearly none of them use
the indexes; Arrow evaluates the others, and decides in any case. Without such a part, Lance scans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from siltstone.engine.filter.filters import Filter
from siltstone.errors import RequestError
from siltstone.storage.tables.tables import PinnedTable

ROWS_MIN = 16_384
MATCHES_MAX = 1
_KINDS = {"btree", "bitmap"}


def prefilter_of(
    table: PinnedTable, wanted: Filter, stored: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Return the filter for Lance, a superset of `wanted`, and whether to use indexes.

    Args:
        table: The table to read.
        wanted: The filter, with the user's names.
        stored: The names in `table` by the user's names.
    """
    chosen = _chosen(table, wanted, stored)
    if not chosen:
        return wanted.prefilter(stored), False
    if len(chosen) == 1:
        return chosen[0], True
    return " AND ".join(f"({text})" for text in chosen), True


def indexed_columns(table: PinnedTable) -> set[str]:
    """Return the columns whose filters may use an index."""
    return {
        name for segment in table.segments if segment.kind in _KINDS for name in segment.columns
    }


def _chosen(table: PinnedTable, wanted: Filter, stored: Mapping[str, str]) -> Sequence[str]:
    indexed = indexed_columns(table)
    if not indexed or table.rows < ROWS_MIN:
        return ()
    found = [
        part.prefilter(stored)
        for part in wanted.parts()
        if len(part.columns) == 1  # of two it is not known which one finds few
        and all(stored.get(name) in indexed for name in part.columns)
        and _finds_few(table, part, stored)
    ]
    return [text for text in found if text is not None]


def _finds_few(table: PinnedTable, part: Filter, stored: Mapping[str, str]) -> bool:
    """Say whether nearly no row matches, as far as a sample tells."""
    names = sorted(part.columns)
    sample = table.sample([stored[name] for name in names]).rename_columns(names).combine_chunks()
    try:
        matches = sum(part.keep(batch).num_rows for batch in sample.to_batches())
    except RequestError:  # of a value that may be that of no living row
        return False
    return matches <= MATCHES_MAX
