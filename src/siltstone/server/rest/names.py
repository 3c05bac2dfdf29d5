"""Names: ids of the specification (lists of names, joined by a delimiter) and names of tables.

A table `t` in the namespace `db` is the table `db.t`: there is the root, and one level below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused, invalid

DELIMITER = "$"


def table_of(call: RestCall) -> str:
    """Return the name of the table that a call is about; `id` in the body says the same.

    Raises:
        Refused: It lies in a namespace that is not there, or the body names another one.
    """
    parts = _parts(call.path["id"], call)
    if not parts:
        raise invalid("the id names the root, which is no table")
    _refuse_other(parts, getattr(call.asked, "id", None))
    if len(parts) > 2 or (len(parts) == 2 and "." in parts[0]):
        raise Refused(Code.TABLE_NOT_FOUND, _shown(parts))
    return ".".join(parts)


def namespace_of(call: RestCall, body: Mapping[str, object] | None = None) -> tuple[str, ...]:
    """Return the names of the namespace that a call is about, () for the root."""
    parts = _parts(call.path["id"], call)
    _refuse_other(parts, (body or {}).get("id"))
    return parts


def _parts(text: str, call: RestCall) -> tuple[str, ...]:
    delimiter = call.query.get("delimiter") or DELIMITER
    if text == delimiter:
        return ()
    parts = tuple(text.split(delimiter))
    if not all(parts):
        raise invalid(f"the id {text[:200]!r} has an empty name in it")
    return parts


def _refuse_other(parts: tuple[str, ...], given: object) -> None:
    if given is None:
        return
    if not isinstance(given, list) or tuple(given) != parts:
        raise invalid(f"the id of the body, {given!r:.200}, is not the one of the path")


def _shown(parts: Iterable[str]) -> str:
    return DELIMITER.join(parts)[:200]
