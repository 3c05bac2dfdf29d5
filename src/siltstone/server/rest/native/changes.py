"""Feed: every row version of the keyed tables since a seq, in seq order, as it is read.

As NDJSON, of any number of tables: `{"seq", "op", "table", "row"}` a line, and a last line
`{"until"}` that says that nothing is missing. As an Arrow IPC stream, of one table, with `_seq`
and `_op`. Nothing is read before the client has taken what was read before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter
from typing import cast

import pyarrow as pa

from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.lines import Row, is_arrow, lines, rows_of
from siltstone.server.rest.wire import arrow
from siltstone.server.served import Served


class ChangeRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def changes(self, call: RestCall[None]) -> Reply[Pieces]:
        """Return the changes (since, until] of some tables, or of all keyed ones."""
        since, until = call.number("since") or 0, call.number("until")
        names = call.names("tables")
        in_arrow = is_arrow(call)
        db = self._served.db
        end = db.durable_seq if until is None else until
        readers = db.changes(since, end, names)
        if not in_arrow:
            return Reply(lines(_lines(readers, end)), end)
        if len(readers) != 1:
            raise invalid("an Arrow stream has the changes of one table: tables=<name>")
        (reader,) = readers.values()
        return Reply(arrow(reader, reader.close, is_file=False), end)


def _lines(readers: dict[str, pa.RecordBatchReader], end: int) -> Iterator[Row]:
    """Yield the changes; of several tables in the order of their seqs."""
    changes = heapq.merge(
        *(_changes(name, reader) for name, reader in readers.items()), key=itemgetter(0)
    )
    yield from (change for _, change in changes)
    yield {"until": end}


def _changes(name: str, reader: pa.RecordBatchReader) -> Iterator[tuple[int, Row]]:
    for row in rows_of(reader):
        seq, op = cast("int", row.pop("_seq")), row.pop("_op")
        yield seq, {"seq": seq, "op": op, "table": name, "row": row}
