"""Client: what pylance and LanceDB take as `namespace_client`, on the machine of the store.

    ns = SiltstoneNamespace(db)
    lance.write_dataset(rows, namespace_client=ns, table_id=["events"], mode="create")
    with ns.transaction() as tx:                      # several tables, all or none
        lance.dataset(namespace_client=tx, table_id=["events"]).delete("id = 3")
        lance.write_dataset(more, namespace_client=tx, table_id=["log"], mode="append")
    with ns.at(tag="audit") as past:                  # all tables at one seq
        lance.dataset(namespace_client=past, table_id=["events"])

    found = ns.query_table(QueryTableRequest(id=["events"], k=10, vector=...))    rows, no files

The operations are those of this process, or of the owner if the store was joined. Here their
answers get the classes and the errors of the specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast

import lance_namespace as spec
import lance_namespace.errors as spec_errors

from siltstone.api.store import Store
from siltstone.errors import RequestError, SiltstoneError, not_one_of
from siltstone.joined.store import JoinedStore
from siltstone.lance_namespace import scope as scopes
from siltstone.lance_namespace.operations import OPERATIONS, REFUSED, answer, rows_of
from siltstone.lance_versions.errors import code_of, sentence_of
from siltstone.lance_versions.fresh import KEYED
from siltstone.lance_versions.turns import Turns
from siltstone.local.store import LocalStore
from siltstone.operations import Effect
from siltstone.paths import Place, only_read
from siltstone.process.context_exits import close_on_exit, commit_on_exit

Answer = dict[str, Any]
Answers = Callable[[str, Mapping[str, Any], bytes | None], Answer]
_ERRORS: dict[int, type[spec_errors.LanceNamespaceError]] = {
    int(kind.code): kind
    for kind in vars(spec_errors).values()
    if isinstance(kind, type) and issubclass(kind, spec_errors.LanceNamespaceError)
}
_OTHER_NAMES = {
    "create_empty_table": "declare_table"  # its name in older versions of the specification
}
_OTHER_RESPONSES = {"list_all_tables": spec.ListTablesResponse}
_numbers = itertools.count(1)


class _ScopedNamespace(spec.LanceNamespace):
    """The operations of the specification over one scope.

    The base class refuses all others as unsupported.
    """

    def __init__(self, answers: Answers, root: Path, where: str) -> None:
        self.answers = answers
        # Lance shares what it caches between namespaces of one id: each has its own.
        self._id = f"Siltstone {{ root: {root}, {where}, {next(_numbers)} }}"

    def namespace_id(self) -> str:
        """Return an id that no other namespace has."""
        return self._id


def _method(name: str, operation: str) -> Callable[..., Any]:
    """Return the method that the specification calls `name`: it answers `operation`.

    A request is a model of the specification, or a dict; rows are an Arrow IPC stream.
    """
    response = _OTHER_RESPONSES.get(name)
    if response is None:
        response = getattr(spec, f"{name.title().replace('_', '')}Response", _plan)

    def method(self: _ScopedNamespace, request: Any) -> Any:
        return response(**_answered(self, operation, request))

    def method_with_rows(self: _ScopedNamespace, request: Any, request_data: bytes) -> Any:
        return response(**_answered(self, operation, request, request_data))

    offered = OPERATIONS.get(operation)
    made = method if offered is None or not offered.takes_rows else method_with_rows
    made.__name__, made.__qualname__ = name, f"{_ScopedNamespace.__name__}.{name}"
    made.__doc__ = f"See `{operation}` of the operations."
    return made


def _plan(plan: str) -> str:
    """Return the answer that the specification has no class for."""
    return plan


def _answered(space: _ScopedNamespace, operation: str, request: Any, *data: bytes) -> Answer:
    try:
        given = rows_of(data[0]) if data else None
        found = space.answers(operation, _members(request), given)
    except SiltstoneError as error:
        kind = _ERRORS.get(code_of(error), spec_errors.InternalError)
        raise kind(sentence_of(error)) from error
    return found


def _asked_of_owner(
    db: JoinedStore, keyed: str, operation: str, request: Mapping[str, Any], data: bytes | None
) -> Answer:
    found = OPERATIONS.get(operation)
    effect = Effect.WORK if found is None else found.effect
    return db.lance_catalog(operation, request, data, keyed=keyed, effect=effect)


def _members(request: Any) -> Mapping[str, Any]:
    """Return the members of a request.

    Raises:
        RequestError: It is none.
    """
    if isinstance(request, dict):
        return cast("Mapping[str, Any]", request)
    members = getattr(request, "to_dict", None)
    if members is None:
        kind = type(request).__name__
        raise RequestError(f"a request is a model of the specification or a dict, not {kind}")
    return members()


_NAMES = {name: name for name in (*OPERATIONS, *REFUSED)} | _OTHER_NAMES
for _name, _operation in _NAMES.items():
    setattr(_ScopedNamespace, _name, _method(_name, _operation))


class SiltstoneNamespace(_ScopedNamespace):
    """A store's tables at their newest versions; each change is a commit. Any thread."""

    def __init__(self, db: Store, *, keyed: Literal["merged", "fresh"] = "merged") -> None:
        """Serve `db`, which its caller closes; a read-only one answers reads.

        Args:
            db: An open store, of this process or of another one on this machine.
            keyed: How tables with a key are shown: "merged", as of the last merge, or "fresh", with
                all rows, at most a second old; a version with them is made when one is asked for.

        Raises:
            RequestError: No open store, or one whose files are not on this machine; another
                `keyed`, or "fresh" of a store in a bucket, where nothing can be made.
            UnavailableError: The owner of a joined store is gone.
        """
        if keyed not in KEYED:
            raise RequestError(not_one_of("keyed", keyed, KEYED))
        if isinstance(db, JoinedStore):
            answers = partial(_asked_of_owner, db, keyed)
            # Whether the files are here, and the owner can do it.
            answers("namespace_exists", {}, None)
        elif isinstance(db, LocalStore):
            if keyed != "merged" and isinstance(db.path, Place):
                raise RequestError(
                    f"a {keyed} version is a file that is made: {only_read(db.path)}"
                )
            answers = partial(answer, scopes.LiveScope(db, Turns(), is_fresh=keyed == "fresh"))
        else:
            raise RequestError(
                f"a namespace needs an open store, as connect() returns it; got {db!r:.80}"
            )
        super().__init__(answers, db.path, "live")
        self._db, self._keyed = db, keyed

    def transaction(self, **options: Any) -> TransactionNamespace:
        """Begin a transaction over all tables; `options` are those of `Store.transaction`."""
        return TransactionNamespace(self._db, **options)

    def at(
        self, *, seq: int | None = None, at: str | datetime | None = None, tag: str | None = None
    ) -> SnapshotNamespace:
        """Return all tables at one seq: at `seq`, at a moment, at a tag, or now."""
        db = self._db
        opens = db.snapshot_of_owner if isinstance(db, JoinedStore) else db.snapshot
        snapshot = opens(seq=seq, at=at, tag=tag)
        return SnapshotNamespace(self._db, snapshot, self._keyed)


class TransactionNamespace(_ScopedNamespace):
    """One transaction: its statements see each other; the block's end commits them all, or none.

    Statements of several clients go one after the other. `transaction` is siltstone's own, for
    statements on keyed tables in the same commit.
    """

    def __init__(self, db: LocalStore | JoinedStore, **options: Any) -> None:
        """Use `SiltstoneNamespace.transaction`."""
        self.transaction: Any = db.transaction(**options)
        if isinstance(db, LocalStore):
            answers = partial(answer, scopes.TransactionScope(db, self.transaction))
        else:
            answers = self.transaction.lance_catalog
        super().__init__(answers, db.path, "transaction")

    def __enter__(self) -> Self:
        self.transaction.__enter__()
        return self

    __exit__ = commit_on_exit

    @property
    def is_open(self) -> bool:
        """Whether it was neither committed nor rolled back."""
        return self.transaction.is_open

    def commit(self) -> int:
        """Commit all statements; return the seq.

        Raises:
            ConflictError: Another commit won a table; nothing happened.
        """
        return self.transaction.commit().seq

    def rollback(self) -> None:
        """End without a trace."""
        self.transaction.rollback()


class SnapshotNamespace(_ScopedNamespace):
    """All tables at one seq, for as long as the block lasts, or until `close`."""

    def __init__(self, db: LocalStore | JoinedStore, snapshot: Any, keyed: str) -> None:
        """Use `SiltstoneNamespace.at`."""
        self.snapshot = snapshot
        if isinstance(db, LocalStore):
            scope = scopes.SnapshotScope(db, snapshot, is_fresh=keyed == "fresh")
            answers = partial(answer, scope)
        else:
            answers = partial(snapshot.lance_catalog, keyed=keyed)
        super().__init__(answers, db.path, f"seq {snapshot.seq}")

    def __enter__(self) -> Self:
        return self

    __exit__ = close_on_exit

    def close(self) -> None:
        """Release the files that the snapshot keeps."""
        self.snapshot.close()
