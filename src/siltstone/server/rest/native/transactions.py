"""Transactions: the routes that begin, end and describe transactions over several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from siltstone.api.results import Receipt
from siltstone.errors import RequestError
from siltstone.lance_namespace.tables import DELIMITER
from siltstone.lance_versions.errors import Code, Refused, invalid, unsupported
from siltstone.local.group_upserts import WriteSet
from siltstone.local.transaction import LocalTransaction
from siltstone.server.http.replies import Reply
from siltstone.server.http.route import Grouping, Role
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.native.rows import ApplyRequest, UpsertRows, apply, is_upsert, missing_of
from siltstone.server.rest.schemas import TransactionAnswer, TransactionStatus
from siltstone.server.rest.scope import RequestScope
from siltstone.server.rest.tokens import Principal

_ENDS = {"succeeded": True, "canceled": False, "cancelled": False, "failed": False}
_OUTCOMES: dict[str, TransactionStatus] = {
    "committed": "Succeeded",
    "not committed": "Failed",
    "in doubt": "Running",
}


class TransactionRoutes:
    """See the module. Any thread."""

    def __init__(self, scope: RequestScope) -> None:
        self._scope = scope
        self.upserts = Grouping(self._prepared, self._upserted)
        """Requests of `apply` that upsert one row each, and are committed together."""

    def begin(self, call: RestCall[bodies.BeginRequest]) -> Reply[bodies.BeginAnswer]:
        """Begin a transaction: its id goes into the header `x-siltstone-txn` of what follows."""
        isolation, durability = call.asked.isolation, call.asked.durability
        turns = call.asked.turns
        key, seq = self._scope.begin(call, isolation or "snapshot", durability or "sync", turns)
        return Reply(bodies.BeginAnswer(key, seq), seq)

    def commit(self, call: RestCall[bodies.TransactionRequest]) -> Reply[bodies.CommitAnswer]:
        """Commit all of it, durably; again, answer the same."""
        key = _id_of(call)
        receipt = self._scope.end(call, key, commits=True)
        assert receipt is not None
        return Reply(bodies.CommitAnswer(key, receipt.seq, receipt.transaction_id), receipt.seq)

    def rollback(self, call: RestCall[bodies.TransactionRequest]) -> Reply[bodies.RollbackAnswer]:
        """Forget all of it."""
        key = _id_of(call)
        self._scope.end(call, key, commits=False)
        return Reply(bodies.RollbackAnswer(key))

    def apply(self, call: RestCall[ApplyRequest]) -> Reply[bodies.ApplyAnswer]:
        """Do several operations on several tables in one transaction, in one request."""
        if call.transaction:
            raise invalid("apply is its own transaction; it does not run in another one")
        asked, most = call.asked, self._scope.limits.operations_max
        operations = asked.ops
        if len(operations) > most:
            raise invalid(f"ops are 1 to {most} operations, not {len(operations)}")

        def work(tx: LocalTransaction) -> list[int | None]:
            return [apply(tx, one) for one in operations]

        if is_upsert(asked) and not call.token:
            first = cast("UpsertRows", operations[0])
            receipt = self._scope.upsert(first.table, first.rows, missing_of(first))
            done = [receipt.rows]
        else:
            unknown: list[int | None] = [0] * len(operations)
            done, receipt = self._scope.commit(
                call, work, unknown, asked.isolation or "snapshot", asked.durability or "sync"
            )
        return _applied(receipt, done)

    def _prepared(self, call: RestCall[ApplyRequest]) -> WriteSet | None:
        if call.transaction or call.token or not is_upsert(call.asked):
            return None
        first = cast("UpsertRows", call.asked.ops[0])
        return self._scope.planned(first.table, first.rows, missing_of(first))

    def _upserted(self, planned: Sequence[WriteSet]) -> list[object]:
        """Return for each the reply or the error; None: it goes alone."""
        return [
            _applied(found) if isinstance(found, Receipt) else found
            for found in self._scope.upserts.commit(planned)
        ]

    def describe(self, call: RestCall[bodies.TransactionRequest]) -> Reply[TransactionAnswer]:
        """Return how a transaction is: Running, Succeeded, Failed or Canceled."""
        key, principal = _id_of(call), call.principal
        if self._scope.is_open(key, principal):
            return Reply(TransactionAnswer("Running", {}))
        ended = self._scope.ended(key, principal)
        doubt = key if ended is None else ended.doubt
        if ended is None or doubt is not None:
            return Reply(TransactionAnswer(self._outcome(doubt or key, principal), {}))
        seq = None if ended.receipt is None else ended.receipt.seq
        return Reply(TransactionAnswer(ended.status, {} if seq is None else {"seq": str(seq)}), seq)

    def _outcome(self, key: str, principal: Principal) -> TransactionStatus:
        """Return what became of a commit, by the id that an answer, or an error, gave."""
        try:
            may_write = principal.role >= Role.WRITE
            return _OUTCOMES[self._scope.served.outcome(key, spends=may_write)]
        except RequestError:
            text = f"{key[:80]}: no such transaction is known, or it is not yours"
            raise Refused(Code.TRANSACTION_NOT_FOUND, text) from None

    def alter(self, call: RestCall[bodies.AlterTransactionRequest]) -> Reply[TransactionAnswer]:
        """Set the status: Succeeded commits, Canceled rolls back."""
        actions = call.asked.actions
        wanted = [actions[0].set_status_action, actions[0].status_action]
        given = [each for each in wanted if each is not None]
        if len(given) != 1:
            raise unsupported("of a transaction only the status is set")
        commits = _ENDS.get(given[0].status.lower())
        if commits is None:
            raise invalid("a status is set to Succeeded or to Canceled")
        receipt = self._scope.end(call, _id_of(call), commits=commits)
        seq = None if receipt is None else receipt.seq
        return Reply(TransactionAnswer("Succeeded" if commits else "Canceled", {}), seq)


def _applied(receipt: Receipt, done: Sequence[int | None] = ()) -> Reply[bodies.ApplyAnswer]:
    results = [bodies.RowsWritten(rows) for rows in done or (receipt.rows,)]
    return Reply(bodies.ApplyAnswer(receipt.seq, receipt.transaction_id, results), receipt.seq)


def _id_of(call: RestCall[Any]) -> str:
    """Return the id; the specification's may begin with the table's: then the last part counts."""
    call.named(getattr(call.asked, "id", None))
    return call.path["id"].rpartition(call.query.get("delimiter") or DELIMITER)[2]
