"""Transactions: the routes that begin, end and describe transactions over several requests."""

from __future__ import annotations

from typing import Any

from siltstone.errors import RequestError
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Role
from siltstone.server.rest.access import Principal
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.refusals import Code, Refused, invalid, unsupported
from siltstone.server.rest.rows import apply, is_upsert
from siltstone.server.rest.scope import TOKEN_HEADER, TRANSACTION_HEADER, RequestScope

_ENDS = {"succeeded": True, "canceled": False, "cancelled": False, "failed": False}
_OUTCOMES = {"committed": "Succeeded", "not committed": "Failed", "in doubt": "Running"}


class TransactionRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope = scope

    def begin(self, call: RestCall) -> Reply:
        """Begin a transaction: its id goes into the header `x-siltstone-txn` of what follows."""
        body = call.json()
        key, seq = self._scope.begin(
            call, _choice(body, "isolation", "snapshot"), _choice(body, "durability", "sync")
        )
        return Reply({"id": key, "seq": seq}, seq)

    def commit(self, call: RestCall) -> Reply:
        """Commit all of it, durably; again, answer the same."""
        key = _id_of(call)
        receipt = self._scope.end(call, key, commits=True)
        assert receipt is not None
        return Reply(
            {"id": key, "seq": receipt.seq, "transaction_id": receipt.transaction_id}, receipt.seq
        )

    def rollback(self, call: RestCall) -> Reply:
        """Forget all of it."""
        key = _id_of(call)
        self._scope.end(call, key, commits=False)
        return Reply({"id": key})

    def apply(self, call: RestCall) -> Reply:
        """Do several operations on several tables in one transaction, in one request."""
        if call.headers.get(TRANSACTION_HEADER):
            raise invalid("apply is a transaction of its own; it does not run in another one")
        body = call.json()
        operations = body.get("ops")
        if not isinstance(operations, list) or not {*map(type, operations)} <= {dict}:
            raise invalid("ops is a list of objects: {'table': ..., 'op': ..., ...}")
        most = self._scope.limits.operations_max
        if not 0 < len(operations) <= most:
            raise invalid(f"ops are 1 to {most} operations, not {len(operations)}")
        results: list[dict[str, object]] = [{"rows": 0}] * len(operations)

        def work(tx: LocalTransaction) -> None:
            results[:] = [apply(tx, one, self._scope.limits) for one in operations]

        if is_upsert(body) and not call.headers.get(TOKEN_HEADER):
            receipt = self._scope.upsert(operations[0]["table"], operations[0].get("rows"))
            results = [{"rows": receipt.rows}]
        else:
            receipt = self._scope.commit(call, work, _choice(body, "isolation", "snapshot"))
        found = {"seq": receipt.seq, "transaction_id": receipt.transaction_id, "results": results}
        return Reply(found, receipt.seq)

    def describe(self, call: RestCall) -> Reply:
        """Return how a transaction is: Running, Succeeded, Failed or Canceled."""
        key = _id_of(call)
        if self._scope.is_open(key, call.principal):
            return Reply({"status": "Running", "properties": {}})
        ended = self._scope.ended(key, call.principal)
        if ended is not None and ended.doubt is not None:
            return Reply({"status": self._outcome(ended.doubt, call.principal), "properties": {}})
        if ended is not None:
            seq = None if ended.receipt is None else ended.receipt.seq
            properties = {} if seq is None else {"seq": str(seq)}
            return Reply({"status": ended.status, "properties": properties}, seq)
        return Reply({"status": self._outcome(key, call.principal), "properties": {}})

    def _outcome(self, key: str, principal: Principal) -> str:
        """Return what became of a commit, by the id that an answer, or an error, gave."""
        try:
            may_write = principal.role >= Role.WRITE
            return _OUTCOMES[self._scope.served.outcome(key, spends=may_write)]
        except RequestError:
            text = f"{key[:80]}: no such transaction is known, or it is not yours"
            raise Refused(Code.TRANSACTION_NOT_FOUND, text) from None

    def alter(self, call: RestCall) -> Reply:
        """Set the status: Succeeded commits, Canceled rolls back."""
        body = call.json()
        actions = body.get("actions")
        if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
            raise invalid("actions is a list of one action")
        action = actions[0].get("set_status_action", actions[0].get("setStatusAction"))
        if not isinstance(action, dict):
            raise unsupported("of a transaction only the status is set")
        commits = _ENDS.get(str(action.get("status")).lower())
        if commits is None:
            raise invalid("a status is set to Succeeded or to Canceled")
        receipt = self._scope.end(call, _id_of(call), commits=commits)
        status = "Succeeded" if commits else "Canceled"
        seq = None if receipt is None else receipt.seq
        return Reply({"status": status, "properties": {}}, seq)


def _id_of(call: RestCall) -> str:
    """Return the id; the specification's may begin with the table's: then the last part counts."""
    delimiter = call.query.get("delimiter") or "$"
    return call.path["id"].rpartition(delimiter)[2]


def _choice(body: dict[str, Any], name: str, default: str) -> str:
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, str):
        raise invalid(f"{name} is a string, not {found!r:.80}")
    return found
