"""Past: the newest commits, and what differs between two moments, counted and row by row.

A diff is NDJSON: first a line `{"table", "added", "removed", "changed"}` for each table, then one
`{"table", "change", "key", "old", "new"}` for each row, and a last line `{"a", "b"}` says that
nothing is missing. As an Arrow stream, of one table, it has the rows as `Diff` has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import msgspec

from siltstone.api.results import Diff
from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.lines import is_arrow, lines, rows_of
from siltstone.server.rest.wire import arrow
from siltstone.server.served import Served

LOG_MAX = 10_000
"""The commits of one answer."""
_LOG_ENTRIES = 20


class PastRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def log(self, call: RestCall[None]) -> Reply[bodies.LogAnswer]:
        """Return the newest commits, newest first."""
        limit = call.number("limit")
        limit = _LOG_ENTRIES if limit is None else limit
        if limit > LOG_MAX:
            raise invalid(f"limit is at most {LOG_MAX}")
        found = self._served.db.log(limit)
        self._served.settle()
        tokens = (each.token and "/".join(map(str, each.token)) for each in found)
        logged = [
            {**asdict(each), "token": token} for each, token in zip(found, tokens, strict=True)
        ]
        return Reply(msgspec.convert({"commits": logged}, bodies.LogAnswer))

    def diff(self, call: RestCall[None]) -> Reply[Pieces]:
        """Count what differs between the moments a and b, and return the rows."""
        in_arrow, given = is_arrow(call), call.query.get("a")
        if not given:
            raise invalid("a is the moment to begin with: a seq, a time with a zone, or a tag")
        other = call.query.get("b")
        b = self._served.db.durable_seq if not other else _moment(other)
        found = self._served.db.diff(_moment(given), b, call.names("tables"))
        self._served.settle()
        has_rows = call.truth("rows") or "rows" not in call.query
        if not in_arrow:
            return Reply(lines(_lines(found, has_rows=has_rows)), found.b)
        if len(found) != 1:
            raise invalid("an Arrow stream has the diff of one table: tables=<name>")
        (reader,) = (each.scan() for each in found.values())
        return Reply(arrow(reader, reader.close, is_file=False), found.b)


def _moment(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text


def _lines(found: Diff, *, has_rows: bool) -> Iterator[object]:
    for each in found.values():
        counts = {"added": each.added, "removed": each.removed, "changed": each.changed}
        yield {"table": each.name, **counts}
    for each in found.values() if has_rows else ():
        for row in rows_of(each.scan()) if len(each) else ():
            change, old, new = (row.pop(name) for name in ("_change", "_old", "_new"))
            yield {"table": each.name, "change": change, "key": row, "old": old, "new": new}
    yield {"a": found.a, "b": found.b}
