"""Floor planner: chooses the records that a vacuum keeps, from what their files take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import KeyedStorage, Pin, Record, Tag
from siltstone.maintenance import retention, thinning
from siltstone.maintenance.thinning import Bounds, Extent, TableSize
from siltstone.storage.manifest.floor import Floor


class FloorPlanner(msgspec.Struct, frozen=True):
    """Plans FLOOR; holds no lock and no state.

    Args:
        files: Returns the files that a version needs: of a store, or of its mirror.
        now_us: The time.
        retention_s: How long the past stays readable.
        bounds: What may lie between two kept records.
    """

    files: Callable[[Pin], Sequence[InventoryFile]]
    now_us: int
    retention_s: float
    bounds: Bounds

    def plan(self, seen: Floor, records: Sequence[Record], tags: Sequence[Tag]) -> Floor:
        """Return the next floor.

        While a record is lost, none is thinned: a lost record must not pass for a thinned one.

        Args:
            seen: The present floor.
            records: All records that it keeps, ascending.
            tags: All tags: what serves them stays.
        """
        cutoff_us = self.now_us - int(self.retention_s * 1e6)
        oldest = retention.floor_of(records, cutoff_us)
        lost = set(seen.due(records[-1].number)) - {record.number for record in records}
        if lost:
            return seen.above(oldest.number)
        staying = [record for record in records if record.number >= oldest.number]
        if len(staying) <= 3:  # FLOOR, and the two newest
            return Floor.of((record.number for record in staying), staying[-1].number)
        return thinning.floor_over(
            staying,
            self._sizes(staying[-1]),
            self._fixed(staying, tags),
            retention_s=self.retention_s,
            bounds=self.bounds,
        )

    def _fixed(self, records: Sequence[Record], tags: Sequence[Tag]) -> AbstractSet[int]:
        seqs = (tag.seq for tag in tags if tag.seq >= records[0].flushed_seq)  # above FLOOR
        serving = {record.number for record, _ in retention.islands_of(records, seqs).serving}
        now_us, bounds = self.now_us, self.bounds
        return serving | thinning.recent(records, self._base_files, now_us=now_us, bounds=bounds)

    def _base_files(self, record: Record) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for storage in record.keyed:
            found |= self._files_of_base(storage)
        return found

    def _files_of_base(self, storage: KeyedStorage) -> Mapping[str, int]:
        if storage.base is None:
            return {}
        files = self.files(storage.base)
        return {file.path: file.size for file in files if file.path.startswith(storage.folder)}

    def _sizes(self, newest: Record) -> dict[int, TableSize]:
        loads = {
            step.id: tuple(version.seq for version in step.versions)
            for table in newest.catalog.tables
            for step in table.incarnations
        }
        return {
            storage.incarnation: TableSize(
                sum(self._files_of_base(storage).values()),
                self._history(storage),
                loads.get(storage.incarnation, ()),
            )
            for storage in newest.keyed
        }

    def _history(self, storage: KeyedStorage) -> tuple[Extent, ...]:
        files = () if storage.history is None else self.files(storage.history)
        rows = [Extent(*file.seqs, file.size) for file in files if file.seqs is not None]
        for load in storage.loads:
            nbytes = sum(file.size for file in self.files(load.pin))
            rows.append(Extent(load.seq, load.seq, nbytes))
        return tuple(rows)
