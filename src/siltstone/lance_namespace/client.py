"""Client: what pylance and LanceDB take as `namespace_client`, on the machine of the store.

    ns = SiltstoneNamespace(db)
    lance.write_dataset(rows, namespace_client=ns, table_id=["events"], mode="create")
    with ns.transaction() as tx:                      # several tables, all or none
        lance.dataset(namespace_client=tx, table_id=["events"]).delete("id = 3")
        lance.write_dataset(more, namespace_client=tx, table_id=["log"], mode="append")
    with ns.at(tag="audit") as past:                  # all tables at one seq
        lance.dataset(namespace_client=past, table_id=["events"])

    found = ns.query_table(QueryTableRequest(id=["events"], k=10, vector=...))    rows, no files

The Lance catalog answers: of this process, or of the owner if the store was joined. Here its
answers get the classes and the errors of the specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast, runtime_checkable

import lance_namespace as spec
import lance_namespace.errors as spec_errors
import pyarrow as pa

from siltstone.errors import RequestError, SiltstoneError, not_one_of
from siltstone.formats.types.extensions import storage_type
from siltstone.lance_namespace import store_scopes as scopes
from siltstone.lance_namespace.catalog import OPERATIONS, REFUSED, LanceCatalog
from siltstone.lance_namespace.errors import code_of
from siltstone.lance_namespace.fresh import KEYED
from siltstone.lance_namespace.requests import Answer, Request
from siltstone.lance_namespace.rows import operations as rows
from siltstone.lance_namespace.turns import Turns
from siltstone.process.context_exits import close_on_exit, commit_on_exit

Answers = Callable[[str, Request, bytes | None], Answer]
_ERRORS: dict[int, type[spec_errors.LanceNamespaceError]] = {
    int(kind.code): kind
    for kind in vars(spec_errors).values()
    if isinstance(kind, type) and issubclass(kind, spec_errors.LanceNamespaceError)
}
_TYPE_NAMES = {
    "string": "utf8",
    "large_string": "large_utf8",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
}
_OTHER_NAMES = {
    "create_empty_table": "declare_table",  # its name in older versions of the specification
    "deregister_table": "drop_table",  # the store keeps no table that it does not list
}
_OTHER_RESPONSES = {"list_all_tables": spec.ListTablesResponse}
_numbers = itertools.count(1)


class OpenStore(Protocol):
    """An open store as `connect` returns it: a `LanceStore`, or an `OwnersStore`."""

    @property
    def path(self) -> Path: ...

    def snapshot(
        self, *, seq: int | None = None, at: str | datetime | None = None, tag: str | None = None
    ) -> Any: ...

    def transaction(self) -> Any: ...


@runtime_checkable
class OwnersStore(Protocol):
    """A store that another process owns, which answers; so do its snapshots and transactions."""

    @property
    def path(self) -> Path: ...

    def lance_catalog(
        self, operation: str, request: Request, data: bytes | None, *, keyed: str
    ) -> Answer: ...

    def snapshot(self, *arguments: Any, **options: Any) -> Any: ...

    def transaction(self, *arguments: Any, **options: Any) -> Any: ...


class _ScopedNamespace(spec.LanceNamespace):
    """The operations of the specification over one scope: those of the catalog.

    The base class refuses all others as unsupported.
    """

    def __init__(self, answers: Answers, root: Path, where: str) -> None:
        self.answers = answers
        # Lance shares what it caches between namespaces of one id: each has its own.
        self._id = f"Siltstone {{ root: {root}, {where}, {next(_numbers)} }}"

    def namespace_id(self) -> str:
        """Return an id that no other namespace has."""
        return self._id


def _fields(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """Return columns, or the fields of a struct, as the JSON of the specification."""
    return [{"name": f.name, "nullable": f.nullable, "type": _type(f.type)} for f in fields]


def _type(kind: pa.DataType) -> dict[str, Any]:
    kind = storage_type(kind)
    if pa.types.is_fixed_size_list(kind):
        item = _fields([kind.value_field])
        return {"type": "fixed_size_list", "fields": item, "length": kind.list_size}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed_size_binary", "length": kind.byte_width}
    for is_of, name in _NESTED:
        if is_of(kind):
            return {"type": name, "fields": _fields(_inner(kind))}
    return {"type": _TYPE_NAMES.get(str(kind), str(kind))}


def _inner(kind: Any) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


_NESTED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_list, "list"),
    (pa.types.is_large_list, "large_list"),
    (pa.types.is_map, "map"),
    (pa.types.is_struct, "struct"),
)


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

    offered = rows.OFFERED.get(operation)
    made = method if offered is None or not offered.takes_rows else method_with_rows
    made.__name__, made.__qualname__ = name, f"{_ScopedNamespace.__name__}.{name}"
    made.__doc__ = f"See `{operation}` of the Lance catalog."
    return made


def _plan(plan: str) -> str:
    """Return the answer that the specification has no class for."""
    return plan


def _answered(space: _ScopedNamespace, operation: str, request: Any, *data: bytes) -> Answer:
    try:
        given = rows.rows_of(data[0]) if data else None
        found = space.answers(operation, _members(request), given)
    except SiltstoneError as error:
        kind = _ERRORS.get(code_of(error), spec_errors.InternalError)
        raise kind(str(error)) from error
    if "schema" in found:
        found["schema"] = {"fields": _fields(found["schema"])}
    return found


def _members(request: Any) -> Request:
    """Return the members of a request.

    Raises:
        RequestError: It is none.
    """
    if isinstance(request, dict):
        return cast("Request", request)
    members = getattr(request, "to_dict", None)
    if members is None:
        kind = type(request).__name__
        raise RequestError(f"a request is a model of the specification or a dict, not {kind}")
    return members()


_NAMES = {name: name for name in (*OPERATIONS, *rows.OFFERED, *REFUSED)} | _OTHER_NAMES
for _name, _operation in _NAMES.items():
    setattr(_ScopedNamespace, _name, _method(_name, _operation))


class SiltstoneNamespace(_ScopedNamespace):
    """A store's tables at their newest versions; each change is a commit. Any thread."""

    def __init__(self, db: OpenStore, *, keyed: Literal["merged", "fresh"] = "merged") -> None:
        """Serve `db`, which its caller closes; a read-only one answers reads.

        Args:
            db: An open store, of this process or of another one on this machine.
            keyed: How tables with a key are shown: "merged", as of the last merge, or "fresh", with
                all rows, at most a second old; a version with them is made when one is asked for.

        Raises:
            RequestError: No open store, or one whose files are not on this machine; another
                `keyed`.
            UnavailableError: The owner of a joined store is gone.
        """
        if keyed not in KEYED:
            raise RequestError(not_one_of("keyed", keyed, KEYED))
        if isinstance(db, OwnersStore):
            answers = partial(db.lance_catalog, keyed=keyed)
            # Whether the files are here, and the owner can do it.
            answers("namespace_exists", {}, None)
        elif isinstance(db, scopes.LanceStore):
            answers = LanceCatalog(scopes.LiveScope(db, Turns(), is_fresh=keyed == "fresh")).answer
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
        snapshot = self._db.snapshot(seq=seq, at=at, tag=tag)
        return SnapshotNamespace(self._db, snapshot, self._keyed)


class TransactionNamespace(_ScopedNamespace):
    """One transaction: its statements see each other; the block's end commits them all, or none.

    Statements of several clients go one after the other. `transaction` is siltstone's own, for
    statements on keyed tables in the same commit.
    """

    def __init__(self, db: scopes.LanceStore | OwnersStore, **options: Any) -> None:
        """Use `SiltstoneNamespace.transaction`."""
        self.transaction: Any = db.transaction(**options)
        if isinstance(db, OwnersStore):
            answers = self.transaction.lance_catalog
        else:
            answers = LanceCatalog(scopes.TransactionScope(db, self.transaction)).answer
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

    def __init__(self, db: scopes.LanceStore | OwnersStore, snapshot: Any, keyed: str) -> None:
        """Use `SiltstoneNamespace.at`."""
        self.snapshot = snapshot
        if isinstance(db, OwnersStore):
            answers = partial(snapshot.lance_catalog, keyed=keyed)
        else:
            scope = scopes.SnapshotScope(db, snapshot, is_fresh=keyed == "fresh")
            answers = LanceCatalog(scope).answer
        super().__init__(answers, db.path, f"seq {snapshot.seq}")

    def __enter__(self) -> Self:
        return self

    __exit__ = close_on_exit

    def close(self) -> None:
        """Release the files that the snapshot keeps."""
        self.snapshot.close()
