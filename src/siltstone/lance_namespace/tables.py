"""Tables: the operations on tables as a whole, by their names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from siltstone.bucket_url import is_bucket_url
from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.errors import RequestError, TableNotFoundError, UnavailableError
from siltstone.lance_namespace.namespaces import in_namespace, require_namespace
from siltstone.lance_namespace.rows.creation import PRIMARY_KEY
from siltstone.lance_namespace.rows.version_numbers import schema_then
from siltstone.lance_namespace.scope import ClientReads, Scope, known, location_of
from siltstone.lance_namespace.specification import bodies, ids
from siltstone.lance_namespace.specification.pages import page
from siltstone.lance_namespace.specification.schema_json import schema_json
from siltstone.lance_versions.errors import invalid
from siltstone.lance_versions.table_versions import ROW_OPERATIONS, TableVersions
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.local.transaction import LocalTransaction

DELIMITER = "$"
"""What stands between the levels of an id in one word."""


def list_tables(scope: Scope, asked: bodies.ListTablesRequest) -> tuple[bodies.TablesAnswer, int]:
    """List the tables of a namespace, by their short names.

    Raises:
        NamespaceNotFoundError: There is no such namespace.
    """
    path = ids.namespace_of(asked)
    with scope.reading() as db:
        require_namespace(db, path)
        names, seq = _shown(db, asked.include_declared), db.seq
    found, token = page(in_namespace(path, names), asked)
    return bodies.TablesAnswer(found, page_token=token), seq


def list_all_tables(
    scope: Scope, asked: bodies.ListAllTablesRequest
) -> tuple[bodies.TablesAnswer, int]:
    """List all tables by their ids in one word, `a$b$t`, or with another delimiter."""
    if asked.id:
        raise invalid("list_all_tables is of all namespaces: leave the id out, or ask list_tables")
    with scope.reading() as db:
        names, seq = _shown(db, asked.include_declared), db.seq
    delimiter = asked.delimiter or DELIMITER
    found, token = page(sorted(delimiter.join(ids.ids_of(name)) for name in names), asked)
    return bodies.TablesAnswer(found, page_token=token), seq


def _shown(db: ClientReads, include_declared: bool | None) -> list[str]:
    """Return the names of all tables, or of those that have columns."""
    if include_declared is not False:
        return db.tables()
    return [name for name in db.tables() if len(db.seen(name).schema)]


def declare_table(
    scope: Scope, asked: bodies.DeclareRequest
) -> tuple[bodies.DeclareAnswer, int | None]:
    """Create a plain table without columns; its first version brings them."""

    def work(tx: LocalTransaction) -> str:
        return declare(scope, tx.lance, asked).location

    location, commit = scope.write(work, str(scope.root))
    return commit.told(bodies.DeclareAnswer(location, managed_versioning=True))


def describe_table(
    scope: Scope, asked: bodies.DescribeTableRequest
) -> tuple[bodies.TableAnswer, int]:
    """Return where a table lies; with `load_detailed_metadata` also its version and schema.

    They are those of `version`: of a keyed table a seq, of a plain one a number.

    Raises:
        VersionNotFoundError, Refused, SnapshotExpiredError: It has no such version, or not any
            more.
    """
    name = ids.table_of(asked)
    seen, seq = _begun(scope, name)
    version, schema = _newest_of(seen, seq), seen.table_schema
    if asked.version is not None:
        version = asked.version
        schema, seq = schema_then(scope.db.core, seen, version, seq)
    location = location_of(scope, seen.folder)
    levels = ids.ids_of(name)
    answer = bodies.TableAnswer(
        table=levels[-1],
        namespace=levels[:-1],
        location=location,
        managed_versioning=True,
        is_only_declared=not len(schema.arrow),
        properties=_properties(scope, seen, schema),
    )
    if asked.with_table_uri:
        _name_newest(scope, seen)
        answer.table_uri = location if is_bucket_url(location) else Path(location).as_uri()
    if asked.load_detailed_metadata:
        answer.schema = schema_json(schema.shown)
    if asked.load_detailed_metadata or asked.version is not None:
        answer.version = version
    return answer, seq


def _newest_of(seen: TableVersions, seq: int) -> int | None:
    """Return the version that a table has at `seq`; a plain one may have none yet."""
    if seen.is_keyed:
        return seq
    return None if seen.newest is None else seen.newest.pin.version


def _name_newest(scope: Scope, seen: TableVersions) -> None:
    """Give the newest version of a plain table its public name, for who opens it by its path.

    Without, it has one from the next checkpoint on.
    """
    if not seen.is_keyed and seen.committed and not scope.db.is_read_only:
        with suppress(UnavailableError):  # it opens an older one, as every reader of a path
            scope.db.core.tables.names.show(seen.folder, [seen.committed[-1].pin])


def _properties(scope: Scope, seen: TableVersions, schema: TableSchema) -> dict[str, str]:
    """Return what a client can do with a table: of a refused commit Lance tells no reason."""
    found = {"siltstone.kind": "keyed" if seen.is_keyed else "plain"}
    if seen.is_keyed:
        found[PRIMARY_KEY] = ",".join(schema.codec.names)
        found["siltstone.written_by"] = ",".join(ROW_OPERATIONS)
    refusal = scope.turns.refusal_of(seen.name)
    return found if refusal is None else found | {"siltstone.refused": refusal}


def _begun(scope: Scope, name: str) -> tuple[TableVersions, int]:
    """Return a table; a plain one with columns gets its first version, if it has none."""
    with scope.reading() as db:
        seen, seq = known(scope, name, db.versions), db.seq
    has_none = seen.newest is None and not seen.is_keyed and len(seen.schema) > 0
    if not (has_none and scope.is_writable):
        return seen, seq
    with scope.writing(is_asked=False) as tx:
        tx.lance.begin_versions(name)
    with scope.reading() as db:
        return known(scope, name, db.versions), db.seq


def table_exists(scope: Scope, asked: bodies.TableExistsRequest) -> tuple[bodies.NoMembers, int]:
    """Answer nothing, or that there is no such table, or not in that version."""
    name = ids.table_of(asked)
    with scope.reading() as db:
        seen = known(scope, name, db.seen if asked.version is None else db.versions)
        if asked.version is not None:
            schema_then(scope.db.core, seen, asked.version, db.seq)
        return bodies.NoMembers(), db.seq


def drop_table(
    scope: Scope, asked: bodies.TableRequest
) -> tuple[bodies.DropTableAnswer, int | None]:
    """Drop a table with its rows. Snapshots see it until the retention is over."""
    name, seen = ids.table_of(asked), SameTable(ids.table_of(asked))

    def work(tx: LocalTransaction) -> str:
        seen.require(tx)
        return drop(scope, tx.lance, asked).location

    # What an applied token did before, it does not say.
    location, commit = scope.write(work, str(scope.root))
    return commit.told(bodies.DropTableAnswer(ids.ids_of(name), location))


@dataclass
class SameTable:
    """The table that a statement found at its first try: another may take its name meanwhile."""

    name: str
    _id: int | None = None

    def require(self, tx: LocalTransaction) -> None:
        """Note the table, or see that it is the one of the first try.

        Raises:
            TableNotFoundError: It was dropped or renamed since; nothing was changed.
        """
        found = tx.named(self.name).id
        if self._id is None:
            self._id = found
        if found != self._id:
            why = "it was dropped or renamed by another commit"
            raise TableNotFoundError(self.name, why=why)


def deregister_table(
    scope: Scope, asked: bodies.TableRequest
) -> tuple[bodies.DropTableAnswer, int | None]:
    """Drop a table: the store keeps none that it does not list."""
    return drop_table(scope, asked)


def rename_table(
    scope: Scope, asked: bodies.RenameTableRequest
) -> tuple[bodies.CommittedAnswer, int | None]:
    """Rename a table, in its namespace or into the one that is named."""
    name = ids.table_of(asked)
    space = asked.new_namespace_id
    if asked.new_namespace and space is not None and asked.new_namespace != space:
        raise invalid("new_namespace and new_namespace_id name two namespaces: give one")
    space = ids.ids_of(name)[:-1] if space is None and not asked.new_namespace else space
    new_name = ids.name_of([*(asked.new_namespace or space or []), asked.new_table_name])

    seen = SameTable(name)

    def work(tx: LocalTransaction) -> None:
        seen.require(tx)
        tx.rename_table(name, new_name)

    _, commit = scope.write(work, None)
    return commit.told(bodies.CommittedAnswer())


def list_table_branches(
    scope: Scope, asked: bodies.TablePageRequest
) -> tuple[bodies.BranchesAnswer, int]:
    """Return the branches of a table besides main: it has none."""
    with scope.reading() as db:
        known(scope, ids.table_of(asked), db.seen)
        names, _ = page(list[str](), asked)
        return bodies.BranchesAnswer(dict.fromkeys(names)), db.seq


def declare(
    scope: Scope, statements: VersionStatements, asked: bodies.DeclareRequest
) -> bodies.DeclareAnswer:
    """Declare a table as a statement of a transaction."""
    if asked.location:
        raise RequestError("the location of a table cannot be chosen: tables lie in the store")
    name = ids.table_of(asked)
    statements.tx.declare_table(name)
    folder = statements.versions(name).folder
    return bodies.DeclareAnswer(location_of(scope, folder), managed_versioning=True)


def drop(
    scope: Scope, statements: VersionStatements, asked: bodies.TableRequest
) -> bodies.DropTableAnswer:
    """Drop a table as a statement of a transaction."""
    name = ids.table_of(asked)
    location = location_of(scope, statements.folder(name))
    statements.tx.drop_table(name)
    return bodies.DropTableAnswer(ids.ids_of(name), location)
