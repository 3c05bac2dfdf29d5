"""Refusals: every error as the flat JSON of the Lance Namespace specification.

    {"error": "<one sentence>", "code": <int>, "detail": ..., "instance": "<request id>"}

Clients choose the class of their error by `code` alone; the HTTP status is for everybody else.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from siltstone import errors
from siltstone.errors import SiltstoneError
from siltstone.lance_versions.errors import Code, Refused, code_of, sentence_of
from siltstone.server.http.replies import JSON_TYPE, RETRY_AFTER
from siltstone.server.http.request import BodyTooLargeError
from siltstone.server.rest.schemas import ERROR_CHARACTERS_MAX, ErrorAnswer
from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog("siltstone.server")
STATUS = {
    Code.UNSUPPORTED: 406,
    Code.NAMESPACE_NOT_FOUND: 404,
    Code.NAMESPACE_EXISTS: 409,
    Code.NAMESPACE_NOT_EMPTY: 409,
    Code.TABLE_NOT_FOUND: 404,
    Code.TABLE_EXISTS: 409,
    Code.INDEX_NOT_FOUND: 404,
    Code.INDEX_EXISTS: 409,
    Code.TAG_NOT_FOUND: 404,
    Code.TAG_EXISTS: 409,
    Code.TRANSACTION_NOT_FOUND: 404,
    Code.VERSION_NOT_FOUND: 404,
    Code.COLUMN_NOT_FOUND: 404,
    Code.INVALID_INPUT: 400,
    Code.CONCURRENT_MODIFICATION: 409,
    Code.PERMISSION_DENIED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.UNAVAILABLE: 503,
    Code.INTERNAL: 500,
    Code.INVALID_TABLE_STATE: 409,
    Code.SCHEMA_VALIDATION: 400,
    Code.THROTTLING: 429,
}
"""The HTTP status of each code."""

_HEADERS = {Code.UNAUTHENTICATED: {"www-authenticate": "Bearer"}, Code.THROTTLING: RETRY_AFTER}


class HttpRefused(Refused):
    """A refusal with another HTTP status than that of its code."""

    def __init__(self, code: Code, error: str, status: int) -> None:
        self.status = status
        super().__init__(code, error)


def response_of(error: Exception, request_id: str) -> Response:
    """Return the answer to a request that failed with `error`.

    An unexpected error is logged, with the request's id, and answered without detail: its words may
    hold what is not the client's to know.
    """
    if isinstance(error, BodyTooLargeError):
        error = HttpRefused(Code.INVALID_INPUT, str(error), 413)
    if not isinstance(error, SiltstoneError):
        _log.error("request %s failed", request_id, exc_info=error)
        text = f"the server failed; its log has request {request_id}"
        return refusal(500, Code.INTERNAL, text, request_id)
    code = code_of(error)
    status = error.status if isinstance(error, HttpRefused) else STATUS[code]
    if isinstance(error, errors.NotShippedError):  # it is committed: no client repeats a 504 alone
        status = 504
    if code is Code.INTERNAL:
        _log.error("request %s failed: %s", request_id, type(error).__name__, exc_info=error)
    return refusal(status, code, sentence_of(error), request_id, _detail(error))


def note(error: Exception, request_id: str) -> None:
    """Log why a request was refused whose client does not say so; lost races are nothing new."""
    if isinstance(error, SiltstoneError) and code_of(error) is not Code.CONCURRENT_MODIFICATION:
        _log.warning("request %s was refused: %s", request_id, error)


def _detail(error: SiltstoneError) -> str | None:
    name = type(error).__name__
    if isinstance(error, errors.NotShippedError):
        transaction = f"transaction {error.transaction_id}, " if error.transaction_id else ""
        return f"{name}: {transaction}seq {error.seq}"
    if isinstance(error, errors.InDoubtError):
        return f"{name}: transaction {error.transaction_id}"
    return None if isinstance(error, Refused) else name


def refusal(
    status: int, code: Code, error: str, request_id: str, detail: str | None = None
) -> Response:
    """Return the flat body of an error."""
    body = ErrorAnswer(error[:ERROR_CHARACTERS_MAX], int(code), detail, request_id or None)
    return Response(msgspec.json.encode(body), status, _HEADERS.get(code), JSON_TYPE)
