"""Plain indexes: those of a plain table, each a version of it, as a Lance client commits its own.

    create   begin a transaction ─▶ build a segment over all parts ─▶ put it there ─▶ commit
    drop     begin a transaction ─▶ take its segments out ─▶ commit
    renew    as create, in the place of its segments, if these lack many rows

A frame moves the table, so only the owner does it. No row changes, and other commits go on: the
index is put on what they made of the table, if its parts are as they were, else it is built again.
A crash leaves files that no version names. Rows that come later are scanned, until a Lance client
updates the index, it is renewed, or dropped and made again.

An optimize renews indexes of values: Lance takes compacted parts from a btree. It builds them as
one segment: a client's update keeps the row id of a row, and of a bitmap with two segments Lance
finds the row by what it was in the first, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit.core import Core
from siltstone.engine.write.plain_writes import PlainWrites
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import RequestError, SiltstoneError, no_such
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Pin
from siltstone.maintenance.index.index_kinds import (
    check_kind,
    check_options,
    column_of,
    refuse_taken,
)
from siltstone.maintenance.index.index_plan import LAG_SHARE, IndexStatus, index_status, lag_of
from siltstone.process.retry import Retry
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import BuiltSegment, IndexOption, IndexSpec, Segment
from siltstone.telemetry.notices import NoticeLog

_AGAIN = Retry(8)
_OF_ROWS = ("bitmap", "vector")
"""What Lance makes of one row or more; a btree, or an index of texts, also of none."""
_OF_VALUES = ("btree", "bitmap")
_log = NoticeLog(__name__)


class Renewed(msgspec.Struct, frozen=True):
    """An index that was built again: the name of its table, and the number of its rows."""

    table: str
    rows: int


class PlainIndexes:
    """Creates and drops indexes of plain tables, by their ids. Any thread; no lock, no state."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(
        self, table: int, column: str, kind: object, name: str, options: Mapping[str, object]
    ) -> IndexStatus:
        """Build an index over all rows of a table, and return it as it is committed.

        What fails, fails before the commit: no index is there after an error.

        Raises:
            TableNotFoundError: There is no such table.
            RequestError: As of `Indexer.declare`; or it has no rows, and the kind needs some.
            ConflictError: Other commits changed the table's files each time.
        """

        def work(called: str, writes: PlainWrites) -> None:
            names = sorted({segment.index for segment in self._opened(writes).segments})
            refuse_taken(called, names, name)
            column_type = column_of(called, writes.table_schema, column).type
            found = check_kind(kind, column, column_type)
            wanted = check_options(found, options, column_type)
            if found in _OF_ROWS and not self._opened(writes).spans:
                raise RequestError(f"{called!r} has no rows: a {found} index is made of some")
            cross(Failpoint.INDEX_BEFORE_BUILD)
            built = self._built(writes, IndexSpec(name, column, found, wanted))
            cross(Failpoint.INDEX_AFTER_BUILD)
            writes.put_index(built, look=look)

        def look(pin: Pin) -> None:
            found = plain_statuses(self._core.tables.reader.open(pin))
            made[:] = (each for each in found if each.name == name)

        made = list[IndexStatus]()
        self._run(table, work)
        return made[0]

    def drop(self, table: int, name: str) -> None:
        """Drop an index of a table.

        Raises:
            TableNotFoundError: There is no such table.
            RequestError: It has no such index.
            ConflictError: Other commits changed the table's files each time.
        """

        def work(called: str, writes: PlainWrites) -> None:
            names = sorted({segment.index for segment in self._opened(writes).segments})
            if name not in names:
                raise RequestError(f"{called!r} has {no_such('index', name, names)}")
            writes.drop_index(name)

        self._run(table, work)

    def renew(self, wanted: int | None) -> list[Renewed]:
        """Build indexes of values again that lack `LAG_SHARE` of the rows; failures are logged.

        Args:
            wanted: The id of a table; None: all.
        """
        found = list[Renewed]()
        view = self._core.state().view  # its lease keeps the versions
        for table in view.catalog.tables:
            version = catalogs.version_of(catalogs.incarnation_of(table))
            is_plain = catalogs.is_alive(table) and not catalogs.schema_of(table).key
            if is_plain and version is not None and wanted in (None, table.id):
                opened = self._core.tables.reader.open(version.pin)
                names = sorted({segment.index for segment in opened.segments})
                late = (name for name in names if _late(opened, name))
                found += [one for name in late for one in self._renewed(table.id, name)]
        return found

    def _renewed(self, table: int, name: str) -> list[Renewed]:
        done = list[Renewed]()

        def work(called: str, writes: PlainWrites) -> None:
            done.clear()
            if writes.versions.pin is None:
                return  # it was truncated meanwhile
            opened = self._opened(writes)
            late = _late(opened, name)
            if not late:
                return  # it was dropped, or made again, meanwhile
            built = self._built(writes, IndexSpec(name, late[0].columns[0], late[0].kind, ()))
            writes.put_index(built, frozenset(segment.id for segment in late))
            done.append(Renewed(called, opened.rows))

        try:
            self._run(table, work)
        except SiltstoneError as error:
            _log.warning("the index %s of table #%s is not up to date yet: %s", name, table, error)
            done.clear()
        return done

    def _run(self, table: int, work: Callable[[str, PlainWrites], None]) -> None:
        def once() -> None:
            with EngineTransaction(self._core) as tx:
                definition = tx.definition(table)
                work(catalogs.name_of(definition), tx.rows.plain(definition))

        _AGAIN.run(once)

    def _opened(self, writes: PlainWrites) -> PinnedTable:
        return self._core.tables.reader.open(writes.begin())

    def _built(self, writes: PlainWrites, spec: IndexSpec) -> BuiltSegment:
        opened = self._opened(writes)
        return self._core.tables.indexer.build(opened.pin, spec, opened.spans)


def _late(opened: PinnedTable, name: str) -> list[Segment]:
    """Return the segments of an index of values that lacks many rows; none: it does not."""
    mine = [segment for segment in opened.segments if segment.index == name]
    is_fit = any(s.type in _OF_VALUES and s.columns[0] in opened.schema.names for s in mine)
    lag = lag_of(opened, mine) if is_fit else 0
    return mine if lag and lag >= LAG_SHARE * opened.rows else []


def plain_statuses(opened: PinnedTable) -> list[IndexStatus]:
    """Return the indexes of a version of a plain table, by name, those of Lance clients, too."""
    found = list[IndexStatus]()
    for name in sorted({segment.index for segment in opened.segments}):
        first = next(segment for segment in opened.segments if segment.index == name)
        options: dict[str, IndexOption] = {} if first.metric is None else {"metric": first.metric}
        found.append(index_status((name, first.columns[0], first.type, options), opened, name))
    return found
