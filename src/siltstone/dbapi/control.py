"""Control: the statements that a connection answers itself, and those that it refuses by name.

BEGIN [DEFERRED] [TRANSACTION | WORK], START TRANSACTION
COMMIT | END [TRANSACTION | WORK]
ROLLBACK | ABORT [TRANSACTION | WORK]
"""

from __future__ import annotations

import re
from enum import Enum, auto

from siltstone.dbapi.pep_errors import NotSupportedError
from siltstone.query.sql.allowed import GAP


class Control(Enum):
    """What a statement does to the transaction of its connection."""

    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()


_WORK = rf"(?:{GAP}\b(?:transaction|work))?"
_FORMS = (
    (Control.BEGIN, rf"begin(?:{GAP}\bdeferred)?{_WORK}|start{GAP}\btransaction"),
    (Control.COMMIT, rf"(?:commit|end){_WORK}"),
    (Control.ROLLBACK, rf"(?:rollback|abort){_WORK}"),
)
_WHOLE = [
    (kind, re.compile(rf"{GAP}(?:{form}){GAP};?{GAP}", re.IGNORECASE)) for kind, form in _FORMS
]
_FIRST = re.compile(
    rf"{GAP}(begin|start|commit|end|rollback|abort|savepoint|release)\b", re.IGNORECASE
)
_CATALOG_OF_SQLITE = re.compile(r"\bsqlite_(?:master|schema|temp_master)\b", re.IGNORECASE)


def control_of(sql: str) -> Control | None:
    """Return what a statement does to the transaction; None: it does nothing to it.

    Raises:
        NotSupportedError: It would do something else to it.
    """
    first = _FIRST.match(sql)
    if first is None:
        return None
    for kind, form in _WHOLE:
        if form.fullmatch(sql):
            return kind
    raise NotSupportedError(
        f"{' '.join(sql.split())[:40]!r} is not offered: BEGIN, COMMIT and ROLLBACK are, for the"
        " whole transaction. None locks: run it again after a conflict"
    )


def refuse_catalog_of_sqlite(sql: str) -> None:
    """Refuse to look into the catalog of SQLite, as `to_sql` of pandas does before it writes.

    Raises:
        NotSupportedError: The statement names it.
    """
    if _CATALOG_OF_SQLITE.search(sql):
        raise NotSupportedError(
            "this is no SQLite, and to_sql() of pandas is not offered: write a frame by"
            " `db['t'].upsert(frame)`, or `db.sql('insert into t from frame')`, with db ="
            " siltstone.connect(..); SHOW TABLES lists the tables"
        )
