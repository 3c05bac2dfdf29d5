"""Operations: what a store can be asked for, in one table: name, faces, effect, role, codec.

    rpc             server/rpc/routes.py makes a route of each row, server/rpc/calls.py answers it
    joined client   joined/remote.py makes a method of each row, which asks for it and decodes
    REST            server/rest/routes.py: the same columns, and a path, a request and a response

A new method is written in three places: where it works, in its public class, and here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto

from siltstone.errors import RequestError


class Face(Flag):
    """What an operation is asked of. A table is asked as it is now, or in one of the other two."""

    STORE = auto()
    TABLE = auto()
    TRANSACTION = auto()
    TRANSACTION_TABLE = auto()
    SNAPSHOT = auto()
    SNAPSHOT_TABLE = auto()


class Effect(Enum):
    """What may be done with a request for it.

    READ is answered only with what is durable, may be sent again when its answer is lost, and is
    given up at the server's deadline. WORK may be sent again, and is never given up. ONCE may not
    be sent again. WRITE is its own commit (in a transaction: a part of it), under an id that
    the client knew before: its answer that is lost leaves it in doubt.
    """

    READ = auto()
    WORK = auto()
    ONCE = auto()
    WRITE = auto()


class Role(IntEnum):
    """What an access token allows; each role includes the ones below it."""

    NOBODY = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


class Codec(Enum):
    """How an answer travels, if it is no plain value: see `joined.values` for those."""

    VALUE = auto()
    TABLE = auto()
    """A table's handle, as the table's id."""
    ROW = auto()
    """One row or None, as rows: its values keep the types of their columns."""
    STREAM = auto()
    """Rows as they are read."""
    ROWS = auto()
    """Rows, all of them read by the client."""
    RESULT = auto()
    """The result of a query: the owner sends the rows of `<name>_reader`, the client reads all."""
    FOUND = auto()
    """The rows of a search, all of them read by the client."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One row. `files`: for what a client needs the store's files on its machine, if it does.

    `is_statement`: it may need much of the server's time and memory; few of them run at once.
    """

    name: str
    faces: Face
    effect: Effect
    role: Role
    codec: Codec = Codec.VALUE
    files: str = ""
    is_statement: bool = False

    @property
    def is_near(self) -> bool:
        """Whether a process that follows the log answers it as its owner would."""
        return self.effect is Effect.READ and self.name not in _OF_OWNER


_OF_OWNER = frozenset({"id", "id_of", "indexes", "jobs", "status"})
"""Reads of what only the owner knows, or knows first; and of ids, which travel."""
_STORE, _TABLE, _SNAPSHOT = Face.STORE, Face.TABLE, Face.SNAPSHOT
_TRANSACTION = Face.TRANSACTION
_CHANGED = Face.STORE | Face.TRANSACTION
_ALL = Face.STORE | Face.TRANSACTION | Face.SNAPSHOT
_WRITTEN = Face.TABLE | Face.TRANSACTION_TABLE
_TABLES = _WRITTEN | Face.SNAPSHOT_TABLE
_READ, _WORK, _ONCE, _WRITE = Effect


def _alike(faces: Face, effect: Effect, role: Role, *names: str) -> list[Operation]:
    """Return the rows of operations that differ in nothing but their name."""
    return [Operation(name, faces, effect, role) for name in names]


OPERATIONS = (
    # the tables of a store
    *_alike(_ALL, _READ, Role.READ, "tables", "id_of"),
    Operation("create_table", _CHANGED, _WRITE, Role.WRITE, Codec.TABLE),
    *_alike(_CHANGED, _WRITE, Role.WRITE, "drop_table", "rename_table"),
    Operation("lance_catalog", _ALL, _WORK, Role.WRITE, files="for clients of Lance"),
    # transactions
    Operation("transaction", _STORE, _ONCE, Role.READ),
    Operation("turn", _STORE, _ONCE, Role.WRITE),
    Operation("commit_writes", _STORE, _WRITE, Role.WRITE),
    Operation("commit", _TRANSACTION, _WRITE, Role.READ),
    Operation("adopt", _TRANSACTION, _ONCE, Role.WRITE),
    Operation("rollback", _TRANSACTION, _ONCE, Role.READ),
    Operation("is_applied", _TRANSACTION, _WORK, Role.WRITE),
    Operation("stage", _STORE, _WORK, Role.ADMIN, files="to be staged for,"),
    Operation("attach", _TRANSACTION, _WRITE, Role.ADMIN),
    Operation("changed_since", _TRANSACTION, _WORK, Role.ADMIN),
    Operation("claim", _CHANGED, _WRITE, Role.WRITE),
    *_alike(_STORE, _READ, Role.READ, "claimed", "token_apps"),
    Operation("forget_token_app", _STORE, _WRITE, Role.ADMIN),
    Operation("outcome", _STORE, _WORK, Role.READ),
    Operation("wait_shipped", _STORE, _WORK, Role.WRITE),
    # snapshots, queries, changes
    Operation("snapshot", _STORE, _ONCE, Role.READ),
    Operation("close", _SNAPSHOT, _ONCE, Role.READ),
    Operation("sql", _ALL, _READ, Role.READ, Codec.RESULT, is_statement=True),
    Operation("write_sql", _CHANGED, _WRITE, Role.WRITE, is_statement=True),
    Operation("sql_reader", _ALL, _READ, Role.READ, Codec.STREAM, is_statement=True),
    Operation("scan_tasks", _SNAPSHOT, _READ, Role.READ),
    Operation("diff_counts", _STORE, _READ, Role.READ),
    Operation("diff_of", _STORE, _READ, Role.READ, Codec.STREAM),
    Operation("put_back", _CHANGED, _WRITE, Role.WRITE),
    Operation("changes_of", _STORE, _READ, Role.READ, Codec.STREAM),
    *_alike(_STORE, _READ, Role.READ, "changes", "change_tasks", "changes_upto", "changes_from"),
    *_alike(_STORE, _READ, Role.READ, "log", "tags", "seq", "durable_seq"),
    Operation("tag", _CHANGED, _WRITE, Role.WRITE),
    Operation("untag", _STORE, _WRITE, Role.WRITE),
    # maintenance
    *_alike(_STORE, _WORK, Role.WRITE, "checkpoint", "merge", "optimize"),
    Operation("vacuum", _STORE, _WORK, Role.ADMIN),
    Operation("verify", _STORE, _WORK, Role.READ),
    *_alike(_STORE, _READ, Role.READ, "jobs", "status"),
    # the rows of a table
    Operation("id", Face.SNAPSHOT_TABLE, _READ, Role.READ),
    *_alike(_TABLES, _READ, Role.READ, "name", "schema", "primary_key", "count"),
    Operation("get", _TABLES, _READ, Role.READ, Codec.ROW),
    Operation("get_many", _TABLES, _READ, Role.READ, Codec.ROWS),
    Operation("scan", _TABLES, _READ, Role.READ, Codec.STREAM),
    Operation("range", _TABLES, _READ, Role.READ, Codec.STREAM),
    Operation("search", _TABLES, _READ, Role.READ, Codec.FOUND),
    *_alike(_WRITTEN, _WRITE, Role.WRITE, "upsert", "insert", "update", "delete", "delete_where"),
    *_alike(_WRITTEN, _WRITE, Role.WRITE, "update_many", "update_where"),
    *_alike(_WRITTEN, _WRITE, Role.WRITE, "append", "overwrite", "truncate"),
    # the columns and indexes of a table
    *_alike(_WRITTEN, _WRITE, Role.WRITE, "add_column", "alter_column"),
    *_alike(_WRITTEN, _WRITE, Role.WRITE, "drop_column", "rename_column"),
    *_alike(_TABLE, _ONCE, Role.WRITE, "create_index", "drop_index"),
    Operation("indexes", _TABLE, _READ, Role.READ),
)


def of_face(face: Face) -> dict[str, Operation]:
    """Return the operations of one `Face`, or of any of several, by name."""
    return {row.name: row for row in OPERATIONS if face & row.faces}


_BY_FACE = {face: of_face(face) for face in Face}


def operation(face: Face, name: str) -> Operation:
    """Return one operation of one `Face`.

    Raises:
        RequestError: There is none of that name.
    """
    found = _BY_FACE[face].get(name)
    if found is None:
        words = str(face.name).lower().split("_")
        what = f"table of a {words[0]}" if len(words) > 1 else words[0]
        raise RequestError(f"a {what} has no {name!r}; it has {sorted(_BY_FACE[face])}")
    return found
