"""REST wire: JSON and Arrow, in and out, for the pipeline of requests."""

from __future__ import annotations

from starlette.responses import Response

from siltstone.server.http.replies import Reply
from siltstone.server.http.request import REQUEST_ID_HEADER, HttpRequest
from siltstone.server.http.route import Route
from siltstone.server.rest import refusals
from siltstone.server.rest.access import Gate, Principal
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.replies import encoded


class RestWire:
    """See the module; a `WireFormat`."""

    encode = staticmethod(encoded)

    def __init__(self, gate: Gate) -> None:
        self.admit = gate.admit

    def run(self, request: HttpRequest, route: Route, caller: Principal, body: bytes) -> Reply:
        """Return the reply of the route's handler."""
        query = request.query() if request.scope["query_string"] else {}
        return route.handler(
            RestCall(request.params, query, request.headers, body, caller, route.request)
        )

    def refusal(self, error: Exception, request: HttpRequest, route: Route | None) -> Response:
        """Return the flat error; our log has it, too, if the client shows no reason."""
        if route is not None and route.is_commit_of_version:
            refusals.note(error, request.id)
        return refusals.response_of(error, request.id)

    def unknown(self, request: HttpRequest, status: int) -> Response:
        """Return the flat error where no route is."""
        return refusals.of_status(status, request.id)

    def headers(self, request: HttpRequest, caller: Principal | None) -> dict[str, str]:  # noqa: ARG002
        """Return the id of the request."""
        return {REQUEST_ID_HEADER: request.id}
