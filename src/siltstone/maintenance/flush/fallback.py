"""Fallback: where the sealed rows of a table go that Lance refuses, so that others are flushed.

    Lance refuses ─▶ an Arrow file, synced ─▶ the record names it ─▶ memtables again, for readers
         ▲                                                                    │
         └────────── the next checkpoint tries all these rows again ◀─────────┘

One `flushed_seq` and one floor of the log hold for all tables; one table that cannot be written
would stop them for all, for ever. What the system refuses (space, memory, permission) is no such
case: there the checkpoint fails as a whole, and is tried again.

A dropped or truncated table is not tried again; its files live as long as its past is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby

from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.view import Levels
from siltstone.errors import (
    CorruptionError,
    InvariantError,
    LanceRefusedError,
    SchemaMismatchError,
)
from siltstone.formats.manifest import Fallback, Load, Record

OF_ONE_TABLE = (SchemaMismatchError, CorruptionError, InvariantError, LanceRefusedError)
"""The errors of a flush that come from one table: its rows, or its history."""
FALLBACK_BYTES_MAX = 1 << 30
"""With so many bytes in its files a table takes no more rows."""
REASON_MAX = 500


def fallback_sources(levels: Levels, fallbacks: Sequence[Fallback]) -> tuple[Source, ...]:
    """Return the flushed levels that are in files of `fallbacks`, oldest first.

    Those that could not be read are missing.
    """
    spans = [(each.first_seq, each.last_seq) for each in fallbacks]
    return tuple(
        source
        for source in levels.flushed
        if isinstance(source, Memtable)
        and any(first <= source.first_seq and source.last_seq <= last for first, last in spans)
    )


def stretches(sources: Sequence[Source], loads: Sequence[Load]) -> list[list[Source]]:
    """Return sources in groups with no load between: what a file holds must be in seq order."""
    seqs = sorted(load.seq for load in loads)
    groups = groupby(sources, key=lambda source: bisect_left(seqs, source.first_seq))
    return [list(group) for _, group in groups]


def joined(
    kept: list[Fallback], levels: Levels, rows: list[Source], loads: Sequence[Load]
) -> list[Source]:
    """Take from `kept` the last files that the next one holds, too; return all its sources.

    Those that are not much larger than what comes: so a row is written a few times, and a table
    has few files, however many checkpoints it takes.
    """
    while kept and kept[-1].pin.rows <= 2 * sum(source.rows for source in rows):
        last, older = kept[-1].last_seq, fallback_sources(levels, kept[-1:])
        if not older or any(last < load.seq < rows[0].first_seq for load in loads):
            break
        rows = [*older, *rows]
        kept.pop()
    return rows


def are_readable(levels: Levels) -> bool:
    """Return whether all rows that Lance refused could be read: only then it gets them again."""
    fallbacks = levels.storage.fallbacks
    rows = sum(source.rows for source in fallback_sources(levels, fallbacks))
    return rows == sum(each.pin.rows for each in fallbacks)


def reason_of(error: Exception) -> str:
    """Return the words of a refusal for the record: one line, not too long."""
    text = " ".join(str(error).split())
    return text if len(text) <= REASON_MAX else f"{text[: REASON_MAX - 3]}..."


def full(record: Record, bytes_max: int) -> dict[int, str]:
    """Return the incarnations of which too many bytes wait for Lance, and what their writers hear.

    They take rows again when Lance took these.
    """
    found: dict[int, str] = {}
    for storage in record.keyed:
        nbytes = sum(each.pin.size for each in storage.fallbacks)
        if nbytes >= bytes_max:
            found[storage.incarnation] = (
                f"Lance refuses the rows of {storage.folder}, and {nbytes} bytes of them wait, at"
                f" most {bytes_max} may: change or drop that table; Lance says:"
                f" {storage.fallbacks[-1].reason}"
            )
    return found
