"""Catalog: the definitions of frames (tables, namespaces, tags, token apps), an immutable value.

Every change is `apply(catalog, entry, seq)`: the leader calls it after the log has the frame, and
recovery calls it with the same entries in the same order, so both get the same value. A table keeps
its past names, schemas and incarnations with the seqs at which they began, so that a read at any
kept seq uses the names and columns of that seq.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import TypeVar

import msgspec

from siltstone.errors import RequestError, TableNotFoundError
from siltstone.formats.log import group
from siltstone.formats.manifest import (
    Catalog,
    ForgottenApps,
    Incarnation,
    Named,
    NamespaceDefinition,
    Schema,
    Shaped,
    TableDefinition,
    Tag,
    TokenApp,
    Version,
)
from siltstone.units import require

_T = TypeVar("_T", Named, Shaped, Incarnation, Version)
_NEWEST = 1 << 62
SUPERSEDED_MAX = 8


def _at(steps: Sequence[_T], seq: int) -> _T | None:
    """Return the step in force at `seq`; steps are in seq order."""
    if steps and steps[-1].seq <= seq:
        return steps[-1]
    index = bisect_right(steps, seq, key=lambda step: step.seq)
    return steps[index - 1] if index else None


def is_alive(table: TableDefinition, seq: int = _NEWEST) -> bool:
    """Return whether the table exists at `seq` (default: now)."""
    return table.created <= seq and (table.dropped is None or table.dropped > seq)


def name_of(table: TableDefinition, seq: int = _NEWEST) -> str:
    """Return the table's name at `seq`."""
    return (_at(table.names, seq) or table.names[0]).name


def named_from(table: TableDefinition, seq: int) -> int:
    """Return the seq at which the table took the name that it has at `seq`."""
    name, took = name_of(table, seq), table.names[0].seq
    before = ""
    for at, step in _renames(table):
        if at <= seq and step == name != before:
            took = at
        before = step
    return took


def named_again(table: TableDefinition, name: str, seq: int) -> int:
    """Return the lowest seq from `seq` on at which the table has a name that it has some day."""
    if is_alive(table, seq) and name_of(table, seq) == name:
        return seq
    return min(at for at, step in _renames(table) if at > seq and step == name)


def named_until(table: TableDefinition, seq: int) -> int:
    """Return the seq at which the table lost the name that it has at `seq`; it has lost it."""
    name = name_of(table, seq)
    ends = [at for at, step in _renames(table) if at > seq and step != name]
    return min([*ends, *(() if table.dropped is None else (table.dropped,))])


def _renames(table: TableDefinition) -> Iterable[tuple[int, str]]:
    """Return the names that anybody could see: the last one of each seq."""
    return {step.seq: step.name for step in table.names}.items()


def schema_of(table: TableDefinition, seq: int = _NEWEST) -> Schema:
    """Return the table's schema at `seq`."""
    return (_at(table.schemas, seq) or table.schemas[0]).schema


def incarnation_of(table: TableDefinition, seq: int = _NEWEST) -> Incarnation:
    """Return the table's storage at `seq`."""
    return _at(table.incarnations, seq) or table.incarnations[0]


def version_of(incarnation: Incarnation, seq: int = _NEWEST) -> Version | None:
    """Return the plain version (or the bulk load) in force at `seq`; None: still empty."""
    return _at(incarnation.versions, seq)


def versions_of(table: TableDefinition, incarnation: int) -> Sequence[Version]:
    """Return the versions of one of the incarnations of a plain table."""
    return next((step.versions for step in table.incarnations if step.id == incarnation), ())


def has_changed(incarnation: Incarnation, version: int) -> bool:
    """Return whether a plain table has other rows than at a version; an optimize changes none."""
    newer = takewhile(lambda step: step.pin.version > version, reversed(incarnation.versions))
    return any(not step.is_same_rows for step in newer)


def same_rows_seqs(table: TableDefinition) -> Iterable[int]:
    """Return the seqs at which an optimize moved a plain table, and no row of it changed."""
    versions = (version for step in table.incarnations for version in step.versions)
    return (version.seq for version in versions if version.is_same_rows)


def find(catalog: Catalog, name: str, seq: int = _NEWEST) -> TableDefinition:
    """Return the table with the name `name` at `seq`.

    Raises:
        TableNotFoundError: There is no such table.
    """
    if seq == _NEWEST:
        living = _living(catalog)
        if not isinstance(name, str):
            raise TableNotFoundError(name, why="a table name must be a string")
        found = living.get(name)
        if found is None:
            raise TableNotFoundError(name, sorted(living))
        return found
    table = called(catalog, name, seq)
    if table is None:
        raise TableNotFoundError(name, names(catalog, seq), seq=seq)
    return table


def called(catalog: Catalog, name: str, seq: int) -> TableDefinition | None:
    """Return the table that had a name at `seq`; None: none had it."""
    alive = (table for table in catalog.tables if is_alive(table, seq))
    return next((table for table in alive if name_of(table, seq) == name), None)


def id_of(catalog: Catalog, name: str | None) -> int | None:
    """Return the id of the existing table with a name; None (all tables) stays None.

    Raises:
        RequestError: `name` is not a string.
        TableNotFoundError: No table has the name now.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise RequestError(f"a table name must be a string; got {name!r}")
    return find(catalog, name).id


_LIVING_MAX = 16
_living_memo: dict[int, tuple[Catalog, dict[str, TableDefinition]]] = {}


def _living(catalog: Catalog) -> dict[str, TableDefinition]:
    """Return the living tables by name; a memo by identity, for a catalog rarely changes."""
    memo = _living_memo.get(id(catalog))
    if memo is not None and memo[0] is catalog:
        return memo[1]
    found = {name_of(table): table for table in catalog.tables if is_alive(table)}
    if len(_living_memo) >= _LIVING_MAX:
        _living_memo.clear()
    _living_memo[id(catalog)] = (catalog, found)
    return found


def by_id(catalog: Catalog, table_id: int) -> TableDefinition | None:
    """Return the table with that id, alive or dropped."""
    index = bisect_left(catalog.tables, table_id, key=_table_id)
    if index < len(catalog.tables) and catalog.tables[index].id == table_id:
        return catalog.tables[index]
    return None


_table_id = attrgetter("id")


def living(catalog: Catalog, table_id: int) -> TableDefinition:
    """Return the table with that id.

    Raises:
        TableNotFoundError: The table was dropped or never existed.
    """
    table = by_id(catalog, table_id)
    if table is None or not is_alive(table):
        raise dropped(table_id, table)
    return table


def dropped(table_id: int, table: TableDefinition | None) -> TableNotFoundError:
    """Return the refusal of a handle whose table is not there; None: nothing is known of it."""
    if table is None:
        return TableNotFoundError(f"#{table_id}", why="no table has this id")
    return TableNotFoundError(name_of(table), why="the table of this handle was dropped")


def last_called(catalog: Catalog, name: str) -> TableDefinition | None:
    """Return the last table that had a name, dropped or not; None: the catalog keeps none."""
    took = [
        (step.seq, table) for table in catalog.tables for step in table.names if step.name == name
    ]
    return max(took, key=lambda pair: pair[0])[1] if took else None


def names(catalog: Catalog, seq: int = _NEWEST) -> list[str]:
    """Return the names of all tables at `seq`, sorted."""
    return sorted(name_of(table, seq) for table in catalog.tables if is_alive(table, seq))


def owner_of(catalog: Catalog, incarnation: int) -> TableDefinition:
    """Return the table of an incarnation."""
    table = _owner(catalog, incarnation)
    require(table is not None, f"incarnation {incarnation} belongs to no table")
    return table  # type: ignore[return-value]


def owner_if_known(catalog: Catalog, incarnation: int) -> TableDefinition | None:
    """Return the table of an incarnation; None: vacuum removed all records of it."""
    return _owner(catalog, incarnation) or by_id(catalog, incarnation)


def _owner(catalog: Catalog, incarnation: int) -> TableDefinition | None:
    first = by_id(catalog, incarnation)  # a table and its first incarnation have one number
    for table in catalog.tables if first is None else (first,):
        if any(step.id == incarnation for step in table.incarnations):
            return table
    return None


def has_schema(table: TableDefinition, schema_id: int) -> bool:
    """Say whether the table has, or had, a schema with that id."""
    return any(step.schema.id == schema_id for step in table.schemas)


def schema_by_id(table: TableDefinition, schema_id: int) -> Schema:
    """Return the schema with that id."""
    found = next((step.schema for step in table.schemas if step.schema.id == schema_id), None)
    require(found is not None, f"table {table.id} has no schema {schema_id}")
    return found  # type: ignore[return-value]


def app_of(catalog: Catalog, name: str) -> TokenApp:
    """Return the token app `name` (batch -1: it has applied nothing yet)."""
    found = next((app for app in catalog.apps if app.name == name), None)
    return TokenApp(name, since=catalog.forgotten.seq) if found is None else found


def last_claim(catalog: Catalog, app: TokenApp) -> int:
    """Return the number above which the next claim of an app is: above its forgotten ones, too."""
    return app.claim or catalog.forgotten.claim


def table_tag(table: int, name: str) -> str:
    """Return the name under which the catalog has a tag of one table: `#<table id>/<name>`."""
    return f"#{table}/{name}"


def table_of_tag(name: str) -> int | None:
    """Return the id of the table whose tag has that name in the catalog; None: the store's."""
    number, slash, _ = name.partition("/")
    is_one = slash and number[:1] == "#" and number[1:].isascii() and number[1:].isdecimal()
    return int(number[1:]) if is_one else None


def store_tags(catalog: Catalog) -> dict[str, int]:
    """Return the store's own tags and their seqs; those of tables are not among them."""
    return {tag.name: tag.seq for tag in catalog.tags if table_of_tag(tag.name) is None}


def tags_of_table(catalog: Catalog, table: int) -> dict[str, int]:
    """Return the tags of one table, as it calls them, and their seqs."""
    above = table_tag(table, "")
    found = (tag for tag in catalog.tags if tag.name.startswith(above))
    return {tag.name.removeprefix(above): tag.seq for tag in found}


def tag_of(catalog: Catalog, name: str) -> Tag | None:
    """Return the tag with a name, if there is one."""
    return next((tag for tag in catalog.tags if tag.name == name), None)


def has_lapsed(tag: Tag, now_us: int) -> bool:
    """Return whether the lifetime of the tag is over."""
    return bool(tag.lasts_s) and tag.time_us + tag.lasts_s * 1_000_000 <= now_us


def apply(catalog: Catalog, entry: group.Entry, seq: int, time_us: int) -> Catalog:
    """Return the catalog after `entry` of the commit `seq`."""
    change = _CHANGES.get(type(entry))
    return change(catalog, entry, seq, time_us) if change else catalog


def apply_token(catalog: Catalog, token: group.Token, seq: int, rows: int) -> Catalog:
    """Return the catalog after a commit that carried `token`."""
    old = app_of(catalog, token.app)
    return _with_app(catalog, msgspec.structs.replace(old, batch=token.batch, seq=seq, rows=rows))


def _with_app(catalog: Catalog, app: TokenApp) -> Catalog:
    others = tuple(a for a in catalog.apps if a.name != app.name)
    return msgspec.structs.replace(catalog, apps=(*others, app))


def _changed(catalog: Catalog, table: TableDefinition, **fields: object) -> Catalog:
    changed = msgspec.structs.replace(table, **fields)
    tables = tuple(changed if each.id == table.id else each for each in catalog.tables)
    return msgspec.structs.replace(catalog, tables=tables)


def _table(catalog: Catalog, table_id: int) -> TableDefinition:
    table = by_id(catalog, table_id)
    require(table is not None, f"a frame names table {table_id}, which the catalog lacks")
    return table  # type: ignore[return-value]


def _create(catalog: Catalog, entry: group.Create, seq: int, _time: int) -> Catalog:
    table = TableDefinition(
        id=entry.table,
        created=seq,
        names=(Named(seq, entry.name),),
        schemas=(Shaped(seq, entry.schema),),
        incarnations=(Incarnation(seq, entry.table),),
        next_column=max((c.id for c in entry.schema.columns), default=0) + 1,
    )
    return msgspec.structs.replace(
        catalog,
        tables=tuple(sorted((*catalog.tables, table), key=_table_id)),  # `by_id` bisects
        next_id=max(catalog.next_id, entry.table + 1),
    )


def _drop(catalog: Catalog, entry: group.Drop, seq: int, _time: int) -> Catalog:
    above = table_tag(entry.table, "")  # its own tags go with it: later no call could remove them
    tags = tuple(tag for tag in catalog.tags if not tag.name.startswith(above))
    catalog = msgspec.structs.replace(catalog, tags=tags)
    return _changed(catalog, _table(catalog, entry.table), dropped=seq)


def _rename(catalog: Catalog, entry: group.Rename, seq: int, _time: int) -> Catalog:
    table = _table(catalog, entry.table)
    return _changed(catalog, table, names=(*table.names, Named(seq, entry.name)))


def _alter(catalog: Catalog, entry: group.Alter, seq: int, _time: int) -> Catalog:
    table = _table(catalog, entry.table)
    steps = (*table.schemas, Shaped(seq, entry.schema))
    return _changed(catalog, table, schemas=steps, next_column=entry.next_column)


def _truncate(catalog: Catalog, entry: group.Truncate, seq: int, _time: int) -> Catalog:
    table = _table(catalog, entry.table)
    steps = (*table.incarnations, Incarnation(seq, entry.incarnation))
    changed = _changed(catalog, table, incarnations=steps)
    return msgspec.structs.replace(changed, next_id=max(catalog.next_id, entry.incarnation + 1))


def _advance(
    catalog: Catalog, entry: group.Advance | group.Compact, seq: int, _time: int
) -> Catalog:
    added = Version(seq, entry.pin, is_same_rows=isinstance(entry, group.Compact))
    return _with_versions(catalog, entry.incarnation, lambda versions: (*versions, added))


def _hide(catalog: Catalog, entry: group.Hide, _seq: int, _time: int) -> Catalog:
    def hidden(versions: Sequence[Version]) -> tuple[Version, ...]:
        return tuple(
            msgspec.structs.replace(version, is_hidden=True)
            if entry.first <= version.pin.version < entry.end
            else version
            for version in versions
        )

    return _with_versions(catalog, entry.incarnation, hidden)


def _with_versions(
    catalog: Catalog, incarnation: int, change: Callable[[Sequence[Version]], tuple[Version, ...]]
) -> Catalog:
    table = owner_of(catalog, incarnation)
    steps = tuple(
        msgspec.structs.replace(step, versions=change(step.versions))
        if step.id == incarnation
        else step
        for step in table.incarnations
    )
    return _changed(catalog, table, incarnations=steps)


def _tag(catalog: Catalog, entry: group.Tagged, _seq: int, time_us: int) -> Catalog:
    added = () if entry.seq is None else (Tag(entry.name, entry.seq, time_us, entry.lasts_s),)
    others = tuple(tag for tag in catalog.tags if tag.name != entry.name)
    return msgspec.structs.replace(catalog, tags=(*others, *added))


def _claim(catalog: Catalog, entry: group.Claim, _seq: int, _time: int) -> Catalog:
    old = app_of(catalog, entry.app)
    gone = (*old.superseded, old.holder) if old.holder else old.superseded
    changed = msgspec.structs.replace(
        old, claim=entry.claim, holder=entry.holder, superseded=gone[-SUPERSEDED_MAX:]
    )
    return _with_app(catalog, changed)


def _forget_app(catalog: Catalog, entry: group.ForgetApp, seq: int, _time: int) -> Catalog:
    highest = max(catalog.forgotten.claim, app_of(catalog, entry.app).claim)
    return msgspec.structs.replace(
        catalog,
        apps=tuple(app for app in catalog.apps if app.name != entry.app),
        forgotten=ForgottenApps(seq, highest),
    )


def _create_namespace(
    catalog: Catalog, entry: group.CreateNamespace, seq: int, _time: int
) -> Catalog:
    added = NamespaceDefinition(entry.name, seq, tuple(sorted(entry.properties.items())))
    return msgspec.structs.replace(catalog, namespaces=(*catalog.namespaces, added))


def _drop_namespace(catalog: Catalog, entry: group.DropNamespace, seq: int, _time: int) -> Catalog:
    changed = (
        msgspec.structs.replace(space, dropped=seq)
        if space.name == entry.name and space.is_alive()
        else space
        for space in catalog.namespaces
    )
    # One that was created and dropped by the same commit never existed.
    kept = (space for space in changed if space.dropped != space.created)
    return msgspec.structs.replace(catalog, namespaces=tuple(kept))


_CHANGES: dict[type, Callable[[Catalog, object, int, int], Catalog]] = {
    group.Create: _create,
    group.Drop: _drop,
    group.Rename: _rename,
    group.Alter: _alter,
    group.Truncate: _truncate,
    group.Advance: _advance,
    group.Tagged: _tag,
    group.Claim: _claim,
    group.Hide: _hide,
    group.Compact: _advance,
    group.CreateNamespace: _create_namespace,
    group.DropNamespace: _drop_namespace,
    group.ForgetApp: _forget_app,
}  # type: ignore[dict-item]
