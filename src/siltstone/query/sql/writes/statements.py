"""Statements that write, as values: one class for each kind, its parts in the text of the caller.

A part is text that DuckDB reads (an expression, a query, the tables behind FROM), with the
parameters that stand in it. Whatever is a literal or a parameter is known as one, too: then a
statement may need no DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from siltstone.query.sql.writes.conditions import Condition
from siltstone.query.sql.writes.constants import Constant


@dataclass(frozen=True, slots=True)
class Target:
    """The table that is written: its name in parts and as it is written, and its alias."""

    parts: tuple[str, ...]
    text: str
    alias: str = ""

    @property
    def name(self) -> str:
        """The name by which expressions of the statement call the table."""
        return self.alias or self.parts[-1]


@dataclass(frozen=True, slots=True)
class ValueText:
    """An expression: its text, which is empty for DEFAULT, and what it is if it is a constant.

    `excluded` is the column if it is one of the new row of ON CONFLICT, and nothing else; or "".
    """

    text: str
    constant: Constant | None = None
    excluded: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column, as it is written, and the value that it gets."""

    column: str
    value: ValueText


Expressions: TypeAlias = tuple[str, ...]
"""What a statement returns of the rows that it wrote."""


class OnConflict(Enum):
    """What becomes of a new row whose key a row has."""

    REFUSE = auto()
    NOTHING = auto()
    UPDATE = auto()
    REPLACE = auto()


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """INSERT: rows of `query`, or the `values`, in the order of `columns` (none: all of them)."""

    target: Target
    given: str = ""
    """The WITH in front of the statement."""
    columns: tuple[str, ...] = ()
    query: str = ""
    copied: str = ""
    """The name of the only rows that `query` reads, all of them as they are; of others ""."""
    values: tuple[tuple[ValueText, ...], ...] = ()
    is_by_name: bool = False
    on_conflict: OnConflict = OnConflict.REFUSE
    conflicting: tuple[str, ...] = ()
    """The columns behind ON CONFLICT."""
    sets: tuple[Assignment, ...] = ()
    where: str = ""
    returning: Expressions = ()


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """UPDATE: `sources` are the tables behind FROM."""

    target: Target
    given: str
    sets: tuple[Assignment, ...]
    sources: str = ""
    where: str = ""
    condition: Condition | None = None
    returning: Expressions = ()


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """DELETE: `sources` are the tables behind USING."""

    target: Target
    given: str = ""
    sources: str = ""
    where: str = ""
    condition: Condition | None = None
    returning: Expressions = ()


class When(Enum):
    """For which rows a clause of MERGE is."""

    MATCHED = auto()
    NOT_MATCHED = auto()
    NOT_MATCHED_BY_SOURCE = auto()


class Action(Enum):
    """What a clause of MERGE does."""

    UPDATE = auto()
    DELETE = auto()
    INSERT = auto()
    NOTHING = auto()
    ERROR = auto()


@dataclass(frozen=True, slots=True)
class Clause:
    """WHEN of MERGE: of the clauses for a row the first one whose condition is true acts.

    `sets` are the columns of an UPDATE or INSERT; `is_whole`: all columns of the source.
    """

    when: When
    action: Action
    condition: str = ""
    sets: tuple[Assignment, ...] = ()
    values: tuple[ValueText, ...] = ()
    """Of an INSERT that names no columns."""
    is_whole: bool = False
    is_by_name: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """MERGE: rows of `source`, called `alias`, joined by `on` or by columns of equal names."""

    target: Target
    given: str
    source: str
    alias: str
    on: str
    using: tuple[str, ...]
    clauses: tuple[Clause, ...]
    returning: Expressions = ()


@dataclass(frozen=True, slots=True)
class TruncateStatement:
    """TRUNCATE."""

    target: Target


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ADD COLUMN: its type as DuckDB writes it, its default if any."""

    name: str
    type: str
    may_be_null: bool = True
    default: str = ""


class IfExists(Enum):
    """What becomes of CREATE TABLE if the table exists."""

    REFUSE = auto()
    KEEP = auto()
    REPLACE = auto()


@dataclass(frozen=True, slots=True)
class CreateStatement:
    """CREATE TABLE: with columns, or as the rows of `query`."""

    target: Target
    columns: tuple[ColumnDefinition, ...] = ()
    primary_key: tuple[str, ...] = ()
    query: str = ""
    names: tuple[str, ...] = ()
    """The names of the query's columns, if they are given."""
    with_rows: bool = True
    if_exists: IfExists = IfExists.REFUSE


@dataclass(frozen=True, slots=True)
class DropStatement:
    """DROP TABLE."""

    target: Target
    may_lack: bool = False


class Alteration(Enum):
    """What ALTER TABLE does."""

    ADD_COLUMN = auto()
    DROP_COLUMN = auto()
    RENAME_COLUMN = auto()
    RENAME_TABLE = auto()
    SET_DEFAULT = auto()
    DROP_DEFAULT = auto()
    SET_NOT_NULL = auto()
    DROP_NOT_NULL = auto()
    SET_TYPE = auto()


@dataclass(frozen=True, slots=True)
class AlterStatement:
    """ALTER TABLE: `name` is a column, or the new name of the table.

    `new` is its new name, default or type.

    `column` is one that is added.
    `may_lack`: nothing happens without the table; `is_lenient`: nor if the column is as wanted.
    """

    target: Target
    alteration: Alteration
    name: str
    new: str = ""
    may_lack: bool = False
    is_lenient: bool = False
    column: ColumnDefinition | None = None


@dataclass(frozen=True, slots=True)
class CreateIndexStatement:
    """CREATE INDEX: `kind` as `Table.create_index` calls it."""

    target: Target
    column: str
    name: str
    kind: str = "btree"
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class DropIndexStatement:
    """DROP INDEX."""

    name: str
    may_lack: bool = False


Returning: TypeAlias = InsertStatement | UpdateStatement | DeleteStatement | MergeStatement
Change: TypeAlias = Returning | TruncateStatement
Definition: TypeAlias = CreateStatement | DropStatement | AlterStatement
IndexStatement: TypeAlias = CreateIndexStatement | DropIndexStatement


@dataclass(frozen=True, slots=True)
class Write:
    """A statement that writes, and the parameters in it: `p1` is the first one without a name."""

    statement: Change | Definition | IndexStatement
    parameters: frozenset[str] = field(default_factory=frozenset[str])
