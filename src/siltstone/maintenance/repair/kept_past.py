"""Kept past: finds the seqs that the store keeps, and that readers cannot read.

    tags, the oldest seq    every table there, by the newest record
    each standing record    every table as of it, for a reader that leases the record
    deep                    also each seq within the retention from which on another record serves a
                            table, and the seq before it

It asks what readers ask, and opens the versions that they get. Their files are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import View
from siltstone.engine.recover.replay import view_of
from siltstone.errors import CorruptionError
from siltstone.formats.manifest import Pin, Record, TableDefinition
from siltstone.maintenance.repair.integrity import UNREADABLE
from siltstone.storage.tables.tables import TableReader


class KeptPast:
    """See the module. One thread.

    `is_damaged` says whether a file of a version is damaged: that is named by its own path.
    """

    def __init__(
        self, tables: TableReader, readers: Readers, is_damaged: Callable[[Pin], object]
    ) -> None:
        self._tables, self._readers, self._is_damaged = tables, readers, is_damaged
        self._opened: set[Pin] = set()

    def unread_in(self, record: Record, lease: object) -> Iterator[str]:
        """Yield what a reader that holds a record cannot read."""
        try:
            view = view_of(record, lease, self._readers)
        except UNREADABLE as error:
            yield f"no reader can begin with this record: {error}"
            return
        for table, why in self._unread(view, lambda _: (record.flushed_seq,)):
            yield f"a reader that holds this record cannot read table {table[1]!r}: {why}"

    def unread_from(
        self, record: Record, lease: object, tags: Mapping[str, int], kept: Sequence[Record]
    ) -> Iterator[tuple[Path | None, str]]:
        """Yield what a reader with the newest record cannot read, and the damaged file if known.

        Args:
            record: The newest record.
            lease: Keeps it.
            tags: Their seqs; the log has those that the record does not have.
            kept: Records within the retention, ascending: the seqs where they begin to serve are
                asked, too.
        """
        named: dict[int, list[str]] = {}
        for name, seq in tags.items():
            named.setdefault(seq, []).append(repr(name))
        always = {*named, record.oldest_seq}

        def seqs(table: TableDefinition) -> Iterator[int]:
            edges = _edges(table, kept) if kept else ()
            due = {seq for seq in edges if seq >= record.oldest_seq} | always
            return (seq for seq in sorted(due) if seq <= record.flushed_seq)

        for (seq, table), why in self._unread(view_of(record, lease, self._readers), seqs):
            what, todo = "the kept seq", "restore a backup"
            if seq in named:
                what, todo = f"tag {', '.join(named[seq])} at seq", f"{todo}, or remove the tag"
            wrong = f"{what} {seq}: table {table!r} cannot be read there: {why}; {todo}"
            yield (why.path if isinstance(why, CorruptionError) else None), wrong

    def _unread(
        self, view: View, seqs: Callable[[TableDefinition], Iterator[int] | tuple[int, ...]]
    ) -> Iterator[tuple[tuple[int, str], Exception]]:
        """Yield the seqs and names of tables that cannot be read, and why."""
        for table in view.catalog.tables:
            for seq in seqs(table):
                if catalogs.is_alive(table, seq):
                    try:
                        self._open(view, table, seq)
                    except UNREADABLE as error:
                        yield (seq, catalogs.name_of(table, seq)), error

    def _open(self, view: View, table: TableDefinition, seq: int) -> None:
        if catalogs.schema_of(table).key:
            storage, lease = self._readers.storage_at(view, table, seq)
            self._readers.base(table, storage)  # its columns are known
            pin = storage.base
        else:
            version = catalogs.version_of(catalogs.incarnation_of(table, seq), seq)
            pin, lease = (None if version is None else version.pin), view.lease
        if pin is not None and pin not in self._opened and not self._is_damaged(pin):
            self._tables.open(pin)
            self._opened.add(pin)
        del lease  # it kept the files until here


def _edges(table: TableDefinition, kept: Sequence[Record]) -> Iterator[int]:
    """Yield the seqs from which on another record, or a load, serves a table, and those before."""
    numbers = {step.id for step in table.incarnations}
    merged = {s.merged_seq for record in kept for s in record.keyed if s.incarnation in numbers}
    versions = (version for step in table.incarnations for version in step.versions)
    for seq in {*merged, *(version.seq for version in versions)}:
        yield from (seq - 1, seq)
