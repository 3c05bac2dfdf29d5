"""Retention: computes the kept past; pure functions of records, catalogs and tags.

    FLOOR     the newest record older than the retention: every seq from its flushed_seq (`bound`)
              on stays readable, by the records from it on and by history above their bases
    islands   the records below FLOOR that serve tagged seqs: for each table of such a seq one that
              its readers can use (`engine.read.past_record`), and as few as that takes
    followed  the lowest seq of a tag with a lifetime: all changes since are kept for its readers,
              as if the retention were as long
    needs     the parts of the catalog and of each history for the kept records, tags and leases

A step of the catalog (a name, a schema, an incarnation, a version) is needed while some needed seq
lies between it and its successor. `trimmed` drops the others from a record. The owner's catalog in
memory still has them: `carried` drops the steps there that the record, as of its flushed_seq, has
dropped, so the next record of a checkpoint is correct whichever process trimmed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import msgspec

from siltstone.engine.read.past_record import PastRecord, PastTable
from siltstone.formats.manifest import (
    Catalog,
    Incarnation,
    Named,
    NamespaceDefinition,
    Record,
    Shaped,
    TableDefinition,
    Tag,
    Version,
)

FOREVER = 1 << 62


S = TypeVar("S", Named, Shaped, Incarnation, Version)


class Needs(msgspec.Struct, frozen=True):
    """The past that must stay: every seq >= `bound`, the seqs `tags` below it, and for records.

    `schemas` are (incarnation, schema id) of the bases of kept records; `history` is per
    incarnation the merged_seq above which history is needed.
    """

    bound: int
    tags: tuple[int, ...]
    schemas: frozenset[tuple[int, int]]
    history: Mapping[int, int]

    def has(self, begin: int, end: int) -> bool:
        """Return whether a needed seq is in [begin, end)."""
        return end > self.bound or any(begin <= tag < end for tag in self.tags)


def floor_of(records: Sequence[Record], cutoff_us: int) -> Record:
    """Return the newest of `records` (ascending) not younger than the cutoff, else the oldest."""
    old = [record for record in records if record.time_us <= cutoff_us]
    return old[-1] if old else records[0]


class Islands(msgspec.Struct, frozen=True):
    """Records by which readers can read tables at tagged seqs.

    `serving` are the records, each with a seq. `history` is per incarnation the lowest merged_seq
    from which one of those seqs is read on. At the seqs `lost` no record serves some table.
    """

    serving: tuple[tuple[Record, int], ...] = ()
    history: Mapping[int, int] = msgspec.field(default_factory=dict)
    lost: frozenset[int] = frozenset()


def islands_of(records: Sequence[Record], seqs: Iterable[int]) -> Islands:
    """Return the fewest of `records` (ascending) that serve what the newest does not, at `seqs`."""
    past = [PastRecord.of(record) for record in records]
    tables = [*_past_tables(past[-1])]
    serving: list[tuple[Record, int]] = []
    history: dict[int, int] = {}
    lost: set[int] = set()
    for seq in sorted(set(seqs)):
        needy = [t for t, until in tables if t.incarnation.seq <= seq < min(until, t.merged_seq)]
        chosen = _chosen(past, needy, seq)
        serving += ((each.record, seq) for each in chosen)
        for table in needy:
            found = next((s for each in chosen if (s := table.served_by(each, seq))), None)
            if found is None:
                lost.add(seq)
            else:
                lowest = history.get(found.incarnation, FOREVER)
                history[found.incarnation] = min(lowest, found.merged_seq)
    return Islands(tuple(serving), history, frozenset(lost))


def _past_tables(newest: PastRecord) -> Iterator[tuple[PastTable, int]]:
    """Yield each incarnation of a keyed table with the seq at which it ended."""
    for table in newest.record.catalog.tables:
        for step, until in _spans(table.incarnations, _end(table)):
            storage = newest.keyed.get(step.id)
            if storage is not None:
                yield PastTable(storage, step), until


def _chosen(past: Sequence[PastRecord], tables: Sequence[PastTable], seq: int) -> list[PastRecord]:
    """Return the fewest records by which all tables can be read that some record serves.

    A record serves a table from some record on up to its best one. So who takes the oldest of the
    best ones first, and each further one only if none of those serves, needs the fewest.
    """
    places, best = range(len(past)), list[tuple[int, PastTable]]()
    for table in tables:
        found = next(table.serving(places, past.__getitem__, seq), None)
        if found is not None:
            best.append((found[0], table))
    chosen: list[PastRecord] = []
    for place, table in sorted(best, key=itemgetter(0)):
        if not any(table.served_by(each, seq) for each in chosen):
            chosen.append(past[place])
    return chosen


def _begun(catalog: Catalog) -> dict[int, int]:
    return {step.id: step.seq for table in catalog.tables for step in table.incarnations}


def needs_of(
    kept: Sequence[Record], islands: Islands, *, bound: int, tags: Sequence[Tag], newest: Record
) -> Needs:
    """Return the parts of `newest` that must stay.

    Args:
        kept: The records from FLOOR on, and those leased.
        islands: What serves the tagged seqs below FLOOR.
        bound: The seq from which on all seqs are needed.
        tags: All tags.
        newest: The record to trim.
    """
    followed = min((tag.seq for tag in tags if tag.lasts_s), default=FOREVER)
    bound = min(bound, followed)
    below = tuple(sorted({tag.seq for tag in tags if tag.seq < bound}))
    records = [*kept, *(record for record, _ in islands.serving)]
    schemas = {
        (storage.incarnation, storage.base_schema)
        for record in (*records, newest)
        for storage in record.keyed
        if storage.base is not None
    }
    begun = _begun(newest.catalog)
    history = {
        storage.incarnation: min(
            islands.history.get(storage.incarnation, storage.merged_seq),
            *_asked(storage.incarnation, begun.get(storage.incarnation, 0), kept, followed),
            storage.merged_seq,
        )
        for storage in newest.keyed
    }
    return Needs(bound, below, frozenset(schemas), history)


def _asked(incarnation: int, begun: int, kept: Sequence[Record], followed: int) -> Iterator[int]:
    """Yield the merged_seq from which each record reads on; one before the table reads it all.

    Who follows from `followed` on reads all of a table that begins later.
    """
    for record in kept:
        found = _merged(record, incarnation)
        if found is not None:
            yield found
        elif record.flushed_seq < begun:
            yield 0
    if followed < begun:
        yield 0


def _merged(record: Record, incarnation: int) -> int | None:
    found = (s.merged_seq for s in record.keyed if s.incarnation == incarnation)
    return next(found, None)


def trimmed(record: Record, needs: Needs) -> Record:
    """Return `record` without the unneeded past; the same record if there is none."""
    catalog = _trimmed_catalog(record.catalog, needs)
    left = _begun(catalog)
    keyed = tuple(
        storage.above(max(storage.history_from, needs.history.get(storage.incarnation, 0)))
        for storage in record.keyed
        if storage.incarnation in left
    )
    if catalog == record.catalog and keyed == record.keyed:
        return record
    return msgspec.structs.replace(record, catalog=catalog, keyed=keyed)


def _trimmed_catalog(catalog: Catalog, needs: Needs) -> Catalog:
    tables = tuple(
        _trimmed_table(table, needs)
        for table in catalog.tables
        if needs.has(table.created, _end(table))
    )
    kept = (space for space in catalog.namespaces if needs.has(space.created, _end(space)))
    return msgspec.structs.replace(catalog, tables=tables, namespaces=tuple(kept))


def _end(definition: TableDefinition | NamespaceDefinition) -> int:
    return FOREVER if definition.dropped is None else definition.dropped


def _trimmed_table(table: TableDefinition, needs: Needs) -> TableDefinition:
    end = _end(table)
    is_keyed = bool(table.schemas[0].schema.key)
    incarnations = tuple(
        msgspec.structs.replace(step, versions=_versions(step, until, needs, is_keyed=is_keyed))
        for step, until in _spans(table.incarnations, end)
        if needs.has(step.seq, until)
    )
    used = {schema for number, schema in needs.schemas if any(i.id == number for i in incarnations)}
    schemas = tuple(
        step
        for step, until in _spans(table.schemas, end)
        if needs.has(step.seq, until) or step.schema.id in used
    )
    names = tuple(step for step, until in _spans(table.names, end) if needs.has(step.seq, until))
    return msgspec.structs.replace(table, names=names, schemas=schemas, incarnations=incarnations)


def _versions(
    step: Incarnation, until: int, needs: Needs, *, is_keyed: bool
) -> tuple[Version, ...]:
    if not is_keyed:
        return tuple(v for v, end in _spans(step.versions, until) if needs.has(v.seq, end))
    # A bulk load: the change feed reads its rows there, as long as history covers its seq.
    lowest = min(needs.bound, needs.history.get(step.id, 0))
    return tuple(version for version in step.versions if version.seq > lowest)


def _spans(steps: Sequence[S], end: int) -> Iterator[tuple[S, int]]:
    """Yield each step with the seq at which its successor takes over."""
    for index, step in enumerate(steps):
        yield step, min(end, steps[index + 1].seq) if index + 1 < len(steps) else end


def carried(catalog: Catalog, record: Record) -> Catalog:
    """Return `catalog`, of a seq at or above the record's, without the steps that it trimmed."""
    upto = record.flushed_seq
    known = {table.id: table for table in record.catalog.tables}
    tables = tuple(
        _carried_table(table, known[table.id], upto) if table.id in known else table
        for table in catalog.tables
        if table.id in known or table.created > upto
    )
    listed = {(space.name, space.created) for space in record.catalog.namespaces}
    spaces = tuple(
        space
        for space in catalog.namespaces
        if (space.name, space.created) in listed or space.created > upto
    )
    if (tables, spaces) == (catalog.tables, catalog.namespaces):
        return catalog
    return msgspec.structs.replace(catalog, tables=tables, namespaces=spaces)


def _carried_table(table: TableDefinition, known: TableDefinition, upto: int) -> TableDefinition:
    older = {step.id: step for step in known.incarnations}
    incarnations = tuple(
        _carried_incarnation(step, older[step.id], upto) if step.id in older else step
        for step in table.incarnations
        if step.id in older or step.seq > upto
    )
    return msgspec.structs.replace(
        table,
        names=_carried(table.names, known.names, upto),
        schemas=_carried(table.schemas, known.schemas, upto),
        incarnations=incarnations,
    )


def _carried_incarnation(step: Incarnation, known: Incarnation, upto: int) -> Incarnation:
    kept = {version.pin.path for version in known.versions}  # one may have been hidden since
    versions = tuple(v for v in step.versions if v.seq > upto or v.pin.path in kept)
    return msgspec.structs.replace(step, versions=versions)


def _carried(steps: tuple[S, ...], known: tuple[S, ...], upto: int) -> tuple[S, ...]:
    return tuple(step for step in steps if step.seq > upto or step in known)
