"""Catalog tables: what `CREATE TABLE .. USING siltstone` leaves in Spark's catalog for its reads.

    CREATE TABLE t USING siltstone OPTIONS (..)   a source with the options, also as "option.*",
                                                  says its columns, each with the options in its
                                                  metadata, and the catalog keeps them
    SELECT .. FROM t [WITH (..)]                  a source with the options of WITH alone is handed
                                                  the columns, and finds the others there

Spark hands a table's options to a Python source when it asks for the columns, and never again.
A column's metadata goes with it into every frame that is made from the table, so to a writer
`CREATE TABLE copy USING siltstone AS SELECT * FROM t` looks as `INSERT INTO t` does. So only reads
find their options there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from pyspark.sql.types import StructField, StructType

from siltstone.errors import RequestError
from siltstone.joined.targets import is_url
from siltstone.paths import root_of
from siltstone.spark.options import CHANGES, ReadOptions, is_change_feed

_KEY = "siltstone.options"  # of a column's metadata; its value is JSON
_OPTION, _OF_STORES = "option.", ("uri", "path")
_FILE = re.compile("file:(//)?(?=/)")  # as Spark begins a location, whose rest it does not encode


def options_of_create(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a new table of the catalog, by their small names; None: it is not one.

    Args:
        given: What Spark creates the source with: the options as they are and as "option.*", the
            table's properties, "owner", "provider" and "location".

    Raises:
        RequestError: They name no store.
    """
    given = {name.lower(): text for name, text in given.items()}
    found = {n.removeprefix(_OPTION): text for n, text in given.items() if n.startswith(_OPTION)}
    if "owner" not in given or not (found or {"provider", "location"} & given.keys()):
        return None
    if "location" in given:
        found["path"] = _FILE.sub("", given["location"])
    if not set(_OF_STORES) & found.keys():
        raise RequestError(
            "the table names no store: give OPTIONS (uri '..', table '..') or LOCATION '..'"
        )
    return found | {name: _everywhere(found[name]) for name in _OF_STORES if name in found}


def _everywhere(place: str) -> str:
    """Return the name of a place in every process, whatever its directory is."""
    return place if is_url(place) else str(root_of(place))


def read_options(created: Mapping[str, str]) -> ReadOptions:
    """Return the options of the reads of a new table.

    Raises:
        RequestError: An option is missing, unknown or invalid, or is not for tables of a catalog.
    """
    if is_change_feed(created):
        raise RequestError(f"option {CHANGES!r} is for frames; a table of the catalog holds rows")
    found = ReadOptions.parse(created)
    if found.is_single_use:
        raise RequestError(
            "option 'pushdown' is a promise of a single query; give it to the query: WITH (..)"
        )
    return found


def with_options(columns: StructType, created: Mapping[str, str]) -> StructType:
    """Return the columns of a new table with its options in their metadata."""
    metadata = {_KEY: msgspec.json.encode(created).decode()}
    return StructType([StructField(f.name, f.dataType, f.nullable, metadata) for f in columns])


def options_of_read(given: Mapping[str, str], columns: StructType) -> dict[str, str]:
    """Return the options of a read: those given, and if they name no store those of the table."""
    stored = {} if _names_a_store(given) else _stored(columns)
    return stored | {name.lower(): text for name, text in given.items()}


def require_a_store(given: Mapping[str, str], columns: StructType) -> None:
    """Refuse what is no read, and names no store, where columns are those of a catalog's table.

    Raises:
        RequestError: It is that.
    """
    if not _names_a_store(given) and _stored(columns):
        raise RequestError(
            "only reads of a table of Spark's catalog find its store, of writes and streams Spark"
            " does not tell which table they are for: use INSERT INTO .. WITH (uri = '..', table ="
            " '..'), the options of the frame, or CREATE TEMPORARY VIEW .. USING siltstone"
        )


def _names_a_store(given: Mapping[str, str]) -> bool:
    return any(name.lower() in _OF_STORES for name in given)


def _stored(columns: StructType) -> dict[str, str]:
    texts = (field.metadata[_KEY] for field in columns if _KEY in field.metadata)
    text = next(texts, None)
    return {} if text is None else msgspec.json.decode(text, type=dict[str, str])
