"""Type objects: what PEP 249 calls the types of columns and of parameters.

The type code of a column is a text: "int64", "string", "timestamp[us, tz=UTC]", as in a schema. It
is equal to one of the objects STRING, BINARY, NUMBER, DATETIME. Lists, structs ("row") and maps are
equal to none, and nor is the type of NULL alone. A sum of whole numbers is a "hugeint".
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from siltstone.query.sql.statement import HUGEINT_KEY

HUGEINT = "hugeint"
"""Arrow has no such type: it comes as a decimal, and as an int of Python."""
_SPELLED = {
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.date32(): "date32",
    pa.date64(): "date64",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.month_day_nano_interval(): "interval",
}


@dataclass(frozen=True, slots=True)
class TypeObject:
    """A kind of columns, equal to the type codes that begin with one of some texts."""

    name: str
    begins: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.startswith(self.begins)
        return self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


STRING = TypeObject("STRING", ("string", "uuid"))
BINARY = TypeObject("BINARY", ("binary", "fixed_size_binary"))
NUMBER = TypeObject(
    "NUMBER", ("int8", "int16", "int32", "int64", "uint", "float", "decimal", HUGEINT, "bool")
)
DATETIME = TypeObject("DATETIME", ("date", "time", "duration", "interval"))
ROWID = TypeObject("ROWID", ("rowid",))
"""No column is one: rows are known by their keys."""

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - these are PEP 249's names
    """Return the date of so many seconds since 1970, where this machine is."""
    return dt.date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802
    """Return the time of the day of so many seconds since 1970, where this machine is."""
    return dt.time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802
    """Return the date and time of so many seconds since 1970, where this machine is."""
    return dt.datetime(*time.localtime(ticks)[:6])  # noqa: DTZ001 - PEP 249's has no zone


Column = tuple[str, str, None, None, int | None, int | None, None]
"""What a `description` says of a column; of the sizes it knows those of decimals."""


def described(schema: pa.Schema) -> list[Column]:
    """Return the `description` of columns."""
    return [_described(field) for field in schema]


def _described(field: Any) -> Column:
    kind, code = field.type, code_of(field)
    is_sized = pa.types.is_decimal(kind) and code != HUGEINT
    precision, scale = (kind.precision, kind.scale) if is_sized else (None, None)
    return field.name, code, None, None, precision, scale, None


def code_of(field: Any) -> str:
    """Return the type code of a column."""
    if is_hugeint(field):
        return HUGEINT
    kind = field.type
    if pa.types.is_struct(kind):
        return "row"
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name.rpartition(".")[2]
    return _SPELLED.get(kind, str(kind))


def is_hugeint(field: Any) -> bool:
    """Say whether a column is a sum of whole numbers."""
    return HUGEINT_KEY in (field.metadata or {})
