"""Features: what each format of a store added to the one before it, and which one a thing needs.

    1   everything of the first release
    2   part 8: the column types and entries of the two tables below
    3   part 9: bases with hidden rows
    4   part 9, step 3: bulk commits that history names instead of having copies; thinned records
    5   part 13: rows that Lance refused, in Arrow files of ours; token apps that were forgotten

A store has the lowest format that it needs. A thing of a higher one is written to the log after a
record of that format is durable (`storage.manifest.store_format`), so an older siltstone refuses
the store by the format of its newest record, and never meets a frame that it cannot read. What a
record itself names comes with a record of its format.

What is added to a level goes into these tables, into docs/adr/0034, and has a golden store in
`tests/compat/stores/<format>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from siltstone.formats.log import group
from siltstone.formats.manifest import FIRST_FORMAT, Catalog, KeyedStorage, Schema

_TYPES: dict[str, int] = {
    "fixed_size_binary": 2,
    "uuid": 2,
    "json": 2,
    "duration": 2,
    "date64": 2,
    "decimal256": 2,
    "large_list": 2,
    "map": 2,
    "tensor": 2,
    "blob": 2,
}
"""The format that brought a kind of column type, by the first word of its stored form."""
HIDDEN_ROWS, ATTACHED_LOADS, FALLBACKS = 3, 4, 5
THINNED_RECORDS = 4
"""The format that a store must have before FLOOR says that records are thinned."""
FORGOTTEN_APPS = 5
_ENTRIES: dict[type, int] = {
    group.CreateNamespace: 2,
    group.DropNamespace: 2,
    group.ForgetApp: FORGOTTEN_APPS,
}
"""The format that brought a kind of entry of the log."""


def format_of_changes(entries: Iterable[group.Entry]) -> int:
    """Return the format that a store must have for these entries of a frame."""
    return max(map(_format_of_entry, entries), default=FIRST_FORMAT)


def _format_of_entry(entry: group.Entry) -> int:
    level = _ENTRIES.get(type(entry), FIRST_FORMAT)
    return max(level, format_of_schema(entry.schema)) if isinstance(entry, _SHAPES) else level


_SHAPES = (group.Create, group.Alter)


def format_of_catalog(catalog: Catalog) -> int:
    """Return the format that a store must have for what a catalog defines, now and in its past."""
    shapes = (shaped.schema for table in catalog.tables for shaped in table.schemas)
    spaces = _ENTRIES[group.CreateNamespace] if catalog.namespaces else FIRST_FORMAT
    apps = FORGOTTEN_APPS if catalog.forgotten.seq else FIRST_FORMAT
    return max(spaces, apps, max(map(format_of_schema, shapes), default=FIRST_FORMAT))


def format_of_storage(keyed: Iterable[KeyedStorage]) -> int:
    """Return the format that a record must have for the files of rows that it names."""
    return max(map(_format_of, keyed), default=FIRST_FORMAT)


def _format_of(storage: KeyedStorage) -> int:
    if storage.fallbacks:
        return FALLBACKS
    if storage.loads:
        return ATTACHED_LOADS
    hides = storage.base is not None and storage.base.hidden
    return HIDDEN_ROWS if hides else FIRST_FORMAT


@lru_cache(4096)
def format_of_schema(schema: Schema) -> int:
    """Return the format that a store must have for the columns of a table."""
    return max((_format_of_type(column.type) for column in schema.columns), default=FIRST_FORMAT)


def _format_of_type(stored: object) -> int:
    """Return the highest format of all words in a stored type, nested ones too."""
    if isinstance(stored, str):
        return _TYPES.get(stored.partition("(")[0].partition("[")[0], FIRST_FORMAT)
    if not isinstance(stored, list | tuple) or not stored:
        return FIRST_FORMAT  # the size of a vector
    word, *inner = stored
    if word == "struct":  # a field may have the name of a type
        inner = [kind for _, kind, _ in inner[0]]
    return max(map(_format_of_type, (word, *inner)))
