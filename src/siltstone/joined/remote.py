"""Remote: the methods of a joined class, made of the table of operations.

    @remote(Face.TABLE)
    class JoinedTable(Table): ...      upsert, scan, count ... as `Table` declares them

A made method takes the arguments that its base class declares, sends those that were given, and
decodes the answer by the operation's codec. A method that does more than ask is written in the
class.
"""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.new_table import defaulted, understood
from siltstone.engine.catalog.row_input import arrow_of
from siltstone.engine.recover.nearby import AskOwner
from siltstone.errors import UnavailableError
from siltstone.formats.type_names import field_of
from siltstone.operations import Codec, Face, Operation, of_face, operation
from siltstone.query.search.search_result import SearchResult

if TYPE_CHECKING:
    from siltstone.query.sql.result import Result
    from siltstone.query.sql.taken.values import Parameters

T = TypeVar("T")
P = ParamSpec("P")


def remote(face: Face) -> Callable[[Callable[P, T]], type[T]]:
    """Give a class the operations of `face` that its bases declare and it does not write.

    The class has `_ask(operation, arguments, named)`, `_table(id)` if it answers with tables, and
    `near`: the same of this process, which reads the files (None: the owner is asked).
    (A type checker takes what this returns for a class without abstract methods.)
    """

    def completed(given: Callable[P, T]) -> type[T]:
        kind = cast("type[T]", given)
        for row in of_face(face).values():
            declared = getattr(kind, row.name, None)
            if getattr(declared, "__isabstractmethod__", False):
                setattr(kind, row.name, _made(row, declared))
        return abc.update_abstractmethods(kind)

    return completed


def _made(operation: Operation, declared: object) -> object:
    if isinstance(declared, property):
        asks = _near_too(operation, lambda self: ask(self, operation))
        return property(asks, doc=declared.__doc__)
    method = cast("Callable[..., object]", declared)
    signature = inspect.signature(method)

    understand = _UNDERSTOOD_HERE.get(operation.name)

    def made(*arguments: object, **named: object) -> Any:
        given = signature.bind(*arguments, **named)  # as Python would, also where it refuses
        if understand is not None:
            understand(given.arguments)
        return ask(given.args[0], operation, *given.args[1:], **given.kwargs)

    functools.update_wrapper(made, method)
    answered = _near_too(operation, made)
    answered.__isabstractmethod__ = False  # type: ignore[attr-defined] - copied with the rest
    return answered


def near_first(asks: Callable[..., T], attribute: str = "near") -> Callable[..., T]:
    """Return a method that is done by the method of that name of `self.near`, if it can.

    `attribute`: where that is, if not there. Else it does what is written: it asks the owner. If
    that is gone, it waits until it can read.
    """
    name = asks.__name__

    @functools.wraps(asks)
    def reads(self: Any, *arguments: object, **named: object) -> T:
        near = getattr(self, attribute)
        if near is None:
            return asks(self, *arguments, **named)
        try:
            return _here(near, name, arguments, named)
        except AskOwner:
            pass
        try:
            return asks(self, *arguments, **named)
        except UnavailableError as gone:
            if not self.can_read_alone():
                raise
            try:
                return _here(near, name, arguments, named)
            except AskOwner:
                raise gone from None

    return reads


def _here(near: object, name: str, arguments: Sequence[object], named: dict[str, object]) -> Any:
    found = getattr(near, name)
    return found(*arguments, **named) if callable(found) else found


def _near_too(operation: Operation, asks: Callable[..., Any]) -> Callable[..., Any]:
    """Return what first looks into the files, where they are near, for what they have."""
    asks.__name__ = operation.name
    return near_first(asks) if operation.is_near else asks


def is_write(statement: object) -> bool:
    """Say whether a statement of SQL writes."""
    from siltstone.query.sql.writes.parse import write_of  # noqa: PLC0415 - few need it

    return write_of(statement) is not None


def asked_sql(
    face: Any, kind: Face, call: str, caller: FrameType, statement: str, parameters: Parameters
) -> Any:
    """Have the owner run a statement, which does not see the data frames of `caller`."""
    from siltstone.query.sql.frames import refused_elsewhere  # noqa: PLC0415 - brings pandas

    given = () if parameters is None else (parameters,)
    with refused_elsewhere(caller):
        return ask(face, operation(kind, call), statement, *given)


def written(
    face: Any, kind: Face, caller: FrameType, statement: str, parameters: Parameters
) -> Result:
    """Have the owner run a statement that writes; see `asked_sql`."""
    from siltstone.query.sql.result import Result  # noqa: PLC0415 - few need it

    found = asked_sql(face, kind, "write_sql", caller, statement, parameters)
    rows, seq, returned = found
    return Result(returned, rows=rows, seq=seq)


def _new_table(given: dict[str, Any]) -> None:
    """Make Arrow's of types of Python and of columns in a dict, before they travel."""
    schema, data = understood(given.get("schema"), given.get("data"))
    given |= {} if schema is None else {"schema": defaulted(schema, given.pop("defaults", None))}
    given |= {} if data is None else {"data": data}


def _new_column(given: dict[str, Any]) -> None:
    if not isinstance(given["kind"], str):
        given["kind"] = field_of("", given["kind"]).type


_UNDERSTOOD_HERE: dict[str, Callable[[dict[str, Any]], None]] = {
    "create_table": _new_table,
    "add_column": _new_column,
}


def ask(face: Any, operation: Operation, /, *arguments: object, **named: object) -> Any:
    """Ask for an operation, and decode the answer."""
    sent = [sendable(each) for each in arguments]
    sent_named = {name: sendable(each) for name, each in named.items()}
    found = face._ask(operation, sent, sent_named)  # noqa: SLF001 - see `remote`
    return _DECODERS[operation.codec](face, found)


def _row(_: Any, rows: Any) -> dict[str, Any] | None:
    found = rows.read_all()
    return found.to_pylist()[0] if found.num_rows else None


def _result(_: Any, rows: Any) -> object:
    from siltstone.query.sql import sql  # noqa: PLC0415 - it brings all of pandas

    return sql.collected(rows)


_DECODERS: dict[Codec, Callable[[Any, Any], Any]] = {
    Codec.VALUE: lambda _, found: found,
    Codec.TABLE: lambda face, found: face._table(found),  # noqa: SLF001 - as above
    Codec.ROW: _row,
    Codec.STREAM: lambda _, found: found,
    Codec.ROWS: lambda _, found: found.read_all(),
    Codec.RESULT: _result,
    Codec.FOUND: lambda _, found: SearchResult(found.read_all()),
}


def sendable(given: object) -> object:
    """Return Arrow-shaped rows as a stream, arrays and iterables as lists, all else as it is."""
    if isinstance(given, np.ndarray):
        # Times as times: NumPy makes whole numbers of nanoseconds of them.
        return pa.array(given).to_pylist() if given.dtype.kind in "mM" else given.tolist()
    found = arrow_of(given)
    if found is not None:
        return found.to_pylist() if isinstance(found, pa.ChunkedArray) else found
    is_whole = hasattr(given, "__len__") or not isinstance(given, Iterable)
    return given if is_whole else list(cast("Iterable[object]", given))
