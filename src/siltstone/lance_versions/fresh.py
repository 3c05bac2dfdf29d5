"""Fresh versions: a keyed table, with rows that are not merged, as a Lance version for readers.

    base as of the last merge ─▶ without the rows that newer ones hide ─▶ and the newer ones behind

Its number is the seq that it shows. No record publishes it and no commit can name it. Its files are
its own: they are deleted after a while, when the store's handle is closed, or by vacuum, as those
that a crash left. An unchanged table has one, and a busy one gets at most one in `interval_s`.

Lock: one, held while a version is made.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Reader
from siltstone.errors import BusyError, TableNotFoundError, UnavailableError
from siltstone.formats.manifest import Pin, Version
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.maintenance.merge.merge import altered, live_batches
from siltstone.storage.tables.kept_names import kept_of
from siltstone.storage.tables.values import Ephemeral

KEYED = ("merged", "fresh")
INTERVAL_S = 1.0
VERSIONS_MAX = 64
BYTES_MAX = 1 << 30
KEPT_S = 600.0
KEPT_LEAST_S = 60.0
_STARTS_MAX = 256


class VersionedSnapshot(Protocol):
    """A snapshot of this process: all tables at one seq, and their versions."""

    seq: int

    def versions(self, name: str, /) -> TableVersions: ...

    def reader_of(self, table: str, /) -> Reader: ...


@dataclass(frozen=True, slots=True)
class _FreshVersion:
    folder: str
    base: str
    table_schema: int
    made_us: int
    written: Ephemeral

    @property
    def seq(self) -> int:
        return self.written.pin.version

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.written.files)


class FreshVersions:
    """See the module. One per open store; any thread.

    `versions_max` and `bytes_max` are over all tables. At a bound the oldest version is deleted if
    clients had `KEPT_LEAST_S` to read it; until then they get an older version than they ask for.
    """

    def __init__(
        self,
        core: Core,
        *,
        interval_s: float = INTERVAL_S,
        versions_max: int = VERSIONS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._core, self._interval_us = core, int(interval_s * 1e6)
        self._versions_max, self._bytes_max = versions_max, bytes_max
        self._lock = threading.RLock()  # a signal's handler may close what its thread is making
        self._made: list[_FreshVersion] = []
        self._starts: dict[tuple[str, str, int], Pin] = {}

    def live(self, at: VersionedSnapshot, table: str) -> TableVersions:
        """Return a keyed table with its fresh versions, the newest not older than the interval.

        Raises:
            TableNotFoundError: The snapshot has no such table.
            UnavailableError: The file system refuses to write.
        """
        seen = at.versions(table)
        with self._lock:
            mine = self._of(seen.folder)
            newest = mine[-1] if mine else None
            if newest is None or not self._is_young(newest, at.seq):
                with contextlib.suppress(BusyError) if newest else contextlib.nullcontext():
                    self._make(at, table, seen, newest)
            return _shown(seen, self._of(seen.folder))

    def exact(self, at: VersionedSnapshot, table: str) -> TableVersions:
        """Return a keyed table with one version, that of the snapshot's own seq.

        Raises:
            BusyError: There are too many fresh versions, all made within `KEPT_LEAST_S`.
            TableNotFoundError, UnavailableError: See `live`.
        """
        seen = at.versions(table)
        with self._lock:
            if all(made.seq != at.seq for made in self._of(seen.folder)):
                self._make(at, table, seen, None)
            return _shown(seen, [made for made in self._of(seen.folder) if made.seq == at.seq])

    def clear_way(self, seen: TableVersions) -> None:
        """Set aside versions that were written by path above the newest one of a plain table.

        Lance would build a client's commit on them. If there is none, this looks at one file name.
        """
        catalog = self._core.state().view.catalog
        with contextlib.suppress(UnavailableError, TableNotFoundError):
            newest = catalogs.version_of(catalogs.incarnation_of(catalogs.find(catalog, seen.name)))
            is_same = newest is not None and newest.pin.folder == seen.folder
            above = newest.pin.version if newest is not None and is_same else 0
            self._core.tables.names.set_aside(seen.folder, above)

    def merged(self, seen: TableVersions) -> TableVersions:
        """Return a keyed table that was never merged with an empty version; others unchanged."""
        if seen.committed or not seen.is_keyed:
            return seen
        with self._lock:
            pin = self._start(seen, None)
        return replace(seen, committed=(Version(0, pin),))

    def close(self) -> None:
        """Delete the files of all versions that were made."""
        with self._lock:
            for made in self._made:
                self._delete(made)
            self._made = []

    def _is_young(self, made: _FreshVersion, seq: int) -> bool:
        age_us = self._core.site.now_us() - made.made_us
        return made.seq >= seq or age_us < self._interval_us

    def _of(self, folder: str) -> list[_FreshVersion]:
        """Return the versions of a table, the oldest first; forget those that vacuum took."""
        files, root = self._core.files, self._core.root
        mine = [made for made in self._made if made.folder == folder]
        for made in mine.copy():
            if not all(files.exists(root / file.path) for file in made.written.files):
                mine.remove(made)
                self._made.remove(made)
        return sorted(mine, key=lambda made: made.seq)

    def _make(
        self, at: VersionedSnapshot, table: str, seen: TableVersions, newest: _FreshVersion | None
    ) -> None:
        reader = at.reader_of(table)
        assert isinstance(reader, KeyedReader)
        if newest is not None and _is_same(newest, reader):
            return
        self._make_room()
        overlay = reader.overlay()
        made = self._core.tables.clients.overlaid(
            self._start(seen, reader),
            drop=overlay.shadowed,
            batches=live_batches(overlay, reader.table_schema),
            version=at.seq,
        )
        now_us, table_schema = self._core.site.now_us(), reader.table_schema.id
        self._made.append(_FreshVersion(seen.folder, _base_of(reader), table_schema, now_us, made))

    def _start(self, seen: TableVersions, reader: KeyedReader | None) -> Pin:
        """Return the version to lay rows over: the base, with today's columns, or an empty one."""
        base = None if reader is None else reader.base
        table_schema = 0 if reader is None else reader.table_schema.id
        if base is not None and base.table_schema.id == table_schema:
            return base.table.pin
        key = seen.folder, "" if reader is None else _base_of(reader), table_schema
        known = self._starts.get(key)
        if known is not None and self._core.files.exists(self._core.root / known.path):
            return known
        writer = self._core.tables.writer
        if reader is None or base is None:
            made = writer.create(seen.folder, seen.schema)
        else:
            made = altered(writer, base.table.pin, base.table_schema, reader.table_schema)
        if len(self._starts) >= _STARTS_MAX:
            self._starts = {}
        self._starts[key] = made
        return made

    def _make_room(self) -> None:
        """Delete versions that are too old to be read, and the oldest at a bound.

        Raises:
            BusyError: They are at a bound, all made within `KEPT_LEAST_S`.
        """
        now_us = self._core.site.now_us()
        newest = {made.folder: made for made in self._made}
        for made in list(self._made):
            age_s = (now_us - made.made_us) / 1e6
            is_old = age_s > KEPT_S and newest[made.folder] is not made
            if is_old or (self._is_full() and age_s > KEPT_LEAST_S):
                self._delete(made)
                self._made = [other for other in self._made if other is not made]
        if self._is_full():
            raise BusyError(
                f"there are {len(self._made)} fresh versions, made within {KEPT_LEAST_S:.0f} s;"
                " open tables less often, or merge"
            )

    def _is_full(self) -> bool:
        nbytes = sum(made.nbytes for made in self._made)
        return len(self._made) >= self._versions_max or nbytes >= self._bytes_max

    def _delete(self, made: _FreshVersion) -> None:
        files, root = self._core.files, self._core.root
        for file in made.written.files:
            for name in (file.path, kept_of(file.path)):
                with contextlib.suppress(FileNotFoundError):
                    if name is not None:
                        files.unlink(root / name)
        with contextlib.suppress(OSError):  # vacuum takes what is left
            files.rmdir((root / made.written.pin.path).parent)


def _base_of(reader: KeyedReader) -> str:
    return "" if reader.base is None else reader.base.table.pin.path


def _is_same(made: _FreshVersion, reader: KeyedReader) -> bool:
    """Return whether a version that was made shows all rows that the reader does."""
    last = max((source.last_seq for source in reader.sources), default=0)
    return (
        made.base == _base_of(reader)
        and made.table_schema == reader.table_schema.id
        and last <= made.seq
    )


def _shown(seen: TableVersions, made: Sequence[_FreshVersion]) -> TableVersions:
    return replace(seen, committed=tuple(Version(each.seq, each.written.pin) for each in made))
