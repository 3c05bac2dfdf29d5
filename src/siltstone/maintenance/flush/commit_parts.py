"""Commit parts: what a checkpoint joins of `commits`, to which each checkpoint adds a part.

Every commit to a dataset costs by its parts (about 0.1 ms each), and vacuum keeps those of the
whole retention: with a checkpoint a minute 10,080 of a week. So a checkpoint that finds
`COMMIT_PARTS_MAX` joins small ones, by tiers, before it adds its own:

    parts of a 1/32 or more of all rows     are not touched: there are at most 32
    adjacent smaller ones                   are joined by tiers, up to a sixteenth of all rows

A joined part has the seqs of its inputs and no others, and adjacent ones become one: the
parts still follow each other by seq, and vacuum drops whole ones. What it cannot drop yet for the
sake of a part that reaches beyond the retention is a tenth of the log, about.

It needs no protocol. The files are as old as those that the checkpoint flushes, its
record names both, and where a vacuum dropped an input meanwhile, that group stays as it was. A
record, a lease or a follower that names the older pin has the older files, until vacuum finds that
nothing names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats.manifest import Pin
from siltstone.maintenance.tiers import filled, small_runs, tiers
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import Compacted, Span, put_fitting
from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog(__name__)

COMMIT_PARTS_MAX = 96
"""From so many parts of `commits` on a checkpoint joins some."""
JOINED_MAX = 1024
"""About so many parts one checkpoint joins, however many there are."""
_SHARES = 16
_TARGET_ROWS_MIN = 1024


def groups_of(spans: Sequence[Span], parts_max: int) -> list[Sequence[Span]]:
    """Return the runs of adjacent parts to join; none below `parts_max` parts.

    If tiers would leave two thirds of that, since large and small ones took turns, all small parts
    are joined that are adjacent: at most 65 are left, 32 of them large.
    """
    if len(spans) < parts_max:
        return []
    target_rows = max(_TARGET_ROWS_MIN, spans[-1][1] // _SHARES)
    found = list(_groups(spans, target_rows, by_tiers=True))
    left = len(spans) - sum(len(group) - 1 for group in found)
    if 3 * left > 2 * parts_max:
        found = list(_groups(spans, target_rows, by_tiers=False))
    return _bounded(found)


def _groups(spans: Sequence[Span], target_rows: int, *, by_tiers: bool) -> Iterator[Sequence[Span]]:
    for run in small_runs(spans, target_rows):
        for tier in tiers(run) if by_tiers else (run,):
            yield from filled(tier, lambda _, rows: rows >= target_rows)


def _bounded(groups: Sequence[Sequence[Span]]) -> list[Sequence[Span]]:
    """Return the oldest groups, with about `JOINED_MAX` parts."""
    found: list[Sequence[Span]] = []
    parts = 0
    for group in groups:
        if parts >= JOINED_MAX:
            break
        found.append(group[:JOINED_MAX])
        parts += len(found[-1])
    return found


def joined(tables: Tables, pin: Pin, parts_max: int) -> list[Compacted]:
    """Join parts of `commits`, if there are too many; durable, and no pin names them yet.

    That it cannot be done is no reason to keep rows in the log: a damaged part is left to `verify`,
    a full disk to the next checkpoint.
    """
    found: list[Compacted] = []
    for group in groups_of(tables.reader.open(pin).spans, parts_max):
        try:
            found.append(tables.compactor.compact(pin, (group[0][0], group[-1][1])))
        except (CorruptionError, UnavailableError) as error:
            _log.warning("%s parts of %s stay apart: %s", len(group), pin.folder, error)
    return found


def put_on(tables: Tables, pin: Pin, compacted: Sequence[Compacted]) -> Pin:
    """Return the pin with the joined parts whose inputs it still has.

    Raises:
        UnavailableError: The file system refuses; no pin came of it.
    """
    return put_fitting(pin, compacted, tables.compactor.swap)[0]
