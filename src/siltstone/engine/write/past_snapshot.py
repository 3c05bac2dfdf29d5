"""Past snapshot: what a transaction that reads at an earlier seq checks before its commit.

    seq ◀─────── checked here ───────▶ upto ◀─── admission: recent writes ───▶ its commit
    its reads                          its begin

What was committed from `seq` to `upto` does not change any more, so the thread of the transaction
looks through it: at the keys of memtables, of history, and of the key runs of loads. A table that
was truncated, or has other columns since, is another one, and refused at its first use; a plain
table conflicts if any row of it changed. If the store no longer knows, that is a conflict, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Self

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.admission import conflict_of
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.recent_writes import Coded, Keys, common_code
from siltstone.engine.commit.write_set import AdvancePart, Part, ReadSet
from siltstone.engine.levels.sources import Source, codes_between
from siltstone.engine.read.kept import kept_from, readable
from siltstone.engine.read.view import State
from siltstone.errors import ConflictError
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.manifest import TableDefinition

_ALL = Keys(is_all=True)


class PastSnapshot(msgspec.Struct, frozen=True):
    """See the module. `now` is the state at which the transaction began, `seq` where it reads.

    `lease` keeps what was committed since `seq`, as far as it was kept.
    """

    core: Core
    now: State
    seq: int
    lease: object

    @classmethod
    def of(cls, core: Core, now: State, seq: int) -> Self | None:
        """Return that of a seq; None: it is the newest one.

        Raises:
            RequestError: It is no integer.
            SnapshotExpiredError: It is not kept, or in the future.
        """
        if readable(now, seq, core.readers) == now.visible:
            return None
        lease = core.readers.keep(seq) or core.readers.hold(now.view, seq)  # of a tag: its rows
        return cls(core, now, seq, lease)

    def require_same(self, table: TableDefinition) -> None:
        """Refuse a table that is not what it was at `seq`; what the transaction did is no change.

        Raises:
            ConflictError: It was made, dropped, truncated, or got other columns since.
        """
        known = catalogs.by_id(self.now.view.catalog, table.id)
        if known is None:  # the transaction makes it
            return
        renewed = catalogs.incarnation_of(known).seq
        changed = max(known.created, known.schemas[-1].seq, renewed, known.dropped or 0)
        if changed > self.seq:
            raise self._conflict(known, changed)

    def require_name(self, name: str) -> None:
        """Refuse the name of a table that another table had at `seq`.

        Raises:
            ConflictError: They were dropped, made or renamed since.
        """
        catalog = self.now.view.catalog
        before = catalogs.called(catalog, name, self.seq)
        after = catalogs.called(catalog, name, self.now.visible)
        if before is not None and after is not None and before is not after:
            raise self._conflict(after, max(after.created, after.names[-1].seq))

    def check(
        self, parts: Sequence[Part], changes: Sequence[group.Entry], reads: ReadSet | None
    ) -> None:
        """Refuse a commit if what it writes, or read if it is serializable, changed since `seq`.

        Raises:
            ConflictError: It did, or the store no longer knows.
            CorruptionError: Files of history are damaged.
        """
        catalog = self.now.view.catalog
        for part in parts:
            table = catalogs.by_id(catalog, part.table)
            if table is not None:  # else the transaction makes it
                plain = isinstance(part, AdvancePart) and part.base is None
                self._check(table, None if plain else part.keys())
        for entry in changes:
            if isinstance(entry, group.Drop | group.Truncate):
                table = catalogs.by_id(catalog, entry.table)
                if table is not None:
                    self._check(table, _ALL if catalogs.schema_of(table).key else None)
        if reads is None:
            return
        of_keys = ((number, Keys(list(keys))) for number, keys in reads.keys.items())
        of_scans = ((number, _ALL) for number in reads.scans)
        of_plain = ((number, None) for number in reads.versions)
        for number, keys in chain[tuple[int, Keys | None]](of_keys, of_scans, of_plain):
            self._check(catalogs.owner_of(catalog, number), keys)

    def _check(self, table: TableDefinition, keys: Keys | None) -> None:
        """Check some keys of a table; None: it is plain."""
        self.require_same(table)
        if keys is None:
            self._check_plain(table)
            return
        code_of = table_schema_of(catalogs.schema_of(table)).codec.code
        own = None if keys.is_all else keys.as_codes(code_of)
        for source in self._sources(table):
            for codes, seqs in codes_between(source, self.seq, self.now.visible):
                if not len(codes):
                    continue
                if own is None:
                    raise self._conflict(table, int(seqs.min()))
                code = common_code(own, codes) if len(own) else None
                if code is not None:
                    written = int(seqs[codes == code].max())
                    raise self._conflict(table, written, self._key(keys, code, code_of))

    @staticmethod
    def _key(keys: Keys, code: int, code_of: object) -> Key | Coded:
        return next((key for key in keys.values if code_of(key) == code), Coded(code))  # type: ignore[operator]

    @property
    def _kept_from(self) -> int:
        return min(kept_from(self.now), self.now.visible)

    def _check_plain(self, table: TableDefinition) -> None:
        step = catalogs.incarnation_of(table)
        version, newest = catalogs.version_of(step, self.seq), catalogs.version_of(step)
        if newest is None or newest.seq <= self.seq:
            return
        if catalogs.has_changed(step, 0 if version is None else version.pin.version):
            raise self._conflict(table, newest.seq)
        if self.seq < self._kept_from:  # only optimizes are left: who knows what was between them
            raise self._forgotten(table)

    def _sources(self, table: TableDefinition) -> Iterator[Source]:
        """Yield the levels that may have row versions since `seq`.

        Raises:
            ConflictError: A bulk load made the base since, or history does not reach back.
        """
        step, view = catalogs.incarnation_of(table), self.now.view
        loaded = next((load.seq for load in step.versions if load.seq > self.seq), 0)
        if loaded:
            raise self._conflict(table, loaded)
        levels = view.levels[step.id]
        if self.seq < max(levels.storage.history_from, self._kept_from):
            raise self._forgotten(table)
        flushed = view.record.flushed_seq
        if self.seq >= levels.storage.merged_seq:  # its readers have the index
            yield from levels.flushed
        elif self.seq < flushed:
            yield from self.core.readers.history(
                table, levels.storage, self.seq, flushed, view.lease
            )
        yield from levels.sealed
        yield levels.active

    def _conflict(
        self, table: TableDefinition, written: int, key: Key | Coded = "*"
    ) -> ConflictError:
        table_schema = table_schema_of(catalogs.schema_of(table))
        return conflict_of(table, table_schema, (key, written), self.seq)

    def _forgotten(self, table: TableDefinition) -> ConflictError:
        name, now = catalogs.name_of(table), self.now.visible
        explained = (
            f"{name!r} was read at seq {self.seq}, and the store no longer knows what changed since"
            f" (it is at seq {now}): read it again at a newer seq"
        )
        return ConflictError(name, "*", self.seq, now, explained=explained)
