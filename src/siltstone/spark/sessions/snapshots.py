"""Snapshots: all tables of a store as frames of one seq.

The driver holds the lease. Its frames are those of the session's catalog of the store, VERSION AS
OF the seq, which the catalog's process pins as soon as the snapshot is open: so they stay valid
while it is, whatever the retention. A session that has no catalog of the store gets one.

Where there is no jar (a client of Spark Connect whose server has none) they are frames of `load()`,
which need a retention that keeps the seq.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.arguments import count_of
from siltstone.choices import SearchMetric, TextOperator
from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.given import Query, Vector
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.store import LocalStore
from siltstone.process.context_exits import close_on_exit
from siltstone.spark.catalog.settings import catalog_of, quoted
from siltstone.spark.context import schemas, stores, times
from siltstone.spark.context.application import Read, of_session, store_of
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.reads.nearest import NearestRows
from siltstone.spark.reads.reader import LIVE
from siltstone.spark.reads.task_rows import LIVE_COLUMN


def snapshot(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Store,
    *,
    seq: int | None = None,
    at: object = None,
    tag: str | None = None,
) -> SparkSnapshot:
    """Return all tables at one seq, as frames; a context manager.

    Its reads count as reads of this Spark application, for overwrites (see docs/spark.md).

    Args:
        spark: A session whose executors see the path of the store.
        uri: The store: its path, or an open `Store`. It may have an owner.
        seq: The seq; or give a time `at`, or a `tag`. Default: now. A text without an offset is in
            the zone of the session (`spark.sql.session.timeZone`); a datetime has its own.

    Raises:
        SnapshotExpiredError: The store does not keep the seq, or does not have it yet.
        RequestError: More than one of the three is given, or there is no such tag.
    """
    with ExitStack() as stack:
        # Read only, as executors see it: what the owner has not synced is not there.
        store = stack.enter_context(kept(stores.path_of(uri)))
        moment = times.of_session(spark, at)
        taken = stack.enter_context(store.snapshot(seq=seq, at=moment, tag=tag))
        return SparkSnapshot(spark, store, taken, stack)


class SparkSnapshot:
    """See `snapshot`. While it is open, no vacuum deletes the files of its frames."""

    def __init__(
        self, spark: SparkSession, store: LocalStore, snapshot: Snapshot, stack: ExitStack
    ) -> None:
        """Use `snapshot`; take over from `stack` what `close` closes."""
        self._spark, self._store, self._snapshot = spark, store, snapshot
        self.seq = self._snapshot.seq
        self._catalog = catalog_of(spark, str(store.path))
        self._frames: dict[str, DataFrame] = {}
        self._views: list[str] = []
        if self._catalog is not None:
            for table in self._snapshot.tables()[:1]:
                _ = self[table]  # from now on the catalog's process keeps the seq
        self._stack = stack.pop_all()

    def __repr__(self) -> str:
        return (
            f"<SparkSnapshot of {self._store.path}, its frames and views pinned at seq {self.seq}>"
        )

    def tables(self) -> list[str]:
        """Return the names of the tables at this seq."""
        return self._snapshot.tables()

    def __getitem__(self, table: str) -> DataFrame:
        """Return the frame of a table, with all columns, of which a query reads those it uses.

        Raises:
            TableNotFoundError: There was none of that name.
            ClosedError: The snapshot is closed.
        """
        _ = self._snapshot[table]
        if table not in self._frames:
            self._frames[table] = self._frame(table, {})
        return self._frames[table]

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - the contract's name
        *,
        rows_max: int | None = None,
    ) -> DataFrame:
        """Return columns and rows of a table as a frame; siltstone pushes both down to Lance.

        Args:
            table: Its name at this seq.
            columns: The columns; None: all.
            filter: A SQL boolean expression, as in `Table.scan`.
            rows_max: The maximum number of stored rows of a Spark task. Default: by Spark's
                parallelism, and by bytes.

        Raises:
            TableNotFoundError: There was none of that name.
            RequestError: There is no such column, or the filter or `rows_max` is invalid.
            ClosedError: The snapshot is closed.
        """
        source, options = self._snapshot[table], dict[str, str]()
        if columns is not None:
            if isinstance(columns, str) or not columns:
                raise RequestError(f"columns must be a list of at least one name; got {columns!r}")
            columns = [schemas.stored(name, source.schema, table).name for name in columns]
        if filter is not None:
            source.scan(filter=filter, limit=0).close()
            options["filter"] = filter
        if rows_max is not None:
            options["maxRowsPerTask"] = str(count_of("rows_max", rows_max, 1))
        found = self._frame(table, options)
        return found if columns is None else found.select(*map(quoted, columns))

    def _frame(self, table: str, options: Mapping[str, str]) -> DataFrame:
        if self._catalog is None:
            place = {"uri": str(self._store.path), "table": table, "seq": str(self.seq)}
            return self._spark.read.format("siltstone").options(**place, **options).load()
        reader = self._spark.read.option("versionAsOf", str(self.seq)).options(**options)
        return reader.table(f"{self._catalog}.{quoted(*table.split('.'))}")

    def search(
        self,
        table: str,
        query: Query | None = None,
        k: int = 10,
        *,
        column: str | None = None,
        operator: TextOperator | None = None,
        phrase: bool = False,
        fuzzy: int | None = None,
        boost: float | Mapping[str, float] | None = None,
        metric: SearchMetric | None = None,
        filter: str | None = None,  # noqa: A002 - the contract's name
        columns: Sequence[str] | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        exact: bool = False,
        vector: Vector | None = None,
        vector_column: str | None = None,
        fusion: str | Mapping[str, float] | None = None,
        rerank: Callable[[pa.Table], object] | None = None,
    ) -> DataFrame:
        """Return the k rows with the nearest vectors, or with words, or both, as a frame.

        The driver searches, now: the rows are part of the frame, and stay when the snapshot closes.
        Sort by `_distance`, or by `_score`, the highest first: a frame has no order.

        Args:
            table: Its name at this seq.
            query: Words; or one vector, or a list of up to 1,000: `_query` says whose a row is.
            k: How many rows, of each vector.
            column: As all others: see `Table.search`.
            operator: Of words: "or" (the default) or "and".
            phrase: The words follow each other.
            fuzzy: Words are found with so many letters more, less or changed.
            boost: Scores are multiplied by it; or {column: weight}.
            metric: "l2" (the default), "cosine", "dot" or "hamming".
            filter: Only rows that match take a place among the k.
            columns: The columns; None: all.
            distance_range: (lower, upper).
            nprobes: How many partitions of an index are looked into.
            refine: Measure so many times k rows that an index found.
            exact: Ask no index of vectors; score words by the rows of this seq.
            vector: With words: a vector; both rankings are combined.
            vector_column: With words: the column of vectors.
            fusion: Of both: "rrf" (the default), or {"words": weight, "vector": weight}.
            rerank: Of both: a function of an Arrow table that returns a score for each row.

        Raises:
            RequestError: An argument is wrong: see `Table.search`.
            SchemaMismatchError: There is no such column, or Spark has no type for one.
        """
        source = self._snapshot[table]
        found = source.search(
            query,
            k,
            column=column,
            operator=operator,
            phrase=phrase,
            fuzzy=fuzzy,
            boost=boost,
            metric=metric,
            filter=filter,
            columns=columns,
            distance_range=distance_range,
            nprobes=nprobes,
            refine=refine,
            exact=exact,
            vector=vector,
            vector_column=vector_column,
            fusion=fusion,
            rerank=rerank,
        )
        self._tell_read(table)
        schema, rows = schemas.for_spark(found.to_arrow())
        return self._spark.createDataFrame(rows, schema)

    def join_nearest(
        self,
        frame: DataFrame,
        vector: str,
        table: str,
        k: int = 10,
        *,
        column: str | None = None,
        metric: SearchMetric | None = None,
        filter: str | None = None,  # noqa: A002 - the contract's name
        columns: Sequence[str] | None = None,
        distance_range: tuple[float | None, float | None] | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        exact: bool = False,
    ) -> DataFrame:
        """Return each row of a frame with the k rows of a table nearest to its vector.

        Executors search, for as many vectors as the frame has. They open the store at this seq, so
        its retention must keep that while they work; the snapshot may be closed. A row without a
        vector has no partner, and is left out.

        Args:
            frame: Any frame; its columns come first.
            vector: Its column of vectors: arrays of numbers.
            table: The name of the table at this seq.
            k: How many rows, of each vector.
            column: As all others: see `search`.
            metric: "l2" (the default), "cosine", "dot" or "hamming".
            filter: Only rows that match take a place among the k.
            columns: The columns of the table; None: all. None may have a name of the frame's.
            distance_range: (lower, upper).
            nprobes: How many partitions of an index are looked into.
            refine: Measure so many times k rows that an index found.
            exact: Ask no index.

        Raises:
            RequestError: An argument is wrong: see `search`; the frame has no such column, or both
                have a column of one name. What is wrong with a vector is raised by the tasks.
        """
        if vector not in frame.columns:
            raise SchemaMismatchError(no_such("column", vector, frame.columns))
        options: dict[str, Any] = {
            "k": k,
            "column": column,
            "metric": metric,
            "filter": filter,
            "columns": columns,
            "distance_range": distance_range,
            "nprobes": nprobes,
            "refine": refine,
            "exact": exact,
        }
        found = self._schema_of_search(table, options)
        both = sorted(set(frame.columns) & set(found.names))
        if both:
            raise RequestError(f"the frame and {table!r} both have {both}: rename, or give columns")
        schema = StructType([*frame.schema.fields, *schemas.to_spark(found).fields])
        self._tell_read(table)
        snapshot = cast("LocalSnapshot", self._snapshot)
        place = (*snapshot.place(), table, snapshot.seq)
        return frame.mapInArrow(NearestRows(place, vector, options, schema), schema)

    def _schema_of_search(self, table: str, options: Mapping[str, Any]) -> pa.Schema:
        """Return the columns of a search, by one that finds nothing: it checks the arguments."""
        source, given = self._snapshot[table], options["filter"]
        sizes = {
            field.name: cast("pa.FixedSizeListType", field.type).list_size
            for field in source.schema
            if pa.types.is_fixed_size_list(field.type)
        }
        size = sizes.get(options["column"] or next(iter(sizes), ""), 1)
        nothing = "false" if given is None else f"({given}\n) AND false"
        checked: dict[str, Any] = {**options, "filter": nothing}
        return source.search([1] * size, **checked).schema

    def _tell_read(self, table: str) -> None:
        """Record a read that the driver makes itself, where overwrites can see it."""
        application = of_session(self._spark)
        if application is not None and application.is_here:
            store = store_of(self._store.path, self._store.store_id)
            application.tell_read(Read(store, self._snapshot[table].id, table, self.seq))

    def create_views(
        self,
        tables: Sequence[str] | None = None,
        prefix: str = "",
        *,
        columns: Mapping[str, Sequence[str]] | None = None,
        live: bool = False,
    ) -> list[str]:
        """Create a temporary view of each table for Spark SQL; return their names.

        The views stay at the seq of the snapshot: they do not show later commits, and an overwrite
        from them conflicts with later commits.

        Args:
            tables: The tables; None: all.
            prefix: The prefix of the names; views with the same name are replaced.
            columns: The columns of some of the tables; of the others: all.
            live: Each query shows the newest rows, of the time when it begins; all such views in
                it show one seq. (Without a catalog each may show another.)

        Raises:
            RequestError: `columns` names a table that gets no view, or a column that is not there.
        """
        wanted, picked = self.tables() if tables is None else tables, columns or {}
        unknown = sorted(set(picked) - set(wanted))
        if unknown:
            raise RequestError(f"columns: there is {no_such('view', unknown, wanted)}")
        for table in wanted:
            name = prefix + table
            self._create_view(name, table, picked.get(table), live=live)
            if name not in self._views:
                self._views.append(name)
        return list(self._views)

    def _create_view(
        self, name: str, table: str, columns: Sequence[str] | None, *, live: bool
    ) -> None:
        pinned = self[table] if columns is None else self.read(table, columns)
        if not live:
            pinned.createOrReplaceTempView(quoted(name))
        elif self._catalog is None:
            self._live(table, columns).createOrReplaceTempView(quoted(name))
        else:
            picked = ", ".join(map(quoted, pinned.columns))
            source = f"{self._catalog}.{quoted(*table.split('.'))}"
            made = f"SELECT {picked} FROM {source}"  # noqa: S608 - names are quoted
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quoted(name)} AS {made}")

    def _live(self, table: str, columns: Sequence[str] | None) -> DataFrame:
        """Return the frame of a table whose queries are planned one by one: see `LiveReader`."""
        reader = self._spark.read.format("siltstone").option("uri", str(self._store.path))
        if columns is not None:
            reader = reader.option("columns", json.dumps(list(columns)))
        frame = reader.option("table", table).option(LIVE, "true").load()
        return frame.where(f"{LIVE_COLUMN} is not null").drop(LIVE_COLUMN)

    def close(self) -> None:
        """Drop the views and release the files. Further calls do nothing.

        Frames of a catalog that somebody still has can be read: they keep the seq themselves.
        """
        for name in self._views:
            self._spark.catalog.dropTempView(name)
        self._views, self._frames = [], {}
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    __exit__ = close_on_exit
