"""Since: finds out whether a table changed after a seq, except by some commits.

    rows          each commit that wrote to the table; not an optimize of a plain one
    definition    its creation, its names, its columns, each truncate and overwrite

A transaction checks changes up to its own snapshot. Admission checks changes between the snapshot
and the commit: an overwrite conflicts with every other writer of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.view import State
from siltstone.formats.manifest import TableDefinition

Touched = Iterable[tuple[int, tuple[int, ...]]]
Spans = Sequence[tuple[int, int]]

UNKNOWN = -1


def changed_since(
    state: State, table: TableDefinition, since: int, own: Spans, touched: Touched
) -> int:
    """Return the first seq in (since, state.visible] at which the table changed; 0: none.

    Args:
        state: The end of the range.
        table: The definition of the table there.
        since: A seq, not above `state.visible`.
        own: First and last seqs of commits that do not count.
        touched: The known commits after `since`, with the incarnations that they wrote to.

    Returns:
        `UNKNOWN` if vacuum has deleted some of the commits and the others do not decide.
    """
    incarnations = {step.id for step in table.incarnations}
    moved = set(catalogs.same_rows_seqs(table))
    found = set(_redefined(table))
    known = 0
    for seq, written in touched:
        known += 1
        if seq not in moved and not incarnations.isdisjoint(written):
            found.add(seq)
    foreign = [seq for seq in found if since < seq <= state.visible and not _within(seq, own)]
    if foreign:
        return min(foreign)
    return 0 if known == state.visible - since else UNKNOWN


def _redefined(table: TableDefinition) -> Iterator[int]:
    yield table.created
    for steps in (table.names, table.schemas, table.incarnations):
        yield from (step.seq for step in steps)


def _within(seq: int, spans: Spans) -> bool:
    return any(first <= seq <= last for first, last in spans)
