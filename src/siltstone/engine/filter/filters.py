"""Filter: the rows that a read keeps, as SQL text or as an Arrow expression of another engine.

Arrow decides both, row by row, in every level; the filter for Lance is a superset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter import arrow, pickled, predicate, pushed
from siltstone.engine.filter.arrow import FilterPiece
from siltstone.engine.filter.predicate import Predicate
from siltstone.errors import RequestError


class Filter(Protocol):
    """A filter of a scan."""

    @property
    def columns(self) -> frozenset[str]: ...

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def prefilter(self, names: Mapping[str, str]) -> str | None: ...

    def parts(self) -> Sequence[Filter]:
        """Return filters that are all true where this one is; itself, if it has no parts."""
        ...


class TextFilter:
    """A SQL boolean expression."""

    __slots__ = ("columns", "predicate")

    def __init__(self, parsed: Predicate) -> None:
        self.predicate = parsed
        self.columns = parsed.columns

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match."""
        return self.predicate.filter(batch)

    def prefilter(self, names: Mapping[str, str]) -> str | None:
        """Return a superset of the filter over stored names, None if nothing can be pushed."""
        return self.predicate.prefilter(names)

    def parts(self) -> list[TextFilter]:
        """Return the operands of the outermost ANDs."""
        return [TextFilter(part) for part in self.predicate.parts()]


class ExpressionFilter:
    """An Arrow expression, as DuckDB, Polars and pandas push it, or a part of one."""

    __slots__ = ("_names", "_piece", "columns")

    def __init__(self, piece: FilterPiece, names: Sequence[str]) -> None:
        """Filter by a piece of an expression; `names` are all columns of the table, in order."""
        self._piece, self.columns = piece, piece.columns
        self._names = [name for name in names if name in piece.columns]

    @property
    def counts_columns(self) -> bool:
        """Whether it may name a column by its number."""
        return arrow.counts_columns(self._piece.expression)

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that match."""
        expression = self._piece.expression
        return batch.filter(predicate.mask(expression, self._names, batch, expression))

    def prefilter(self, names: Mapping[str, str]) -> str | None:
        """Return a superset of the filter over stored names, None if nothing can be pushed."""
        return pushed.render(self._piece.push, names)

    def parts(self) -> list[ExpressionFilter]:
        """Return the operands of the outermost ANDs; itself, if there is no AND."""
        return [ExpressionFilter(part, self._names) for part in self._piece.conjuncts] or [self]


def filter_of(wanted: str | pc.Expression | None, schema: pa.Schema) -> Filter | None:
    """Return the filter for a caller's text or expression; None keeps all rows.

    Raises:
        RequestError: It does not parse, is not supported, names an unknown column, or does not fit
            the columns' types. The message does not depend on the level of the rows.
    """
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return TextFilter(Predicate.parse(wanted, schema))
    if isinstance(wanted, pc.Expression):
        pickled.refuse_deep(wanted)
        predicate.check(wanted, schema)
        return ExpressionFilter(arrow.read(wanted, schema), schema.names)
    raise RequestError(f"a filter must be a SQL text or an Arrow expression; got {wanted!r}")
