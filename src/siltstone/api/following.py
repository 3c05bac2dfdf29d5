"""Following: `Store.follow`: the commits since a seq, and then each new one as it becomes durable.

read what is there ─▶ wait for the next commit, for a moment at most ─▶ read again ...
                          └──the handle is closed──▶ the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from siltstone.errors import ClosedError

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.query.changes.followed import Change

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.25
"""How long a store that does not tell of commits is left alone between two looks: twice as long
after each look that found none, up to the second."""
WAIT_S = 5.0


class ChangeSource(Protocol):
    """What a feed is read from: a store."""

    @property
    def durable_seq(self) -> int: ...

    def changes(
        self, since: int = 0, until: int | None = None, tables: Sequence[str] | None = None
    ) -> dict[str, pa.RecordBatchReader]: ...


AwaitSeq = Callable[[int, float], int]
"""Waits until a seq above one is durable, for so many seconds at most; returns the last one."""


def follow(
    db: ChangeSource, await_seq: AwaitSeq, since: int, tables: Sequence[str] | None
) -> Iterator[Change]:
    """Return the changes of `db`; see `Store.follow` for arguments and errors."""
    until = db.durable_seq
    return _followed(db, await_seq, until, db.changes(since, until, tables), tables)


def _followed(
    db: ChangeSource,
    await_seq: AwaitSeq,
    since: int,
    readers: dict[str, pa.RecordBatchReader],
    tables: Sequence[str] | None,
) -> Iterator[Change]:
    from siltstone.query.changes.followed import commits_of  # noqa: PLC0415 - few follow

    try:
        while True:
            yield from commits_of(readers)
            readers.clear()
            while (until := await_seq(since, WAIT_S)) <= since:
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
