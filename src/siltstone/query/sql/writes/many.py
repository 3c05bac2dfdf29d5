"""Many: an INSERT of one row of parameters and literals, run for many rows at once.

    insert into t values (?, 1, ?)
        insert into t select unnest(?), 1, unnest(?)         columns whose values have one type
        insert into t values (?, 1, ?), (?, 1, ?), ..        any others: fewer rows at once

That means the same as one row after the other: what stands in the row does not depend on what the
rows before it wrote.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siltstone.errors import RequestError
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes.parse import write_of
from siltstone.query.sql.writes.statements import InsertStatement, OnConflict
from siltstone.query.sql.writes.words import words_of

ROWS_MAX = 5_000
_LISTED_ROWS_MAX = 1_000
_LENGTH_MAX = 4_096
"""A text of no more characters is kept as it was taken apart, and is soon run again."""
_TYPES = {
    *(bool, int, float, str, bytes, uuid.UUID),
    *(dt.date, dt.time, dt.timedelta, dt.datetime),
}
"""A list of one of these has the type that each of its values has by itself."""


@dataclass(frozen=True, slots=True)
class ManyRows:
    """The statement: what stands before VALUES, in its row, and behind it.

    `parameters` are the names of the parameters, in the order of the row: `p1` is the first one
    without a name.
    """

    before: str
    row: tuple[str, ...]
    behind: str
    parameters: tuple[str, ...]

    def statements(self, rows: Sequence[object]) -> Iterator[tuple[int, str, list[Any]]]:
        """Yield the statements for these rows: the place of its first row, text, parameters.

        Raises:
            RequestError: A row has other parameters, or more, or fewer.
        """
        given = [self._in_order(row) for row in rows]
        columns = list(zip(*given, strict=True))
        if "default" not in map(folded, self.row) and all(map(_has_one_type, columns)):
            values = ", ".join("unnest(?)" if each == "?" else each for each in self.row)
            yield 0, f"{self.before} SELECT {values} {self.behind}", list(map(list, columns))
            return
        row = f"({', '.join(self.row)})"
        rest = _LENGTH_MAX - len(self.before) - len(self.behind)
        size = max(1, min(_LISTED_ROWS_MAX, rest // (len(row) + 2)))
        for place in range(0, len(given), size):
            part = given[place : place + size]
            text = f"{self.before} VALUES {', '.join([row] * len(part))} {self.behind}"
            yield place, text, [value for each in part for value in each]

    def _in_order(self, row: object) -> Sequence[object]:
        if isinstance(row, Mapping):
            given = {folded(str(name)): value for name, value in row.items()}
        elif isinstance(row, Sequence) and not isinstance(row, str | bytes):
            given = {f"p{place + 1}": value for place, value in enumerate(row)}
        else:
            text = f"the parameters of a row are a sequence or a mapping; got {row!r:.80}"
            raise RequestError(text)
        if given.keys() != set(self.parameters):
            wanted = len(set(self.parameters))
            raise RequestError(
                f"the statement has {wanted} parameters, and a row has {len(given)}, or others"
            )
        return [given[name] for name in self.parameters]


def many_rows(sql: str) -> ManyRows | None:
    """Return a statement as one of many rows; None: it cannot be run so."""
    write = write_of(sql)
    if write is None or not _is_of_one_row(write.statement):
        return None
    words = words_of(sql)
    values = words.find_low("values")
    inside = words.inside(values + 1)
    names = tuple(folded(each.text[1:]) for each in inside if each.kind == "parameter")
    if not names or frozenset(names) != write.parameters:
        return None  # a parameter stands elsewhere, or there are none
    parts = inside.split()
    row = tuple("?" if each.words[0].kind == "parameter" else each.sql for each in parts)
    return ManyRows(words[:values].sql, row, words[words.bracketed(values + 1) :].sql, names)


def _is_of_one_row(statement: object) -> bool:
    return (
        isinstance(statement, InsertStatement)
        and not statement.given
        and not statement.returning
        and not statement.is_by_name
        and statement.on_conflict is not OnConflict.UPDATE
        and len(statement.values) == 1
        and all(part.constant is not None or not part.text for part in statement.values[0])
    )


def _has_one_type(column: Sequence[Any]) -> bool:
    """Say whether a list of these values has for DuckDB the type that each has by itself."""
    # For DuckDB the times of pandas are those of Python.
    kinds = {*map(type, column)} - {type(None)}
    types = {dt.datetime if issubclass(kind, dt.datetime) else kind for kind in kinds}
    if len(types) > 1 or not types <= _TYPES:
        return False
    if types == {int}:
        return all(value is None or -(1 << 63) <= value < 1 << 63 for value in column)
    if types == {float}:  # a NaN in a list is NULL for DuckDB
        return not any(value is not None and math.isnan(value) for value in column)
    if types <= {dt.datetime, dt.time}:
        return len({value.tzinfo is None for value in column if value is not None}) <= 1
    return True
