"""Compaction job: the finished tasks of an optimize, as lines of a record, and their fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.maintenance.compaction.compaction import CompactTask, Place, pin_of
from siltstone.maintenance.merge.merge import Deferred, Merged
from siltstone.storage.tables.jobs import SeenJob
from siltstone.storage.tables.tables import Compacted, InputsMovedError, TableCompactor


@dataclass(frozen=True, slots=True)
class Optimized:
    """The result of an optimize: its tables (by name), the numbers of files before and after.

    It built `segments` of indexes, over `indexed_rows`.
    """

    tables: tuple[str, ...]
    files_before: int
    files_after: int
    rows: int
    segments: int = 0
    indexed_rows: int = 0


NOTHING = Optimized((), 0, 0, 0)
_Done = TypeVar("_Done", Merged, Optimized)


def called(done: _Done | Deferred, name: str | None) -> _Done | Deferred:
    """Return the result for one table, with the name that the caller used.

    The record may have an older name of the table.
    """
    if name is None or isinstance(done, Deferred) or not done.tables:
        return done
    return replace(done, tables=(name,))


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished task, as in a line of its job's record."""

    task: CompactTask
    result: Compacted

    def encode(self) -> bytes:
        """Return the line."""
        return msgspec.json.encode(self)


def read(seen: SeenJob) -> list[Finished]:
    """Return the finished tasks of a job whose lines this siltstone understands."""
    found: list[Finished] = []
    for line in seen.finished:
        try:
            found.append(msgspec.json.decode(line, type=Finished))
        except msgspec.MsgspecError:
            break
    return found


def by_place(finished: Sequence[Finished]) -> Mapping[Place, list[Finished]]:
    """Return the finished work by dataset."""
    found: dict[Place, list[Finished]] = {}
    for one in finished:
        found.setdefault(one.task.place, []).append(one)
    return found


def optimized(finished: Sequence[Finished]) -> Optimized:
    """Return the result, if all tasks were published."""
    return Optimized(
        tuple(sorted({one.task.table for one in finished})),
        sum(one.task.parts for one in finished),
        sum(len(one.result.fragments) for one in finished),
        sum(one.task.rows for one in finished),
    )


def total_of(one: Optimized, other: Optimized) -> Optimized:
    """Return the sum of two results, which have no indexes."""
    return Optimized(
        tuple(sorted({*one.tables, *other.tables})),
        one.files_before + other.files_before,
        one.files_after + other.files_after,
        one.rows + other.rows,
    )


def fitting_of(
    tables: TableCompactor, now: Record, finished: Sequence[Finished]
) -> tuple[dict[Place, Pin], list[Finished]]:
    """Return the pins with the fitting tasks applied, and these tasks."""
    pins: dict[Place, Pin] = {}
    fitting: list[Finished] = []
    for place, items in by_place(finished).items():
        pin = pin_at(now, place)
        if pin is None:
            continue  # dropped or truncated meanwhile: nothing is left to do
        folder = items[0].task.folder
        try:
            pins[place] = tables.swap(folder, pin, [one.result for one in items])
            fitting += items
        except InputsMovedError:
            for one in items:
                try:
                    pin = tables.swap(folder, pin, [one.result])
                except InputsMovedError:
                    continue
                pins[place] = pin
                fitting.append(one)
    return pins, fitting


def pin_at(record: Record, place: Place) -> Pin | None:
    """Return a record's pin of a dataset; None if the table is dropped, or has none."""
    incarnation, level = place
    mine = (s for s in record.keyed if s.incarnation == incarnation)
    storage = next(mine, None)
    return None if storage is None else pin_of(storage, level)


def with_pins(record: Record, pins: Mapping[Place, Pin]) -> Record:
    """Return the record with other bases and histories."""
    return msgspec.structs.replace(
        record, keyed=tuple(_with_pins(storage, pins) for storage in record.keyed)
    )


def _with_pins(storage: KeyedStorage, pins: Mapping[Place, Pin]) -> KeyedStorage:
    return msgspec.structs.replace(
        storage,
        base=pins.get((storage.incarnation, "base"), storage.base),
        history=pins.get((storage.incarnation, "history"), storage.history),
    )
