"""Tables: one table of a store, at a snapshot or in a transaction; what can be read and written.

    db["orders"]     Table             reads see the newest commit, each write is a transaction
    tx["orders"]     TransactionTable  reads see the transaction's own writes; writes stay private
    past["orders"]   SnapshotTable     reads see one sequence number

Handles carry the table's id, not its name: they go on after a rename.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack

from siltstone.api.public_class import PublicClass
from siltstone.api.readable import ReadableTable
from siltstone.api.results import IndexStatus, Receipt
from siltstone.choices import UNCHANGED, IndexKind, IndexOptions, Missing
from siltstone.errors import RequestError, SiltstoneError
from siltstone.given import ColumnType, Key, Keys, Rows, SchemaLike
from siltstone.text import shown

if TYPE_CHECKING:
    from siltstone.query.sql.dataset import SnapshotDataset


Written = TypeVar("Written")
Handle = TypeVar("Handle")
Deleted = TypeVar("Deleted")
Done = TypeVar("Done")


class SnapshotTable(ReadableTable):
    """One table at the sequence number of its snapshot.

    Examples:
        >>> with db.snapshot() as past:
        ...     receipt = orders.truncate()
        ...     past["orders"].count(), orders.count()
        (2, 0)
    """

    __slots__ = ()

    def dataset(self) -> SnapshotDataset:
        """Return the table as a pyarrow dataset: DuckDB, Polars and pandas push down into it.

        Examples:
            >>> import pyarrow.dataset as ds
            >>> with db.snapshot() as past:
            ...     past["orders"].dataset().to_table(filter=ds.field("id") > 1).num_rows
            1
        """
        # Late: pyarrow.dataset brings all of pandas with it, more than a second.
        from siltstone.query.sql.dataset import SnapshotDataset  # noqa: PLC0415

        return SnapshotDataset(self)


class WritableTable(ReadableTable, Generic[Written, Deleted, Done]):
    """How the rows of a table are written, and its columns changed.

    `Written` is what a write of rows returns, `Deleted` a delete by keys, and `Done` any other:
    `Table` returns the receipt of its commit, `TransactionTable` how many rows it wrote, or None.
    """

    __slots__ = ()

    # keyed tables

    @abstractmethod
    def upsert(self, rows: Rows, missing: Missing = "refuse") -> Written:
        """Add or replace rows; of rows with equal keys the last one counts.

        An upsert of whole rows never conflicts. If another commit adds, renames or drops a column
        at the same time, the upsert counts as the later one.

        Args:
            rows: A dict, a list of dicts, or anything Arrow-shaped.
            missing: What becomes of the columns that a row does not name; a null that is given is a
                value. "refuse": nothing is written, whether the row exists or not. "keep": a row
                that exists keeps its values, a new one has null there; the rows are read and
                written in one transaction, with the conflicts of `update`, and rows with equal keys
                are laid over each other. "null": they are null.

        Raises:
            SchemaMismatchError: A column or value does not fit, or a column is missing that may not
                be; nothing was written.
            ConflictError: A column was renamed or dropped while a stream was read that can be read
                only once and is too large to keep; nothing was written.

        Examples:
            >>> orders.upsert({"id": 2, "amount": 6.0, "note": "b"}).rows
            1
            >>> receipt = orders.upsert({"id": 2, "amount": 7.0}, missing="keep")
            >>> orders.get(2)
            {'id': 2, 'amount': 7.0, 'note': 'b'}
        """

    @abstractmethod
    def insert(self, rows: Rows) -> Written:
        """Add rows whose keys no row has yet; columns that they do not name are null.

        Raises:
            DuplicateKeyError: The table has a key, or one appears twice; nothing was written.
            SchemaMismatchError: A column or value does not fit; nothing was written.

        Examples:
            >>> orders.insert({"id": 3, "amount": 1.0}).rows
            1
            >>> orders.insert({"id": 3, "amount": 1.0})
            Traceback (most recent call last):
            siltstone.errors.DuplicateKeyError: ...
        """

    @abstractmethod
    def update(self, key: Key, /, **values: object) -> Written:
        """Change the named columns of one row; the number of rows is 0 if no row has the key.

        Examples:
            >>> orders.update(1, amount=0.5).rows, orders.update(99, amount=0.5).rows
            (1, 0)
        """

    @abstractmethod
    def update_many(self, rows: Rows) -> Written:
        """Change the named columns of rows, found by their key, in one commit.

        A key that no row has is no error, and makes no row. The number of rows is the number of
        keys that have one.

        Args:
            rows: As for `upsert`: the key and some columns, each row its own. Rows with equal keys
                are laid over each other.

        Raises:
            SchemaMismatchError: A column or value does not fit, or a row lacks the key; nothing was
                written.

        Examples:
            >>> orders.update_many([{"id": 1, "amount": 0.5}, {"id": 2, "note": "x"}]).rows
            2
        """

    @abstractmethod
    def delete(self, keys: Keys) -> Deleted:
        """Delete the rows of some keys. Absent keys are no error. No conflicts.

        The number of rows is that of the keys that had one at the snapshot: for a table its newest
        commit when the call begins. More than 10,000 keys are not counted: None. The count is
        no read: two deletes of one row at the same time may both count it.

        Args:
            keys: One key, or as in `get_many`. A filter is no key: see `delete_where`.

        Raises:
            RequestError: One text that compares a column (`"id = 'a'"`), unless a row has it as its
                key. A key of such a text is given as a dict: `{"id": "id = 'a'"}`.
            SchemaMismatchError: A key has another type. Nothing was written, here and above.

        Examples:
            >>> orders.delete([1, 99]).rows
            1
        """

    # plain tables

    @abstractmethod
    def append(self, rows: Rows) -> Written:
        """Add rows to a plain table.

        Examples:
            >>> events.append([{"n": 4}, {"n": 5}]).rows
            2
        """

    @abstractmethod
    def overwrite(self, rows: Rows) -> Written:
        """Replace all rows of a plain table.

        Examples:
            >>> events.overwrite([{"n": 4}]).rows, events.count()
            (1, 1)
        """

    # both

    @abstractmethod
    def delete_where(self, filter: str) -> Written:  # noqa: A002 - the contract's name
        """Delete the rows that match a SQL boolean expression.

        Examples:
            >>> orders.delete_where("amount < 10 and note is not null").rows
            1
        """

    @abstractmethod
    def update_where(
        self,
        filter: str,  # noqa: A002 - the contract's name
        values: Mapping[str, object] | None = None,
        sql: Mapping[str, str] | None = None,
    ) -> Written:
        """Set columns of the rows that match a SQL boolean expression; give one of both, or both.

        The changed rows are held in memory until the commit, 256 MiB at most.

        Args:
            filter: As for `delete_where`; "true" matches every row.
            values: Values by column, the same in each row.
            sql: SQL expressions by column, over the row as it was before: {"n": "n + 1"}. They may
                use what filters may use.

        Raises:
            RequestError: A filter or an expression does not parse, nothing is set, or a column
                twice, or one of the key; nothing was written.
            SchemaMismatchError: There is no such column, or a value does not fit.

        Examples:
            >>> orders.update_where("id < 9", {"note": "x"}, sql={"amount": "amount * 2"}).rows
            2
            >>> orders.get(1)
            {'id': 1, 'amount': 40.0, 'note': 'x'}
        """

    # all of it

    @abstractmethod
    def truncate(self) -> Done:
        """Delete all rows at once; older snapshots still see them.

        Examples:
            >>> receipt = orders.truncate()
            >>> orders.count()
            0
        """

    @abstractmethod
    def add_column(self, name: str, kind: ColumnType, default: Any = None) -> Done:
        """Add a column. Rows that exist have the default at once, else null.

        Args:
            name: Its name.
            kind: Its type; "not null" needs a default, and a table with a key.
            default: What rows have that exist, and new ones that leave the column out.

        Raises:
            SchemaMismatchError: The table has such a column, or the default is of another type.
            RequestError: The type takes no default, or none is given where null may not be.

        Examples:
            >>> receipt = orders.add_column("paid", "bool")
            >>> orders.get(1)
            {'id': 1, 'amount': 20.0, 'note': 'a', 'paid': None}
        """

    @abstractmethod
    def drop_column(self, name: str) -> Done:
        """Drop a column. A column that is added later under the same name is another column.

        Examples:
            >>> receipt = orders.drop_column("note")
            >>> orders.get(1)
            {'id': 1, 'amount': 20.0}
        """

    @abstractmethod
    def alter_column(
        self,
        name: str,
        *,
        type: Any = None,  # noqa: A002 - the contract's name
        nullable: bool | None = None,
        default: Any = UNCHANGED,
    ) -> Done:
        """Change the type of a column, whether it takes null, or its default; the rest stays.

        Args:
            name: Its name.
            type: As for `add_column`. A wider one (int32 to int64, float32 to float64, decimals of
                more digits, a date to a timestamp of seconds) costs nothing: rows are rewritten
                by maintenance. For any other one all rows are read, each value must have one in
                the new type, and a table with a key gets all its rows written in this commit
                (at most 256 MiB), without the column's indexes. Reads of older seqs show the
                old type.
            nullable: False: the rows are looked through, and none may have null there. A commit
                that writes one meanwhile conflicts with this one.
            default: What new rows have that leave the column out; None: null again. Rows that exist
                stay as they are.

        Raises:
            SchemaMismatchError: There is no such column; a row has null there, or a value that the
                type lacks; or the default is of another type.
            RequestError: It is a column of the key, its type takes no default, or no value of its
                type has one in the new type.

        Examples:
            >>> receipt = orders.alter_column("note", nullable=False, default="none")
            >>> receipt = orders.upsert({"id": 3, "amount": 1.0}, missing="keep")
            >>> orders.get(3)
            {'id': 3, 'amount': 1.0, 'note': 'none'}
        """

    @abstractmethod
    def rename_column(self, name: str, new_name: str) -> Done:
        """Rename a column.

        Examples:
            >>> receipt = orders.rename_column("note", "text")
            >>> orders.get(1)
            {'id': 1, 'amount': 20.0, 'text': 'a'}
        """


class Table(WritableTable[Receipt, Receipt, Receipt]):
    """One table of an open store. Reads see the newest commit; each write is a transaction.

    Examples:
        >>> orders
        <table 'orders', key id: ['id', 'amount', 'note']>
        >>> orders.get(1)
        {'id': 1, 'amount': 20.0, 'note': 'a'}
    """

    __slots__ = ()

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"<table {self.name!r}, {f'key {key}' if key else 'plain'}: {self.schema.names}>"

    @abstractmethod
    def dataset(self) -> SnapshotDataset:
        """Return a fresh snapshot of the table as a pyarrow dataset.

        Examples:
            >>> orders.dataset().count_rows()
            2
        """

    # indexes of keyed tables

    @abstractmethod
    def create_index(
        self,
        column: str,
        kind: IndexKind = "btree",
        *,
        name: str | None = None,
        build: bool = True,
        **options: Unpack[IndexOptions],
    ) -> IndexStatus:
        """Create an index on a column. It changes no result, and only the caller waits for it.

        That of a keyed table covers the rows that are merged into base; merges and optimizes keep
        it up to date. That of a plain table is a version of it, which covers all rows of now; later
        ones are scanned, until a Lance client's `optimize_indices`, or until it is created again,
        as an optimize does with a btree or bitmap that lacks a fifth of the rows.

        Args:
            column: The name of a column.
            kind: "btree" (equality, ranges), "bitmap" (the same, for few distinct values), "fts"
                (words of a text) or "vector" (nearest neighbours), both for `search` and other
                Lance clients.
            name: By default the column's name.
            build: False leaves building it to the next optimize or merge, of a keyed table.
            options: For fts: language, base_tokenizer, stem, lower_case, remove_stop_words,
                ascii_folding, with_position. For vector: metric ("l2", "cosine", "dot"), encoding
                ("flat", "sq", "rq", "pq" with sub_vectors, "hnsw_sq", "hnsw_flat"; by default
                chosen by the number and size of the vectors), partitions.

        Raises:
            RequestError: No such column; a kind, name or option that does not fit or exists
                already; a plain table without rows, and a kind that needs some: nothing was
                changed. Or another process dropped the index as soon as it was made.
            ConflictError: Others changed the files of a plain table each time; nothing was changed.
            TableNotFoundError: The table was dropped.
            ReadOnlyError: This handle only reads.
            UnavailableError: The answer of the owner was lost; `indexes` shows the outcome.

        Examples:
            >>> receipt = db.checkpoint(), db.merge()
            >>> str(orders.create_index("note"))
            'note (btree of note)'
        """

    @abstractmethod
    def indexes(self) -> list[IndexStatus]:
        """Return the indexes, by name, and how many rows they lag behind; the key's comes last.

        Examples:
            >>> created = orders.create_index("amount", "bitmap")
            >>> [(index.name, index.kind) for index in orders.indexes()]
            [('amount', 'bitmap')]
        """

    @abstractmethod
    def drop_index(self, name: str) -> None:
        """Drop an index.

        Raises:
            RequestError: No index has that name, or it is the key's own.
            TableNotFoundError: The table was dropped.
            ReadOnlyError: This handle only reads.

        Examples:
            >>> created = orders.create_index("note")
            >>> orders.drop_index("note")
        """


class TransactionTable(WritableTable[int, int | None, None]):
    """One table in one transaction: reads see own writes. Writes return how many rows they wrote.

    The arguments and errors are those of `Table`.

    Examples:
        >>> with db.transaction() as tx:
        ...     tx["orders"].delete(1), tx["orders"].count(), orders.count()
        (1, 1, 2)
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, as its transaction.

        Raises:
            RequestError: Always.
        """
        refuse_travel()


def refuse_travel() -> NoReturn:
    """Refuse to pickle or copy what belongs to a transaction.

    Raises:
        RequestError: Always.
    """
    raise RequestError(
        "a transaction and its tables cannot be pickled or copied: what they wrote is known to one"
        " process alone. Commit first, and pickle a table of the store or a snapshot. To write one"
        " commit from several processes use `stage` and `attach`"
    )


class NamedTables(PublicClass):
    """The tables of a store, a transaction or a snapshot, by their names, like the keys of a dict.

    `"orders" in db`, `len(db)` and `list(db)` are about the names; `db["orders"]` is a table.
    """

    __slots__ = ()

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of all tables, sorted; in a transaction with its own changes.

        Examples:
            >>> db.tables(), "orders" in db, len(db)
            (['events', 'orders'], True, 2)
        """

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __len__(self) -> int:
        return len(self.tables())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __bool__(self) -> bool:
        """Return True: a store without tables is a store."""
        return True

    def _ipython_key_completions_(self) -> list[str]:
        """Return what a notebook may complete after `db["`."""
        return self.tables()

    def _repr_html_(self) -> str | None:
        """Return the names of the first tables as HTML; None if it is closed."""
        try:
            names = self.tables()
        except SiltstoneError:
            return None
        some = [(name,) for name in names[: shown.NAMES_MAX]]
        return shown.as_html(["table"], some, repr(self))


class TableDefinitions(NamedTables, Generic[Handle, Done]):
    """The tables of a store or of a transaction: how they are found, made, dropped and renamed."""

    @abstractmethod
    def __getitem__(self, name: str) -> Handle:
        """Return the table called `name`; in a transaction as that sees it.

        Raises:
            TableNotFoundError: No table has that name.
        """

    @abstractmethod
    def create_table(
        self,
        name: str,
        schema: SchemaLike | None = None,
        primary_key: str | Sequence[str] = (),
        *,
        data: Rows | None = None,
        defaults: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> Handle:
        """Create a table, and fill it, in one step; without `primary_key` a plain one.

        Args:
            name: 1-128 letters, digits, `_`, `-`, `.`; not starting with `.` or `_`.
            schema: A pyarrow schema, or a dict of name to type ("int64", "string", ...). By default
                that of `data`.
            primary_key: One column or several: int, string, binary, date, timestamp, decimal, bool.
            data: The first rows, as for `insert`. Those of a table with a key are held in memory
                until the commit.
            defaults: Values by column: what a new row has there that leaves the column out. A null
                that is given stays null. Columns of the key and nested ones have none. By default
                those that the fields of `schema` carry (metadata `siltstone:default`), as those of
                `Table.schema` do.
            exist_ok: Return a table that has the name already, and change nothing: not a row of
                `data` is written. A schema and a key that are given must be the table's.

        Raises:
            TableExistsError, RequestError: The name is taken or not allowed; a bad schema or key.
            SchemaMismatchError: The rows do not fit, or `data` has no schema. With `exist_ok`: the
                table lacks a column, or has it with another type, or has another key.
            DuplicateKeyError: A key appears twice in `data`.

        Examples:
            >>> people = db.create_table("people", {"name": str, "born": "date"}, "name")
            >>> found = db.create_table("visits", data=[{"day": 1}, {"day": 2}])
            >>> people.primary_key, found.count()
            (('name',), 2)
        """

    @abstractmethod
    def drop_table(self, name: str) -> Done:
        """Drop a table; older snapshots still see it.

        Examples:
            >>> receipt = db.drop_table("events")
            >>> db.tables()
            ['orders']
        """

    @abstractmethod
    def rename_table(self, name: str, new_name: str) -> Done:
        """Rename a table; handles of it go on.

        Examples:
            >>> receipt = db.rename_table("orders", "sales")
            >>> orders.name, db["sales"].count()
            ('sales', 2)
        """

    @abstractmethod
    def claim(self, app: str, holder: str | None = None, at: int | None = None) -> int:
        """Claim a token app and return the claim; from this commit on older claims are fenced.

        Args:
            app: The app of tokens (app, batch).
            holder: A name of the claimant (the id of a run). While the holder has the app, it gets
                the same claim again.
            at: The number for a new claim of this holder. Of several holders the one with the
                highest number keeps the app, in any order of their claims.

        Raises:
            FencedError: The holder had claimed the app, and another holder claimed it later. With
                `at`: another holder has the app at that number or a higher one. In a transaction
                whose token was applied before: `holder` no longer has the claim.

        Examples:
            >>> first, later = db.claim("nightly", "run 1"), db.claim("nightly", "run 2")
            >>> with db.transaction(token=("nightly", 0), claim=first) as tx:
            ...     tx["orders"].delete(1)
            Traceback (most recent call last):
            siltstone.errors.FencedError: ...
        """
