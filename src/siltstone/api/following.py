"""Following: `Store.follow`: the commits since a seq, and then each new one as it becomes durable.

read what is there ─▶ wait for the next commit, for a moment at most ─▶ read again ...
                          └──the handle is closed──▶ the end
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from siltstone.errors import ClosedError
from siltstone.query.changes.followed import Change, commits_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WAIT_S", "Change", "commits_of", "follow", "pauses"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.25
"""How long a store that nobody tells of commits is left alone between two looks: twice as long
after each look that found none, up to the second."""
WAIT_S = 5.0


class Followed(Protocol):
    """What a feed is read from: a store."""

    @property
    def durable_seq(self) -> int: ...

    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]: ...

    def await_seq(self, above: int, wait_s: float) -> int: ...


def follow(db: Followed, since: int, tables: Sequence[str] | None) -> Iterator[Change]:
    """Return the changes of `db`; see `Store.follow` for arguments and errors."""
    until = db.durable_seq
    return _followed(db, until, db.changes(since, until, tables), tables)


def _followed(
    db: Followed,
    since: int,
    readers: dict[str, pa.RecordBatchReader],
    tables: Sequence[str] | None,
) -> Iterator[Change]:
    try:
        while True:
            yield from commits_of(readers)
            readers.clear()
            while (until := db.await_seq(since, WAIT_S)) <= since:
                pass
            readers, since = db.changes(since, until, tables), until
    except ClosedError:
        return


def pauses() -> Iterator[float]:
    """Yield how long to leave a store alone after each look that found nothing new."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LAST_PAUSE_S)
