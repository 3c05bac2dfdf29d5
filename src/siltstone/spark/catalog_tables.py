"""Catalog tables: what `CREATE TABLE t USING siltstone OPTIONS (..)` makes in Spark's catalog.

    CREATE TABLE ──▶ schema()        gets the options, and marks the columns
    SELECT       ──▶ reader(schema)  gets the columns alone, and asks the driver (`catalog_search`)
                                      └─▶ the one table of the catalog with exactly these columns

Spark (4.3) creates a source with a table's options when it asks for the columns of the new table,
and never again. It keeps the options in its catalog, and of the columns also the metadata. So the
first column carries a digest of the options, and the driver looks up the table that has exactly
these columns, and its options.

The mark goes with the columns, also into those of copies. Where tables with exactly these columns
have different options nothing tells which of them is read, so each is refused. A writer cannot tell
`INSERT INTO t` from a frame of `t` that is saved without a place, so such writes are refused, too.

Spark creates the source of a frame when it is first queried, pickled with a name. By that name the
driver keeps what it has answered: a frame has one table and one seq, or none.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from siltstone.errors import RequestError, UnavailableError
from siltstone.spark.options import is_change_feed, is_feed
from siltstone.spark.session_answers import ANSWER_S_MAX, Address, asked

TABLE_QUESTION, SEQ_QUESTION = "table", "seq"
MARK = "siltstone.table"
REFUSAL = "!"  # an answer that begins with it is a sentence
VIEW = "use CREATE TEMPORARY VIEW .. USING siltstone OPTIONS (uri '..', table '..')"
_OF_CATALOG = frozenset({"owner", "provider"})  # what Spark adds to the options of a new table
_OPTION = "option."  # its prefix of those that `OPTIONS (..)` gives; other keys are properties
_ON_DISK = re.compile("(?:file:(?://)?)?(/[^/].*)", re.DOTALL)
_ONLY_ROWS = (
    "a table of Spark's catalog has the rows of a table; for its changes,"
    " use spark.read or spark.readStream with the options uri and table"
)
_PLACES = frozenset({"uri", "path", "table"})


def options_of_new(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a new table of the catalog, of lower case; None: it is no such table.

    Raises:
        RequestError: Its location is not on a file system.
    """
    found = {name.lower(): text for name, text in given.items()}
    if not found.keys() >= _OF_CATALOG:
        return None
    own = {n.removeprefix(_OPTION): text for n, text in found.items() if n.startswith(_OPTION)}
    if "location" not in found:
        return own
    location = found.get("path", found["location"])  # not quoted like the path of a URI
    found_path = _ON_DISK.fullmatch(location)
    return {**own, "path": placed("" if found_path is None else found_path[1], location)}


def placed(path: str, location: str) -> str:
    """Return the path of a location.

    Raises:
        RequestError: It is not on a file system, or relative.
    """
    if not path.startswith("/"):
        raise RequestError(
            f"the location of a store is the full path of a directory; got the location {location}"
        )
    return path


def marked(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns of a new table, with the mark of its options."""
    mark = hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()[:32]
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), MARK: mark}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def digest_of(schema: StructType) -> str:
    """Return the digest of columns, their metadata included."""
    return hashlib.sha256(schema.json().encode()).hexdigest()


def is_of_catalog(schema: StructType, given: Mapping[str, str]) -> bool:
    """Return whether a query has the marked columns of a table of the catalog, and no own place."""
    return not has_place(given) and any(MARK in (each.metadata or {}) for each in schema.fields)


def has_place(given: Mapping[str, str]) -> bool:
    """Return whether options say which table is meant."""
    return bool(_PLACES & {name.lower() for name in given})


def require_rows(given: Mapping[str, str]) -> None:
    """Check that the options of a table, or of a query of it, ask for its rows.

    Raises:
        RequestError: They ask for its changes.
    """
    if is_feed(given) or is_change_feed(given):
        raise RequestError(_ONLY_ROWS)


def refuse_stream(schema: StructType, given: Mapping[str, str]) -> None:
    """Refuse a stream from a table of the catalog.

    Raises:
        RequestError: It is one.
    """
    if is_of_catalog(schema, given):
        raise RequestError(_ONLY_ROWS)


def refuse_write(schema: StructType, given: Mapping[str, str]) -> None:
    """Refuse a write into a table of the catalog.

    Raises:
        RequestError: It is one.
    """
    if is_of_catalog(schema, given):
        raise RequestError(f"a table of Spark's catalog is only read; to write it, {VIEW}")


def require_driver(address: Address | None) -> None:
    """Check that the driver will be asked when a new table is read.

    Raises:
        UnavailableError: No driver answers for this session.
    """
    _answer(address, TABLE_QUESTION, " ")


def options_at(
    address: Address | None, schema: StructType, given: Mapping[str, str], frame: str
) -> dict[str, str]:
    """Return the options of a query: those of its table of the catalog, and the given ones.

    The table is the one with exactly these columns.

    Raises:
        UnavailableError: No driver answers for this session.
        RequestError: There is no such table, or several with different options; it was another one
            when the frame was first queried; or the query gives an option that the table has.
    """
    found = json.loads(_answer(address, TABLE_QUESTION, f"{digest_of(schema)} {frame}"))
    own = {name.lower(): text for name, text in given.items()}
    if "columns" in own:
        raise RequestError("option 'columns' is not one of a query: select the columns by name")
    for name in sorted(own.keys() & found.keys()):
        raise RequestError(
            f"option {name!r} is {found[name]!r} in the table of Spark's catalog, and a query does"
            f" not change it; got {own[name]!r}"
        )
    return found | own


def seq_at(address: Address | None, frame: str, seq: int) -> int:
    """Return the seq of a frame: `seq`, if it has none yet.

    Raises:
        UnavailableError: No driver answers for this session.
    """
    return int(_answer(address, SEQ_QUESTION, f"{frame} {seq}"))


def new_frame() -> str:
    """Return the name of a frame; names of this machine that are made later are greater."""
    return f"{time.monotonic_ns():020}-{secrets.token_hex(8)}"


def _answer(address: Address | None, question: str, about: str) -> str:
    try:
        answer = None if address is None else asked(address, question, about)
    except TimeoutError:
        raise UnavailableError(
            f"the driver did not answer within {ANSWER_S_MAX:.0f} s which table of Spark's catalog"
            " is read; run the query again when the catalog is less busy"
        ) from None
    if answer is None:
        raise UnavailableError(
            "Spark does not pass the options of a catalog's table on when the table is read, and no"
            " driver answers for this session: call siltstone.spark.register(spark) in it, or"
            f" {VIEW}"
        )
    if answer.startswith(REFUSAL):
        raise RequestError(answer.removeprefix(REFUSAL))
    return answer
