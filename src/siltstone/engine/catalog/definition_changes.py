"""Definition changes: what one commit did to the definitions and tags of a catalog, in words.

A catalog keeps the steps of each definition; vacuum removes those that no kept seq needs, and with
them what is said here of older commits. Of a tag it keeps only what was set last: nothing is said
of a commit whose tags were moved or removed since, nor of the one that removed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from siltstone.engine.catalog.catalog import by_id, name_of, table_of_tag
from siltstone.formats.manifest import (
    Catalog,
    Column,
    Incarnation,
    Named,
    Schema,
    Shaped,
    TableDefinition,
)

_T = TypeVar("_T", Named, Shaped, Incarnation)


def changes_at(catalog: Catalog, seq: int, time_us: int) -> tuple[str, ...]:
    """Return what the commit `seq` did: "create orders", "tag v1 at seq 7", ...

    `time_us` is its time, which no other commit has.
    """
    tables = _changed(catalog).get(seq, ())
    of_tables = (change for table in tables for change in _changes(table, seq))
    return (*of_tables, *_of_namespaces(catalog, seq), *_of_tags(catalog, time_us))


_CATALOGS_MAX = 4
_changed_memo: dict[int, tuple[Catalog, dict[int, list[TableDefinition]]]] = {}


def _changed(catalog: Catalog) -> dict[int, list[TableDefinition]]:
    """Return the tables that each seq changed; a memo by identity, for a catalog rarely changes."""
    memo = _changed_memo.get(id(catalog))
    if memo is not None and memo[0] is catalog:
        return memo[1]
    found: dict[int, list[TableDefinition]] = {}
    for table in catalog.tables:
        steps = (*table.names, *table.schemas, *table.incarnations)
        seqs = {table.created, *(step.seq for step in steps)}
        for seq in seqs if table.dropped is None else {*seqs, table.dropped}:
            found.setdefault(seq, []).append(table)
    if len(_changed_memo) >= _CATALOGS_MAX:
        _changed_memo.clear()
    _changed_memo[id(catalog)] = (catalog, found)
    return found


def _of_tags(catalog: Catalog, time_us: int) -> Iterator[str]:
    for tag in catalog.tags:
        if tag.time_us == time_us:
            number = table_of_tag(tag.name)
            table = None if number is None else by_id(catalog, number)
            name = tag.name if number is None else tag.name.partition("/")[2]
            of = "" if table is None else f" of {name_of(table, tag.seq)}"
            yield f"tag {name}{of} at seq {tag.seq}"


def _of_namespaces(catalog: Catalog, seq: int) -> Iterator[str]:
    for space in catalog.namespaces:
        if space.created == seq:
            yield f"create namespace {space.name}"
        if space.dropped == seq:
            yield f"drop namespace {space.name}"


def _changes(table: TableDefinition, seq: int) -> Iterator[str]:
    name = name_of(table, seq)
    if table.created == seq:
        yield f"create {name}"
    for old, new in _steps(table.names, seq):
        yield f"rename {old.name} to {new.name}"
    for before, after in _steps(table.schemas, seq):
        yield from _columns(name, before.schema, after.schema)
    for _ in _steps(table.incarnations, seq):
        yield f"truncate {name}"
    if table.dropped == seq:
        yield f"drop {name}"


def _steps(steps: Sequence[_T], seq: int) -> Iterator[tuple[_T, _T]]:
    """Yield what was before and after each step of a commit."""
    return (pair for pair in pairwise(steps) if pair[1].seq == seq)


def _columns(table: str, before: Schema, after: Schema) -> Iterator[str]:
    old = {column.id: column for column in before.columns}
    new = {column.id: column for column in after.columns}
    names = {c.name for c in before.columns if c.id not in new}
    anew = {c.name for c in after.columns if c.id not in old and c.name in names}
    for number, column in old.items():
        if column.name in anew and number not in new:
            yield f"set type of column {table}.{column.name}"
        elif number not in new:
            yield f"drop column {table}.{column.name}"
        else:
            yield from _column(table, column, new[number])
    for number, column in new.items():
        if number not in old and column.name not in anew:
            yield f"add column {table}.{column.name}"
    if before.metadata != after.metadata:
        yield f"set metadata of {table}"


def _column(table: str, before: Column, after: Column) -> Iterator[str]:
    """Yield what became of a column that stays."""
    if before.name != after.name:
        yield f"rename column {table}.{before.name} to {after.name}"
    if before.type != after.type:
        yield f"set type of column {table}.{after.name}"
    if before.nullable != after.nullable:
        does = "allow" if after.nullable else "forbid"
        yield f"{does} null in column {table}.{after.name}"
    if before.default != after.default:
        yield f"set default of column {table}.{after.name}"
    if before.metadata != after.metadata:
        yield f"set metadata of column {table}.{after.name}"
