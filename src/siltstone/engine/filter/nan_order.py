"""NaN order: Arrow filters of an engine that ranks NaN, as DuckDB and PostgreSQL do.

    NaN = NaN, and NaN is above all   to the engine; to Arrow NaN equals nothing, `x != x` finds it
    -0.0 = 0.0, also in IN (..)       to the engine; Arrow's `is_in` tells them apart

The engine pushes a filter as an Arrow expression and does not evaluate it again, so the rows must
be those that it would find itself.
"""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter import arrow, compare, typed
from siltstone.engine.filter.arrow import Calls, FilterPiece
from siltstone.engine.filter.literals import Operator


def ranked(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return the expression that is true in Arrow where `expression` is true to the engine.

    One of an unknown form is returned as it is.
    """
    found = arrow.rebuilt(expression, schema, _CALLS)
    return expression if found is None else found.expression


def _compared(sign: Operator, left: FilterPiece, right: FilterPiece) -> FilterPiece:
    if left.scalar is not None and right.scalar is None:
        return _compared(compare.FLIPPED.get(sign, sign), right, left)
    value = right.scalar
    if value is None or not value.is_valid or not pa.types.is_floating(value.type):
        return FilterPiece(compare.KERNELS[sign](left.expression, right.expression))
    return FilterPiece(_ranked(sign, left.expression, float(value.as_py())))


def _ranked(sign: Operator, column: pc.Expression, value: float) -> pc.Expression:
    is_nan, is_number = column != column, column == column  # noqa: PLR0124 - null stays null
    if not math.isnan(value):
        found = compare.KERNELS[sign](column, pc.scalar(value))
        return found | is_nan if sign in {">", ">="} else found
    by_sign: dict[Operator, pc.Expression] = {
        "=": is_nan,
        ">=": is_nan,
        "!=": is_number,
        "<": is_number,
        "<=": is_number | is_nan,
        ">": is_number & is_nan,
    }
    return by_sign[sign]


def _is_in(piece: FilterPiece, options: pa.Scalar[Any]) -> FilterPiece:
    values: pa.Array[Any] = cast("Any", options)["value_set"].values
    if not pa.types.is_floating(values.type) or not len(values):
        return FilterPiece(piece.expression.isin(values))
    # A null in the list is as `x = NULL`: neither true nor false.
    found = [
        typed.null() if value is None else _ranked("=", piece.expression, float(value))
        for value in values.to_pylist()
    ]
    return FilterPiece(compare.balanced(operator.or_, found))


_CALLS: Calls = {
    ("is_in", 1, 1): _is_in,
    **{(name, 2, 0): partial(_compared, sign) for name, sign in arrow.SIGNS.items()},
}
