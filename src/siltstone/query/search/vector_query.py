"""Vector query: what a caller asks a search for, checked against the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast, get_args

import numpy as np
import pyarrow as pa

from siltstone.arguments import count_of, flag_of
from siltstone.choices import SearchMetric
from siltstone.errors import RequestError, SchemaMismatchError, no_such, not_one_of

K_MAX = 10_000
QUERIES_MAX = 1_000
RANKED_MAX = 100_000
"""The highest number of queries times k."""
PROBES_MAX = 65_536
REFINE_MAX = 100
DISTANCE, QUERY = "_distance", "_query"

Bounds: TypeAlias = tuple[float | None, float | None]
_METRICS = get_args(SearchMetric)
_OF_FLOATS, _OF_BYTES = ("l2", "cosine", "dot"), ("hamming",)


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A search. `vectors` has a row for each query, as float32, float64 or uint8.

    `is_many`: whether a list of vectors was given, also of one.
    """

    column: str
    vectors: np.ndarray
    is_many: bool
    k: int
    metric: str
    within: Bounds
    probes: int | None
    refine: int | None
    is_exact: bool


def vector_query(
    schema: pa.Schema,
    vector: object,
    *,
    k: object,
    column: object,
    metric: object,
    distance_range: object,
    nprobes: object,
    refine: object,
    exact: object,
    k_max: int = K_MAX,
) -> VectorQuery:
    """Return the query of a caller's arguments; above `K_MAX` rows it takes one vector.

    Raises:
        RequestError: One of them is wrong, or does not fit the column.
        SchemaMismatchError: There is no such column.
    """
    name = _column(schema, column)
    kind = cast("pa.FixedSizeListType", schema.field(name).type)
    most = count_of("k", k, 1, k_max)
    vectors, is_many = _vectors(name, kind, vector)
    if most * len(vectors) > max(RANKED_MAX, k_max):
        text = f"{len(vectors)} vectors and k={most} are {most * len(vectors)} rows"
        raise RequestError(f"{text}; at most {RANKED_MAX} are ranked at once")
    return VectorQuery(
        name,
        vectors,
        is_many,
        most,
        _metric(name, kind, metric, vectors),
        _bounds(distance_range),
        None if nprobes is None else count_of("nprobes", nprobes, 1, PROBES_MAX),
        None if refine is None else count_of("refine", refine, 1, REFINE_MAX),
        flag_of("exact", exact),
    )


def is_vector(kind: pa.DataType) -> bool:
    """Say whether a column of this type is searched."""
    if not pa.types.is_fixed_size_list(kind) or not kind.list_size:
        return False
    return pa.types.is_floating(kind.value_type) or pa.types.is_uint8(kind.value_type)


def _column(schema: pa.Schema, column: object) -> str:
    vectors = [field.name for field in schema if is_vector(field.type)]
    if column is None and not vectors:
        raise RequestError(
            "no column holds vectors: fixed-size lists of floats or of uint8; the columns are"
            f" {', '.join(schema.names[:20])}"
        )
    needed = "a search needs fixed-size lists of floats or of uint8"
    return only_of(vectors) if column is None else column_of(schema, column, vectors, needed)


def only_of(columns: Sequence[str]) -> str:
    """Return the one column that may be meant where none is named.

    Raises:
        RequestError: There are several.
    """
    if len(columns) > 1:
        raise RequestError(f"column must be one of {', '.join(columns)}; got none")
    return columns[0]


def column_of(schema: pa.Schema, column: object, fitting: Sequence[str], needed: str) -> str:
    """Return a column that is named and can be searched; `needed` says of which type it must be.

    Raises:
        RequestError: It is no name, or of another type.
        SchemaMismatchError: There is no such column.
    """
    if not isinstance(column, str):
        raise RequestError(f"column must be a name; got {column!r:.80}")
    if column not in schema.names:
        raise SchemaMismatchError(no_such("column", column, schema.names))
    if column not in fitting:
        raise RequestError(f"column {column!r} is {schema.field(column).type}; {needed}")
    return column


def _metric(name: str, kind: pa.FixedSizeListType, metric: object, vectors: np.ndarray) -> str:
    fitting = _OF_BYTES if pa.types.is_uint8(kind.value_type) else _OF_FLOATS
    if metric is None:
        return fitting[0]
    if not isinstance(metric, str) or metric not in _METRICS:
        raise RequestError(not_one_of("metric", metric, _METRICS))
    if metric not in fitting:
        raise RequestError(
            f"column {name!r} holds vectors of {kind.value_type}, which have the metric"
            f" {' or '.join(fitting)}; got {metric!r}"
        )
    if metric == "cosine" and not vectors.any(axis=1).all():
        raise RequestError("a vector of zeros has no cosine distance to any row")
    return metric


def _bounds(given: object) -> Bounds:
    if given is None:
        return None, None
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise RequestError(f"distance_range must be (lower, upper) or None; got {given!r:.80}")
    bounds = cast("Sequence[object]", given)
    lower, upper = (_bound(bound) for bound in bounds)
    if lower is not None and upper is not None and lower >= upper:
        raise RequestError(f"distance_range {given!r:.80} is empty: the upper bound is exclusive")
    return lower, upper


def _bound(given: object) -> float | None:
    if given is None:
        return None
    found = float_of(given)
    if found is None or math.isnan(found):
        raise RequestError(f"distance_range has numbers or None; got {given!r:.80}")
    return found


def float_of(given: object) -> float | None:
    """Return a number as a float; None: it is no number, or an integer that no float holds."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.integer | np.floating):
        return None
    try:
        return float(given)
    except OverflowError:
        return None


def _vectors(name: str, kind: pa.FixedSizeListType, given: object) -> tuple[np.ndarray, bool]:
    """Return the vectors as rows, and whether there may be many."""
    size, element = kind.list_size, kind.value_type
    found = _array(given)
    if found.ndim not in (1, 2) or found.shape[-1] != size:
        shape = "x".join(map(str, found.shape)) or "no"
        raise RequestError(
            f"column {name!r} holds vectors of {size} numbers; the query has {shape}"
        )
    rows = found.reshape(-1, size)
    if not 1 <= len(rows) <= QUERIES_MAX:
        raise RequestError(f"a search takes 1 to {QUERIES_MAX} vectors at once; got {len(rows)}")
    if pa.types.is_uint8(element):
        with np.errstate(invalid="ignore"):
            exact = rows.astype(np.uint8)
        if not (exact == rows).all():
            raise RequestError(f"column {name!r} holds uint8: integers from 0 to 255")
        return exact, found.ndim == 2
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = rows.astype(element.to_pandas_dtype())
    if not np.isfinite(rounded).all():
        raise RequestError(f"the query must have finite numbers that {element} holds, and no NaN")
    kept = np.float64 if pa.types.is_float64(element) else np.float32
    return np.ascontiguousarray(rounded, kept), found.ndim == 2


def _array(given: object) -> np.ndarray:
    if isinstance(given, bytes):
        raise RequestError("a search takes a text, a vector, or a list of vectors; got bytes")
    if _has_booleans(given):
        raise RequestError(f"a vector is a list of numbers, not of booleans; got {given!r:.80}")
    try:
        found = np.asarray(_plain(given))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise RequestError(f"a vector is a list of numbers; got {given!r:.80}") from error
    if found.dtype.kind not in "iuf" and not (found.dtype.kind == "O" and not found.size):
        raise RequestError(f"a vector is a list of numbers; got {given!r:.80}")
    return found


def _has_booleans(given: object) -> bool:
    """Say whether there is a boolean among numbers: NumPy would take it for 1 or 0."""
    if isinstance(given, np.ndarray):
        return given.dtype.kind == "b"
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return pa.types.is_boolean(given.type)
    if not isinstance(given, list | tuple):
        return isinstance(given, bool | np.bool)
    values = cast("Sequence[object]", given)
    return not {*map(type, values)} <= {int, float} and any(map(_has_booleans, values))


def _plain(given: object) -> object:
    """Return Arrow values as Python has them: NumPy makes objects of their lists."""
    if isinstance(given, pa.Scalar):
        return given.as_py()
    return given.to_pylist() if isinstance(given, pa.Array | pa.ChunkedArray) else given
