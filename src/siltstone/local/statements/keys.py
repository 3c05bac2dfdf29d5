"""Keys: rows of a statement looked at by their keys: which are there, twice, or changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import RequestError
from siltstone.local.statements.fitted import fitted

_AT = "siltstone row"


def keys_of(rows: pa.Table, key: Sequence[str], fields: pa.Schema) -> pa.Table:
    """Return the keys of rows, with the types of their table."""
    wanted = pa.schema([fields.field(name).remove_metadata() for name in key])
    return fitted(rows.select(list(key)), wanted).cast(wanted)


def _stored(keys: pa.Table) -> pa.Table:
    """Return keys as Arrow compares them: a UUID is its bytes."""
    for place, column in enumerate(keys.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            plain = column.cast(column.type.storage_type)
            keys = keys.set_column(place, keys.column_names[place], plain)
    return keys


def first_twice(keys: pa.Table) -> tuple[object, ...] | None:
    """Return a key that is there twice; None: there is none."""
    names, plain = keys.column_names, _stored(keys)
    if distinct(plain) == keys.num_rows:
        return None
    counted = plain.group_by(names).aggregate([([], "count_all")])
    more = counted.filter(pc.greater(counted.column("count_all"), pa.scalar(1)))
    return tuple(more.column(name)[0].as_py() for name in names)


def distinct(keys: pa.Table) -> int:
    """Return how many keys there are, each counted once."""
    keys = _stored(keys)
    first = keys.column(0)
    if pc.all(pc.less(first[:-1], first[1:])).as_py():  # they are in order: 20 times faster
        return keys.num_rows
    if keys.num_columns == 1:
        return pc.count_distinct(first).as_py()
    return keys.group_by(keys.column_names).aggregate([]).num_rows


def first_of_each(keys: pa.Table) -> pa.Array:
    """Return the places of the first rows with each key, in their order."""
    counted = _placed(_stored(keys)).group_by(keys.column_names).aggregate([(_AT, "min")])
    return _sorted(counted, f"{_AT}_min")


def without(keys: pa.Table, others: pa.Table) -> pa.Array:
    """Return the places of the keys that others do not have, in their order."""
    return _joined(keys, others, "left anti")


def among(keys: pa.Table, others: pa.Table) -> pa.Array:
    """Return the places of the keys that others have, in their order."""
    return _joined(keys, others, "left semi")


def _joined(keys: pa.Table, others: pa.Table, how: Literal["left anti", "left semi"]) -> pa.Array:
    keys, others = _stored(keys), _stored(others.select(keys.column_names))
    others = others.cast(keys.schema)
    found = _placed(keys).join(others, keys.column_names, join_type=how)
    return _sorted(found, _AT)


def _placed(keys: pa.Table) -> pa.Table:
    return keys.append_column(_AT, pa.array(range(keys.num_rows), pa.int64()))


def _sorted(table: pa.Table, name: str) -> pa.Array:
    places = table.column(name).combine_chunks()
    return places.take(pc.sort_indices(places))


def refuse_changed(statement: str, old: pa.Table, new: pa.Table, names: Sequence[str]) -> None:
    """Refuse to give a row another key.

    Raises:
        RequestError: The columns `names` of the key differ in a row.
    """
    olds, news = _stored(old.select(names)), _stored(new.select(names))
    for name in names:
        before, after = olds.column(name), news.column(name)
        same: Any = pc.coalesce(pc.equal(before, after), pa.scalar(False))
        place = pc.index(same, pa.scalar(False)).as_py()
        if place >= 0:
            was, is_now = shown(old, place), shown(new, place)
            raise RequestError(
                f"{statement} would change the key {was} to {is_now}: insert the new row, and"
                " delete the old one"
            )


def shown(keys: pa.Table, place: int) -> str:
    """Return one key as a person reads it."""
    return repr(one(tuple(keys.column(name)[place].as_py() for name in keys.column_names)))


def one(key: tuple[object, ...]) -> object:
    """Return a key as users have it: the value of its only column, or all."""
    return key[0] if len(key) == 1 else key
