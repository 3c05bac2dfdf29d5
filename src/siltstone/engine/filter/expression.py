"""Expression: a SQL expression of any type that Arrow evaluates: the new value in an update."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from siltstone.engine.filter.filters import projected
from siltstone.engine.filter.typed import Value
from siltstone.errors import RequestError


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression over the columns of one schema; immutable, free to share."""

    text: str
    value: Value | None

    @property
    def is_null(self) -> bool:
        """Whether it is NULL for every row."""
        return self.value is None

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of its values.

        Raises:
            RequestError: It is a bare NULL, which has no type.
        """
        if self.value is None:
            raise RequestError("NULL has no type; write cast(NULL as int), for example")
        return self.value.type

    def evaluate(self, rows: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
        """Return its value for each row, as `kind`.

        Raises:
            RequestError: A value does not fit, or arithmetic overflows.
        """
        if self.value is None:
            return pa.chunked_array([pa.array([None] * rows.num_rows, kind)])
        try:
            return projected(self.value.expression, rows).cast(kind)
        except pa.ArrowException as error:
            raise RequestError(f"{self.text[:200]!r} does not fit {kind}: {error}") from error


def compile_value(text: str, schema: pa.Schema) -> Expression:
    """Return the expression of a SQL text over the columns of `schema`.

    Raises:
        RequestError: It does not parse, is not supported, or its types do not fit.
    """
    # Late: sqlglot takes 0.3 s to import.
    from siltstone.engine.filter import compiler  # noqa: PLC0415

    return Expression(text, compiler.compile_value(text, schema))
