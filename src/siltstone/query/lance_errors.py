"""Lance errors: what goes wrong with a request to the Lance catalog, by the codes of its spec."""

from __future__ import annotations

from siltstone.errors import (
    BusyError,
    ConflictError,
    FencedError,
    OwnedError,
    ReadOnlyError,
    RequestError,
    SchemaMismatchError,
    SiltstoneError,
    TableExistsError,
    TableNotFoundError,
    UnavailableError,
)

INTERNAL = 18


class UnsupportedOperationError(RequestError):
    """The spec has it, this store does not."""


class NamespaceNotFoundError(RequestError):
    """No namespace of that name has a table."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no namespace {name!r}; a namespace is there as long as it has a table")


class NamespaceExistsError(RequestError):
    """A namespace of that name has a table, or is the root."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the namespace {name!r} is there already")


class NamespaceNotEmptyError(RequestError):
    """A namespace goes with its last table."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the namespace {name!r} goes with its last table: drop those")


class VersionNotFoundError(RequestError):
    """A table has no version of that number (any more)."""

    def __init__(self, table: str, version: object) -> None:
        self.table, self.version = table, version
        super().__init__(f"{table!r} has no version {version}; list its versions")


class InvalidTableStateError(RequestError):
    """The table is not as the request takes it to be; nothing was changed."""


class TagNotFoundError(RequestError):
    """No tag of that name is of a seq at which the table had a version."""


class TagExistsError(RequestError):
    """A tag of that name is there already; tags are of the whole store."""


_CODES: tuple[tuple[type[SiltstoneError], int], ...] = (
    (UnsupportedOperationError, 0),
    (NamespaceNotFoundError, 1),
    (NamespaceExistsError, 2),
    (NamespaceNotEmptyError, 3),
    (TableNotFoundError, 4),
    (TableExistsError, 5),
    (TagNotFoundError, 8),
    (TagExistsError, 9),
    (VersionNotFoundError, 11),
    (InvalidTableStateError, 19),
    (SchemaMismatchError, 20),
    (ReadOnlyError, 15),
    (RequestError, 13),
    (ConflictError, 14),
    (BusyError, 17),
    (UnavailableError, 17),
    (OwnedError, 17),
    (FencedError, 17),
)


def code_of(error: SiltstoneError) -> int:
    """Return the code that the Lance Namespace spec has for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
