"""Routes of joined processes: an address for each operation, and one for those that do not exist.

The table of operations says which role each needs, and whether it may be given up. A verb that does
not exist needs the highest role, and is answered with the ones that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from siltstone.joined import protocol
from siltstone.operations import Effect, Face, of_face
from siltstone.server.calls import Calls
from siltstone.server.http.route import MESSAGE, NOTHING, Role, Route
from siltstone.server.rpc.call import Outcome, RpcCall

RpcHandler = Callable[[RpcCall], Outcome]


def rpc_routes(prefix: str, calls: Calls, hello: Callable[[], object]) -> list[Route]:
    """Return the routes of all operations below `prefix`."""

    def greeted(_: RpcCall) -> Outcome:
        return Outcome(hello())

    return [
        Route(
            "GET",
            f"{prefix}/hello",
            Role.READ,
            greeted,
            "Say who answers",
            takes=NOTHING,
            name="hello",
        ),
        *_posts(Face.STORE, prefix, calls.of_store),
        *_posts(
            Face.TABLE | Face.TRANSACTION_TABLE | Face.SNAPSHOT_TABLE,
            f"{prefix}/table/{{table}}",
            lambda call: calls.of_table(call.path["table"], call),
        ),
        *_posts(
            Face.TRANSACTION,
            f"{prefix}/transaction/{{key}}",
            lambda call: calls.of_transaction(call.path["key"], call),
        ),
        *_posts(
            Face.SNAPSHOT,
            f"{prefix}/snapshot/{{key}}",
            lambda call: calls.of_snapshot(call.path["key"], call),
        ),
    ]


def _posts(face: Face, at: str, handler: RpcHandler) -> Iterable[Route]:
    for name, found in of_face(face).items():
        yield Route(
            "POST",
            f"{at}/{protocol.ADDRESSES.get(name, name)}",
            found.role,
            handler,
            f"Ask for {name}",
            takes=MESSAGE,
            name=name,
            is_timed=found.effect is Effect.READ,
        )
    unknown = "Refuse an operation that does not exist"
    yield Route("POST", f"{at}/{{verb}}", Role.ADMIN, handler, unknown, takes=MESSAGE)
