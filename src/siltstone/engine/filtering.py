"""Filter: which rows a read keeps, as SQL text or as an Arrow expression of another engine.

Both are decided by Arrow, row by row, in every level; what reaches Lance is a superset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.predicate import Predicate, mentions, pushable
from siltstone.errors import RequestError


class Filter(Protocol):
    """What a scan asks of a filter."""

    @property
    def columns(self) -> frozenset[str]: ...

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def prefilter(self, names: Mapping[str, str]) -> str | pc.Expression | None: ...

    def parts(self) -> Sequence[Filter]:
        """Return filters that all hold where this one does; itself, if it has no parts."""
        ...


class TextFilter:
    """A SQL boolean expression."""

    __slots__ = ("columns", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.columns = predicate.columns

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match."""
        return self.predicate.filter(batch)

    def prefilter(self, names: Mapping[str, str]) -> str | None:
        """Return a superset of the filter over stored names, None if nothing can be pushed."""
        return self.predicate.prefilter(names)

    def parts(self) -> list[TextFilter]:
        """Return what stands between the outermost ANDs."""
        return [TextFilter(part) for part in self.predicate.parts()]


class ExpressionFilter:
    """An Arrow expression, as DuckDB, Polars and pandas push it; its columns are not known."""

    __slots__ = ("_expression", "_schema", "columns")

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self._expression, self._schema = expression, schema
        # An expression does not name its columns: those whose names stand in its text may be meant.
        text = str(expression)
        self.columns = frozenset(n for n in schema.names if mentions(text, n))

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match."""
        try:
            kept = pa.Table.from_batches([batch]).filter(self._expression)
        except (pa.ArrowException, KeyError) as error:
            raise RequestError(f"the filter cannot be evaluated: {error}") from error
        batches = kept.combine_chunks().to_batches()
        return batches[0] if batches else batch.slice(0, 0)

    def prefilter(self, names: Mapping[str, str]) -> pc.Expression | None:
        """Return the expression if Lance surely agrees with Arrow on it and no name changed."""
        if any(names.get(name) != name for name in self.columns):
            return None
        return pushable(self._expression, self._schema)

    def parts(self) -> list[Self]:
        """Return itself: an expression does not say what it is made of."""
        return [self]


def filter_of(wanted: str | pc.Expression | None, schema: pa.Schema) -> Filter | None:
    """Return the filter that a caller means; None keeps all.

    Raises:
        RequestError: It does not parse, is not supported or names an unknown column.
    """
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return TextFilter(Predicate.parse(wanted, schema))
    if isinstance(wanted, pc.Expression):
        return ExpressionFilter(wanted, schema)
    raise RequestError(f"a filter is a SQL text or an Arrow expression, not {wanted!r}")
