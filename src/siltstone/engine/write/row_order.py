"""Row order: which of the rows with one key is the last, by the values of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def ascending(values: pa.Array) -> np.ndarray:
    """Return the places of values in ascending order, equal ones as they are.

    Nulls are first and NaN is last, above all numbers, as queries have it: DuckDB's and Spark's.
    """
    if pa.types.is_float16(values.type):  # Arrow cannot sort it
        values = values.cast(pa.float32())
    places = pc.array_sort_indices(values, null_placement="at_start").to_numpy()  # stable
    if not pa.types.is_floating(values.type):
        return places
    first = values.null_count  # Arrow has NaN next to the nulls
    end = first + int(np.isnan(values.drop_null().to_numpy()).sum())
    return np.concatenate((places[:first], places[end:], places[first:end]))
