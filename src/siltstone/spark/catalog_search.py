"""Catalog search: how the driver answers which table of Spark's catalog a query reads, and at what.

The driver looks at every table of the catalog each time: another process may have made a copy of a
table meanwhile, and then nothing tells the two apart (see `catalog_tables`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from siltstone.errors import RequestError
from siltstone.spark.catalog_tables import MARK, REFUSAL, VIEW, digest_of, placed
from siltstone.spark.session_answers import ANSWER_MAX

FRAMES_MAX = 10_000
MARGIN_S = 1.0  # an answer is on its way so long before who asked leaves
_AT_ONCE = 100  # tables
_NAMED_MAX = 8
_PROVIDER = "siltstone"
_ANEW = "make the frame anew"


class _NotOneError(RequestError):
    """No table has the columns of a query, or several have them."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a frame was answered first; without options: a refusal."""

    options: str | None
    seq: int | None = None


class Frames:
    """The tables and seqs of the frames that read tables of the catalog; `_lock` guards them.

    Of too many frames the one that was used least recently is forgotten. A frame that is unknown
    and not made after one that was forgotten is refused, as it may be one of those.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Frame] = {}
        self._forgotten = ""

    def options_of(self, spark: SparkSession, about: str, until: float) -> str:
        """Return the options of the table of a frame as JSON, or the sentence of a refusal.

        `about`: the digest of its columns, and its name.
        """
        digest, _, frame = about.partition(" ")
        if not digest:  # whether a driver answers
            return "{}"
        try:
            options = self._options_of(spark, digest, frame, until)
            if len(options) >= ANSWER_MAX:
                raise RequestError(f"the options of a table have more than {ANSWER_MAX} characters")
        except RequestError as error:
            return f"{REFUSAL}{' '.join(str(error).split())}"  # one line
        except (Py4JError, PySparkException) as error:
            return f"{REFUSAL}Spark's catalog cannot be read: {_first_line(error)}"
        return options

    def seq_of(self, _spark: SparkSession, about: str, _until: float) -> str:
        """Return the seq of a frame, which is the given one if it has none.

        `about`: its name, and the newest seq.
        """
        frame, _, newest = about.partition(" ")
        with self._lock:
            known = self._known.get(frame)
            if known is None:  # forgotten since its options were read, a moment ago
                return f"{REFUSAL}{_too_old()}"
            seq = int(newest) if known.seq is None else known.seq
            self._known[frame] = replace(known, seq=seq)
        return str(seq)

    def _options_of(self, spark: SparkSession, digest: str, frame: str, until: float) -> str:
        try:
            options = json.dumps(_found(spark, digest, until), sort_keys=True)
        except _NotOneError:
            self._remember(frame, None)
            raise
        self._remember(frame, options)
        return options

    def _remember(self, frame: str, options: str | None) -> None:
        """Remember the first answer of a frame.

        Raises:
            RequestError: It was another one, or the frame may have been forgotten.
        """
        with self._lock:
            known = self._known.pop(frame, None)
            if known is None and frame <= self._forgotten:
                raise RequestError(_too_old())
            self._known[frame] = known or _Frame(options)
            while len(self._known) > FRAMES_MAX:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._forgotten = max(self._forgotten, oldest)
        if known is not None and known.options != options:
            raise RequestError(
                "the table of this frame in Spark's catalog is not the one that it was when the"
                f" frame was first queried; {_ANEW}"
            )


def _too_old() -> str:
    return f"this frame is older than one of the {FRAMES_MAX} that were used last; {_ANEW}"


def _found(spark: SparkSession, digest: str, until: float) -> dict[str, str]:
    """Return the options of the one table with these columns, or those that all such tables have.

    Raises:
        _NotOneError: There is no such table, or they have different options.
    """
    found: dict[str, dict[str, str]] = {}
    for _ in range(2):  # once more if a table was renamed or dropped meanwhile
        look = _Look(spark, until)
        found = dict(_matching(look, digest))
        if found and look.is_whole:
            break
    if not found:
        raise _NotOneError(
            "no table of Spark's catalog has the columns of this query, which were made by"
            " CREATE TABLE .. USING siltstone: it was dropped or changed since"
        )
    options, *others = found.values()
    if any(each != options for each in others):
        names = " and ".join(sorted(found)[:_NAMED_MAX])
        raise _NotOneError(
            f"{names} of Spark's catalog have exactly the columns of this query, and Spark does not"
            " tell which is meant: some were made from the columns of another. Drop those, and make"
            " them by CREATE TABLE .. USING siltstone OPTIONS (..) without columns"
        )
    return options


def _matching(look: _Look, digest: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the options of each table with these columns."""
    for table in look.tables():
        provider = table.provider()
        if not provider.isDefined() or provider.get().lower() != _PROVIDER:
            continue
        columns = str(table.schema().json())
        if MARK in columns and digest_of(StructType.fromJson(json.loads(columns))) == digest:
            given = look.as_java(table.storage().properties())
            options = {str(name).lower(): str(given[name]) for name in given}
            name = str(table.identifier().unquotedString())
            yield name, options | _place_of(table, name)


def _place_of(table: Any, name: str) -> dict[str, str]:
    """Return the option of a table that has its own location.

    Raises:
        RequestError: It is no directory, or one that Spark would delete with the table.
    """
    place = table.location()
    is_file = place.getScheme() in (None, "file") and not place.getAuthority()
    path = str(place.getPath()) if is_file else ""
    if table.tableType().name() == "EXTERNAL":
        return {"path": placed(path, str(place.toString()))}
    # Both by ALTER TABLE .. SET LOCATION alone, the second where Java has no such provider.
    if table.properties().contains("location") or _is_of_store(path):
        raise RequestError(
            f"{name} was made without a LOCATION and has got one: DROP TABLE would delete that"
            " directory. Set the location back to one that is empty, drop the table, and make it"
            " by CREATE TABLE .. USING siltstone LOCATION '..'"
        )
    return {}


def _is_of_store(path: str) -> bool:
    return any((place / "manifest").is_dir() for place in (Path(path), Path(path).parent))


@dataclass(slots=True)
class _Look:
    """A look through the catalog; `is_whole`: all tables that were listed were found."""

    spark: SparkSession
    until: float
    is_whole: bool = True

    def as_java(self, of_scala: Any) -> Any:
        """Return a map that Python reads."""
        jvm = cast("Any", self.spark)._jvm  # noqa: SLF001 - nothing public converts
        return jvm.scala.jdk.javaapi.CollectionConverters.asJava(of_scala)

    def tables(self) -> Iterator[Any]:
        """Yield all tables.

        Raises:
            RequestError: It takes too long, or a schema cannot be read.
        """
        of_jvm = cast("Any", self.spark)._jsparkSession  # noqa: SLF001 - nothing public has all
        catalog = of_jvm.sharedState().externalCatalog()
        for database in _each(catalog.listDatabases()):
            try:
                yield from self._tables_of(catalog, database)
            except (Py4JError, PySparkException) as error:
                if not catalog.databaseExists(database):  # dropped a moment ago
                    continue
                raise RequestError(
                    f"the schema {database} of Spark's catalog cannot be read: {_first_line(error)}"
                ) from None

    def _tables_of(self, catalog: Any, database: str) -> Iterator[Any]:
        names = catalog.listTables(database)
        for first in range(0, names.size(), _AT_ONCE):
            if time.monotonic() > self.until - MARGIN_S:
                raise RequestError(
                    f"Spark's catalog has more tables than the driver looks through in time; {VIEW}"
                )
            some = names.slice(first, first + _AT_ONCE)
            found = catalog.getTablesByName(database, some)
            self.is_whole = self.is_whole and found.size() == some.size()
            yield from _each(found)


def _first_line(error: Exception) -> str:
    said = error.java_exception if isinstance(error, Py4JJavaError) else error
    return (str(said).splitlines() or [type(error).__name__])[0]


def _each(of_scala: Any) -> Iterator[Any]:
    return (of_scala.apply(number) for number in range(of_scala.size()))
