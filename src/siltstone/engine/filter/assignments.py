"""Assignments: what an update sets columns to, in all rows that it changes.

values   literals, the same in each row
sql      expressions over the row as it was before any column changed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import pyarrow as pa

from siltstone.engine.filter.filters import Expression, compile_value
from siltstone.errors import RequestError, told
from siltstone.formats.conversion.row_codec import RowCodec


class Assignments(msgspec.Struct, frozen=True):
    """See the module; free to share."""

    codec: RowCodec
    values: Mapping[str, object]
    expressions: Mapping[str, Expression]

    def of(self, rows: pa.Table) -> pa.Table:
        """Return whole rows as they are afterwards.

        Raises:
            RequestError: A value of an expression does not fit its column, or arithmetic overflows.
        """
        schema = self.codec.arrow
        changed = self.codec.patched(rows, self.values)
        for name, expression in self.expressions.items():
            field = schema.field(name)
            column = expression.evaluate(rows, field.type)
            changed = changed.set_column(schema.get_field_index(name), field, column)
        return changed


def assignments(values: object, sql: object, codec: RowCodec, key: Sequence[str]) -> Assignments:
    """Return what an update of a table does; `key` are its key columns.

    Raises:
        RequestError: Nothing is set, or a column twice, or one of the key; or an expression does
            not parse.
        SchemaMismatchError: There is no such column, or a value does not fit.
    """
    literals, texts = _columns("values", values), _columns("sql", sql)
    if not literals and not texts:
        raise RequestError(
            "update_where needs values, or sql, or both: what columns of the rows are set to"
        )
    twice = sorted(literals.keys() & texts.keys())
    if twice:
        raise RequestError(f"{twice} are both in values and in sql; give each column once")
    codec.check(literals)
    codec.check_known(texts)
    refuse_key([*literals, *texts], key)
    expressions = {name: _compiled(name, text, codec) for name, text in texts.items()}
    return Assignments(codec, literals, expressions)


def refuse_key(columns: Sequence[str], key: Sequence[str]) -> None:
    """Refuse to change a column of the key.

    Raises:
        RequestError: One of the columns is of the key.
    """
    found = sorted(set(key) & set(columns))
    if found:
        raise RequestError(f"{found} are the key; delete the row and insert another")


def _columns(what: str, given: object) -> Mapping[str, object]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise RequestError(f"{what} must be a dict by column; got {told(given)}")
    return cast("Mapping[str, object]", given)


def _compiled(name: str, text: object, codec: RowCodec) -> Expression:
    if not isinstance(text, str):
        raise RequestError(
            f"sql has an expression for each column, a text; got {told(text)} for {name!r}"
        )
    expression = compile_value(text, codec.arrow)
    expression.evaluate(codec.arrow.empty_table(), codec.arrow.field(name).type)
    return expression
