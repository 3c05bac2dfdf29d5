"""DB-API: a store as a database of PEP 249, the interface that tools of other databases know.

connect() gives a connection, its cursors run SQL (docs/sql.md). Transactions are as those of
sqlite3: see docs/dbapi.md.
"""

from siltstone.dbapi.connection import StoreConnection as Connection
from siltstone.dbapi.connection import connect
from siltstone.dbapi.cursor import Cursor
from siltstone.dbapi.pep_errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,  # noqa: A004 - the name that PEP 249 gives it
)
from siltstone.dbapi.store_session import LEGACY_TRANSACTION_CONTROL
from siltstone.dbapi.type_objects import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 1
"""Threads may share the module, but not connections; see `check_same_thread` of `connect`."""
paramstyle = "qmark"

__all__ = [
    "BINARY",
    "DATETIME",
    "LEGACY_TRANSACTION_CONTROL",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
