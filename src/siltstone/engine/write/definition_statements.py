"""Definition statements: what a transaction may do to tables, tags and claims, not to rows."""

from __future__ import annotations

from collections.abc import Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import FencedError, RequestError
from siltstone.formats import group


class DefiningTransaction(EngineTransaction):
    """See the module. Under a token that was applied before, what is done already is left as is."""

    def tables(self) -> list[str]:
        """Return the names of all tables, own changes included."""
        return catalogs.names(self.catalog)

    def define_table(self, name: str, schema: object, primary_key: str | Sequence[str]) -> None:
        """Create a table; without `primary_key` a plain one."""
        self.require_open()
        other = definitions.giving_up(self.catalog, name) if self.is_applied else None
        if other is not None:
            self.change(other)
        self.change(
            definitions.create(self.catalog, next(self.core.ids), name, schema, primary_key)
        )

    def has_table(self, name: str, schema: object, primary_key: str | Sequence[str]) -> bool:
        """Say whether a table has the name, and the columns and key that are given.

        Raises:
            SchemaMismatchError: It lacks a column, has it with another type, or has another key.
        """
        found = definitions.named(self.catalog, name)
        if found is not None:
            definitions.refuse_other(found, schema, primary_key)
        return found is not None

    def declare_table(self, name: str) -> None:
        """Create a plain table without columns, which its first version brings.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed.
        """
        self.require_open()
        if self.is_applied and catalogs.last_called(self.catalog, name) is not None:
            return  # clients ask where the table lies, and write there
        self.change(definitions.declare(self.catalog, next(self.core.ids), name))

    def drop_table(self, name: str) -> None:
        """Drop a table with its rows; older snapshots still see it."""
        self.require_open()
        if self.is_applied and name not in self.tables():
            return
        table = catalogs.find(self.catalog, name)
        self.change(group.Drop(table.id))
        self.rows.forget(table.id)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        self.require_open()
        if self.is_applied and definitions.is_renamed(self.catalog, name, new_name):
            return
        self.change(definitions.rename(self.catalog, name, new_name))

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Tag a sequence number for `lasts_s` seconds (0: for ever); None removes the tag.

        Raises:
            RequestError: The catalog has tags of a table under such a name.
        """
        if catalogs.table_of_tag(name) is not None:
            raise RequestError(
                f"a tag named #<number>/... is of one table; choose another: {name!r}"
            )
        if seq is None or not lasts_s:
            self.change(group.Tagged(name, seq))
        else:
            self.change(group.Keep(name, seq, lasts_s))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app; see `api.transaction.Transaction.claim`."""
        definitions.check_app(app)
        entry = definitions.claim(self.catalog, app, holder, at)
        if entry is not None and self.is_applied:
            # A number that is not committed may become that of the next claim by another holder.
            found = catalogs.app_of(self.catalog, app)
            raise FencedError(holder or "of nobody", found.holder or found.claim, app=app)
        if entry is not None:
            self.change(entry)
        return catalogs.app_of(self.catalog, app).claim
