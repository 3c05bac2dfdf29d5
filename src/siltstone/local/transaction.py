"""Transaction: the public names of a transaction over the engine's one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from siltstone.api.results import Receipt
from siltstone.api.tables import TransactionTable
from siltstone.api.transaction import Transaction
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.read.since import changed_since
from siltstone.engine.read.view import State
from siltstone.engine.write.definition_statements import DefinitionStatements
from siltstone.engine.write.merge_insert import Merge, MergeInserted, merge
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.transaction import EngineTransaction, Phase
from siltstone.engine.write.transaction_table import EngineTransactionTable
from siltstone.errors import RequestError
from siltstone.lance_namespace.version_statements import VersionStatements


class LocalTransactionTable(EngineTransactionTable, TransactionTable):
    """One table in a transaction of this process."""

    __slots__ = ()


class LocalTransaction(Transaction):
    """A transaction of this process. `engine` has what only this package needs of it."""

    def __init__(self, engine: EngineTransaction) -> None:
        self.engine = engine
        self._definitions = DefinitionStatements(engine)

    def __repr__(self) -> str:
        return repr(self.engine)

    @property
    def phase(self) -> Phase:
        return self.engine.phase

    @property
    def read_seq(self) -> int:
        return self.engine.read_seq

    @property
    def receipt(self) -> Receipt | None:
        return self.engine.receipt

    @property
    def seq(self) -> int:
        receipt = self.engine.receipt
        if receipt is None:
            raise RequestError("the transaction has no seq before it is committed")
        return receipt.seq

    @property
    def is_applied(self) -> bool:
        return self.engine.is_applied

    @property
    def lance(self) -> VersionStatements:
        """The transaction as other Lance clients see it, through the namespace."""
        return VersionStatements(self.engine)

    def merge_insert(self, name: str, rows: pa.Table, how: Merge) -> MergeInserted:
        """Merge rows into a table; see `engine.write.merge_insert`."""
        return merge(self.engine, name, rows, how)

    def _require_open(self) -> None:
        self.engine.require_open()

    def __getitem__(self, name: str) -> LocalTransactionTable:
        self._require_open()
        return LocalTransactionTable(self.engine, self.engine.named(name).id)

    def table(self, table_id: int) -> LocalTransactionTable:
        """Return the table with this id, for callers that have no name of it."""
        return LocalTransactionTable(self.engine, table_id)

    def tables(self) -> list[str]:
        return self._definitions.tables()

    def create_table(
        self, name: str, schema: object, primary_key: str | Sequence[str] = ()
    ) -> LocalTransactionTable:
        self._definitions.create_table(name, schema, primary_key)
        return self[name]

    def drop_table(self, name: str) -> None:
        self._definitions.drop_table(name)

    def rename_table(self, name: str, new_name: str) -> None:
        self._definitions.rename_table(name, new_name)

    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        return self.engine.attach(stage, staged, overwrite)

    def changed_since(
        self, table_id: int, since: int, own: Sequence[tuple[int, int]] = ()
    ) -> tuple[str, int]:
        tx = self.engine
        table = tx.table(table_id)
        if tx.is_applied:
            return catalogs.name_of(table), 0
        if since > tx.read_seq:
            raise RequestError(f"seq {since} is in the future: the store is at seq {tx.read_seq}")
        state = State(tx.view, tx.read_seq)
        touched = tx.core.touched(state, since)
        return catalogs.name_of(table), changed_since(state, table, since, own, touched)

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        self._definitions.tag(name, seq, lasts_s)

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        return self._definitions.claim(app, holder, at)

    def commit(self) -> Receipt:
        return self.engine.commit()

    def rollback(self) -> None:
        self.engine.rollback()
