"""Operations: all operations on rows, by the names of the specification.

    request, a dict ─▶ its type (`bodies`) ─▶ is all of it offered? ─▶ the operation ─▶ a dict

A server that has the typed request calls the operation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import msgspec

from siltstone.lance_namespace import requests
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.rows import columns, creation, indexes, queries, tags, writes
from siltstone.lance_namespace.rows.members import RequestPart, not_offered
from siltstone.lance_namespace.scope import Scope
from siltstone.lance_versions.errors import invalid, unsupported
from siltstone.operations import Effect


@dataclass(frozen=True, slots=True)
class OfferedOperation:
    """One operation: `run(scope, table, request)`, with the rows behind if it takes some.

    It returns the answer, and the seq that this shows or committed, if there is one.
    """

    run: Callable[..., tuple[msgspec.Struct, int | None]]
    request: type[RequestPart]
    answer: Any
    effect: Effect
    takes_rows: bool


def _offered(run: Callable[..., Any], effect: Effect) -> OfferedOperation:
    hints = get_type_hints(run)
    answer = get_args(hints["return"])[0]
    return OfferedOperation(run, hints["asked"], answer, effect, "body" in hints)


_READS = (
    *(queries.query_table, queries.count_table_rows, creation.get_table_stats),
    *(queries.explain_table_query_plan, queries.analyze_table_query_plan),
    *(tags.list_table_tags, tags.get_table_tag_version),
    *(indexes.list_table_indices, indexes.describe_table_index_stats),
)
_WRITES = (
    *(creation.create_table, writes.insert_into_table, writes.merge_insert_into_table),
    *(writes.update_table, writes.delete_from_table, writes.restore_table),
    *(columns.alter_table_add_columns, columns.alter_table_alter_columns),
    *(columns.alter_table_drop_columns,),
    *(tags.create_table_tag, tags.update_table_tag, tags.delete_table_tag),
)
_ONCE = (indexes.create_table_index, indexes.drop_table_index)
OFFERED = {
    run.__name__: _offered(run, effect)
    for effect, found in ((Effect.READ, _READS), (Effect.WRITE, _WRITES), (Effect.ONCE, _ONCE))
    for run in found
}
OFFERED["create_table_scalar_index"] = OFFERED["create_table_index"]


def answer(scope: Scope, operation: str, request: Request, rows: object = None) -> Answer:
    """Answer a request by the name of its operation, one of `OFFERED`.

    Args:
        scope: Where it goes.
        operation: The name.
        request: The members, as they stand in JSON.
        rows: The bytes of an Arrow IPC stream, of an operation that takes rows.

    Raises:
        SiltstoneError: It is refused; nothing was changed.
    """
    found = OFFERED[operation]
    asked = _typed(request, found.request)
    given: list[Any] = [scope, requests.table_of(request), asked]
    if found.takes_rows:
        given.append(rows_of(rows))
    made, _ = found.run(*given)
    return msgspec.to_builtins(made, builtin_types=(bytes,))


def rows_of(given: object) -> bytes:
    """Return the rows of a request.

    Raises:
        Refused: They are no bytes.
    """
    if not isinstance(given, bytes | bytearray | memoryview):
        kind = type(given).__name__
        raise invalid(f"the rows must be the bytes of an Arrow IPC stream; got {kind}")
    return bytes(given)


def _typed(request: Request, kind: type[RequestPart]) -> RequestPart:
    given = {name: value for name, value in request.items() if value is not None}
    try:
        asked = msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(f"the request is not as the specification has it: {error}") from None
    refuse_not_offered(asked, request.get("branch"))
    return asked


def refuse_not_offered(asked: object, branch: str | None) -> None:
    """Refuse a request for what the operation does not do, or of another branch than main.

    Raises:
        Refused: It names the member.
    """
    if isinstance(asked, RequestPart):
        name = not_offered(asked)
        if name is not None:
            raise unsupported(f"{name} is not offered here")
    if branch and branch != "main":
        raise unsupported(f"there is no branch {branch[:128]!r}, only main")
