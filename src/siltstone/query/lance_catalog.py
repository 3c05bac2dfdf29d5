"""Lance catalog: a store as a Lance Namespace, in the words of its spec, over plain values.

    request, answer    dicts as they stand in JSON; `namespace` gives them the classes of Python,
                       a server the routes
    scope              where statements go: each its own commit, an open transaction, a snapshot

A plain table is versions that clients stage and this commits; a keyed one is read as of its last
merge. A table `t` in the namespace `db` is the table `db.t` of the store: there is the root, and
one level below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from siltstone.engine.read.table_versions import TableVersion, TableVersions
from siltstone.errors import ConflictError, RequestError, TableNotFoundError
from siltstone.query.lance_errors import (
    InvalidTableStateError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
    VersionNotFoundError,
)
from siltstone.storage.tables.tables import ForeignVersion, OtherLineError

OPERATIONS_MAX = 1_000
PAGE_MAX = 10_000
Request = Mapping[str, Any]
Answer = dict[str, Any]


READS = frozenset(
    (
        *("list_namespaces", "describe_namespace", "namespace_exists"),
        *("create_namespace", "drop_namespace"),  # which are refused, or there already
        *("list_tables", "list_all_tables", "describe_table", "table_exists"),
        *("list_table_branches", "list_table_versions", "describe_table_version"),
    )
)
WRITES = frozenset(
    (
        *("declare_table", "drop_table", "rename_table", "create_table_version"),
        *("batch_create_table_versions", "batch_delete_table_versions", "batch_commit_tables"),
    )
)


class Reads(Protocol):
    """What answers about tables: a snapshot, or a transaction with its own statements."""

    def tables(self) -> list[str]: ...

    def versions(self, name: str, /) -> TableVersions: ...


class Statements(Reads, Protocol):
    """What changes tables: a transaction."""

    def declare_table(self, name: str) -> None: ...

    def begin_versions(self, name: str) -> None: ...

    def take_over(self, name: str, given: ForeignVersion) -> TableVersion: ...

    def hide_versions(self, name: str, first: int, end: int) -> int: ...

    def drop_table(self, name: str) -> object: ...

    def rename_table(self, name: str, new_name: str) -> object: ...


class Scope(Protocol):
    """Where requests go; `root` is the store's directory."""

    @property
    def root(self) -> Path: ...

    @property
    def is_writable(self) -> bool: ...

    def reading(self) -> AbstractContextManager[Reads]: ...

    def writing(self) -> AbstractContextManager[Statements]:
        """Give a transaction whose changes are committed at the end, or later by its owner."""
        ...

    def turn(self, name: str) -> AbstractContextManager[object]:
        """Let requests that commit to one table follow each other: who lost finds out at once."""
        ...

    def note_refused(self, name: str, number: int) -> None:
        """Note that a version of that number was refused to a client, which asks for it next."""
        ...

    def was_refused(self, name: str, number: int) -> bool: ...

    def transaction_id(self) -> str | None:
        """Return the id of the last commit through `writing`; None: not committed yet."""
        ...


class LanceCatalog:
    """See the module. Every method may raise errors of `errors` and `lance_errors`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def answer(self, operation: str, request: Request) -> Answer:
        """Answer a request by the name of its operation, one of `READS` and `WRITES`."""
        if operation not in READS | WRITES:
            raise UnsupportedOperationError(f"there is no operation {operation!r:.80}")
        return getattr(self, operation)(request)

    # namespaces

    def list_namespaces(self, request: Request) -> Answer:
        """List the namespaces below the root; there are none below those."""
        if _path(request):
            self.describe_namespace(request)
            return {"namespaces": []}
        with self._scope.reading() as db:
            found = {ids[0] for ids in map(_ids, db.tables()) if len(ids) > 1}
        return _page(sorted(found), request, "namespaces")

    def describe_namespace(self, request: Request) -> Answer:
        """Say that a namespace exists: the root does, and what has a table."""
        path = _path(request)
        with self._scope.reading() as db:
            if path and not any(name.startswith(f"{path}.") for name in db.tables()):
                raise NamespaceNotFoundError(path)
        return {"properties": {}}

    def namespace_exists(self, request: Request) -> Answer:
        """Raise NamespaceNotFoundError unless the namespace is there."""
        self.describe_namespace(request)
        return {}

    def create_namespace(self, request: Request) -> Answer:
        """Say that a namespace is there already; a new one comes with its first table."""
        path, mode = _path(request), str(request.get("mode") or "create")
        try:
            self.describe_namespace(request)
        except NamespaceNotFoundError:
            reason = f"the namespace {path!r} comes with its first table: create the table in it"
            raise UnsupportedOperationError(reason) from None
        if mode.replace("_", "").lower() != "existok":
            raise NamespaceExistsError(path or "$")
        return {"properties": {}}

    def drop_namespace(self, request: Request) -> Answer:
        """Refuse to drop a namespace: it is there as long as it has a table."""
        self.describe_namespace(request)
        raise NamespaceNotEmptyError(_path(request) or "$")

    # tables

    def list_tables(self, request: Request) -> Answer:
        """List the tables of a namespace, by their short names."""
        path = _path(request)
        with self._scope.reading() as db:
            names = db.tables()
            if not request.get("include_declared", True):
                names = [name for name in names if len(db.versions(name).schema)]
        if path and not any(name.startswith(f"{path}.") for name in names):
            raise NamespaceNotFoundError(path)
        above = [path] if path else []
        inside = [ids[-1] for ids in map(_ids, names) if ids[:-1] == above]
        return _page(sorted(inside), request, "tables")

    def list_all_tables(self, request: Request) -> Answer:
        """List all tables by their full names, `db$t`."""
        with self._scope.reading() as db:
            names = sorted("$".join(_ids(name)) for name in db.tables())
        return _page(names, request, "tables")

    def declare_table(self, request: Request) -> Answer:
        """Create a plain table without columns; its first version brings them."""
        with self._scope.writing() as tx:
            found = self._declare(tx, request)
        return found | self._by_transaction()

    def _declare(self, tx: Statements, request: Request) -> Answer:
        if request.get("location"):
            raise RequestError("a location cannot be chosen: tables lie in the store's directory")
        tx.declare_table(_table(request))
        folder = tx.versions(_table(request)).folder
        return {"location": str(self._scope.root / folder), "managed_versioning": True}

    def describe_table(self, request: Request) -> Answer:
        """Say where a table lies; with `load_detailed_metadata` also its version and schema."""
        name = _table(request)
        seen = self._known(name)
        if (
            self._scope.is_writable
            and seen.newest is None
            and not seen.is_keyed
            and len(seen.schema)
        ):
            with self._scope.writing() as tx:
                tx.begin_versions(name)
            seen = self._known(name)
        location = str(self._scope.root / seen.folder)
        ids = _ids(name)
        answer: Answer = {
            "table": ids[-1],
            "namespace": ids[:-1],
            "location": location,
            "managed_versioning": True,
            "is_only_declared": not len(seen.schema),
            "properties": {"siltstone.kind": "keyed" if seen.is_keyed else "plain"},
        }
        if request.get("with_table_uri"):
            answer["table_uri"] = location
        wanted = request.get("version")
        if wanted is not None:
            answer["version"] = _listed(seen, wanted).number
        elif request.get("load_detailed_metadata") and seen.newest is not None:
            answer["version"] = seen.newest.number
        if request.get("load_detailed_metadata"):
            answer["schema"] = seen.schema
        return answer

    def table_exists(self, request: Request) -> Answer:
        """Raise TableNotFoundError unless the table is there."""
        self._known(_table(request))
        return {}

    def drop_table(self, request: Request) -> Answer:
        """Drop a table; snapshots see it until the retention is over, then its files go."""
        name = _table(request)
        with self._scope.writing() as tx:
            location = str(self._scope.root / tx.versions(name).folder)
            tx.drop_table(name)
        return {"id": _ids(name), "location": location} | self._by_transaction()

    def rename_table(self, request: Request) -> Answer:
        """Rename a table, also into another namespace."""
        name, space = _table(request), request.get("new_namespace_id")
        ids = _ids(name)[:-1] if space is None else [_word(part) for part in space]
        with self._scope.writing() as tx:
            tx.rename_table(name, _name([*ids, request.get("new_table_name")]))
        return self._by_transaction()

    def list_table_branches(self, request: Request) -> Answer:
        """Say that a table has no branch but main, which is not listed."""
        self._known(_table(request))
        return {"branches": {}}

    # versions

    def list_table_versions(self, request: Request) -> Answer:
        """List versions by their numbers, as `descending` and `limit` ask."""
        _refuse_branch(request)
        versions = [v for v in self._known(_table(request)).versions if not v.is_hidden]
        if request.get("descending"):
            versions.reverse()
        page = _page(versions, request, "versions")
        return page | {"versions": [self._shown(version) for version in page["versions"]]}

    def describe_table_version(self, request: Request) -> Answer:
        """Describe one version; without a number the newest."""
        _refuse_branch(request)
        seen = self._known(_table(request))
        wanted = request.get("version")
        if wanted is None and seen.newest is not None:
            wanted = seen.newest.number
        # Of a number that was skipped Lance wants to know who took it before it tries a higher one.
        if type(wanted) is int and seen.has_skipped(wanted):
            after = seen.after(wanted)
            assert after is not None
            return {"version": self._shown(after) | {"version": wanted}}
        if type(wanted) is int and self._is_refused(seen, wanted):
            assert seen.newest is not None
            return {"version": self._shown(seen.newest) | {"version": wanted}}
        return {"version": self._shown(_listed(seen, wanted))}

    def _is_refused(self, seen: TableVersions, number: int) -> bool:
        """Say whether a client asks for a version that was just refused to it.

        Whatever the error is, Lance looks who has the number: where it finds nobody it says that
        the outcome is unknown, and of another's version that the commit failed by a conflict.
        """
        is_above = seen.newest is not None and number > seen.newest.number
        return is_above and self._scope.was_refused(seen.name, number)

    def create_table_version(self, request: Request) -> Answer:
        """Commit a version that a client staged, on top of the newest one."""
        name = _table(request)
        try:
            with self._scope.turn(name), self._scope.writing() as tx:
                made = _take_over(tx, request)
        except ConflictError as error:
            self._refuse_unknown(name, request.get("version"), error)
            raise
        except OtherLineError as error:
            self._scope.note_refused(name, _number(request.get("version")))
            raise InvalidTableStateError(str(error)) from error
        return {"version": self._shown(made)} | self._by_transaction()

    def batch_create_table_versions(self, request: Request) -> Answer:
        """Commit versions of many tables, all or none."""
        entries = _bounded(request.get("entries"), "entries")
        _refuse_twice([(_table(entry), entry.get("version")) for entry in entries])
        with self._scope.writing() as tx:
            made = [_take_over(tx, entry) for entry in entries]
        return {"versions": [self._shown(version) for version in made]} | self._by_transaction()

    def batch_delete_table_versions(self, request: Request) -> Answer:
        """List versions no more, by ranges; snapshots read them until the retention is over."""
        with self._scope.writing() as tx:
            count = _hide(tx, request)
        return {"deleted_count": count} | self._by_transaction()

    def batch_commit_tables(self, request: Request) -> Answer:
        """Commit operations on many tables in one step: all or none, results in their order."""
        given = _bounded(request.get("operations"), "operations")
        operations = [_operation(each) for each in given]
        _refuse_twice(
            [(_table(r), r.get("version")) for k, r in operations if k == "create_table_version"]
        )
        with self._scope.writing() as tx:
            made = [(kind, self._apply(tx, kind, each)) for kind, each in operations]
        committed = self._by_transaction()
        return {"results": [{kind: answer} for kind, answer in made]} | committed

    def _apply(self, tx: Statements, kind: str, request: Request) -> Answer:
        name = _table(request)
        if kind == "declare_table":
            return self._declare(tx, request)
        if kind == "create_table_version":
            return {"version": self._shown(_take_over(tx, request))}
        if kind == "delete_table_versions":
            return {"deleted_count": _hide(tx, request)}
        location = str(self._scope.root / tx.versions(name).folder)
        tx.drop_table(name)
        return {"id": _ids(name), "location": location}

    # parts

    def _known(self, name: str) -> TableVersions:
        with self._scope.reading() as db:
            return db.versions(name)

    def _shown(self, version: TableVersion) -> Answer:
        pin = version.pin
        return {
            "version": version.number,
            "manifest_path": str(self._scope.root / pin.path).removeprefix("/"),
            "manifest_size": pin.size,
            "e_tag": f'"{pin.xxh3}"',
            "metadata": {"siltstone.seq": str(version.seq)} if version.seq else {},
            **_written(self._scope.root / pin.path),
        }

    def _refuse_unknown(self, name: str, number: object, error: ConflictError) -> None:
        """Turn a conflict over a number that no version has into an error that says so.

        Told that a version exists, Lance looks for it, and says of one that it cannot find that the
        outcome is unknown. It is not: nothing was committed.
        """
        if self._known(name).after(_number(number)) is None:
            self._scope.note_refused(name, _number(number))
            reason = f"{name!r} was changed by another commit; open it again"
            raise InvalidTableStateError(reason) from error

    def _by_transaction(self) -> Answer:
        found = self._scope.transaction_id()
        return {} if found is None else {"transaction_id": found}


def _written(manifest: Path) -> Answer:
    """Return when a manifest was written, which LanceDB wants to know of every version."""
    try:
        return {"timestamp_millis": int(manifest.stat().st_mtime * 1e3)}
    except OSError:  # a version that is listed is there; its time alone is no reason to fail
        return {}


def _take_over(tx: Statements, request: Request) -> TableVersion:
    _refuse_branch(request)
    given = ForeignVersion(
        _number(request.get("version")),
        request.get("manifest_path") or "",
        request.get("manifest_size"),
    )
    return tx.take_over(_table(request), given)


def _hide(tx: Statements, request: Request) -> int:
    _refuse_branch(request)
    name, count = _table(request), 0
    for each in _bounded(request.get("ranges"), "ranges"):
        first, end = each.get("start_version"), each.get("end_version")
        first, end = 0 if first is None else first, 1 << 63 if end is None or end < 0 else end
        count += tx.hide_versions(name, _number(first, least=0), _number(end, least=0))
    return count


_KINDS = (
    *("declare_table", "create_table_version"),
    *("delete_table_versions", "deregister_table"),
)


def _operation(given: Request) -> tuple[str, Request]:
    found = [(kind, each) for kind, each in given.items() if each is not None]
    if len(found) != 1 or found[0][0] not in _KINDS:
        kinds = [kind for kind, _ in found]
        raise RequestError(f"an operation is one of {_KINDS}, not {kinds}")
    return found[0]


def _refuse_twice(made: Sequence[tuple[str, object]]) -> None:
    for name, number in made:
        if made.count((name, number)) > 1:
            raise RequestError(f"version {number} of {name!r} comes twice in one request")


def _bounded(found: Any, what: str) -> list[Request]:
    if not isinstance(found, list | tuple) or not 0 < len(found) <= OPERATIONS_MAX:
        size = len(found) if isinstance(found, list | tuple) else 0
        raise RequestError(f"a request has 1 to {OPERATIONS_MAX} {what}, not {size}")
    return list(found)


def _listed(seen: TableVersions, number: object) -> TableVersion:
    found = seen.find(_number(number)) if number is not None else None
    if found is None or found.is_hidden:
        raise VersionNotFoundError(seen.name, number)
    return found


def _number(found: object, least: int = 1) -> int:
    if type(found) is not int or not least <= found <= 1 << 63:
        raise RequestError(f"a version is an integer from {least}, not {found!r}")
    return found


def _refuse_branch(request: Request) -> None:
    if request.get("branch") not in {None, "", "main"}:
        raise UnsupportedOperationError(f"there is no branch {request['branch']!r}, only main")


def _path(request: Request) -> str:
    """Return the namespace that a request is about; "" is the root."""
    ids = [_word(part) for part in request.get("id") or []]
    if len(ids) > 1:
        raise NamespaceNotFoundError("$".join(ids))
    return ids[0] if ids else ""


def _table(request: Request) -> str:
    return _name(request.get("id") or [])


def _name(ids: Sequence[object]) -> str:
    words = [_word(part) for part in ids]
    if not 0 < len(words) <= 2 or (len(words) == 2 and "." in words[0]):
        raise TableNotFoundError("$".join(words))
    return ".".join(words)


def _ids(name: str) -> list[str]:
    head, dot, tail = name.partition(".")
    return [head, tail] if dot and head and tail else [name]


def _word(part: object) -> str:
    if not isinstance(part, str) or not part or len(part) > 128:
        raise RequestError(f"a part of an id is a string of 1 to 128 characters, not {part!r}")
    return part


def _page(found: list[Any], request: Request, what: str) -> Answer:
    """Return one page; the token is how many were before it."""
    token, limit = request.get("page_token"), request.get("limit")
    if token is not None and not (isinstance(token, str) and token.isdecimal()):
        raise RequestError(f"{token!r} is no page token of this namespace")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise RequestError(f"a limit is an integer from 0, not {limit!r}")
    start = int(token or 0)
    end = start + min(PAGE_MAX, len(found) if limit is None else limit)
    answer: Answer = {what: found[start:end]}
    return answer | {"page_token": str(end)} if end < len(found) and end > start else answer
