"""Errors: what is wrong with a request to the Lance catalog, by the codes of its specification."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from siltstone import errors


class Code(IntEnum):
    """The codes of the specification: clients choose the class of their error by them alone."""

    UNSUPPORTED = 0
    NAMESPACE_NOT_FOUND = 1
    NAMESPACE_EXISTS = 2
    NAMESPACE_NOT_EMPTY = 3
    TABLE_NOT_FOUND = 4
    TABLE_EXISTS = 5
    INDEX_NOT_FOUND = 6
    INDEX_EXISTS = 7
    TAG_NOT_FOUND = 8
    TAG_EXISTS = 9
    TRANSACTION_NOT_FOUND = 10
    VERSION_NOT_FOUND = 11
    COLUMN_NOT_FOUND = 12
    INVALID_INPUT = 13
    CONCURRENT_MODIFICATION = 14
    PERMISSION_DENIED = 15
    UNAUTHENTICATED = 16
    UNAVAILABLE = 17
    INTERNAL = 18
    INVALID_TABLE_STATE = 19
    SCHEMA_VALIDATION = 20
    THROTTLING = 21


class Refused(errors.SiltstoneError):
    """A request that is refused under its own code; nothing was changed."""

    def __init__(self, code: Code, error: str) -> None:
        self.code = code
        super().__init__(error)


def unsupported(what: str) -> Refused:
    """Return the refusal of what the specification has and this store has not."""
    return Refused(Code.UNSUPPORTED, what)


def no_column(table: str, column: str, known: Iterable[str]) -> Refused:
    """Return the refusal of a request that names a column which the table has not."""
    return Refused(
        Code.COLUMN_NOT_FOUND, f"table {table!r} has {errors.no_such('column', column, known)}"
    )


def invalid(why: str) -> Refused:
    """Return the refusal of a request that is wrong."""
    return Refused(Code.INVALID_INPUT, why)


class NamespaceNotFoundError(errors.RequestError):
    """There is no such namespace: it was not created, or was dropped, and no table is in it."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        """`known`: the names of the namespaces there."""
        self.name = name
        super().__init__(f"there is {errors.no_such('namespace', name, sorted(known))}")


class NamespaceExistsError(errors.RequestError):
    """The namespace was created, or has something in it, or is the root."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the namespace {name!r} exists already")


class NamespaceNotEmptyError(errors.RequestError):
    """The namespace has a table or a namespace in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the namespace {name!r} is not empty; drop what is in it, or drop it with the behavior"
            " 'cascade'"
        )


class VersionNotFoundError(errors.RequestError):
    """A table has no version of that number (any more)."""

    def __init__(self, table: str, version: object) -> None:
        self.table, self.version = table, version
        super().__init__(f"{table!r} has no version {version}; list its versions")


class InvalidTableStateError(errors.RequestError):
    """The table is in another state than the request assumes; nothing was changed."""


# The first that fits decides, so leaves come before their group.
_CODES: tuple[tuple[type[errors.SiltstoneError], Code], ...] = (
    (NamespaceNotFoundError, Code.NAMESPACE_NOT_FOUND),
    (NamespaceExistsError, Code.NAMESPACE_EXISTS),
    (NamespaceNotEmptyError, Code.NAMESPACE_NOT_EMPTY),
    (VersionNotFoundError, Code.VERSION_NOT_FOUND),
    (InvalidTableStateError, Code.INVALID_TABLE_STATE),
    (errors.TableNotFoundError, Code.TABLE_NOT_FOUND),
    (errors.TableExistsError, Code.TABLE_EXISTS),
    (errors.SchemaMismatchError, Code.SCHEMA_VALIDATION),
    (errors.SnapshotExpiredError, Code.VERSION_NOT_FOUND),
    (errors.ReadOnlyError, Code.PERMISSION_DENIED),
    (errors.ClosedError, Code.UNAVAILABLE),
    (errors.RequestError, Code.INVALID_INPUT),
    (errors.ConflictError, Code.CONCURRENT_MODIFICATION),
    (errors.FencedError, Code.PERMISSION_DENIED),
    (errors.OwnedError, Code.UNAVAILABLE),
    (errors.BusyError, Code.THROTTLING),
    (errors.UnavailableError, Code.UNAVAILABLE),
    (errors.PoisonedError, Code.UNAVAILABLE),
)


def code_of(error: Exception) -> Code:
    """Return the code of the specification for an error: what its client should do."""
    if isinstance(error, Refused):
        return Code(error.code)  # of an owner in another process it came as a number
    if isinstance(error, errors.AccessError):
        return Code.UNAUTHENTICATED if error.status == 401 else Code.PERMISSION_DENIED
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)


def sentence_of(error: Exception) -> str:
    """Return what a client is told: of what is not there with the words that clients look for."""
    text = str(error)
    is_gone = code_of(error).name.endswith("_NOT_FOUND") and "not found" not in text
    return f"not found: {text}" if is_gone else text
