"""Given: the types of what callers give: rows, keys, vectors, schemas. Type checkers know them.

They are checked when a call is made, whatever a type checker said of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import UnionType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from uuid import UUID

    import numpy as np
    import pyarrow as pa


class ArrowStream(Protocol):
    """Rows, or a column of values: of Arrow, pandas, Polars, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return them as Arrow data."""


class ArrowArray(Protocol):
    """A batch of rows, or a column of values."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Return them as Arrow data."""


Rows: TypeAlias = "Mapping[str, Any] | Iterable[Mapping[str, Any]] | ArrowStream | ArrowArray"
"""One row as a dict by column, several of them, or anything Arrow-shaped."""

KeyValue: TypeAlias = (
    "int | str | bytes | bytearray | memoryview | dt.date | Decimal | UUID | np.generic"
)
"""The value of one key column; a bool is an int, a datetime is a date."""

Key: TypeAlias = "KeyValue | tuple[KeyValue, ...] | Mapping[str, KeyValue]"
"""A value; for a composite key a tuple in key order, or a dict by column."""

Keys: TypeAlias = "Key | Iterable[Key] | ArrowStream | ArrowArray"
"""One key, an iterable of keys, a column of them, or Arrow data with the key columns."""

Vector: TypeAlias = "Sequence[float] | np.ndarray | ArrowStream | ArrowArray"
"""The numbers of one vector, or of several: of Python, NumPy, Arrow, pandas or Polars."""

Query: TypeAlias = "str | Vector | Sequence[Vector]"
"""Words to search for, a vector, or several vectors."""

ColumnType: TypeAlias = "str | type | UnionType | pa.DataType"
"""A name ("int64", "varchar", "int64 not null"), a type of Python, or one of Arrow."""

SchemaLike: TypeAlias = "pa.Schema | Mapping[str, ColumnType]"
"""A schema of Arrow, or a dict of name to type."""
