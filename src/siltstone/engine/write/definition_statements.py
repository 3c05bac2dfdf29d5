"""Definition statements: what a transaction may do to tables, tags and claims, not to rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.read.kept import keepers, kept_from, readable
from siltstone.engine.read.view import State
from siltstone.engine.write.stage_task import Staged, StageTask
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.engine.write.transaction_rows import view_of
from siltstone.errors import BusyError, FencedError, SnapshotExpiredError
from siltstone.formats.log import group


class DefiningTransaction(EngineTransaction):
    """See the module. Under a token that was applied before, what is done already is left as is."""

    @contextmanager
    def whole(self) -> Generator[None]:
        """Run a statement of several steps: if it raises, nothing of it is left.

        Its last step alone may write rows of a keyed table that has some of this transaction;
        otherwise the transaction is rolled back.
        """
        self.require_open()
        catalog, lists = self.catalog, (self._changes, self.after_commit, self.unmoved)
        lengths, take_back = [*map(len, lists)], self.rows.saved()
        try:
            yield
        except BaseException:  # a Ctrl-C, too: the caller may catch it, go on and commit
            if self.is_open:
                self.catalog = catalog
                self._found.clear()
                self._named.clear()
                for each, length in zip(lists, lengths, strict=True):
                    del each[length:]
                if not take_back():
                    self.rollback()
            raise

    def attach(self, stage: StageTask, staged: Sequence[Staged], overwrite: bool = False) -> int:
        with self.whole():
            return super().attach(stage, staged, overwrite)

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
        table = self.named(name)
        self.change(group.Drop(table.id))
        self.rows.forget(table.id)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table; handles of it go on."""
        self.require_open()
        if self.is_applied and definitions.is_renamed(self.catalog, name, new_name):
            return
        entry = definitions.rename(self.catalog, name, new_name)
        self.named(name)  # which refuses what was another table at the seq of the reads
        self.change(entry)

    def tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """Tag a sequence number for `lasts_s` seconds (0: for ever); None removes the tag.

        Raises:
            RequestError: The name, the seq or the time is not allowed.
            SnapshotExpiredError: The store does not keep the seq, or it is in the future.
        """
        definitions.check_tag(name, lasts_s)
        self.set_tag(name, seq, lasts_s)

    def set_tag(self, name: str, seq: int | None, lasts_s: int = 0) -> None:
        """As `tag`, under a name as the catalog has it: that of a tag of one table, too."""
        self.require_open()
        self.unmoved.append((name, catalogs.tag_of(view_of(self.rows).catalog, name)))
        if seq is None:
            self.change(group.Tagged(name, None))
            return
        if not self.is_applied:  # else nothing is tagged
            self._keep(seq, is_followed=lasts_s > 0)
        self.change(group.Tagged(name, seq, lasts_s))

    def _keep(self, seq: int, *, is_followed: bool) -> None:
        """Keep a seq from vacuum until the commit that tags it."""
        state = State(view_of(self.rows), self.read_seq)
        readable(state, seq)
        is_in_time = seq >= state.view.record.oldest_seq
        lease = self.core.readers.keep(seq) if is_in_time else None
        if lease is not None:
            self.hold.keep_past(lease)
            return
        keeper = next(keepers(state, seq, is_followed=is_followed), None)
        if keeper is None:  # perhaps since the snapshot
            raise SnapshotExpiredError(f"seq {seq}", kept_from(state), state.visible)
        self.unmoved.append((keeper.name, keeper))

    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app; see `api.transaction.Transaction.claim`."""
        definitions.check_app(app)
        entry = definitions.claim(self.catalog, app, holder, at)
        if entry is not None and self.is_applied:
            # A number that is not committed may become that of the next claim by another holder.
            found = catalogs.app_of(self.catalog, app)
            raise FencedError(holder or "(unnamed)", found.holder or found.claim, app=app)
        if entry is not None:
            self.change(entry)
        return catalogs.app_of(self.catalog, app).claim

    def forget_app(self, app: str) -> None:
        """Forget a token app; see `api.store.Store.forget_token_app`.

        A transaction of it that begins meanwhile is fenced when it commits (`app_since`).
        """
        entry = definitions.forget_app(self.catalog, app)
        if self.core.transactions.has_app(app):
            raise BusyError(
                f"a transaction of app {app!r} is open, and its batch would be a new one; end it,"
                " then forget the app"
            )
        self.change(entry)
