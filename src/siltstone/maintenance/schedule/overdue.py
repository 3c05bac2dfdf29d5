"""Overdue: what owners that ended soon have left undone, and the child that an owner's end starts.

A scheduler looks a quarter of a second after the store was opened, and its merges end with it. So a
store that only short programs open would never be merged, optimized or vacuumed. When an owner with
a background ends, it looks once, and starts one child (`siltstone.upkeep`) if anything is overdue:

    final checkpoint ─▶ look ─▶ close the log ─▶ prove its end, for a vacuum ─▶ release LOCK
    ─▶ flock jobs/UPKEEP ─▶ start the child, which has the flock until it ends

While the child of an earlier close runs, no other one is started; the kernel frees a dead one's
flock. The child looks again, by the newest record. So a second one would find nothing, or lose a
race as any merge may.

Lock: none; the thread that closes the store calls.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.view import View
from siltstone.errors import SiltstoneError, UnavailableError, in_words
from siltstone.formats.manifest import Record
from siltstone.maintenance.merge.merge_child import detach_upkeep
from siltstone.maintenance.schedule.scheduler import (
    HISTORY_PARTS_MAX,
    VACUUM_INTERVAL_S,
    is_crumbled,
)
from siltstone.maintenance.schedule.unmerged import (
    MERGE_MEMORY_SHARE,
    MERGE_ROWS_MIN,
    ROW_BYTES,
    wants_merge,
)
from siltstone.options import Options
from siltstone.storage.files.files import ABSENT, Files, refusals
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.manifest.ownership import Ownership
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import DIRECTORY
from siltstone.storage.tables.tables import TableReader

UPKEEP = "UPKEEP"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overdue:
    """What is to be done for a store."""

    merge: bool = False
    optimize: bool = False
    vacuum: bool = False

    @classmethod
    def at(cls, view: View, site: Site, memory_bytes_max: int) -> Overdue:
        """Return what is overdue of what a view has flushed.

        Raises:
            SiltstoneError: A file cannot be read.
        """
        return cls(
            merge=may_want_merge(view.record, memory_bytes_max)
            and wants_merge(view, memory_bytes_max),
            optimize=bool(crumbled(view.record, site.tables.reader)),
            vacuum=vacuumed_s_ago(site.files, site.manifests) >= VACUUM_INTERVAL_S,
        )

    @property
    def is_any(self) -> bool:
        """Whether there is anything to do."""
        return self.merge or self.optimize or self.vacuum


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


class Upkeep:
    """The end of one owner; see the module.

    Args:
        site: The store.
        options: Those of the owner; the child has the same.
        ownership: Still held when `look` and `prove` are called.
        is_on: False: it never starts a child.
    """

    def __init__(self, site: Site, options: Options, ownership: Ownership, *, is_on: bool) -> None:
        self.is_on = is_on
        self._site, self._options, self._ownership = site, options, ownership
        self._overdue, self._is_closed = Overdue(), False

    def look(self, view: View) -> None:
        """Look what is overdue when all is flushed that will be; never raises."""
        if not self.is_on:
            return
        try:
            self._ownership.require_in_place()
            self._overdue = Overdue.at(view, self._site, self._options.memory_bytes_max)
        except (SiltstoneError, OSError) as error:
            _log.warning("cannot tell what is overdue: %s", in_words(error))

    def closed(self, epoch: int) -> None:
        """Hear that the log is closed; if a vacuum is due, prove to it where the log ends."""
        self._is_closed = True
        if self._overdue.vacuum:
            with suppress(OSError):  # then it is left to a later owner
                self._ownership.prove_end(epoch)

    def start(self) -> None:
        """Start the child if anything is overdue; never raises. The store is not owned any more."""
        if not (self.is_on and self._is_closed and self._overdue.is_any):
            return
        try:
            with refusals("cannot start the upkeep"):
                self._start()
        except UnavailableError as error:
            _log.warning("the store is closed, and its upkeep is overdue: %s", in_words(error))

    def _start(self) -> None:
        files, folder = self._site.files, self._site.root / DIRECTORY
        with suppress(FileExistsError):
            files.make_level(folder)  # one level: a store that was deleted meanwhile stays so
        lock = files.lock(folder / UPKEEP, create=True)
        if lock is None:
            return  # that of an earlier close still runs
        try:
            detach_upkeep(self._site.root, json.dumps(asdict(self._options)), lock.fd)
        finally:
            lock.release()
