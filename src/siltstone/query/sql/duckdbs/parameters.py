"""Parameters: what DuckDB's client would take for another value is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from siltstone.errors import RequestError


def refuse_lost(parameters: Any) -> None:
    """Refuse parameters that would be others in DuckDB.

    Raises:
        RequestError: A NaN is within a list or a struct, or lists are within lists without end.
    """
    given = parameters.values() if isinstance(parameters, Mapping) else parameters or ()
    try:
        is_lost = any(_has_nan(value) for value in given if not isinstance(value, float))
    except RecursionError:
        raise RequestError("a parameter has lists or structs within each other too often") from None
    if is_lost:
        raise RequestError(
            "DuckDB takes a NaN within a list or a struct for NULL, so no parameter has one: write"
            " such rows with insert() or upsert()"
        )


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - which is true of NaN alone
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    if isinstance(value, list | tuple | Mapping):
        inside: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
        return any(map(_has_nan, inside))
    return False
