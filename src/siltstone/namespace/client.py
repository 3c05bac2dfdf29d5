"""Namespace: what pylance and LanceDB take as `namespace_client`, on the machine of the store.

    ns = SiltstoneNamespace(db)
    lance.write_dataset(rows, namespace_client=ns, table_id=["events"], mode="create")
    with ns.transaction() as tx:                      # several tables, all or none
        lance.dataset(namespace_client=tx, table_id=["events"]).delete("id = 3")
        lance.write_dataset(more, namespace_client=tx, table_id=["log"], mode="append")
    with ns.at(tag="audit") as past:                  # all tables at one seq
        lance.dataset(namespace_client=past, table_id=["events"])

What it answers is `query.lance_catalog`'s, of this process or, of a store that was joined, of the
owner; here it gets the classes and the errors of the spec.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import lance_namespace as spec
import lance_namespace.errors as spec_errors

from siltstone.engine.write.transaction import Transaction
from siltstone.errors import RequestError, SiltstoneError
from siltstone.handles import Snapshot
from siltstone.namespace.schemas import json_schema
from siltstone.query.fresh import KEYED
from siltstone.query.lance_catalog import Answer, LanceCatalog, Request
from siltstone.query.lance_errors import code_of
from siltstone.query.lance_scopes import InTransaction, Live, Pinned, Turns
from siltstone.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from siltstone.joined.snapshot import JoinedSnapshot
    from siltstone.joined.store import JoinedStore

Answers = Callable[[str, Request], Answer]
_ERRORS: dict[int, type[spec_errors.LanceNamespaceError]] = {
    int(kind.code): kind
    for kind in vars(spec_errors).values()
    if isinstance(kind, type) and issubclass(kind, spec_errors.LanceNamespaceError)
}
_numbers = itertools.count(1)


class _Namespace(spec.LanceNamespace):
    """The requests of the spec over one scope. What is not here is refused as unsupported."""

    def __init__(self, answer: Answers, root: Path, where: str) -> None:
        self._answer = answer
        # Lance shares what it caches between namespaces of one id: each has its own.
        self._id = f"Siltstone {{ root: {root}, {where}, {next(_numbers)} }}"

    def _asked(self, operation: str, request: Any, answer: Callable[..., Any]) -> Any:
        """Answer a request, which is a model or a dict, in the class that its operation has."""
        fields = request if isinstance(request, dict) else request.to_dict()
        try:
            found = self._answer(operation, fields)
        except SiltstoneError as error:
            kind = _ERRORS.get(code_of(error), spec_errors.InternalError)
            raise kind(str(error)) from error
        return answer(**found)

    def namespace_id(self) -> str:
        """Return an id that no other namespace has."""
        return self._id

    def list_namespaces(self, request: Any) -> spec.ListNamespacesResponse:
        """See `LanceCatalog.list_namespaces`; so for all below."""
        return self._asked("list_namespaces", request, spec.ListNamespacesResponse)

    def describe_namespace(self, request: Any) -> spec.DescribeNamespaceResponse:
        return self._asked("describe_namespace", request, spec.DescribeNamespaceResponse)

    def namespace_exists(self, request: Any) -> spec.NamespaceExistsResponse:
        return self._asked("namespace_exists", request, spec.NamespaceExistsResponse)

    def create_namespace(self, request: Any) -> spec.CreateNamespaceResponse:
        return self._asked("create_namespace", request, spec.CreateNamespaceResponse)

    def drop_namespace(self, request: Any) -> spec.DropNamespaceResponse:
        return self._asked("drop_namespace", request, spec.DropNamespaceResponse)

    def list_tables(self, request: Any) -> spec.ListTablesResponse:
        return self._asked("list_tables", request, spec.ListTablesResponse)

    def list_all_tables(self, request: Any) -> spec.ListTablesResponse:
        return self._asked("list_all_tables", request, spec.ListTablesResponse)

    def declare_table(self, request: Any) -> spec.DeclareTableResponse:
        return self._asked("declare_table", request, spec.DeclareTableResponse)

    def create_empty_table(self, request: Any) -> spec.CreateEmptyTableResponse:
        """Declare a table, under the name that the operation had before."""
        return self._asked("declare_table", request, spec.CreateEmptyTableResponse)

    def describe_table(self, request: Any) -> spec.DescribeTableResponse:
        return self._asked("describe_table", request, _described)

    def table_exists(self, request: Any) -> spec.TableExistsResponse:
        return self._asked("table_exists", request, spec.TableExistsResponse)

    def drop_table(self, request: Any) -> spec.DropTableResponse:
        return self._asked("drop_table", request, spec.DropTableResponse)

    def deregister_table(self, request: Any) -> spec.DeregisterTableResponse:
        """Drop a table: what is not in the store is not kept by it."""
        return self._asked("drop_table", request, spec.DeregisterTableResponse)

    def rename_table(self, request: Any) -> spec.RenameTableResponse:
        return self._asked("rename_table", request, spec.RenameTableResponse)

    def list_table_branches(self, request: Any) -> spec.ListTableBranchesResponse:
        return self._asked("list_table_branches", request, spec.ListTableBranchesResponse)

    def list_table_versions(self, request: Any) -> spec.ListTableVersionsResponse:
        return self._asked("list_table_versions", request, spec.ListTableVersionsResponse)

    def describe_table_version(self, request: Any) -> spec.DescribeTableVersionResponse:
        return self._asked("describe_table_version", request, spec.DescribeTableVersionResponse)

    def create_table_version(self, request: Any) -> spec.CreateTableVersionResponse:
        return self._asked("create_table_version", request, spec.CreateTableVersionResponse)

    def batch_create_table_versions(self, request: Any) -> spec.BatchCreateTableVersionsResponse:
        return self._asked(
            "batch_create_table_versions", request, spec.BatchCreateTableVersionsResponse
        )

    def batch_delete_table_versions(self, request: Any) -> spec.BatchDeleteTableVersionsResponse:
        return self._asked(
            "batch_delete_table_versions", request, spec.BatchDeleteTableVersionsResponse
        )

    def batch_commit_tables(self, request: Any) -> spec.BatchCommitTablesResponse:
        return self._asked("batch_commit_tables", request, spec.BatchCommitTablesResponse)


class SiltstoneNamespace(_Namespace):
    """A store's tables at their newest versions; each change is a commit. Any thread."""

    def __init__(
        self, db: Store | JoinedStore, *, keyed: Literal["merged", "fresh"] = "merged"
    ) -> None:
        """Serve `db`, which its caller closes; a read-only one answers reads.

        Args:
            db: An open store, of this process or of another one on this machine.
            keyed: What is seen of tables with a key: their base as of the last merge, or (at most
                a second old) all rows, for which a version is made when one is asked for.

        Raises:
            RequestError: A store whose files are not on this machine; another `keyed`.
            UnavailableError: The owner of a joined store is gone.
        """
        if keyed not in KEYED:
            raise RequestError(f"keyed is one of {KEYED}, not {keyed!r}")
        if isinstance(db, Store):
            answer = LanceCatalog(Live(db, Turns(), is_fresh=keyed == "fresh")).answer
        else:
            answer = partial(db.lance_catalog, keyed=keyed)
            answer("namespace_exists", {})  # whether the files are here, and the owner can do it
        super().__init__(answer, db.path, "live")
        self._db, self._keyed = db, keyed

    def transaction(self, **options: Any) -> TransactionNamespace:
        """Begin a transaction over all tables; `options` are those of `Store.transaction`."""
        return TransactionNamespace(self._db, **options)

    def at(
        self, *, seq: int | None = None, at: object = None, tag: str | None = None
    ) -> SnapshotNamespace:
        """Return all tables at one seq: at `seq`, at a moment, at a tag, or now."""
        snapshot = self._db.snapshot(seq=seq, at=at, tag=tag)
        return SnapshotNamespace(self._db, snapshot, self._keyed)


class TransactionNamespace(_Namespace):
    """One transaction: its statements see each other; the block's end commits them all, or none.

    Statements of several clients go one after the other. `transaction` is siltstone's own, for
    statements on keyed tables in the same commit.
    """

    def __init__(self, db: Store | JoinedStore, **options: Any) -> None:
        self.transaction = tx = db.transaction(**options)
        if isinstance(db, Store):
            assert isinstance(tx, Transaction)
            answer = LanceCatalog(InTransaction(db.path, tx, db.fresh_versions())).answer
        else:
            assert not isinstance(tx, Transaction)
            answer = tx.lance_catalog
        super().__init__(answer, db.path, "transaction")

    def __enter__(self) -> Self:
        self.transaction.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.transaction.__exit__(kind, error, trace)

    def commit(self) -> int:
        """Commit all statements; return the seq.

        Raises:
            ConflictError: Another commit won a table; nothing happened.
        """
        return self.transaction.commit().seq

    def rollback(self) -> None:
        """End without a trace."""
        self.transaction.rollback()


class SnapshotNamespace(_Namespace):
    """All tables at one seq, for as long as the block lasts, or until `close`."""

    def __init__(
        self, db: Store | JoinedStore, snapshot: Snapshot | JoinedSnapshot, keyed: str
    ) -> None:
        self.snapshot = snapshot
        if isinstance(db, Store):
            assert isinstance(snapshot, Snapshot)
            is_fresh = keyed == "fresh"
            fresh = None if db.is_read_only and not is_fresh else db.fresh_versions()
            answer = LanceCatalog(Pinned(db.path, snapshot, fresh, is_fresh=is_fresh)).answer
        else:
            assert not isinstance(snapshot, Snapshot)
            answer = partial(snapshot.lance_catalog, keyed=keyed)
        super().__init__(answer, db.path, f"seq {snapshot.seq}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files that the snapshot keeps."""
        self.snapshot.close()


def _described(*, schema: Any = None, **found: Any) -> spec.DescribeTableResponse:
    if schema is not None:
        found["schema"] = json_schema(schema)
    return spec.DescribeTableResponse(**found)
