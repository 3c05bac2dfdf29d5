"""Errors: what is wrong with a request to the Lance catalog, by the codes of its specification."""

from __future__ import annotations

from siltstone import errors

INTERNAL = 18


class UnsupportedOperationError(errors.RequestError):
    """The specification has the operation; this store does not offer it."""


class NamespaceNotFoundError(errors.RequestError):
    """There is no such namespace: it was not created, or was dropped, and no table is in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no namespace {name!r}; create it, or a table in it")


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


_CODES: tuple[tuple[type[errors.SiltstoneError], int], ...] = (
    (UnsupportedOperationError, 0),
    (NamespaceNotFoundError, 1),
    (NamespaceExistsError, 2),
    (NamespaceNotEmptyError, 3),
    (errors.TableNotFoundError, 4),
    (errors.TableExistsError, 5),
    (VersionNotFoundError, 11),
    (InvalidTableStateError, 19),
    (errors.SchemaMismatchError, 20),
    (errors.ReadOnlyError, 15),
    (errors.AccessError, 15),
    (errors.RequestError, 13),
    (errors.ConflictError, 14),
    (errors.BusyError, 17),
    (errors.UnavailableError, 17),
    (errors.OwnedError, 17),
    (errors.FencedError, 17),
)


def code_of(error: errors.SiltstoneError) -> int:
    """Return the code of the Lance Namespace specification for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
