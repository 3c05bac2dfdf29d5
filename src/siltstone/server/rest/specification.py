"""Specification: the routes of the Lance Namespace specification, made of its table of operations.

Here is what is HTTP: members that stand in the address, rows that are sent as they are read (a
whole table costs no more memory than a batch), and the forms that LanceDB's remote client wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from typing import Any, get_args, get_type_hints

import msgspec

from siltstone.lance_namespace.operations import OPERATIONS, REFUSED, SpecifiedOperation
from siltstone.lance_namespace.rows.creation import PRIMARY_KEY
from siltstone.lance_namespace.rows.queries import read
from siltstone.lance_namespace.rows.statements import collected
from siltstone.lance_namespace.specification import bodies
from siltstone.lance_namespace.specification.members import (
    AnyMembers,
    Count,
    converted,
    refuse_not_offered,
    wrong,
)
from siltstone.lance_namespace.specification.schema_json import in_words_of_lance
from siltstone.lance_versions.errors import invalid, unsupported
from siltstone.operations import Role
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.http.route import ARROW, JSON, NOTHING, Route
from siltstone.server.rest.call import TRUTHS, RestCall
from siltstone.server.rest.lance_scope import LanceScope
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.wire import arrow

FILE, STREAM = "file", "stream"
_IS_READ = frozenset(("query_table", "count_table_rows"))
_PROPERTIES_HEADER = "x-lance-table-properties"


def routes_of_specification(scope: RequestScope) -> Iterable[Route]:
    """Yield the routes of all operations; those that are not offered come last."""
    for operation in OPERATIONS.values():
        yield _route(scope, operation)
    query = _route(scope, OPERATIONS["query_table"])
    path, handler = query.path.replace("/query", "/scan"), partial(_rows, scope, is_file=False)
    yield replace(query, path=path, handler=handler, gives=STREAM)
    for refused in REFUSED.values():
        if refused.path:
            path, handler = f"/v1/{refused.path}", partial(_refuse, refused.reason)
            route = Route("POST", path, Role.READ, handler, f"Not offered: {path}")
            yield replace(route, request=AnyMembers, answer=bodies.NoMembers, is_checked=True)


def _refuse(reason: str, _: RestCall[Any]) -> Reply[bodies.NoMembers]:
    raise unsupported(reason)


def _route(scope: RequestScope, operation: SpecifiedOperation) -> Route:
    method, _, path = operation.where.partition(" ")
    is_query = operation.name == "query_table"
    takes = ARROW if operation.takes_rows else NOTHING if method == "GET" else JSON
    return Route(
        method,
        path,
        operation.role,
        partial(_rows, scope) if is_query else partial(_answered, scope, operation),
        (operation.run.__doc__ or "").partition("\n")[0].rstrip("."),
        takes=takes,
        gives=FILE if is_query else JSON,
        query=operation.query,
        request=_BODIES.get(operation.name, operation.request) if takes == JSON else None,
        answer=_ANSWERS.get(operation.name, operation.answer),
        is_read=operation.name in _IS_READ,
        is_checked=takes == JSON,
        is_query_typed=operation.is_in_query,
        is_commit_of_version=operation.name == "create_table_version",
    )


def _answered(
    scope: RequestScope, operation: SpecifiedOperation, call: RestCall[Any]
) -> Reply[Any]:
    """Answer a request as the operation does, in the form that REST has for it."""
    rows = (call.body,) if operation.takes_rows else ()
    made, seq = operation.run(LanceScope(scope, call), _members(call, operation), *rows)
    form = _FORMS.get(operation.name)
    return Reply(made if form is None else form(call, made), seq)


# the members of a request


def _members(call: RestCall[Any], operation: SpecifiedOperation) -> Any:
    """Return the body with the members that stand in the address.

    Raises:
        Refused: A member is wrong, is not known, or is not offered.
    """
    unknown = sorted(call.query.keys() - {*operation.query, "delimiter"})
    if unknown and operation.is_in_query:
        raise wrong(f"Object contains unknown field `{unknown[0]:.80}`")
    members = (
        operation.query if "delimiter" in operation.query else {*operation.query} - {"delimiter"}
    )
    given: dict[str, Any] = {
        name: _value(text, _kinds_of(operation.request).get(name, frozenset()))
        for name, text in call.query.items()
        if text and name in members
    }
    if operation.is_in_query:
        spell = _SPELLED.get(operation.name)
        asked: Any = converted(spell(call, given) if spell else given, operation.request)
        refuse_not_offered(asked)
    else:
        asked = _body(call, operation)
        queried = converted(given, _query_of(operation))
        for name in given:
            setattr(asked, name, getattr(queried, name))
    if operation.name == "describe_table" and call.is_remote:
        asked.load_detailed_metadata = asked.with_table_uri = True
    if "{id}" in operation.where:
        asked.id = list(call.named(asked.id))
    if "{name}" in operation.where:
        if asked.index_name not in {None, call.path["name"]}:
            raise invalid(f"index_name is {asked.index_name!r:.80}, not that of the path")
        asked.index_name = call.path["name"]
    return asked


_WHOLE = {"update_table_schema_metadata": "metadata"}
"""The member that is the whole body over REST."""


def _body(call: RestCall[Any], operation: SpecifiedOperation) -> Any:
    member = _WHOLE.get(operation.name)
    if member is None:
        return call.asked
    if not call.body:
        raise wrong(f"Object missing required field `{member}`")
    return operation.request(**{member: call.asked})


_NUMBER = re.compile(r"-?[1-9][0-9]{0,18}|0")


def _value(text: str, kinds: frozenset[Any]) -> object:
    """Return a parameter as the JSON that it stands for; what is none stays a text."""
    if int in kinds and _NUMBER.fullmatch(text):
        return int(text)
    return TRUTHS.get(text.lower(), text) if bool in kinds else text


@cache
def _kinds_of(request: type[msgspec.Struct]) -> dict[str, frozenset[Any]]:
    """Return the types that each member may have."""
    hints = get_type_hints(request)
    return {name: frozenset((hint, *get_args(hint))) for name, hint in hints.items()}


@cache
def _query_of(operation: SpecifiedOperation) -> type[msgspec.Struct]:
    """Return the members that a query may have beside a body, as a type."""
    hints = get_type_hints(operation.request, include_extras=True)
    members = [(name, hints[name], None) for name in operation.query]
    return msgspec.defstruct("Query", members, forbid_unknown_fields=True)


def _of_creation(call: RestCall[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a new table; the query may also name its key alone."""
    text = given.pop("properties", None) or call.headers.get(_PROPERTIES_HEADER)
    key = given.pop(PRIMARY_KEY, None)
    found: Any = {}
    if text:
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found = None
        if not isinstance(found, dict):
            raise invalid("properties is a JSON object of strings")
    found = {name: str(value) for name, value in found.items()}
    return given | {"properties": found | {PRIMARY_KEY: key} if key else found}


def _of_merge(_: RestCall[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a merge: `on` is names with commas between them."""
    on = given.pop("on", None)
    return given if on is None else given | {"on": [name for name in on.split(",") if name]}


def _of_all_tables(call: RestCall[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return what is asked for: LanceDB's remote client has names without `$`."""
    return given | {"delimiter": "."} if call.is_remote else given


_SPELLED: dict[str, Callable[[RestCall[Any], dict[str, Any]], dict[str, Any]]] = {
    "create_table": _of_creation,
    "merge_insert_into_table": _of_merge,
    "list_all_tables": _of_all_tables,
}


# the forms of answers


def _updated(call: RestCall[Any], found: bodies.UpdateAnswer) -> bodies.UpdateAnswer:
    if call.is_remote:
        found.rows_updated = found.updated_rows
    return found


def _table(call: RestCall[Any], found: bodies.TableAnswer) -> bodies.TableAnswer:
    if call.is_remote and found.schema is not None:
        found.version = found.version or 0
        found.schema = in_words_of_lance(found.schema)
    return found


_FORMS: dict[str, Callable[[RestCall[Any], Any], object]] = {
    "namespace_exists": lambda _, __: b"",
    "table_exists": lambda _, __: b"",
    "describe_table": _table,
    "count_table_rows": lambda _, found: found.count,
    "explain_table_query_plan": lambda _, found: found.plan,
    "analyze_table_query_plan": lambda _, found: found.plan,
    "list_table_tags": lambda call, found: found.tags if call.is_remote else found,
    "update_table": _updated,
    "update_table_schema_metadata": lambda _, found: found.metadata,
}
_BODIES: dict[str, Any] = {"update_table_schema_metadata": dict[str, str]}
"""The types of bodies that have another form over REST."""
_ANSWERS: dict[str, Any] = {
    "namespace_exists": None,
    "table_exists": None,
    "query_table": None,
    "count_table_rows": Count,
    "explain_table_query_plan": str,
    "analyze_table_query_plan": str,
    "update_table_schema_metadata": dict[str, str],
}
"""The types of answers that have another form over REST."""


# what has a handler of its own


def _rows(scope: RequestScope, call: RestCall[Any], *, is_file: bool = True) -> Reply[Pieces]:
    """Return the rows that match, as an Arrow IPC file, or a stream."""
    asked = _members(call, OPERATIONS["query_table"])
    with ExitStack() as held:
        reader, seq = read(LanceScope(scope, call), asked, held)
        if call.transaction:
            # The next statement of the transaction must not wait for this answer to be read.
            reader = collected(reader, scope.limits).to_reader()
            return Reply(arrow(reader, reader.close, is_file=is_file), seq)
        held.callback(reader.close)
        return Reply(arrow(reader, held.pop_all().close, is_file=is_file), seq)
