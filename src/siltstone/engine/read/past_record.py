"""Past record: the one rule by which a record serves a table at a seq of the past.

    history_from <= merged_seq <= seq    base as of the record is not above the seq, and history
                                         has all that came between the two
    no load straight into base lies      history has no such load
    after the record, up to the seq

Readers choose by it among the records that stand, retention chooses by it which records stand, and
verify asks what readers would. Each table of a seq may be served by its own record: when one
checkpoint has the first loads of two tables, no record has the first load alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from siltstone.formats.manifest import Incarnation, KeyedStorage, Record

T = TypeVar("T")
_GONE = 1 << 62


class PastRecord(msgspec.Struct, frozen=True):
    """A record, and its keyed storages by incarnation."""

    record: Record
    keyed: Mapping[int, KeyedStorage]

    @classmethod
    def of(cls, record: Record) -> PastRecord:
        """Return the record so that each of its storages is found at once."""
        return cls(record, {storage.incarnation: storage for storage in record.keyed})


class PastTable(msgspec.Struct, frozen=True):
    """An incarnation of a keyed table, as the newest record or the log has it."""

    storage: KeyedStorage
    incarnation: Incarnation

    @property
    def merged_seq(self) -> int:
        """From this seq on, its own base and history serve it, and no older record is asked."""
        return self.storage.merged_seq

    def storage_in(self, past: PastRecord) -> KeyedStorage | None:
        """Return its storage as of a record; None: the record is from after it was given up."""
        if past.record.flushed_seq < self.incarnation.seq:
            return KeyedStorage(self.storage.incarnation, self.storage.folder)
        return past.keyed.get(self.storage.incarnation)

    def served_by(self, past: PastRecord, seq: int) -> KeyedStorage | None:
        """Return its storage as of a record; None: base there and history do not give the seq."""
        found, upto = self.storage_in(past), past.record.flushed_seq
        if found is None or not self.storage.history_from <= found.merged_seq <= seq:
            return None
        loads = (version.seq for version in self.incarnation.versions)
        return None if any(upto < load <= seq for load in loads) else found

    def serving(
        self, items: Sequence[T], read: Callable[[T], PastRecord | None], seq: int
    ) -> Iterator[tuple[T, KeyedStorage]]:
        """Yield the records that serve it at a seq, the best first, with its storage there.

        Args:
            items: The records, or their numbers, ascending.
            read: Returns the record of an item; None if vacuum took it.
            seq: A seq since its beginning.
        """

        def merged_seq(item: T) -> int:
            past = read(item)
            if past is None:
                return 0  # it was old
            found = self.storage_in(past)
            return _GONE if found is None else found.merged_seq

        # It rises from record to record, unless a repair let the base begin again. A record that
        # vacuum took since the listing may have led too far.
        upto = bisect_right(items, seq, key=merged_seq)
        for item in chain(reversed(items[:upto]), reversed(items[upto:])):
            past = read(item)
            found = None if past is None else self.served_by(past, seq)
            if found is not None:
                yield item, found

    def begin(self, past: PastRecord, begin: int) -> int:
        """Return the seq from which on it is served, if newer records serve it from `begin` on."""
        found = self.served_by(past, begin - 1)
        return begin if found is None else found.merged_seq
