"""Admission: decides which write sets of a group may commit. The others write nothing.

    token      seen before: the old receipt; lower than the last: refused; claimed by others: fenced
    catalog    tables still exist, the same incarnation, a schema that still fits; names free;
               tags unchanged; namespaces as they were, if tables come or they go
    versions   a plain table is still at the version on which the new one was staged
    rows       first committer wins (`recent_writes`), against earlier members of the group too
    reads      serializable only: no commit since wrote rows that were read

The leader calls it, in queue order, with the catalog as the earlier members leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions, namespaces
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.recent_writes import (
    Coded,
    ForgottenError,
    Keys,
    LostError,
    RecentWrites,
)
from siltstone.engine.commit.write_set import AdvancePart, Part, ReadSet, RowPart, WriteSet
from siltstone.engine.read.view import State
from siltstone.errors import ConflictError, FencedError, RequestError, TableExistsError
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, TableDefinition, TokenApp

APPS_MAX = 10_000


class AlreadyAppliedError(Exception):
    """The token's batch is the last applied batch: the caller gets the old receipt."""

    def __init__(self, seq: int, rows: int) -> None:
        self.seq, self.rows = seq, rows


class OlderBatchError(Exception):
    """The token's batch is below the last applied batch: the caller looks for its old receipt."""


class MovedError(Exception):
    """A plain table is no longer at the version below ours: the caller may stage again."""

    def __init__(self, table: int) -> None:
        self.table = table


class SchemaMovedError(Exception):
    """The rows have an older schema: the caller widens them, or fails."""

    def __init__(self, table: int, seq: int) -> None:
        self.table, self.seq = table, seq


class RecheckError(Exception):
    """A scanned table was written since: the caller evaluates its predicates, and resubmits.

    Where the owner of another process admits, it said the `keys` that were written up to `upto`,
    by incarnation, and `now` is a state that has them.
    """

    def __init__(
        self, upto: int, now: State | None = None, keys: Mapping[int, Sequence[Key]] | None = None
    ) -> None:
        self.upto, self.now, self.keys = upto, now, keys


def admit(write_set: WriteSet, seq: int, catalog: Catalog, recent: RecentWrites) -> Catalog:
    """Return the catalog after the write set, which gets `seq`; raise if it may not commit."""
    if write_set.planned is catalog:  # rows alone, made by these very definitions
        _check_conflicts(write_set, recent, catalog)
        return catalog
    return _admit_anew(write_set, seq, catalog, recent)


def refusal(write_set: WriteSet, error: Exception, catalog: Catalog) -> Exception:
    """Return what the caller of a write set gets for an error of its admission.

    Raises:
        MemoryError: It is the error: what is half remembered is taken back with the whole group.
    """
    if isinstance(error, MemoryError):
        raise error
    if type(error) is not LostError:
        return error
    read_seq = write_set.read_seq or 0
    try:
        part = write_set.parts[error.place]
        assert isinstance(part, RowPart)
        table = catalogs.living(catalog, part.table)
        return conflict_of(table, part.table_schema, error.found, read_seq)
    except Exception as own:  # noqa: BLE001 - it is the caller's
        return own


def _check_conflicts(write_set: WriteSet, recent: RecentWrites, catalog: Catalog) -> None:
    if write_set.read_seq is not None:
        _check_rows(write_set, write_set.read_seq, recent, catalog)
    if write_set.reads is not None:
        _check_reads(write_set, write_set.reads, recent, catalog)


def _admit_anew(write_set: WriteSet, seq: int, catalog: Catalog, recent: RecentWrites) -> Catalog:
    before = catalog
    if write_set.token is not None:
        _check_token(write_set, catalog)
    _check_unmoved(write_set, catalog)
    _check_tables(write_set, catalog)
    for entry in write_set.changes:
        _check_change(entry, catalog, write_set.read_seq)
        catalog = catalogs.apply(catalog, entry, seq, 0)
    for part in write_set.parts:
        if isinstance(part, AdvancePart):
            _check_version(part, catalog)
            catalog = catalogs.apply(catalog, part.entry, seq, 0)
    if write_set.read_seq is not None:
        _check_namespaces(write_set, write_set.read_seq, before)
        _check_rows(write_set, write_set.read_seq, recent, catalog)
        _check_anew(write_set, write_set.read_seq, before)
    if write_set.reads is not None:
        _check_reads(write_set, write_set.reads, recent, before)  # own changes are no conflict
    if write_set.token is not None:  # a later member of the group may carry the same
        catalog = catalogs.apply_token(catalog, write_set.token, seq, write_set.rows)
    return catalog


def _check_token(write_set: WriteSet, catalog: Catalog) -> None:
    token = write_set.token
    assert token is not None
    app = catalogs.app_of(catalog, token.app)
    is_other = write_set.app_since is not None and write_set.app_since != app.since
    if is_other or (write_set.claim is not None and write_set.claim != app.claim):
        raise FencedError(write_set.claim or 0, app.claim, app=app.name)
    _check_room(app, catalog)
    if token.batch == app.batch:
        raise AlreadyAppliedError(app.seq, app.rows)
    if token.batch < app.batch:
        raise OlderBatchError


def _check_unmoved(write_set: WriteSet, catalog: Catalog) -> None:
    for name, seen in write_set.unmoved:
        if catalogs.tag_of(catalog, name) != seen:
            explained = f"tag {name!r} was changed meanwhile; run the transaction again"
            read_seq = write_set.read_seq or 0
            raise ConflictError("*", "*", read_seq, read_seq + 1, explained=explained)


def _check_tables(write_set: WriteSet, catalog: Catalog) -> None:
    if not write_set.changes:
        for part in write_set.parts:
            _check_table(part, catalog, write_set.read_seq, None)
        return
    created = {e.table for e in write_set.changes if isinstance(e, group.Create)}
    renewed = {e.incarnation for e in write_set.changes if isinstance(e, group.Truncate)}
    altered = {e.table: e.schema.id for e in write_set.changes if isinstance(e, group.Alter)}
    for part in write_set.parts:
        if part.table in created:
            continue
        seen = altered.get(part.table)
        if part.incarnation not in renewed:
            _check_table(part, catalog, write_set.read_seq, seen)
        elif seen is None:  # else the order of changes of columns decides
            _check_schema(part, catalogs.living(catalog, part.table), write_set.read_seq, None)


def _check_table(part: Part, catalog: Catalog, read_seq: int | None, altered: int | None) -> None:
    table = catalogs.living(catalog, part.table)
    current = catalogs.incarnation_of(table)
    if current.id != part.incarnation:
        _conflict(table, read_seq, current.seq)
    _check_schema(part, table, read_seq, altered)


def _check_schema(
    part: Part, table: TableDefinition, read_seq: int | None, altered: int | None
) -> None:
    newest = table.schemas[-1]
    if isinstance(part, AdvancePart):
        if part.base is not None and part.base.table_schema.id != newest.schema.id:
            _conflict(table, read_seq, newest.seq)  # a base is read by the schema of its seq
    else:
        wanted = newest.schema.id if altered is None else altered
        if wanted != part.table_schema.id:
            raise SchemaMovedError(table.id, newest.seq)


def _conflict(table: TableDefinition, read_seq: int | None, written_seq: int) -> None:
    raise ConflictError(catalogs.name_of(table), "*", read_seq or 0, written_seq)


def _check_change(entry: group.Entry, catalog: Catalog, read_seq: int | None) -> None:
    if isinstance(entry, group.Create):
        _check_free(entry.name, catalog)
    elif isinstance(entry, group.Rename):
        catalogs.living(catalog, entry.table)
        _check_free(entry.name, catalog)
    elif isinstance(entry, group.Drop | group.Truncate):
        catalogs.living(catalog, entry.table)
    elif isinstance(entry, group.Alter):
        _check_next_schema(entry, catalog, read_seq)
    elif isinstance(entry, group.Tagged):
        _check_tag(entry, catalog)
    elif isinstance(entry, group.Claim | group.ForgetApp):
        _check_app(entry, catalog)
    elif isinstance(entry, group.CreateNamespace):
        namespaces.refuse_many(catalog, entry.name)


def _check_tag(entry: group.Tagged, catalog: Catalog) -> None:
    table = catalogs.table_of_tag(entry.name)
    if table is not None:  # of a dropped one no call could remove it
        catalogs.living(catalog, table)
    if entry.seq is None and catalogs.tag_of(catalog, entry.name) is None:
        raise RequestError(f"there is no tag {entry.name!r}")


def _check_next_schema(entry: group.Alter, catalog: Catalog, read_seq: int | None) -> None:
    table = catalogs.living(catalog, entry.table)
    newest = table.schemas[-1]
    if entry.schema.id != newest.schema.id + 1:
        _conflict(table, read_seq, newest.seq)


def _check_app(entry: group.Claim | group.ForgetApp, catalog: Catalog) -> None:
    if isinstance(entry, group.ForgetApp):
        definitions.forget_app(catalog, entry.app)
        return
    app = catalogs.app_of(catalog, entry.app)
    if entry.claim <= catalogs.last_claim(catalog, app):
        raise FencedError(entry.claim, app.claim, app=app.name)
    _check_room(app, catalog)


def _check_room(app: TokenApp, catalog: Catalog) -> None:
    """Every record has all apps: a name per batch would make each publish slower."""
    if len(catalog.apps) >= APPS_MAX and not app.is_known:
        oldest = catalog.apps[0]  # an app that applies a batch or claims goes to the end
        raise RequestError(
            f"{app.name!r} would be token app {len(catalog.apps) + 1}; a store keeps {APPS_MAX}"
            " until they are forgotten on request. Use one app with rising batches, or forget one"
            " that is over (`forget_token_app`): the least recently used one is"
            f" {oldest.name!r} ({_use_of(oldest)})"
        )


def _use_of(app: TokenApp) -> str:
    applied = f"batch {app.batch} at seq {app.seq}" if app.seq else ""
    claimed = f"claim {app.claim}{app.holder and f' by {app.holder!r}'}" if app.claim else ""
    return ", ".join(filter(None, (applied, claimed)))


def _check_free(name: str, catalog: Catalog) -> None:
    if name in catalogs.names(catalog):
        raise TableExistsError(name)


def _check_namespaces(write_set: WriteSet, read_seq: int, before: Catalog) -> None:
    """First committer wins between what creates or drops a namespace, and what comes into it."""
    if not write_set.changes:
        return
    since = namespaces.Since(before, read_seq)
    for entry in write_set.changes:
        found = since.collision(entry)
        if found is not None:
            written_seq = max(namespaces.changed_at(before, found), read_seq + 1)
            raise ConflictError(found, "*", read_seq, written_seq)


def _check_version(part: AdvancePart, catalog: Catalog) -> None:
    table = catalogs.living(catalog, part.table)
    current = catalogs.version_of(catalogs.incarnation_of(table))
    if (current.pin.version if current else 0) != part.from_version:
        raise MovedError(part.table)


def _check_rows(write_set: WriteSet, read_seq: int, recent: RecentWrites, catalog: Catalog) -> None:
    if read_seq < recent.floor:
        raise ForgottenError(recent.floor)
    for part in write_set.parts:
        if isinstance(part, AdvancePart):
            continue
        found = recent.conflict(
            part.incarnation, read_seq, part.keys(), part.table_schema.codec.code
        )
        if found is not None:
            table = catalogs.living(catalog, part.table)
            raise conflict_of(table, part.table_schema, found, read_seq)
    for entry in write_set.changes:
        if isinstance(entry, group.Drop | group.Truncate):
            _check_unwritten(catalogs.by_id(catalog, entry.table), read_seq, recent)


def _check_unwritten(table: TableDefinition | None, read_seq: int, recent: RecentWrites) -> None:
    """To drop or truncate a table is to write all of it."""
    assert table is not None  # its change was applied
    for step in table.incarnations:
        seq = recent.written_since(step.id, read_seq)
        if seq:
            _conflict(table, read_seq, seq)


def _check_anew(write_set: WriteSet, read_seq: int, before: Catalog) -> None:
    """A truncate conflicts with every open writer, so with one who drops or truncates, too.

    A drop conflicts with a rename.
    """
    for entry in write_set.changes:
        if isinstance(entry, group.Drop | group.Truncate):
            table = catalogs.by_id(before, entry.table)
            if table is not None:  # else this transaction makes it
                is_drop = isinstance(entry, group.Drop)  # of the table that had the name then
                renewed = catalogs.incarnation_of(table).seq
                changed = max(renewed, table.names[-1].seq) if is_drop else renewed
                if changed > read_seq:
                    _conflict(table, read_seq, changed)


def _check_reads(
    write_set: WriteSet, reads: ReadSet, recent: RecentWrites, catalog: Catalog
) -> None:
    read_seq = write_set.read_seq or 0
    for incarnation, keys in reads.keys.items():
        table = _still_there(catalog, incarnation, read_seq)
        table_schema = table_schema_of(catalogs.schema_of(table))
        found = recent.conflict(incarnation, read_seq, Keys(list(keys)), table_schema.codec.code)
        if found is not None:
            raise conflict_of(table, table_schema, found, read_seq)
    upto = 0
    for incarnation in reads.scans:
        _still_there(catalog, incarnation, read_seq)
        upto = max(upto, recent.written_since(incarnation, reads.checked))
    if upto:
        raise RecheckError(upto)
    for incarnation, version in reads.versions.items():
        table = _still_there(catalog, incarnation, read_seq)
        step = catalogs.incarnation_of(table)
        if catalogs.has_changed(step, version):
            _conflict(table, read_seq, step.versions[-1].seq)


def _still_there(catalog: Catalog, incarnation: int, read_seq: int) -> TableDefinition:
    """A serializable read of a table that was dropped or truncated since does not hold."""
    table = catalogs.owner_of(catalog, incarnation)
    current = catalogs.incarnation_of(table)
    if current.id != incarnation and current.seq > read_seq:
        _conflict(table, read_seq, current.seq)
    if table.dropped is not None and table.dropped > read_seq:
        _conflict(table, read_seq, table.dropped)
    return table


def conflict_of(
    table: TableDefinition, table_schema: TableSchema, found: tuple[object, int], read_seq: int
) -> ConflictError:
    """Return the refusal for a key that another commit wrote; it names it as its user reads it.

    "*": the whole table, or a hash is all we have, or Python has no value for the key.
    """
    key, seq = found
    if isinstance(key, Coded):
        key = table_schema.codec.key_of_code(key.code) if table_schema.codec.exact else "*"
    try:
        shown = key if key == "*" else table_schema.codec.to_user(key)
    except (OverflowError, ValueError):  # a date after 9999, or nanoseconds without pandas
        shown = "*"
    return ConflictError(catalogs.name_of(table), shown, read_seq, seq)
