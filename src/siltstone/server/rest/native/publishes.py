"""Publishes: the newest manifest records, and what made each: its difference to the one below it.

A record does not say who published it. The difference does: each kind of work changes what no
other kind changes. `since` is the newest record below it that is kept. If vacuum deleted records
in between, works of theirs are in the difference, too. The oldest record has no works.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain, islice, pairwise

from siltstone.errors import UnavailableError
from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.lance_versions.errors import invalid
from siltstone.process import deadline
from siltstone.server.http.replies import Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.schemas import PublishedRecord, RecordsAnswer, Work
from siltstone.server.served import Served

RECORDS_MAX = 500
"""The records of one answer: each is read whole, and grows with the tables of the store."""
NAMES_MAX = 100
"""The tables that an answer names of one record."""
_RECORDS = 20


class PublishRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._manifests = served.parts.site.manifests

    def records(self, call: RestCall[None]) -> Reply[RecordsAnswer]:
        """Return the newest manifest records, newest first; `next` is `before` of the next page."""
        limit, before = call.number("limit"), call.number("before")
        limit = _RECORDS if limit is None else limit
        if limit > RECORDS_MAX:
            raise invalid(f"limit is at most {RECORDS_MAX}")
        numbers = [n for n in self._numbers() if before is None or n < before]
        # Two of them are in memory at a time, however many are asked for.
        pairs = pairwise(chain(self._read(numbers[::-1]), [None]))
        records = [published(new, old) for new, old in islice(pairs, limit) if new is not None]
        is_more = bool(records) and records[-1].since is not None
        return Reply(RecordsAnswer(records, records[-1].number if is_more else None))

    def _numbers(self) -> Sequence[int]:
        try:
            return self._manifests.numbers()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UnavailableError(f"{self._manifests.folder} is gone") from error

    def _read(self, numbers: Sequence[int]) -> Iterator[Record]:
        """Yield the records that no vacuum has deleted since the listing."""
        for number in deadline.checked(numbers):
            with suppress(FileNotFoundError):
                yield self._manifests.read(number)


def published(record: Record, since: Record | None) -> PublishedRecord:
    """Return what a record says of its publish, by the newest one below it that is kept."""
    works, tables = ([], set[int]()) if since is None else _difference(since, record)
    named = {table.id: table.names[-1].name for table in record.catalog.tables}
    names = sorted(named[table] for table in tables if table in named)
    return PublishedRecord(
        number=record.number,
        time=dt.datetime.fromtimestamp(record.time_us / 1e6, dt.UTC),
        flushed_seq=record.flushed_seq,
        works=works,
        tables=names[:NAMES_MAX],
        changed=len(names),
        since=None if since is None else since.number,
    )


def _difference(old: Record, new: Record) -> tuple[list[Work], set[int]]:
    """Return the works that lead from one record to another, and the ids of their tables."""
    works = set[Work](_works_of_store(old, new))
    known = {table.id: table for table in old.catalog.tables}
    # Defined anew is a plain table with another version, too.
    tables = {table.id for table in new.catalog.tables if known.get(table.id) != table}
    before = {storage.incarnation: storage for storage in old.keyed}
    owners = {step.id: each.id for each in new.catalog.tables for step in each.incarnations}
    for storage in new.keyed:
        stood = before.get(storage.incarnation)
        if stood is not None and stood != storage:
            works |= {*_works_of_base(stood, storage), *_works_of_history(stood, storage, works)}
        if stood != storage and storage.incarnation in owners:
            tables.add(owners[storage.incarnation])
    tables |= {index.table for index in {*old.indexes} ^ {*new.indexes}}
    return sorted(works), tables


def _works_of_store(old: Record, new: Record) -> Iterator[Work]:
    if new.epoch > old.epoch:
        yield "open"
    if new.flushed_seq > old.flushed_seq:
        yield "checkpoint"
    if new.indexes != old.indexes:
        yield "index"
    if (new.oldest_seq, new.gc_horizon_us) != (old.oldest_seq, old.gc_horizon_us):
        yield "vacuum"


def _works_of_base(old: KeyedStorage, new: KeyedStorage) -> Iterator[Work]:
    if new.merged_seq != old.merged_seq:
        yield "merge" if new.merged_seq > old.merged_seq else "repair"
    elif new.base != old.base:  # an index adds files to the same rows, in the same places
        yield "index" if _rows_of(new.base) == _rows_of(old.base) else "optimize"


def _rows_of(base: Pin | None) -> object:
    return base and (base.rows, base.hidden, base.runs)


def _works_of_history(
    old: KeyedStorage, new: KeyedStorage, works: AbstractSet[Work]
) -> Iterator[Work]:
    if new.history_from != old.history_from:
        yield "vacuum"
    elif new.fallbacks != old.fallbacks:
        yield "checkpoint"  # it flushed rows that Lance refused before
    elif new.history != old.history and "checkpoint" not in works:
        yield "optimize"
