"""Screen: how a shell shows rows, and what it says of them: rows to stdout, all else to stderr.

What is said of a command that went well is said to a person alone: a script prints its rows, and
its error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from siltstone.cli.output import Form, Row, emit, emit_table, rows_of
from siltstone.cli.sessions import note

ROWS_MAX = 200
"""So many rows of a query are shown as a table or as lines, unless `.rows` says otherwise."""
_NULL = "NULL"
_PLAN = ["explain_key", "explain_value"]


@dataclass(slots=True)
class Screen:
    """See the module. `rows_max` 0: all rows. One thread."""

    form: Form
    has_person: bool
    rows_max: int = ROWS_MAX
    is_timed: bool = False

    @property
    def bound(self) -> int | None:
        """How many rows of a query are shown; None: all, which programs get in any case."""
        return (self.rows_max or None) if self.form in {Form.TABLE, Form.LINE} else None

    def show(self, rows: pa.Table, said: str) -> None:
        """Show what a statement gave, which may be more rows than the bound.

        How many there are is said, unless `said` says it.
        """
        shown = rows.slice(0, self.bound)
        if shown.schema.names == _PLAN and self.form in {Form.TABLE, Form.LINE}:
            for plan in shown.column(1).to_pylist():
                print(str(plan).rstrip())
            return
        self.emit(shown.schema.names, list(rows_of(shown.to_batches())), null=_NULL)
        if len(shown) < len(rows):
            note(f"the first {len(shown)} rows; .rows says how many are shown")
        elif not said:
            self.say("1 row" if len(shown) == 1 else f"{len(shown)} rows")

    def emit(self, columns: Sequence[str], rows: Sequence[Row], *, null: str = "") -> None:
        """Show these rows, all of them."""
        if self.form is Form.TABLE:
            emit_table(columns, rows, null=null)
        else:
            emit(columns, rows, self.form, null=null)
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Say something to a person."""
        if text and self.has_person:
            note(text)

    def say_time(self, seconds: float) -> None:
        """Say how long a statement took, if that is asked for."""
        if self.is_timed:
            note(f"{seconds:.3f} s")
