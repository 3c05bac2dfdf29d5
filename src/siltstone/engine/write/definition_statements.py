"""Definition statements: what a transaction may do to tables, tags and claims, not to rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import FencedError
from siltstone.formats import group


@dataclass(frozen=True, slots=True)
class DefinitionStatements:
    """See the module. Under a token that was applied before, what is done already is left as is."""

    tx: EngineTransaction

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return catalogs.names(self.tx.catalog)

    def create_table(self, name: str, schema: object, primary_key: str | Sequence[str]) -> None:
        """Create a table; without `primary_key` a plain one."""
        tx = self.tx
        tx.require_open()
        other = definitions.giving_up(tx.catalog, name) if tx.is_applied else None
        if other is not None:
            tx.change(other)
        tx.change(definitions.create(tx.catalog, next(tx.core.ids), name, schema, primary_key))

    def declare_table(self, name: str) -> None:
        """Create a plain table without columns, which its first version brings.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed.
        """
        tx = self.tx
        tx.require_open()
        if tx.is_applied and catalogs.last_called(tx.catalog, name) is not None:
            return  # clients ask where the table lies, and write there
        tx.change(definitions.declare(tx.catalog, next(tx.core.ids), name))

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        tx = self.tx
        tx.require_open()
        if tx.is_applied and name not in self.tables():
            return
        table = catalogs.find(tx.catalog, name)
        tx.change(group.Drop(table.id))
        tx.rows.forget(table.id)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        tx = self.tx
        tx.require_open()
        if tx.is_applied and definitions.is_renamed(tx.catalog, name, new_name):
            return
        tx.change(definitions.rename(tx.catalog, name, new_name))

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Tag a sequence number for `lasts_s` seconds (0: for ever); None removes the tag."""
        if seq is None or not lasts_s:
            self.tx.change(group.Tagged(name, seq))
        else:
            self.tx.change(group.Keep(name, seq, lasts_s))

    def claim(self, app: str, holder: str | None, at: int | None) -> int:
        """Claim a token app; see `api.transaction.Transaction.claim`."""
        tx = self.tx
        definitions.check_app(app)
        entry = definitions.claim(tx.catalog, app, holder, at)
        if entry is not None and tx.is_applied:
            # A number that is not committed may become that of the next claim by another holder.
            found = catalogs.app_of(tx.catalog, app)
            raise FencedError(holder or "of nobody", found.holder or found.claim, app=app)
        if entry is not None:
            tx.change(entry)
        return catalogs.app_of(tx.catalog, app).claim
