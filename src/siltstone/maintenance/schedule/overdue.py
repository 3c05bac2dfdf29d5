r"""Overdue: what owners that ended soon have left undone, and what of it did not fit into an end.

A scheduler looks a quarter of a second after the store was opened, and its merges end with it. So a
store that only short programs open would never be merged, optimized or vacuumed, but for what an
owner does when it ends (`upkeep.py`).

    jobs/OWED    JSON (`formats.checked_json`): the steps that did not fit into an end, each with
                 the rows that it was about then; 0: it had not all of the time of an end

OWED is a hint, and never synced: without it, or if it is damaged, an end tries again.

Lock: none; the owner writes OWED, and what maintains the store in its place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.view import View
from siltstone.errors import CorruptionError
from siltstone.formats.checked_json import CheckedJson
from siltstone.formats.manifest import Record, pins_of
from siltstone.maintenance.merge.unordered import unordered
from siltstone.maintenance.schedule.scheduler import (
    HISTORY_PARTS_MAX,
    VACUUM_INTERVAL_S,
    is_crumbled,
)
from siltstone.maintenance.schedule.unmerged import (
    MERGE_MEMORY_SHARE,
    MERGE_ROWS_MIN,
    ROW_BYTES,
    unmerged_rows,
    wants_merge,
)
from siltstone.storage.files.files import ABSENT, Files, refusals
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import DIRECTORY
from siltstone.storage.tables.tables import TableReader

_FILE = CheckedJson(
    b"siltstone-owed", msgspec.json.Decoder(dict[str, int]),
    file="list of what is owed", whole="list", value="list",
)  # fmt: skip


def due_steps(view: View, site: Site, memory_bytes_max: int) -> dict[str, int]:
    """Return the steps that are overdue of what a view has flushed, in their order.

    Each has the rows that it is about, at least 1.

    Raises:
        SiltstoneError: A file cannot be read.
    """
    record, found = view.record, crumbled(view.record, site.tables.reader)
    is_behind = may_want_merge(record, memory_bytes_max) and wants_merge(view, memory_bytes_max)
    is_behind |= bool(unordered(record))
    is_old = vacuumed_s_ago(site.files, site.manifests) >= VACUUM_INTERVAL_S
    rows = {
        "merge": unmerged_rows(view) if is_behind else None,
        "optimize": _history_rows(record, found) if found else None,
        "vacuum": sum(pin.rows for pin in pins_of(record)) if is_old else None,
    }
    return {step: max(1, count) for step, count in rows.items() if count is not None}


def may_want_merge(record: Record, memory_bytes_max: int) -> bool:
    """Say whether a merge can be due, by the numbers of a record alone.

    Most ends need not open a history, which takes milliseconds for each table.
    """
    rows = [
        (0 if each.history is None else each.history.rows)
        + sum(load.pin.rows for load in each.loads)
        for each in record.keyed
        if each.merged_seq < record.flushed_seq
    ]
    is_much = sum(rows) * ROW_BYTES >= MERGE_MEMORY_SHARE * memory_bytes_max
    return is_much or max(rows, default=0) >= MERGE_ROWS_MIN


def crumbled(record: Record, tables: TableReader) -> list[int]:
    """Return the ids of the tables that exist whose histories have many small parts."""
    if record.number <= HISTORY_PARTS_MAX:
        return []  # a checkpoint adds a part and a record: most ends need not open the histories
    alive = (table for table in record.catalog.tables if catalogs.is_alive(table))
    found = {catalogs.incarnation_of(table).id: table.id for table in alive}
    return [
        found[storage.incarnation]
        for storage in record.keyed
        if storage.incarnation in found and is_crumbled(storage, tables)
    ]


def _history_rows(record: Record, tables: list[int]) -> int:
    found = (catalogs.by_id(record.catalog, table) for table in tables)
    incarnations = {catalogs.incarnation_of(table).id for table in found if table is not None}
    histories = (each.history for each in record.keyed if each.incarnation in incarnations)
    return sum(history.rows for history in histories if history is not None)


def vacuumed_s_ago(files: Files, manifests: ManifestStore) -> float:
    """Return the seconds since the last vacuum of any process, or since the store was made.

    Each vacuum writes FLOOR, by the clock of files; a time of the future counts as one as long ago.

    Raises:
        UnavailableError: The file system refuses.
        CorruptionError: FLOOR is damaged.
    """
    with refusals(f"cannot look at {manifests.folder}"):
        try:
            then = files.mtime(manifests.folder / "FLOOR")
        except ABSENT:
            oldest = manifests.numbers()[:1]
            then = files.mtime(manifests.path(oldest[0])) if oldest else time.time()
        return abs(time.time() - then)


class Owed:
    """The steps that did not fit into an end of the owner; see the module."""

    def __init__(self, site: Site) -> None:
        self._files, self._path = site.files, site.root / DIRECTORY / "OWED"

    def read(self) -> Mapping[str, int]:
        """Return the rows that each step was about; none if nothing is owed, or it is damaged.

        Raises:
            OSError: The file system refuses.
        """
        with suppress(*ABSENT, CorruptionError):
            return _FILE.decode(self._files.read(self._path), str(self._path))
        return {}

    def write(self, owed: Mapping[str, int]) -> None:
        """Replace what is owed.

        Raises:
            OSError: The file system refuses; it is as before.
        """
        if owed:
            with suppress(FileExistsError):
                self._files.make_level(self._path.parent)
            self._files.replace(self._path, _FILE.encode(dict(owed)), durable=False)
        else:
            with suppress(*ABSENT):
                self._files.unlink(self._path)
