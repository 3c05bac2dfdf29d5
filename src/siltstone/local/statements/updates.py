"""Updates: UPDATE, DELETE and TRUNCATE.

    UPDATE .. WHERE key = constant     update, which reads and writes one row
    DELETE .. WHERE key = constant     delete
    DELETE .. WHERE a filter           delete_where, which DuckDB has no part in

For all else DuckDB finds the keys and the new values.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.engine.filter import filters as store_filter
from siltstone.errors import RequestError
from siltstone.given import Key
from siltstone.local.statements.defaults import in_sets
from siltstone.local.statements.exact import carried, refuse_cut
from siltstone.local.statements.inserts import assigned
from siltstone.local.statements.keys import distinct, first_of_each, first_twice, keys_of, one
from siltstone.local.statements.names import columns_of, require_key
from siltstone.local.statements.running import STAGED_BYTES_MIN, Running, Written
from siltstone.query.sql.shielded import quoted
from siltstone.query.sql.writes.conditions import filter_of, key_of
from siltstone.query.sql.writes.constants import UnclearError, fitting
from siltstone.query.sql.writes.queries import Values, as_written, behind_update
from siltstone.query.sql.writes.statements import (
    DeleteStatement,
    TruncateStatement,
    UpdateStatement,
)


def update(run: Running, statement: UpdateStatement) -> Written:
    """Run an UPDATE."""
    table = run.rows_in(statement.target)
    key, fields = require_key(table, "UPDATE"), table.schema
    names = columns_of([each.column for each in statement.sets], fields)
    statement = replace(statement, sets=in_sets(statement.sets, fields))
    run.check_returned(statement, fields)
    found = _one_row(run, statement, fields, key, names)
    if found is not None:
        wanted, values = found
        count = table.update(wanted, **values)
        keys = [wanted] if count else []
        return Written(count, run.returned(statement, lambda: table.get_many(keys)))
    refuse_cut("UPDATE", key, fields, "update_many() or update_where()")
    values = [[each.value for each in statement.sets]]
    refuse_cut("UPDATE", carried(names, values, run.given), fields, "update_many()")
    types, target = run.columns(fields), quoted(statement.target.name)
    query = Values(
        (*(types[name] for name in key), *(types[name] for name in names)),
        (
            *(f"{target}.{quoted(name)}" for name in key),
            *(each.value.text for each in statement.sets),
        ),
        behind_update(_target(statement), statement.sources, statement.where),
        statement.given,
    )
    rows = assigned(run, "UPDATE", query, fields, key, {})
    keys = keys_of(rows, key, fields)
    refuse_twice("UPDATE", keys)  # an UNNEST makes several rows of one, too
    count = _write_partial(run, table, rows)
    return Written(count, run.returned(statement, lambda: table.get_many(keys)))


def _target(statement: UpdateStatement | DeleteStatement) -> str:
    return as_written(statement.target.text, statement.target.alias)


def _one_row(
    run: Running,
    statement: UpdateStatement,
    fields: pa.Schema,
    key: tuple[str, ...],
    names: list[str],
) -> tuple[Key, dict[str, object]] | None:
    """Return the key and the values of an UPDATE that needs no DuckDB."""
    if statement.condition is None or set(key).intersection(names):
        return None
    values = dict[str, object]()
    try:
        wanted = key_of(statement.condition, key, fields, run.given)
        for name, each in zip(names, statement.sets, strict=True):
            if each.value.constant is None:
                return None
            values[name] = fitting(each.value.constant, fields.field(name).type, run.given)
    except UnclearError:
        return None
    return None if wanted is None else (wanted, values)


def _write_partial(run: Running, table: TransactionTable, rows: pa.Table) -> int:
    """Write the columns that rows have, over the rows that exist."""
    if not rows.num_rows:
        return 0
    if run.is_alone and rows.nbytes >= STAGED_BYTES_MIN:
        return run.stage(table, "upsert", rows, "keep")
    return table.update_many(rows)


def refuse_twice(statement: str, keys: pa.Table) -> None:
    """Refuse to write a row twice.

    Raises:
        RequestError: A key is there twice.
    """
    found = first_twice(keys)
    if found is not None:
        raise RequestError(
            f"{statement} matches the row with the key {one(found)!r} twice: the statement must say"
            " which of both is meant"
        )


# DELETE


def delete(run: Running, statement: DeleteStatement) -> Written:
    """Run a DELETE."""
    table = run.rows_in(statement.target)
    key, fields = table.primary_key, table.schema
    wanted = _key(run, statement, key, fields)
    if wanted is not None:
        returned = run.returned(statement, lambda: table.get_many([wanted]))
        count = table.delete([wanted])
        assert count is not None  # it is one
        return Written(count, returned)
    filter_ = _filter(run, statement, key, fields)
    if filter_ is not None:
        returned = run.returned(statement, lambda: table.scan(filter=filter_).read_all())
        return Written(table.delete_where(filter_), returned)
    if not key:
        raise RequestError(
            f"DELETE on {table.name!r}, which has no primary key, takes a WHERE of comparisons"
            " between columns and constants, as delete_where() does"
        )
    return _deleted(run, statement, table)


def _deleted(run: Running, statement: DeleteStatement, table: TransactionTable) -> Written:
    """Run a DELETE whose rows DuckDB finds."""
    key, fields = table.primary_key, table.schema
    refuse_cut("DELETE", key, fields, "delete() or delete_where()")
    target = quoted(statement.target.name)
    columns = run.columns(fields)
    behind = behind_update(_target(statement), statement.sources, statement.where)
    expressions = tuple(f"{target}.{quoted(name)}" for name in key)
    query = Values(tuple(columns[name] for name in key), expressions, behind, statement.given)
    found = run.values(query, fields)
    keys = keys_of(found, key, fields)
    if statement.sources and distinct(keys) < keys.num_rows:
        keys = keys.take(first_of_each(keys))
    returned = run.returned(statement, lambda: table.get_many(keys))
    _delete_keys(run, table, keys)
    return Written(keys.num_rows, returned)


def _key(
    run: Running, statement: DeleteStatement, key: tuple[str, ...], fields: pa.Schema
) -> Key | None:
    """Return the key of a DELETE that is about one row; None: about more, or DuckDB knows."""
    if not key or statement.condition is None:
        return None
    try:
        return key_of(statement.condition, key, fields, run.given)
    except UnclearError:
        return None


def _filter(
    run: Running, statement: DeleteStatement, key: tuple[str, ...], fields: pa.Schema
) -> str | None:
    """Return the filter of the store's that a DELETE has; None: only DuckDB knows its rows."""
    if not statement.where:
        return None if statement.sources else "true"
    if statement.condition is None:
        return None
    try:
        found = filter_of(statement.condition, fields, run.given)
    except UnclearError:
        return None
    return found if not key or _is_taken(found, fields) else None


def _is_taken(text: str, fields: pa.Schema) -> bool:
    """Say whether `delete_where` takes a filter: some are too long for it, or too deep."""
    try:
        store_filter.filter_of(text, fields)
    except RequestError:
        return False
    return True


def _delete_keys(run: Running, table: TransactionTable, keys: pa.Table) -> None:
    """Delete the rows with some keys, each of which has one."""
    if not keys.num_rows:
        return
    if run.is_alone and keys.nbytes >= STAGED_BYTES_MIN:
        run.stage(table, "delete", keys)
    else:
        table.delete(keys)


def truncate(run: Running, statement: TruncateStatement) -> Written:
    """Run a TRUNCATE."""
    table = run.table(statement.target)
    count = table.count()
    table.truncate()
    return Written(count)
