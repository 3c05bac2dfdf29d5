"""Nearest: the rows of one version with the nearest vectors, ranked by Lance.

Lance asks an index that has the metric and covers some parts, and measures all rows of the others;
rows that it should not see are in a block list, so that they take no place among the k.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.storage.lance.files.row_addresses import RowAddresses
from siltstone.storage.lance.search.vector_indexes import refine_of
from siltstone.storage.tables.values import Lengths, NearestQuery, Ranked, Segment, Span

ADDRESS, DISTANCE, QUERY = "_rowaddr", "_distance", "query_index"
_FEW, _EFFORT_OF_FEW = 10, 0.43
"""If more than 10 rows are asked for, Lance looks into more partitions, for half of the time more.
With this effort they are about as many as for 10 (of 24 and of 240, measured; Lance's own is 0.5).
"""


class VectorIndex(msgspec.Struct, frozen=True):
    """An index of vectors of one version.

    Args:
        name: Its name in the version.
        column: The column.
        metric: That of its distances.
        refine: What it finds is measured again so many times k rows, if it rounds too much.
        rows: How many rows it covers.
        segments: The ids of its segments that cover rows.
        is_whole: It covers all parts.
    """

    name: str
    column: str
    metric: str
    refine: int | None
    rows: int
    segments: tuple[str, ...]
    is_whole: bool


def indexes_of(
    dataset: Any, segments: Iterable[Segment], spans: Collection[Span]
) -> list[VectorIndex]:
    """Return the indexes of vectors of a version; `spans` has those of its parts with rows."""
    covered: dict[str, set[Span]] = {}
    ids: dict[str, list[str]] = {}
    for segment in segments:
        covered.setdefault(segment.index, set()).update(segment.covered)
        ids.setdefault(segment.index, []).extend([segment.id] if segment.covered else [])
    return [
        VectorIndex(
            index.name,
            index.field_names[0],
            str(index.details["metric_type"]).lower(),
            refine_of(index.index_type),
            sum(end - start for start, end in covered.get(index.name, ())),
            tuple(ids.get(index.name, ())),
            covered.get(index.name, set()) >= {*spans},
        )
        for index in dataset.describe_indices()
        if "metric_type" in (index.details or {})
    ]


def options_of(
    asked: NearestQuery,
    blocked: bytes | None,
    index: VectorIndex | None,
    among: Sequence[Any] | None,
) -> dict[str, Any]:
    """Return the options of Lance's scanner for a search.

    Args:
        asked: The search.
        blocked: The rows that are left out.
        index: The index to ask; None: no one.
        among: The parts of the version, if its column has more than one index.
    """
    nearest: dict[str, Any] = {
        "column": asked.column,
        "q": asked.vectors[0] if len(asked.vectors) == 1 else asked.vectors,
        "k": asked.k,
        "metric": asked.metric,
        "use_index": index is not None,
    }
    if asked.probes is not None:
        nearest["nprobes"] = asked.probes
    elif asked.wanted is not None and asked.wanted <= _FEW < asked.k:
        nearest["search_effort"] = _EFFORT_OF_FEW
    refine = asked.refine or (index.refine if index is not None else None)
    if refine is not None:
        nearest["refine_factor"] = refine
    if asked.least is not None:
        nearest["distance_range"] = (asked.least, None)
    options: dict[str, Any] = {
        "columns": [*asked.bringing, *([] if len(asked.vectors) == 1 else [QUERY]), DISTANCE],
        "disable_scoring_autoprojection": True,
        "nearest": nearest,
        "filter": asked.prefilter,
        "prefilter": True,
        "use_scalar_index": False,
        "with_row_address": True,
        "row_addr_blocklist": blocked,
    }
    if index is not None and among is not None:
        # Of several indexes of one column Lance takes the first, and none if that has another
        # metric. Rows that the segments do not cover are found only if the parts are named, too.
        options["index_segments"] = index.segments
        options["fragments"] = None if index.is_whole else among
    return options


def ranked(found: pa.Table, addresses: RowAddresses, asked: NearestQuery) -> Ranked:
    """Return what Lance found as positions."""
    address = found.column(ADDRESS).to_numpy().view(np.int64)
    is_many = len(asked.vectors) > 1
    queries = found.column(QUERY).to_numpy() if is_many else np.zeros(len(address), np.int32)
    distances = found.column(DISTANCE).to_numpy()
    brought = found.select(list(asked.bringing))
    return Ranked(queries, addresses.positions(address), distances, brought)


def joined(found: Sequence[Ranked]) -> Ranked:
    """Return the answers of searches for one vector each as one of a search for all of them."""
    counts = [len(each.positions) for each in found]
    return Ranked(
        np.repeat(np.arange(len(found), dtype=np.int32), counts),
        np.concatenate([each.positions for each in found]),
        np.concatenate([each.distances for each in found]),
        pa.concat_tables([each.brought for each in found]),
    )


def lengths_of(columns: Iterable[Any]) -> Lengths:
    """Return the lengths of vectors; those with a NaN, and those of zeros, do not count."""
    least, most = math.inf, 0.0
    for column in columns:
        numbers = column.flatten().fill_null(0).to_numpy(zero_copy_only=False)
        matrix = numbers.astype(np.float64).reshape(-1, column.type.list_size)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", matrix, matrix)
        squares = squares[squares > 0]
        least = min(least, float(squares.min(initial=math.inf)))
        most = max(most, float(squares.max(initial=0.0)))
    return Lengths(math.sqrt(least), math.sqrt(most))
