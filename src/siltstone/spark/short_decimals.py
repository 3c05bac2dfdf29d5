"""Short decimals: those that travel from a function to Spark as 64-bit integers.

    decimal(15, 2) 12.34 ──Python──▶ 1234 ──Spark──▶ cast(1234 as decimal(15, 0)) * 0.01

Java makes four objects of each decimal that Arrow has, of 16 bytes, in every row of a batch, though
the next filter may leave it out. An integer costs nothing until an expression uses it, and then the
product costs less. The product has at most 18 digits, which Spark keeps as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.types import DataType, DecimalType

_DIGITS_MAX = 18


def is_short(kind: DataType) -> bool:
    """Return whether values of the type travel as integers."""
    return isinstance(kind, DecimalType) and kind.precision + kind.scale < _DIGITS_MAX


def as_integers(values: Any) -> pa.Array:
    """Return decimals without their point, as int64."""
    at, data = values.offset, values.buffers()[1]
    words = np.frombuffer(data or b"", "<i8", count=2 * (at + len(values)))
    low = words[2 * at :: 2]
    return pa.array(low, mask=values.is_null().to_numpy(False) if values.null_count else None)


def as_decimals(integers: Column, kind: DecimalType) -> Column:
    """Return the decimals of `as_integers`."""
    whole = integers.cast(DecimalType(kind.precision, 0))
    if not kind.scale:
        return whole
    unit = functions.expr(f"0.{'1':0>{kind.scale}}BD")
    return (whole * unit).cast(kind)
