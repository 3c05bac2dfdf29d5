"""Row query: which rows a request asks for, and the rows that answer it.

With a vector these are the k rows with the nearest ones, over every row that is committed, in the
order of their distance and then of their keys. With words (`full_text`) they are those with the
highest scores. With `prefilter` false the filter takes from these k rows those that match, so there
may be fewer. Bounds of the distance are [lower, upper).

    a vector                       the search of the table: an index ranks the merged rows, newer
                                   ones are compared; each row is, for more than `SEARCHED_MAX`
    words                          the search of the table, for so many rows at most
    the ids of rows (`row_ids`)    those rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from siltstone.engine.filter.filters import filter_of
from siltstone.engine.read.row_ids import ROW_ID
from siltstone.errors import no_such
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_namespace.rows import row_ids
from siltstone.lance_namespace.rows.selection import Columns, Selection
from siltstone.lance_namespace.specification import bodies
from siltstone.lance_namespace.specification.full_text import AskedWords, words_of
from siltstone.lance_versions.errors import Code, Refused, invalid, unsupported
from siltstone.local.readable import LocalReadable
from siltstone.query.search.vector_query import vector_query

K_DEFAULT = 10
K_ALL = 1 << 62
"""From here on a client that must send a number means all rows: LanceDB sends 2**63 - 1."""
SEARCHED_MAX = 10_000
"""As many rows a search of a table ranks."""
_PROBES_MAX, _REFINE_MAX = 65_536, 100
_ROWS_READ, _ROWS_READ_OF_MANY = 256, 8_192
_METRICS = ("cosine", "dot", "hamming", "l2")
_DISTANCE_FIELD = pa.field("_distance", pa.float32())
_SCORE_FIELD = pa.field("_score", pa.float32())
_PLACE_FIELD = pa.field("query_index", pa.int32(), nullable=False)
_VECTORS_MAX = 1_000
_OF_VECTORS = (
    *("vector_column", "distance_type", "lower_bound", "upper_bound", "bypass_vector_index"),
    *("nprobes", "minimum_nprobes", "refine_factor"),
)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The columns by which rows are ordered, and the direction of all of them."""

    columns: tuple[str, ...]
    descending: bool

    @classmethod
    def of(cls, asked: Sequence[bodies.ColumnOrdering] | None) -> RowOrder | None:
        """Return the order that a body asks for.

        Raises:
            Refused: Its columns have different directions.
        """
        if not asked:
            return None
        directions = {each.ascending is False for each in asked}
        if len(directions) > 1:
            raise unsupported("order_by has one direction for all its columns")
        return cls(tuple(each.column_name for each in asked), directions == {True})

    def by_key(self, key: Sequence[str]) -> dict[str, Any]:
        """Return what a scan of a table with this key is told.

        Raises:
            Refused: It is not the order of the key.
        """
        if self.columns != tuple(key[: len(self.columns)]):
            has = f"{[*key]}, in that order" if key else "and there are none"
            raise unsupported(f"order_by takes the key's columns, {has}; got {[*self.columns]}")
        return {"order_by": list(self.columns), "descending": self.descending}


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query of either kind of client, all of which is offered; `limit` None is all."""

    asked: bodies.QueryRequest
    columns: Columns
    filter: str | None
    limit: int | None
    offset: int
    vector: list[float]
    words: AskedWords | None
    order: RowOrder | None = None
    """The order of the rows, if one was asked for."""
    ids: tuple[int, ...] | None = None
    """The `_rowid` of the rows, if they are taken by it."""
    vectors: tuple[list[float], ...] = ()
    """All of them, if several were asked for: rows have the place of theirs in `query_index`."""

    @classmethod
    def of(cls, asked: bodies.QueryRequest) -> RowQuery:
        """Return the query of a body.

        Raises:
            Refused: Bounds of a distance, and no vector; the nearest 0 rows; words and a vector; a
                search, or an order, of rows that are named by their ids; a search in an order.
        """
        vectors = _vectors_of(asked)
        vector = vectors[0] if vectors else []
        words = None if asked.full_text_query is None else words_of(asked.full_text_query)
        if words is not None:
            _refuse_of_vectors(asked, vector)
        if not vector and not (asked.lower_bound is None and asked.upper_bound is None):
            raise invalid("lower_bound and upper_bound limit distances to a vector: give one")
        limit = asked.k
        is_search = bool(vector) or words is not None
        if limit is None and is_search:
            limit = K_DEFAULT
        if limit is not None and limit >= K_ALL:
            limit = None
        if is_search and limit == 0:
            raise invalid("k must be an integer from 1; got 0")
        filter_ = asked.filter or None
        ids = row_ids.taken(filter_)
        if ids is not None and is_search:
            raise invalid("a filter by _rowid stands alone: it takes rows, and ranks none")
        order = RowOrder.of(asked.order_by)
        if order is not None and (is_search or ids is not None):
            raise unsupported("order_by is of rows that a filter matches: a search ranks them")
        several = tuple(vectors) if _is_several(asked) else ()
        offset = asked.offset or 0
        filter_ = None if ids is not None else filter_
        columns = asked.columns
        return cls(asked, columns, filter_, limit, offset, vector, words, order, ids, several)

    @property
    def _takes_before(self) -> bool:
        """Whether the best rows are taken before the filter: `prefilter` is false."""
        return (
            self._ranked is not None and self.asked.prefilter is False and self.filter is not None
        )

    @property
    def _ranked(self) -> pa.Field | None:
        """The column by which rows are ranked."""
        if self.words is not None:
            return _SCORE_FIELD
        return _DISTANCE_FIELD if self.vector else None

    def chosen(self, schema: pa.Schema) -> Selection:
        """Return which columns the answer has, of a table with these.

        Raises:
            RequestError: An expression that does not fit them.
        """
        added = [ROW_ID] if self.is_numbered else []
        return Selection.of(self.columns, schema, *added, *([self._ranked] if self._ranked else []))

    @property
    def is_numbered(self) -> bool:
        """Whether rows come with their ids."""
        return row_ids.are_asked_for(self.columns, self.asked.with_row_id)

    def read(self, table: LocalReadable, limits: RowLimits) -> pa.RecordBatchReader:
        """Return the rows.

        Raises:
            Refused: No vector column, not of that length, or a distance that is not known.
            RequestError: The words cannot be searched for: see `Table.search`.
        """
        if self.vectors:
            return self._best_of_each(table, limits).to_reader()
        if self._ranked is not None:
            return self._best(table, limits).to_reader()
        chosen = self.chosen(table.schema)
        most = None if self.limit is None else self.limit + self.offset
        if self.ids is not None:
            rows = table.rows_with_ids(self.ids, chosen.read)
            return chosen.of_rows(rows.slice(self.offset, self.limit)).to_reader()
        scan = table.scan_with_ids if self.is_numbered else table.scan
        if self.order is not None:
            order = self.order.by_key(table.primary_key)
            reader = scan(chosen.read, self.filter, self.limit, offset=self.offset, **order)
        else:
            reader = scan(chosen.read, self.filter, most)
        if self.is_numbered:
            reader = row_ids.told_apart(reader)
        if self.offset and self.order is None:
            rows = _after(reader, self.offset)
            reader = pa.RecordBatchReader.from_batches(reader.schema, rows)
        return chosen.of_reader(reader)

    def _best_of_each(self, table: LocalReadable, limits: RowLimits) -> pa.Table:
        """Return the nearest rows of each vector, those of one behind those of another."""
        most = self._most(limits) * len(self.vectors)
        if most > limits.collected_rows_max:
            raise invalid(f"k for each of the vectors is at most {limits.collected_rows_max} rows")
        found = list[pa.Table]()
        nbytes = rows = 0
        for number, vector in enumerate(self.vectors):
            best = replace(self, vector=vector, vectors=()).read(table, limits).read_all()
            if _PLACE_FIELD.name in best.schema.names:
                told = "says to which vector a row belongs; select yours by another name"
                raise invalid(f"{_PLACE_FIELD.name!r} {told}")
            places = pa.array([number] * best.num_rows, pa.int32())
            found.append(best.add_column(0, _PLACE_FIELD, places))
            nbytes, rows = nbytes + best.nbytes, rows + best.num_rows
            if rows:
                limits.refuse_collected(nbytes, rows, most)
        return pa.concat_tables(found)

    def _best(self, table: LocalReadable, limits: RowLimits) -> pa.Table:
        """Return the rows of a search, the best first, with the column that ranks them."""
        schema, most = table.schema, self._most(limits)
        chosen = self.chosen(schema)
        later = filter_of(self.filter if self._takes_before else None, schema)
        needed = [*dict.fromkeys([*chosen.read, *(later.columns if later else ())])]
        before = None if later else self.filter
        if self.words is not None:
            self.check_words(schema)
            options = {**self.words.options, "filter": before, "columns": needed}
            options["numbered"] = self.is_numbered
            best = _searched(table, self.words.text, most, options, _SCORE_FIELD, limits)
        else:
            options = {**self._of_vector(schema, most), "filter": before, "columns": needed}
            options |= {"numbered": self.is_numbered, "k_max": limits.collected_rows_max}
            best = _searched(table, self.vector, most, options, _DISTANCE_FIELD, limits)
        if self.is_numbered:
            best = row_ids.told_apart(best.to_reader()).read_all()
        if later is not None:
            best = later.keep(best)
        return chosen.of_rows(best.slice(self.offset))

    def check_words(self, schema: pa.Schema) -> None:
        """Check that a table with these columns has those that are searched for words.

        Raises:
            Refused: It lacks one.
        """
        for name in self.words.columns if self.words is not None else ():
            if name not in schema.names:
                # Of a 404 LanceDB's client says that there is no such table.
                raise invalid(no_such("column", name, schema.names))

    def _of_vector(self, schema: pa.Schema, most: int) -> dict[str, Any]:
        """Return what the search of a table with these columns is told of a vector.

        Raises:
            Refused: The distance is not known, or there is no such column, or it is within one.
        """
        asked = self.asked
        name, metric = asked.vector_column or None, (asked.distance_type or "").lower()
        if metric and metric not in _METRICS:
            raise invalid(f"distance_type is one of {list(_METRICS)}")
        if name is not None and name not in schema.names:
            raise _no_column(schema, name)
        return {
            "column": name,
            "metric": metric or None,
            "distance_range": self._bounds,
            # LanceDB says the partitions in two members, and any number in all three.
            "nprobes": min(max(asked.nprobes or 0, asked.minimum_nprobes or 0), _PROBES_MAX)
            or None,
            "refine": min(asked.refine_factor or 0, _REFINE_MAX) or None,
            "exact": bool(asked.bypass_vector_index) or most > SEARCHED_MAX,
        }

    def search_told(self, schema: pa.Schema, limits: RowLimits) -> str:
        """Return in words how the nearest rows are found.

        Raises:
            Refused: As by `read`.
        """
        most = self._most(limits)
        of_vector = self._of_vector(schema, most) | {"k_max": limits.collected_rows_max}
        asked = vector_query(schema, self.vector, k=most, **of_vector)
        rows = "all rows, filtered after that" if self._takes_before else "all rows that match"
        (least, end), within = self._bounds, ""
        if not (least is None and end is None):
            within = f", at a distance from {0 if least is None else least}"
            within += "" if end is None else f" to below {end}"
        how = "each row is compared"
        if not asked.is_exact:
            how = f"merged rows by an index of {asked.metric}, if there is one, others compared"
            how += f"; nprobes {asked.probes or 'by Lance'}, refine {asked.refine or 'by Lance'}"
        return f"{asked.metric}, in {asked.column}, over {rows}{within}: {how}"

    @property
    def _bounds(self) -> tuple[float | None, float | None]:
        return self.asked.lower_bound, self.asked.upper_bound

    def _most(self, limits: RowLimits) -> int:
        if self.words is not None:
            most = SEARCHED_MAX + 1 if self.limit is None else self.limit + self.offset
            if most > SEARCHED_MAX:
                raise invalid(f"k (with offset) of a search for words is at most {SEARCHED_MAX}")
            return most
        if self.limit is None:
            return limits.collected_rows_max
        most = self.limit + self.offset
        if most > limits.collected_rows_max:
            raise invalid(f"k is at most {limits.collected_rows_max}")
        return most


def _no_column(schema: pa.Schema, name: str) -> Refused:
    """Return why no column has a name: it is not there, or is a field within one."""
    outer, *inner = name.split(".")
    kind = schema.field(outer).type if inner and outer in schema.names else None
    while inner and kind is not None and pa.types.is_struct(kind):
        at = kind.get_field_index(inner.pop(0))
        kind = kind.field(at).type if at >= 0 else None
    if kind is None or inner:
        return Refused(Code.COLUMN_NOT_FOUND, no_such("column", name, schema.names))
    return unsupported(
        f"{name!r:.200} is within column {outer!r}: a vector within a struct is not searched: keep"
        " it in a column of its own"
    )


def _searched(
    table: LocalReadable,
    query: object,
    most: int,
    options: dict[str, Any],
    ranked: pa.Field,
    limits: RowLimits,
) -> pa.Table:
    """Return the best rows by the search of the table, with the column that ranks them.

    Raises:
        Refused: They are more bytes than one statement may hold.
    """
    at_once = _ROWS_READ if most <= SEARCHED_MAX else _ROWS_READ_OF_MANY
    reader = table.search_in_parts(query, most, at_once, **options)
    schema = reader.schema.remove(len(reader.schema) - 1).append(ranked)
    parts = list[pa.RecordBatch]()
    nbytes = rows = 0
    for batch in reader:
        parts.append(batch.cast(schema))
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
        limits.refuse_collected(nbytes, rows, most)
    return pa.Table.from_batches(parts, schema)


def _is_several(asked: bodies.QueryRequest) -> bool:
    given = asked.vector
    return isinstance(given, list) and any(isinstance(each, list) for each in given)


def _vectors_of(asked: bodies.QueryRequest) -> list[list[float]]:
    """Return the vectors of a request.

    Raises:
        Refused: They are numbers among vectors, or too many.
    """
    given = asked.vector
    if isinstance(given, bodies.QueryVector):
        given = given.single_vector
    lists: list[list[float]] = [each for each in given or [] if isinstance(each, list)]
    if not lists:
        numbers: list[float] = [each for each in given or [] if not isinstance(each, list)]
        return [numbers] if numbers else []
    if len(lists) != len(given or []) or not all(lists):
        raise invalid("vector is a list of numbers, or a list of such lists")
    if len(lists) > _VECTORS_MAX:
        raise invalid(f"a query takes at most {_VECTORS_MAX} vectors; got {len(lists)}")
    return lists


def _refuse_of_vectors(asked: bodies.QueryRequest, vector: list[float] | None) -> None:
    """Refuse a vector together with words, and what is of a vector alone."""
    if vector:
        raise unsupported(
            "full_text_query with a vector is not offered here: the specification does not say"
            " how two rankings become one"
        )
    for name in _OF_VECTORS:
        if getattr(asked, name):
            raise invalid(f"{name} is of a search by a vector; this one is for words")


def _after(reader: pa.RecordBatchReader, offset: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        if offset < batch.num_rows:
            yield batch.slice(offset)
        offset = max(0, offset - batch.num_rows)
