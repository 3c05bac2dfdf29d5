r"""Output: rows on stdout as a table for people, or as TSV, CSV, JSON or NDJSON for programs.

A table that is wider than the terminal is shown sideways: each value on its own line. No value
is ever cut. In TSV a null is an empty cell; tab, newline, return and backslash are written
\t \n \r \\. In CSV a null is an empty cell and an empty text "". In JSON a decimal is a string,
binary base64, a duration ISO 8601 and what is no number "NaN", "Infinity" or "-Infinity", as in the
input of `upsert`.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import pyarrow as pa

TERMINAL_ROWS_MAX = 200
_ENDLESS = 1 << 20
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"})

_QUOTED = re.compile(r'[",\r\n]')
_CONSTANTS = {None: "", True: "true", False: "false"}

Row = Sequence[object]


class Form(Enum):
    """What --json, --ndjson and --csv choose; see `arguments.form_of`."""

    TABLE = "table"
    TSV = "tsv"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    LINE = "line"


def emit(
    columns: Sequence[str], rows: Iterable[Row], form: Form, title: str = "", *, null: str = ""
) -> None:
    """Print rows; `null` stands for a null where people read it."""
    if form is Form.TABLE:
        kept = list(islice(rows, TERMINAL_ROWS_MAX + 1))
        emit_table(columns, kept[:TERMINAL_ROWS_MAX], title, null=null)
        if len(kept) > TERMINAL_ROWS_MAX:
            print(
                f"(only the first {TERMINAL_ROWS_MAX} rows; write to a pipe or file to get all)",
                file=sys.stderr,
            )
        return
    if form is Form.LINE:
        _sideways(columns, rows, null)
        return
    for line in lines_of(columns, rows, form):
        sys.stdout.write(line)
    sys.stdout.flush()


def emit_arrow(reader: pa.RecordBatchReader, form: Form) -> None:
    """Print a stream of Arrow batches; hold one batch at a time."""
    emit(reader.schema.names, rows_of(reader), form)


def emit_record(record: Mapping[str, object], form: Form, *, quiet: bool = False) -> None:
    """Print one record, if not `quiet`; in JSON as an object, not as a list."""
    if quiet:
        return
    if form is Form.JSON:
        sys.stdout.write(_json(record) + "\n")
    else:
        emit(list(record), [list(record.values())], form)


def emit_facts(facts: Mapping[str, object], form: Form) -> None:
    """Print named facts: in a table, TSV and CSV one line each, in JSON one object."""
    if form in {Form.JSON, Form.NDJSON}:
        sys.stdout.write(_json(facts) + "\n")
    else:
        emit(["fact", "value"], list(facts.items()), form)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of Arrow batches as Python values."""
    for batch in batches:
        columns = [values_of(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def values_of(column: pa.Array) -> Sequence[object]:
    """Return the Python values of a column, with texts where Python's own have fewer digits."""
    from siltstone.api.schemas import replaced_type
    from siltstone.text.spelled import listed

    # Python's datetime ends at microseconds, and Arrow would import pandas for more: a second.
    kind = replaced_type(column.type, _text_of_nanoseconds)
    shown: Any = column if kind.equals(column.type) else column.cast(kind)
    values = listed(shown)
    if "duration[ns]" not in str(column.type):
        return values
    return [_with_spans(value, column.type) for value in values]


def _with_spans(value: Any, kind: Any) -> Any:
    """Return a value with the text of a duration where it has the number of its nanoseconds."""
    import pyarrow as pa

    from siltstone.text.spelled import span_text

    if value is None:
        return None
    if pa.types.is_duration(kind):
        return span_text(int(value)) if kind.unit == "ns" else value
    if pa.types.is_struct(kind):
        return {field.name: _with_spans(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        kinds = (kind.key_type, kind.item_type)
        return [tuple(map(_with_spans, pair, kinds)) for pair in value]
    if pa.types.is_nested(kind):
        return [_with_spans(part, cast("Any", kind).value_type) for part in value]
    return value


def _text_of_nanoseconds(kind: pa.DataType) -> pa.DataType | None:
    """Return the texts that stand for times of nanoseconds.

    The text of a duration is the number of its nanoseconds.
    """
    import pyarrow as pa

    has_nanoseconds = str(kind).startswith(("timestamp[ns", "time64[ns", "duration[ns"))
    return pa.string() if has_nanoseconds else None


def lines_of(columns: Sequence[str], rows: Iterable[Row], form: Form) -> Iterator[str]:
    """Yield rows as text: TSV, CSV, JSON or NDJSON."""
    if form in {Form.TSV, Form.CSV}:
        separator, spelled = ("\t", cell) if form is Form.TSV else (",", _csv_cell)
        for row in chain([columns], rows):
            yield separator.join([spelled(value) for value in row]) + "\n"
        return
    objects = (_json(dict(zip(columns, row, strict=True))) for row in rows)
    if form is Form.NDJSON:
        for text in objects:
            yield text + "\n"
        return
    before = "[\n"
    for text in objects:
        yield before + text
        before = ",\n"
    yield "\n]\n" if before == ",\n" else "[]\n"


def cell(value: object) -> str:
    """Return a value as one TSV cell."""
    return value.translate(_ESCAPES) if isinstance(value, str) else _text(value)


def _csv_cell(value: object) -> str:
    text = value if isinstance(value, str) else _text(value)
    is_quoted = _QUOTED.search(text) or (not text and value is not None)
    return '"' + text.replace('"', '""') + '"' if is_quoted else text


def _text(value: object) -> str:
    """Return the text of a value that is none itself."""
    if value is None or isinstance(value, bool):
        return _CONSTANTS[value]
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple | dict | dt.timedelta):
        return _json(value).strip('"')
    return str(value)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode()


def emit_table(
    columns: Sequence[str], rows: Sequence[Row], title: str = "", *, null: str = ""
) -> None:
    """Print a table; one that is wider than the terminal sideways, one value a line."""
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for name in columns:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(Text(_seen(value, null), justify=_side(value)) for value in row))
    console = Console(file=sys.stdout)
    endless = console.options.update(max_width=_ENDLESS)
    if rows and Measurement.get(console, endless, table).maximum > console.width:
        _sideways(columns, rows, null)
    else:
        console.print(table)


def _sideways(columns: Sequence[str], rows: Iterable[Row], null: str) -> None:
    """Print each value whole, on its own line."""
    names = [printable(name) for name in columns]
    width = max(map(len, names))
    for number, row in enumerate(rows, 1):
        print(f"-- row {number}")
        for name, value in zip(names, row, strict=True):
            print(f"{name:<{width}}  {_seen(value, null)}".rstrip())


def _seen(value: object, null: str) -> str:
    return null if value is None else printable(cell(value))


def _side(value: object) -> Literal["left", "right"]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "right" if is_number else "left"


def printable(text: str) -> str:
    """Return the text without terminal control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)
