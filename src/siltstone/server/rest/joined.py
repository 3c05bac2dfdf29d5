"""Joined: the Python API of other machines, in the words of `joined.protocol`, below /v1/joined.

Each verb needs a role; one that is not listed here needs the highest. A transaction or snapshot
lives with its TCP connection, under a key that nobody can guess.
"""

from __future__ import annotations

from concurrent.futures import Executor

from fastapi import Request

from siltstone.server.app import Desk, hello_of
from siltstone.server.calls import STORE_READS, TABLE_READS, TABLE_WRITES, Calls
from siltstone.server.lance_calls import VERB as LANCE
from siltstone.server.rest.access import Gate, Role, require
from siltstone.server.rest.connections import Connection
from siltstone.server.rest.limits import Limits
from siltstone.server.served import Served
from siltstone.server.sessions import Session, Sessions

_READS = (
    TABLE_READS
    | STORE_READS
    | frozenset(
        (
            "indexes",
            *("hello", "changes", "changes_of", "scan_tasks", "outcome", "verify"),
            *("transaction", "snapshot", "commit", "rollback", "close"),
        )
    )
)
_WRITES = TABLE_WRITES | frozenset(
    (
        *("create_table", "drop_table", "rename_table", "tag", "untag", "claim"),
        *("checkpoint", "merge", "optimize", "create_index", "drop_index"),
        LANCE,
    )
)


def role_of(verb: str) -> Role:
    """Return the role that a verb needs."""
    if verb in _READS:
        return Role.READ
    return Role.WRITE if verb in _WRITES else Role.ADMIN


def joined_desk(
    served: Served, sessions: Sessions, gate: Gate, limits: Limits, executor: Executor
) -> Desk:
    """Return where requests of joined processes come in, those that the gate lets pass."""

    def admit(request: Request, verb: str) -> Session:
        principal = gate.principal(request.headers)
        require(principal, role_of(verb))
        connection: Connection = request.state.connection
        session = connection.joined()
        session.may_write = principal.role >= Role.WRITE
        return session

    db, parts = served.db, served.parts
    epoch = parts.core.state().view.record.epoch
    identity = parts.files.identity(db.path)
    return Desk(
        Calls(served, sessions),
        lambda: hello_of(str(db.path), epoch, identity, limits.body_bytes_max),
        executor,
        admit=admit,
        requests_max=limits.requests_max,
        body_bytes_max=limits.body_bytes_max,
        body_timeout_s=limits.body_timeout_s,
        read_timeout_s=limits.statement_timeout_s,
        tells_all=False,
    )
