"""Follow: the commits since a seq, and then each new one, as server-sent events.

    id: 42                      the seq to go on from: clients send it again as `Last-Event-ID`
    event: change
    data: {"seq": 42, "is_whole": true, "changes": [{"op", "table", "row"}, ...]}

With `seqs=true` an event has no more than the last seq, `event: seq` and `data: {"seq": 42}`, and
one may stand for several commits: for those that read the rows in another way.

A commit with many rows comes in several events, of which only the last is whole and has an id: a
client that connects again gets all of it again. Where commits came without such rows, an event
without data moves the id on. An error that comes later is an `event: error`. The stream ends after
`answer_timeout_s`, and when the server closes; clients connect again by themselves.

While there is nothing to send it holds no thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from siltstone.api.results import Change, commits_of
from siltstone.errors import BusyError, ClosedError, UnavailableError
from siltstone.lance_versions.errors import invalid
from siltstone.server.http.replies import Feed, Pieces, Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.lines import rows_of
from siltstone.server.rest.wire import EVENTS_TYPE, encoded
from siltstone.server.served import Served

FOLLOWERS_MAX = 64
ROWS_MAX = 1_024
"""About so many rows are in one event."""
LAST_ID = "last-event-id"
_BEGIN, _IDLE = b"retry: 1000\n\n", b":\n\n"


class FollowRoutes:
    """See the module. Any thread."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._room = threading.Semaphore(FOLLOWERS_MAX)

    def follow(self, call: RestCall[None]) -> Reply[Pieces]:
        """Stream the commits since a seq as server-sent events, as they become durable."""
        since, names = _since(call), call.names("tables")
        db = self._served.db
        until = db.durable_seq
        if call.truth("seqs"):
            events = self._seqs(since, until)
            if names:
                raise invalid("seqs=true tells of every commit: it takes no tables")
        else:  # what is wrong is said before the first event
            events = self._events(since, until, db.changes(since, until, names), names)
        if not self._room.acquire(blocking=False):
            raise BusyError(f"{FOLLOWERS_MAX} clients follow this store already")
        held = ExitStack()  # it is closed more than once, and gives the place back once
        held.callback(self._room.release)
        feed = Feed(self._served.parts.core.writer().news.heard, _IDLE)
        return Reply(Pieces(EVENTS_TYPE, events, held.close, _told, feed), until)

    def _seqs(self, since: int, until: int) -> Iterator[bytes]:
        """Yield events that have the last seq alone; nothing where there is nothing yet."""
        yield _BEGIN
        while True:
            if until > since:
                yield b'id: %d\nevent: seq\ndata: {"seq":%d}\n\n' % (until, until)
                since = until
            yield b""
            until = self._served.db.durable_seq

    def _events(
        self, since: int, until: int, readers: dict[str, Any], names: list[str] | None
    ) -> Iterator[bytes]:
        """Yield events; nothing where there is nothing yet."""
        db = self._served.db
        yield _BEGIN
        while True:
            if until > since:
                last = since
                for change in commits_of(readers, ROWS_MAX):
                    yield _event(change)
                    last = change.seq
                if last < until:
                    yield b"id: %d\n\n" % until
                since = until
            yield b""
            until = db.durable_seq
            readers = db.changes(since, until, names) if until > since else {}


def _since(call: RestCall[None]) -> int:
    """Return where to go on: after the last event that the client had, or where it says."""
    last = call.headers.get(LAST_ID)
    if not last:
        return call.number("since") or 0
    if not (last.isascii() and last.isdecimal() and len(last) < 19):
        raise invalid(f"{LAST_ID} is the id of an event, not {last[:80]!r}")
    return int(last)


def _event(change: Change) -> bytes:
    changes: list[dict[str, object]] = []
    for name, table in change.tables.items():
        for row in rows_of(table.to_batches()):
            del row["_seq"]
            changes.append({"op": row.pop("_op"), "table": name, "row": row})
    data = {"seq": change.seq, "is_whole": change.is_whole, "changes": changes}
    head = b"id: %d\n" % change.seq if change.is_whole else b""
    return head + b"event: change\ndata: " + encoded(data) + b"\n\n"


def _told(error: Exception) -> bytes:
    """Return the last event of a feed that cannot go on; a server that closes just ends it."""
    if isinstance(error, ClosedError | UnavailableError):
        return b""
    return b"event: error\ndata: " + encoded({"error": " ".join(str(error).split())}) + b"\n\n"
