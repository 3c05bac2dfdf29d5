"""Selection: the columns that a query asks for: all, by their names, or computed under a new name.

    columns: null                        all
    columns: ["a", "b"]                  those two             {"column_names": ["a", "b"]}
    columns: {"x": "a + 1", "b": "b"}    x computed, and b     {"column_aliases": {"x": "a + 1"}}

The forms to the right are those of the Lance Namespace specification, the others LanceDB's. A
search has one more column, `_distance` or `_score`, which expressions may use; and `_rowid` if that
is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from siltstone.engine.filter.filters import Expression, compile_value
from siltstone.lance_versions.errors import invalid

Columns = list[str] | dict[str, Any] | None
_NAMES, _ALIASES = "column_names", "column_aliases"


@dataclass(frozen=True, slots=True)
class Selection:
    """See the module. `read` are the table's columns to read; `fields` what is made of them.

    `made` is empty if columns are passed on as they are read.
    """

    read: list[str]
    schema: pa.Schema
    made: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, asked: Columns, schema: pa.Schema, *added: pa.Field) -> Selection:
        """Return the selection of a query from a table's schema.

        Args:
            asked: As the query spells it.
            schema: The columns of the table.
            added: The columns that a search has besides; they come last unless they are named.

        Raises:
            Refused: Both forms at once, or none of them.
            RequestError: An expression that does not parse, or does not fit the columns.
        """
        wanted, more = _spelled(asked), [field.name for field in added]
        for field in added:
            schema = schema.append(field)
        if not isinstance(wanted, Mapping):
            names = list(dict.fromkeys([*(schema.names if wanted is None else wanted), *more]))
            # A name that is not there is for the table to refuse, in its words.
            fields = [schema.field(name) for name in names if name in schema.names]
            return cls([name for name in names if name not in more], pa.schema(fields))
        made = [compile_value(text, schema) for text in wanted.values()]
        fields = [
            schema.field(each.column).with_name(name) if each.column else pa.field(name, each.type)
            for name, each in zip(wanted, made, strict=True)
        ]
        used = {column for each in made for column in each.columns}
        unnamed = [name for name in more if name not in wanted]
        fields += [schema.field(name) for name in unnamed]
        made += [compile_value(name, schema) for name in unnamed]
        # Without any column the number of the rows would be lost.
        own = [name for name in schema.names if name not in more]
        read = [name for name in own if name in used] or own[:1]
        return cls(read, pa.schema(fields), tuple(made))

    def of_rows(self, rows: pa.Table) -> pa.Table:
        """Return what is asked for of rows that have all columns of `read`."""
        if not self.made:
            return rows.select(self.schema.names)
        columns = [
            rows.column(each.column) if each.column else each.evaluate(rows, field.type)
            for each, field in zip(self.made, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def of_reader(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return the same of a reader of these columns, a batch at a time."""
        if not self.made and reader.schema.names == self.schema.names:
            return reader
        return pa.RecordBatchReader.from_batches(self.schema, self._computed(reader))

    def _computed(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield from self.of_rows(pa.Table.from_batches([batch])).to_batches()


def _spelled(asked: Columns) -> list[str] | Mapping[str, str] | None:
    """Return names, or expressions by name, of the four forms."""
    if not isinstance(asked, dict):
        return asked
    if asked and all(isinstance(text, str) for text in asked.values()):
        return asked
    given = {form: found for form, found in asked.items() if found is not None}
    if not given and asked.keys() <= {_NAMES, _ALIASES}:
        return None
    if len(given) != 1 or not given.keys() <= {_NAMES, _ALIASES}:
        raise invalid(
            "columns is a list of names, an object of an expression by name, or an object with"
            f" {_NAMES} or {_ALIASES}, not both; it has {sorted(asked)!r:.200}"
        )
    found = given.get(_NAMES, given.get(_ALIASES))
    if not isinstance(found, list if _NAMES in given else dict):
        raise invalid(f"{_NAMES} is a list of names, {_ALIASES} an object")
    return cast("list[str] | dict[str, str]", found)
