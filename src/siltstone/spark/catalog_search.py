"""Catalog search: how the driver answers which table of Spark's catalog a query reads, and at what.

The driver looks at every table of the catalog each time: another process may have made a copy of a
table meanwhile, and then nothing tells the two apart (see `catalog_tables`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from siltstone.errors import RequestError
from siltstone.spark.catalog_tables import MARK, REFUSAL, VIEW, digest_of, with_path
from siltstone.spark.session_answers import ANSWER_MAX

SEARCH_S_MAX = 8.0  # less than a planner waits for its answer
FRAMES_MAX = 10_000
_NAMED_MAX = 8
_PROVIDER = "siltstone"


def options_of(spark: SparkSession, digest: str) -> str:
    """Return the options of the table with these columns as JSON, or the sentence of a refusal."""
    try:
        answer = json.dumps(_found(spark, digest) if digest else {})
        if len(answer) >= ANSWER_MAX:
            raise RequestError(f"the options of the table have more than {ANSWER_MAX} characters")
    except RequestError as error:
        return f"{REFUSAL}{' '.join(str(error).split())}"  # one line
    except (Py4JError, PySparkException) as error:  # the metastore's database is down
        said = error.java_exception if isinstance(error, Py4JJavaError) else error
        first, *_ = str(said).splitlines() or [type(error).__name__]
        return f"{REFUSAL}Spark's catalog does not answer: {first}"
    return answer


class FrameSeqs:
    """The seqs of the frames of tables of the catalog; only the thread that answers uses it.

    Of too many frames the one that was used least recently is forgotten: its next plan is at the
    newest seq.
    """

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}

    def seq_of(self, _spark: SparkSession, about: str) -> str:
        """Return the seq of a frame, which is the given one if it has none."""
        frame, _, newest = about.partition(" ")
        seq = self._seqs.pop(frame, int(newest))
        self._seqs[frame] = seq
        while len(self._seqs) > FRAMES_MAX:
            del self._seqs[next(iter(self._seqs))]
        return str(seq)


def _found(spark: SparkSession, digest: str) -> dict[str, str]:
    """Return the options of the one table with these columns, or those that all such tables have.

    Raises:
        RequestError: There is no such table, or they have different options.
    """
    found = dict(_matching(spark, digest))
    if not found:
        raise RequestError(
            "no table of Spark's catalog has the columns of this query, which were made by"
            " CREATE TABLE .. USING siltstone: it was dropped or changed since"
        )
    options, *others = found.values()
    if any(each != options for each in others):
        names = " and ".join(sorted(found)[:_NAMED_MAX])
        raise RequestError(
            f"{names} of Spark's catalog have exactly the columns of this query, and Spark does not"
            " tell which is meant: some were made from the columns of another. Drop those, and make"
            " them by CREATE TABLE .. USING siltstone OPTIONS (..) without columns"
        )
    return options


def _matching(spark: SparkSession, digest: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the options of each table with these columns."""
    as_java = cast("Any", spark)._jvm.scala.jdk.javaapi.CollectionConverters.asJava  # noqa: SLF001
    for table in _tables(spark):
        provider = table.provider()
        if not provider.isDefined() or provider.get().lower() != _PROVIDER:
            continue
        columns = str(table.schema().json())
        if MARK in columns and digest_of(StructType.fromJson(json.loads(columns))) == digest:
            given = as_java(table.storage().properties())
            options = {str(name).lower(): str(given[name]) for name in given}
            is_placed = table.tableType().name() == "EXTERNAL"
            location = table.location().toString() if is_placed else None
            yield str(table.identifier().unquotedString()), with_path(options, location)


def _tables(spark: SparkSession) -> Iterator[Any]:
    """Yield all tables of the catalog.

    Raises:
        RequestError: It takes too long.
    """
    until = time.monotonic() + SEARCH_S_MAX
    of_jvm = cast("Any", spark)._jsparkSession  # noqa: SLF001 - nothing public has all at once
    catalog = of_jvm.sharedState().externalCatalog()
    for database in _each(catalog.listDatabases()):
        for table in _each(catalog.getTablesByName(database, catalog.listTables(database))):
            if time.monotonic() > until:
                raise RequestError(
                    f"Spark's catalog has more tables than are searched in {SEARCH_S_MAX:.0f} s;"
                    f" {VIEW}"
                )
            yield table


def _each(of_scala: Any) -> Iterator[Any]:
    return (of_scala.apply(number) for number in range(of_scala.size()))
