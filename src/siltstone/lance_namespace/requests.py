"""Requests: what the members of a request to the Lance catalog mean, checked.

A table `t` in the namespace `a.b` is the table `a.b.t` of the store, and has the id
`["a", "b", "t"]`. An id of one word is the whole name of a table, whatever namespace it is in.

All functions raise RequestError for a member that is not allowed. A member of a type that JSON has
and the specification does not expect may raise TypeError, AttributeError or KeyError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from siltstone.engine.catalog import namespaces as spaces
from siltstone.errors import RequestError, TableNotFoundError, not_one_of
from siltstone.lance_versions.errors import UnsupportedOperationError

OPERATIONS_MAX = 1_000
PAGE_MAX = 10_000
_LEVELS_MAX = spaces.LEVELS_MAX + 1
"""Of a table, which is one level below its namespace."""
_WORD_MAX = 128
Request = Mapping[str, Any]
Answer = dict[str, Any]


def namespace_of(request: Request) -> str:
    """Return the name of the namespace that a request is about; "" is the root."""
    return ".".join(_levels(request.get("id") or []))


def table_of(request: Request) -> str:
    """Return the store's name of the table that a request is about.

    Raises:
        TableNotFoundError: No table can have such an id.
    """
    return name_of(request.get("id") or [])


def name_of(ids: Sequence[object]) -> str:
    """Return the store's name of the table with an id.

    Raises:
        TableNotFoundError: It is the id of the root.
    """
    if not ids:
        raise TableNotFoundError("$")
    return _word(ids[0]) if len(ids) == 1 else ".".join(_levels(ids))


def _levels(ids: Sequence[object]) -> list[str]:
    """Return the levels of an id; one with a dot in it would be two levels of the store."""
    if len(ids) > _LEVELS_MAX:
        raise RequestError(f"an id must have at most {_LEVELS_MAX} levels; got {len(ids)}")
    words = [_word(part) for part in ids]
    dotted = next((word for word in words if "." in word), None)
    if dotted is not None:
        raise RequestError(
            f"a level of an id may have no '.', which separates levels; got {dotted!r} in"
            f" {words!r:.400}"
        )
    return words


def ids_of(name: str) -> list[str]:
    """Return the id of a table or a namespace: its levels."""
    return spaces.levels_of(name)


def spaces_of(name: str) -> list[str]:
    """Return the names of the namespaces that a table or a namespace is in."""
    return spaces.above(name)


def choice_of(request: Request, member: str, choices: Sequence[str]) -> str:
    """Return which of the choices a member is, in lower case without "_"; by default the first."""
    found = request.get(member)
    word = choices[0] if found is None else str(found).replace("_", "").lower()
    if word not in choices:
        raise RequestError(not_one_of(member, found, choices))
    return word


def renamed(name: str, request: Request) -> str:
    """Return the new name that a request has for a table, also in another namespace."""
    space = request.get("new_namespace_id")
    ids = ids_of(name)[:-1] if space is None else [_word(part) for part in space]
    return name_of([*ids, request.get("new_table_name")])


def _word(part: object) -> str:
    if not isinstance(part, str) or not 0 < len(part) <= _WORD_MAX:
        raise RequestError(
            f"a part of an id must be a string of 1 to {_WORD_MAX} characters; got {part!r:.160}"
        )
    return part


def number_of(found: object, least: int = 1) -> int:
    """Return a version number: an integer from `least` to 2**63."""
    if type(found) is not int or not least <= found <= 1 << 63:
        raise RequestError(f"a version must be an integer from {least}; got {found!r}")
    return found


def ranges_of(request: Request) -> list[tuple[int, int]]:
    """Return the ranges of version numbers of a request, as [first, end)."""
    found: list[tuple[int, int]] = []
    for each in bounded(request.get("ranges"), "ranges"):
        first, end = each.get("start_version"), each.get("end_version")
        first, end = 0 if first is None else first, 1 << 63 if end is None or end < 0 else end
        found.append((number_of(first, least=0), number_of(end, least=0)))
    return found


def refuse_branch(request: Request) -> None:
    """Refuse a request about another branch than main.

    Raises:
        UnsupportedOperationError: It is.
    """
    if request.get("branch") not in {None, "", "main"}:
        raise UnsupportedOperationError(f"there is no branch {request['branch']!r}, only main")


def refuse_twice(requests: Sequence[Request]) -> None:
    """Refuse requests that create the same version of a table twice."""
    made = [(table_of(request), request.get("version")) for request in requests]
    for name, number in made:
        if made.count((name, number)) > 1:
            raise RequestError(f"a request creates version {number} of {name!r} twice")


def bounded(found: Any, what: str) -> list[Request]:
    """Return the entries of a request: 1 to `OPERATIONS_MAX`."""
    if not isinstance(found, list | tuple) or not 0 < len(found) <= OPERATIONS_MAX:
        size = len(found) if isinstance(found, list | tuple) else 0
        raise RequestError(f"a request must have 1 to {OPERATIONS_MAX} {what}; got {size}")
    return list(found)


def page(found: list[Any], request: Request, what: str) -> Answer:
    """Return one page under the name `what`; its token is how many entries were before the next."""
    token, limit = request.get("page_token"), request.get("limit")
    if token is not None and not (isinstance(token, str) and token.isdecimal()):
        raise RequestError(f"{token!r} is not a page token of this namespace")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise RequestError(f"a limit must be an integer from 0; got {limit!r}")
    start = int(token or 0)
    end = start + min(PAGE_MAX, len(found) if limit is None else limit)
    answer: Answer = {what: found[start:end]}
    return answer | {"page_token": str(end)} if end < len(found) and end > start else answer
