"""Snapshot: all tables of a joined store at one seq, held open by the owner for this process."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow.compute as pc

from siltstone.errors import ClosedError
from siltstone.joined import protocol
from siltstone.joined.link import Link
from siltstone.joined.tables import JoinedSnapshotTable
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.query.scan.scan_plan import ROWS_MAX
from siltstone.query.scan.scan_task import ScanTask

if TYPE_CHECKING:
    from siltstone.query.sql import sql as queries


class JoinedSnapshot:
    """All tables at one seq, for as long as it is held: a context manager, or until `close`."""

    def __init__(self, link: Link, named: dict[str, object]) -> None:
        self._link = link
        home = link.take()
        try:
            found = link.within(home, "snapshot/open", (), named)
        except BaseException:
            home.close()
            raise
        self._id: str = found["id"]
        self.seq: int = found["seq"]
        self._is_open = True
        # Its end is the end of the snapshot at the owner; also of one that nobody closes.
        self._end = weakref.finalize(self, home.close)

    def __repr__(self) -> str:
        if not self._is_open:
            return f"<Snapshot at seq {self.seq}, closed>"
        return f"<Snapshot at seq {self.seq}: {', '.join(self.tables()) or 'no tables'}>"

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the owner let go of the files that it keeps; a second time does nothing."""
        self._is_open = False
        self._end()

    def _check(self) -> None:
        if not self._is_open:
            raise ClosedError(f"the snapshot at seq {self.seq} is closed")

    def _read(self, verb: str, *arguments: object) -> Any:
        self._check()
        return self._link.read(f"snapshot/{self._id}/{verb}", *arguments)

    def lance_catalog(self, operation: str, request: Request, keyed: str) -> Answer:
        """Have the owner answer a request of the Lance Namespace spec at this seq."""
        return self._read("lance_catalog", operation, dict(request), keyed)

    def read_table(self, name: str, verb: str, *arguments: object) -> Any:
        """Ask for something of one table."""
        self._check()
        headers = {protocol.SNAPSHOT_HEADER: self._id}
        return self._link.read(f"table/{name}/{verb}", *arguments, **headers)

    def tables(self) -> list[str]:
        """Return the names of the tables that lived at this seq."""
        return self._read("tables")

    def __getitem__(self, name: str) -> JoinedSnapshotTable:
        """Return the table that was called `name`.

        Raises:
            TableNotFoundError: There was none.
        """
        return JoinedSnapshotTable(self, self._read("id_of", name))

    def scan_tasks(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - the contract's name
        *,
        rows_max: int = ROWS_MAX,
    ) -> list[ScanTask]:
        """Cut a scan into tasks that any process may read by itself; planned by the owner."""
        self._check()
        path = f"snapshot/{self._id}/scan_tasks"
        return self._link.ask(path, table, columns, filter, rows_max=rows_max)

    def sql(self, statement: str, parameters: queries.Parameters = None) -> queries.Result:
        """Run a query over this snapshot, at the owner."""
        from siltstone.query.sql import sql as queries  # noqa: PLC0415 - it brings all of pandas

        return queries.Result(self._read("sql", statement, parameters).read_all())
