"""Checked: the text of a statement that writes is read by DuckDB before anything of it runs.

So nothing is guessed from a text that is wrong: `delete from t where` is no DELETE of all rows. The
DuckDB that reads is one of the process, without tables, which runs nothing.
"""

from __future__ import annotations

import os
import re
import threading
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from siltstone.errors import RequestError
from siltstone.process import extras

if TYPE_CHECKING:
    import duckdb

_NO_CONSTRAINTS = "Adding columns with constraints not yet supported"
"""What DuckDB says of ADD COLUMN .. NOT NULL, which we take: it reads the text without these."""
_NOT_NULL = re.compile(r"\bnot\s+null\b", re.IGNORECASE)
_KEPT_MAX = 256
"""So many texts are kept that were found right, each at most so long:"""
_KEPT_LENGTH_MAX = 4_096


class _Reader:
    """A DuckDB that only reads texts; one thread at a time, under `_lock`."""

    def __init__(self) -> None:
        self._duckdb = extras.imported("duckdb", "sql()", "DuckDB", "sql")  # half a second
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection = self._duckdb.connect(
            ":memory:", config={"threads": 1, "python_enable_replacements": "false"}
        )

    def count(self, sql: str) -> int:
        """Return how many statements a text has.

        Raises:
            RequestError: DuckDB cannot read it.
        """
        with self._lock:
            try:
                found = self._connection.extract_statements(sql)
            except self._duckdb.Error as error:
                raise RequestError(f"DuckDB refuses the statement: {error}") from error
        # Of ADD COLUMN with some defaults it makes several statements, and none has a text.
        return sum(bool(each.query) for each in found) or min(len(found), 1)


@cache
def _reader_of(_process: int) -> _Reader:
    """Return the reader of a process: the lock of a parent may be held in its forked child."""
    return _Reader()


def checked(sql: str) -> None:
    """Refuse a text that is not one statement of DuckDB's language.

    Raises:
        RequestError: DuckDB cannot read it, or makes several statements of it.
        UnavailableError: DuckDB is not installed.
    """
    (_kept if len(sql) <= _KEPT_LENGTH_MAX else _check)(sql)


def _check(sql: str) -> None:
    count = _reader_of(os.getpid()).count
    try:
        found = count(sql)
    except RequestError as error:
        if _NO_CONSTRAINTS not in str(error):
            raise
        found = count(_NOT_NULL.sub(lambda taken: " " * len(taken[0]), sql))
    if found != 1:
        raise RequestError(f"sql() runs one statement; this text has {found}")


_kept = lru_cache(maxsize=_KEPT_MAX)(_check)
