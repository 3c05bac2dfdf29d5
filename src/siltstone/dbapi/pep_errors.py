"""The errors of PEP 249, by what their caller should do; siltstone's own is the `__cause__`.

ProgrammingError    the call is wrong: change it           RequestError
DataError           a row does not fit: change it          SchemaMismatchError
IntegrityError      a key is there: change the row         DuplicateKeyError
NotSupportedError   do it another way, which it names      (refused here by name)
InterfaceError      the rows of a cursor are over          (fetched too late)
OperationalError    run the transaction again, or later,   ConflictError, BusyError, LimitError,
                    or connect anew: the cause says which  ClosedError, InDoubtError, and others
InternalError       never retry                            CorruptionError, InvariantError
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from siltstone import errors
from siltstone.errors import SiltstoneError


class Warning(Exception):  # noqa: A001 - the name that PEP 249 gives it
    """What PEP 249 has for important warnings; none is raised."""


class Error(Exception):
    """The root of all errors of this interface; see the module."""


class InterfaceError(Error):
    """The interface was used in a way that the database knows nothing of."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value does not fit its column."""


class OperationalError(DatabaseError):
    """Nothing is wrong with the call: run the transaction again, or later, or connect anew."""


class IntegrityError(DatabaseError):
    """A key is there already."""


class InternalError(DatabaseError):
    """The store is damaged, or siltstone has a bug: never retry."""


class ProgrammingError(DatabaseError):
    """The call is wrong: change it."""


class NotSupportedError(DatabaseError):
    """It is not offered; the message says what is."""


_OF_A_VALUE = re.compile(r"DuckDB refuses the statement: (?:Conversion|Out of Range) Error")
_KINDS: tuple[tuple[tuple[type[SiltstoneError], ...], type[Error]], ...] = (
    ((errors.DuplicateKeyError,), IntegrityError),
    ((errors.SchemaMismatchError,), DataError),
    # Requests that another connection, another user or a later try may make.
    ((errors.AccessError, errors.ClosedError, errors.LimitError), OperationalError),
    ((errors.SnapshotExpiredError, errors.UnsupportedFormatError), OperationalError),
    ((errors.RequestError,), ProgrammingError),
    ((errors.CorruptionError, errors.InvariantError), InternalError),
    ((SiltstoneError,), OperationalError),
)


def error_of(error: SiltstoneError, also: str = "") -> Error:
    """Return the error of PEP 249 for one of siltstone; `also`: what its message ends with."""
    kind = next(pep for ours, pep in _KINDS if isinstance(error, ours))
    if kind is ProgrammingError and _OF_A_VALUE.match(str(error)):
        kind = DataError
    return kind(f"{error}{also}")


@contextmanager
def told() -> Generator[None]:
    """Raise the errors of siltstone as those of PEP 249.

    Raises:
        Error: See the module.
    """
    try:
        yield
    except SiltstoneError as error:
        raise error_of(error) from error
