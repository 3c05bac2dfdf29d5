"""Refusals: every error as the flat JSON of the Lance Namespace specification.

    {"error": "<one sentence>", "code": <int>, "detail": ..., "instance": "<request id>"}

Clients choose the class of their error by `code` alone; the HTTP status is for everybody else.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from http import HTTPStatus
from typing import Self, cast

import msgspec
from starlette.responses import Response

from siltstone import errors
from siltstone.errors import SiltstoneError
from siltstone.lance_namespace import errors as lance_errors
from siltstone.server.http.replies import JSON_TYPE, RETRY_AFTER
from siltstone.server.http.request import BodyTooLargeError
from siltstone.server.rest.schemas import ErrorAnswer

_log = logging.getLogger("siltstone.server")
ERROR_CHARACTERS_MAX = 2_000


class Code(IntEnum):
    """The error codes of the specification, each with its HTTP status."""

    UNSUPPORTED = 0, 406
    NAMESPACE_NOT_FOUND = 1, 404
    NAMESPACE_EXISTS = 2, 409
    NAMESPACE_NOT_EMPTY = 3, 409
    TABLE_NOT_FOUND = 4, 404
    TABLE_EXISTS = 5, 409
    INDEX_NOT_FOUND = 6, 404
    INDEX_EXISTS = 7, 409
    TAG_NOT_FOUND = 8, 404
    TAG_EXISTS = 9, 409
    TRANSACTION_NOT_FOUND = 10, 404
    VERSION_NOT_FOUND = 11, 404
    COLUMN_NOT_FOUND = 12, 404
    INVALID_INPUT = 13, 400
    CONCURRENT_MODIFICATION = 14, 409
    PERMISSION_DENIED = 15, 403
    UNAUTHENTICATED = 16, 401
    UNAVAILABLE = 17, 503
    INTERNAL = 18, 500
    INVALID_TABLE_STATE = 19, 409
    SCHEMA_VALIDATION = 20, 400
    THROTTLING = 21, 429

    status: int

    def __new__(cls, value: int, status: int) -> Self:
        made = int.__new__(cls, value)
        made._value_, made.status = value, status
        return made


# The first that fits decides, so leaves come before their group.
_CODES: tuple[tuple[type[SiltstoneError], Code], ...] = (
    (errors.TableNotFoundError, Code.TABLE_NOT_FOUND),
    (errors.TableExistsError, Code.TABLE_EXISTS),
    (errors.SchemaMismatchError, Code.SCHEMA_VALIDATION),
    (errors.SnapshotExpiredError, Code.VERSION_NOT_FOUND),
    (errors.ReadOnlyError, Code.PERMISSION_DENIED),
    (errors.ClosedError, Code.UNAVAILABLE),
    (errors.RequestError, Code.INVALID_INPUT),
    (errors.ConflictError, Code.CONCURRENT_MODIFICATION),
    (errors.FencedError, Code.PERMISSION_DENIED),
    (errors.BusyError, Code.THROTTLING),
    (errors.UnavailableError, Code.UNAVAILABLE),
    (errors.PoisonedError, Code.UNAVAILABLE),
)


_HEADERS = {Code.UNAUTHENTICATED: {"www-authenticate": "Bearer"}, Code.THROTTLING: RETRY_AFTER}
_BY_NUMBER = {int(code): code for code in Code}


class Refused(SiltstoneError):
    """A request that is refused under a code of its own; nothing was changed."""

    def __init__(self, code: Code, error: str, *, status: int | None = None) -> None:
        self.code, self.status = code, status or code.status
        super().__init__(error)


def unsupported(what: str) -> Refused:
    """Return the refusal of what the specification has and this server has not."""
    return Refused(Code.UNSUPPORTED, what)


def no_column(table: str, column: str) -> Refused:
    """Return the refusal of a request that names a column which the table has not."""
    return Refused(Code.COLUMN_NOT_FOUND, f"table {table!r} has no column {column[:128]!r}")


def invalid(why: str) -> Refused:
    """Return the refusal of a request that is wrong."""
    return Refused(Code.INVALID_INPUT, why)


def code_of(error: Exception) -> Code:
    """Return the code that says what the caller should do."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, errors.AccessError):
        return Code.UNAUTHENTICATED if error.status == 401 else Code.PERMISSION_DENIED
    if type(error).__module__ == lance_errors.__name__:
        return _BY_NUMBER[lance_errors.code_of(cast("SiltstoneError", error))]
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)


def response_of(error: Exception, request_id: str) -> Response:
    """Return the answer to a request that failed with `error`.

    What nobody foresaw is logged, with the request's id, and told in no detail: its words may hold
    what is not the client's to know.
    """
    if isinstance(error, BodyTooLargeError):
        error = Refused(Code.INVALID_INPUT, str(error), status=413)
    if not isinstance(error, SiltstoneError):
        _log.error("request %s failed", request_id, exc_info=error)
        text = f"the server failed; its log has request {request_id}"
        return refusal(500, Code.INTERNAL, text, request_id)
    code = code_of(error)
    status = error.status if isinstance(error, Refused) else code.status
    if code is Code.INTERNAL:
        _log.error("request %s failed: %s", request_id, type(error).__name__, exc_info=error)
    return refusal(status, code, str(error), request_id, _detail(error))


def note(error: Exception, request_id: str) -> None:
    """Log why a request was refused whose client does not say so; lost races are nothing new."""
    if isinstance(error, SiltstoneError) and code_of(error) is not Code.CONCURRENT_MODIFICATION:
        _log.warning("request %s was refused: %s", request_id, error)


def _detail(error: SiltstoneError) -> str | None:
    name = type(error).__name__
    if isinstance(error, errors.InDoubtError):
        return f"{name}: transaction {error.transaction_id}"
    return None if isinstance(error, Refused) else name


def refusal(
    status: int, code: Code, error: str, request_id: str, detail: str | None = None
) -> Response:
    """Return the flat body of an error."""
    body = ErrorAnswer(error[:ERROR_CHARACTERS_MAX], int(code), detail, request_id or None)
    return Response(msgspec.json.encode(body), status, _HEADERS.get(code), JSON_TYPE)


def of_status(status: int, request_id: str) -> Response:
    """Return the answer where no route is: no such address (404), or no such method (405)."""
    phrase = HTTPStatus(status).phrase.lower()
    text = f"{phrase}: the routes are those of /openapi.json"
    return refusal(status, Code.UNSUPPORTED, text, request_id)
