"""Point reads: one row of a part, or a few, by a session of Lance that stays open.

A take of the dataset plans each read anew and opens the part's files for it. A session is a part
opened once for some columns: a row then costs half of the processor time with one thread, and a
third with eight, which no longer wait for each other's plans.

A session holds a descriptor of each data file of its part. A store keeps at most `SESSIONS_MAX`;
beyond that all are closed, and those in use open again. They end with the version that they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa

SESSIONS_MAX = 128
_Key: TypeAlias = tuple[int, int, tuple[str, ...]]
_numbers = count()


class PartSessions:
    """The open sessions of one store.

    No lock: a session is immutable, each step on the table is one of the interpreter's own, and a
    session that is lost in between is opened again.
    """

    def __init__(self) -> None:
        self._open: dict[_Key, Any] = {}

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def get(self, key: _Key, opened: Callable[[], Any]) -> Any:
        """Return a session; open it if it is not."""
        found = self._open.get(key)
        if found is None:
            if len(self._open) >= SESSIONS_MAX:
                self._open = {}
            found = self._open[key] = opened()
        return found

    def clear(self) -> None:
        """Close all."""
        self._open = {}

    def forget(self, owner: int) -> None:
        """Close the sessions of one version."""
        for key in [key for key in list(self._open) if key[0] == owner]:
            self._open.pop(key, None)


class PointReads:
    """Reads of few rows of one version; `fragments` are Lance's handles of its parts."""

    def __init__(self, sessions: PartSessions, fragments: Sequence[Any]) -> None:
        self._sessions, self._fragments, self._number = sessions, fragments, next(_numbers)

    def __del__(self) -> None:
        """Close the files: vacuum may have deleted them, and their space is not free before."""
        self._sessions.forget(self._number)

    def take(self, index: int, offsets: list[int], names: Sequence[str]) -> pa.Table:
        """Return the rows at offsets of a part without a deletion file, by the part's index."""
        columns = tuple(names)
        session = self._sessions.get(
            (self._number, index, columns),
            lambda: self._fragments[index].open_session(columns=list(columns)),
        )
        return session.take(offsets)
