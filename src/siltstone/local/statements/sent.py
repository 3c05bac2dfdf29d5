"""Sent: one statement of a client of a server: what it needs, and how it is run if it writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.errors import LimitError, RequestError
from siltstone.local.statements.running import Running, Written
from siltstone.local.statements.written import result_of
from siltstone.operations import Role
from siltstone.query.sql.statement import HUGEINT_KEY
from siltstone.query.sql.writes.parse import write_of
from siltstone.query.sql.writes.statements import Change, IndexStatement, Write

if TYPE_CHECKING:
    from siltstone.local.transaction import LocalTransaction
    from siltstone.query.sql.result import Result
    from siltstone.query.sql.taken.values import Parameters

_TELLING = re.compile(
    r"duckdb_settings|duckdb_extensions|duckdb_temporary_files|current_setting|pg_settings",
    re.IGNORECASE,
)
_OTHER = re.compile(r"current_setting\s*\(\s*'(?!\w*director)\w+'\s*\)", re.IGNORECASE)
"""A setting that names no directory."""
_NAMED = re.compile(r"""query_table\s*\(\s*'[\w."]+'\s*[,)]""", re.IGNORECASE)
"""A table by its name, as it is. Nothing in that text calls, ends a line, or begins a comment: if
its first quote ends a text instead, no other call is hidden behind it."""


def refuse_directories(text: str) -> None:
    """Refuse a statement that may ask for directories of the server, which its clients do not see.

    By its letters, wherever they stand: what is no name for one parser may be one for another.

    Raises:
        RequestError: It may.
    """
    found = _TELLING.search(_OTHER.sub("", text))
    if found is not None:
        raise RequestError(
            f"a statement for a server has no {found[0].lower()}: it names directories of the"
            " server; current_setting('<name>') is for settings that do not"
        )
    if "query_table" in _NAMED.sub("", text).lower():
        raise RequestError(
            "a statement for a server gives query_table one name, as it is, query_table('<name>'):"
            " what is put together perhaps names directories of the server"
        )


@dataclass(frozen=True, slots=True)
class SentStatement:
    """A statement and its parameters; `write` is None if it only reads. One thread."""

    text: str
    parameters: Parameters
    write: Write | None
    runs: list[Running] = field(default_factory=list[Running])

    @classmethod
    def of(cls, text: str, parameters: Parameters) -> SentStatement:
        """Take a statement apart.

        Raises:
            RequestError: It writes, but in a form that is not offered, or asks for directories.
        """
        refuse_directories(text)
        return cls(text, parameters, write_of(text))

    @property
    def role(self) -> Role:
        """What its client must be allowed: ADMIN for definitions."""
        if self.write is None:
            return Role.READ
        return Role.WRITE if isinstance(self.write.statement, Change) else Role.ADMIN

    @property
    def is_of_index(self) -> bool:
        """Whether it makes or drops an index, which is no part of a transaction."""
        return self.write is not None and isinstance(self.write.statement, IndexStatement)

    def run(self, tx: LocalTransaction, *, is_alone: bool) -> Written:
        """Run it in a transaction, of which it is all if `is_alone`; `discard` must follow."""
        assert self.write is not None
        run, written = tx.run_sql(
            self.write, self.text, self.parameters, lambda _: None, is_alone=is_alone
        )
        self.runs.append(run)
        return written

    def result(self, written: Written, seq: int | None) -> Result:
        """Return what it answers."""
        assert self.write is not None
        return result_of(self.write, written, seq)

    def discard(self) -> None:
        """Delete what its runs staged and no commit names."""
        for run in self.runs:
            run.discard()
        self.runs.clear()


def held(reader: pa.RecordBatchReader, bytes_max: int) -> pa.Table:
    """Return the rows of a query that are held at once.

    Raises:
        LimitError: They take more.
    """

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nbytes = 0
        for batch in batches:
            nbytes += batch.nbytes
            if nbytes > bytes_max:
                text = f"in a transaction a query answers with at most {bytes_max} bytes"
                raise LimitError(f"{text}: ask for less, or read a snapshot", bytes_max)
            yield batch

    return pa.Table.from_batches(counted(reader), reader.schema)


def with_whole_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose sums of whole numbers are int64, as far as they fit."""
    for place, column in enumerate(batch.schema):
        if HUGEINT_KEY in (column.metadata or {}):
            with suppress(pa.ArrowInvalid):
                whole = batch.column(place).cast(pa.int64())
                batch = batch.set_column(place, column.name, whole)
    return batch
