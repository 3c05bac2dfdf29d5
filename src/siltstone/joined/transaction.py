"""Transaction: a transaction that runs at the owner and lives with one connection of this process.

If this process ends, or is idle in it for too long, the owner rolls it back. When the answer to its
commit is lost, InDoubtError has its id, and `outcome` of the id tells what happened.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from siltstone.engine.commit.write_set import Receipt
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.transaction import Phase
from siltstone.errors import ClosedError, RequestError, SiltstoneError
from siltstone.joined import protocol
from siltstone.joined.link import Link
from siltstone.joined.tables import JoinedTransactionTable
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.requests import Answer, Request


class JoinedTransaction:
    """See the module. A context manager: commits at the end of the block, or rolls back."""

    def __init__(self, link: Link, named: dict[str, object]) -> None:
        self._link = link
        self._home = link.take()
        try:
            found = link.within(self._home, "transaction/begin", (), named)
        except BaseException:
            self._home.close()
            raise
        self._key: str = found["id"]
        self.read_seq: int = found["seq"]
        self.phase = Phase.OPEN
        self.receipt: Receipt | None = None
        self._ids: dict[str, int] = {}
        self._abandoned = weakref.finalize(self, self._home.close)

    def __repr__(self) -> str:
        return f"<Transaction {self.phase.value}, read seq {self.read_seq}>"

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.phase is not Phase.OPEN:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def _require_open(self) -> None:
        self._link.check()
        if self.phase is not Phase.OPEN:
            raise ClosedError(f"the transaction is {self.phase.value}; begin a new one")

    @property
    def seq(self) -> int:
        """The seq of the commit (of the snapshot, if it wrote nothing); after the commit only."""
        if self.receipt is None:
            raise RequestError("the transaction has no seq before it is committed")
        return self.receipt.seq

    # asking

    def read(self, path: str, *arguments: object) -> Any:
        """Ask for rows; a stream of them has a connection of its own."""
        self._require_open()
        return self._link.read(path, *arguments, **{protocol.TRANSACTION_HEADER: self._key})

    def ask(self, path: str, arguments: tuple[object, ...], named: dict[str, object]) -> Any:
        """Ask for something on the connection that the transaction lives with."""
        self._require_open()
        headers = {protocol.TRANSACTION_HEADER: self._key}
        return self._link.within(self._home, path, arguments, named, headers)

    def _own(self, verb: str, *arguments: object) -> Any:
        return self.ask(f"transaction/{self._key}/{verb}", arguments, {})

    # tables

    def __getitem__(self, name: str) -> JoinedTransactionTable:
        """Return the table called `name`, as this transaction sees it.

        Raises:
            TableNotFoundError: There is none.
        """
        self._require_open()
        found = self._ids.get(name) if type(name) is str else None
        if found is None:
            found = self._ids[name] = self._own("id_of", name)
        return JoinedTransactionTable(self, found)

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return self._own("tables")

    def create_table(
        self, name: str, schema: object, primary_key: str | Sequence[str] = ()
    ) -> JoinedTransactionTable:
        """Create a table; without `primary_key` a plain one."""
        self._ids.clear()
        return JoinedTransactionTable(self, self._own("create_table", name, schema, primary_key))

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        self._ids.clear()
        self._own("drop_table", name)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        self._ids.clear()
        self._own("rename_table", name, new_name)

    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        """Commit staged rows with this transaction; return how many, each key once.

        See `Transaction.attach`: the rows lie in the store already, only their names travel.
        """
        return self._own("attach", stage, list(staged), overwrite)

    @property
    def is_applied(self) -> bool:
        """Whether its token was applied before it began: the commit will return the old receipt."""
        return self._own("is_applied")

    def changed_since(
        self, table_id: int, since: int, own: Sequence[tuple[int, int]] = ()
    ) -> tuple[str, int]:
        """Return what a table is called, and the first seq after `since` at which it changed."""
        return self._own("changed_since", table_id, since, list(own))

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Name a seq, or (None) forget the name."""
        self._own("tag", name, seq, *([lasts_s] if lasts_s else []))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app: users with an older claim are fenced from this commit on."""
        return self._own("claim", app, holder, at)

    def lance_catalog(self, operation: str, request: Request) -> Answer:
        """Have the owner answer a request of the Lance Namespace spec as a statement of it."""
        self._ids.clear()
        return self._own("lance_catalog", operation, dict(request), KEYED[0])

    # the end

    def commit(self) -> Receipt:
        """Commit; return the receipt (with the old one for a token that was applied before).

        Raises:
            ConflictError: Another commit won; run the transaction again.
            ClosedError: It was idle for too long; nothing happened.
            InDoubtError: The answer was lost; `outcome` of its `transaction_id` tells.
            UnavailableError: The owner was gone before it was asked; nothing happened.
        """
        self._require_open()
        self.phase = Phase.ENDED
        path = f"transaction/{self._key}/commit"
        self._abandoned.detach()
        self.receipt = self._link.commit(self._home, path)
        self.phase = Phase.COMMITTED
        assert self.receipt is not None
        return self.receipt

    def rollback(self) -> None:
        """End without a trace; a second time does nothing."""
        if self.phase is not Phase.OPEN:
            return
        try:
            self._own("rollback")
        except SiltstoneError:
            self._home.close()  # which is a rollback, too
        else:
            self._abandoned.detach()
            self._link.give(self._home)
        finally:
            self.phase = Phase.ENDED
