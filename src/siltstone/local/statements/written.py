"""Written: a statement that writes, run in a transaction: each kind by its room's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.local.statements import definitions, inserts, merges, updates
from siltstone.local.statements.running import Running, Written
from siltstone.query.sql.result import Result
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes import statements
from siltstone.query.sql.writes.parse import write_of

if TYPE_CHECKING:
    from siltstone.query.sql.frames import Variables
    from siltstone.query.sql.taken.values import Parameters

_RUN: dict[type, Callable[[Running, Any], Written]] = {
    statements.InsertStatement: inserts.insert,
    statements.UpdateStatement: updates.update,
    statements.DeleteStatement: updates.delete,
    statements.TruncateStatement: updates.truncate,
    statements.MergeStatement: merges.merge,
    statements.CreateStatement: definitions.create_table,
    statements.DropStatement: definitions.drop_table,
    statements.AlterStatement: definitions.alter_table,
}


Answer: TypeAlias = tuple[int | None, int | None, pa.Table]
"""The rows and the seq of a `Result`, and what it holds: what a server sends."""


def answered(
    run: Callable[[statements.Write, str, Parameters, Variables], Result],
    statement: str,
    parameters: Parameters,
) -> Answer:
    """Run a statement that writes, for a server: it sees no variables.

    Raises:
        RequestError: It only reads.
    """
    write = write_of(statement)
    if write is None:
        raise RequestError("write_sql runs a statement that writes, and this one only reads")
    found = run(write, statement, parameters, lambda _: None)
    return found.rows, found.seq, found.to_arrow()


def given_of(write: statements.Write, parameters: Parameters) -> dict[str, object]:
    """Return the values of the parameters by their names in the statement.

    Raises:
        RequestError: There are others in it, or more, or fewer.
    """
    if parameters is None:
        given = dict[str, object]()
    elif isinstance(parameters, Mapping):
        given = {_meant(str(name)): value for name, value in parameters.items()}
    elif isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        given = {f"p{place + 1}": value for place, value in enumerate(parameters)}
    else:
        raise RequestError(f"parameters are a sequence or a mapping; got {parameters!r:.80}")
    if given.keys() != write.parameters or len(given) != len(parameters or ()):
        wanted, has = _shown(write.parameters), _shown(given)
        raise RequestError(f"the statement has the parameters {wanted}, and was given {has}")
    return given


def _meant(name: str) -> str:
    """Return the name that a parameter has in a statement: `$1` is `$p1`, `$X` is `$x`."""
    return f"p{name}" if name.isascii() and name.isdecimal() else folded(name)


def _shown(names: Any) -> str:
    texts = [f"${name[1:] if name[1:].isdecimal() else name}" for name in sorted(names)]
    return ", ".join(texts[:8]) + (", ..." if len(texts) > 8 else "") if texts else "none"


def run_write(write: statements.Write, run: Running) -> Written:
    """Run a statement.

    Raises:
        RequestError: It is about an index, which is no part of a transaction.
    """
    found = _RUN.get(type(write.statement))
    if found is None:
        raise RequestError(
            "an index is no part of a transaction: create and drop it with sql() of the store"
        )
    return found(run, write.statement)


def result_of(write: statements.Write, written: Written, seq: int | None) -> Result:
    """Return the result of a statement, with DuckDB's own rows if it returns none."""
    if written.returned is not None:
        return Result(written.returned, rows=written.rows, seq=seq)
    counted = [written.rows] if isinstance(write.statement, statements.Change) else []
    return Result(pa.table({"Count": pa.array(counted, pa.int64())}), rows=written.rows, seq=seq)
