"""Exit codes: results that scripts can act on.

0 done · 1 failed · 2 wrong usage · 3 not found · 4 conflict: run it again · 5 corrupted: restore ·
6 busy, or owned by another process: try later, or read · 7 no access: another access token
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from siltstone import errors
from siltstone.cli.output import printable

T = TypeVar("T")


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    CORRUPTED = 5
    BUSY = 6
    NO_ACCESS = 7
    INTERRUPTED = 130


class NotFoundError(errors.RequestError):
    """A store, key, tag or file that the command names does not exist."""


class UsageError(errors.RequestError):
    """The command line contradicts itself or is incomplete."""


# The first that fits decides, so leaves come before their group.
_CODES: tuple[tuple[type[errors.SiltstoneError], Exit], ...] = (
    (NotFoundError, Exit.NOT_FOUND),
    (errors.TableNotFoundError, Exit.NOT_FOUND),
    (errors.SnapshotExpiredError, Exit.NOT_FOUND),
    (errors.SchemaMismatchError, Exit.FAILED),  # the command is right, the rows are not
    (errors.DuplicateKeyError, Exit.FAILED),  # not a conflict: another run would not help
    (errors.TableExistsError, Exit.FAILED),
    (errors.UnsupportedFormatError, Exit.FAILED),
    (errors.AccessError, Exit.NO_ACCESS),
    (errors.RequestError, Exit.USAGE),
    (errors.ConflictError, Exit.CONFLICT),
    (errors.CorruptionError, Exit.CORRUPTED),
    (errors.OwnedError, Exit.BUSY),
    (errors.FencedError, Exit.BUSY),
    (errors.BusyError, Exit.BUSY),
)


def in_one_line(error: Exception) -> str:
    """Return the message of an error without its line breaks, and the carets below a statement."""
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line.strip("^~ "))


def in_lines(error: Exception) -> str:
    """Return the message of an error in one line, and below it what a caret points at."""
    sentence, at, place = str(error).partition("\nLINE ")
    told = printable(in_one_line(RuntimeError(sentence)))
    return told + "".join(f"\n{printable(line)}" for line in f"LINE {place}".splitlines() if at)


def named(what: str, name: str, known: Mapping[str, T], where: str = "there is") -> T:
    """Return what is known by a name that the user gave.

    Raises:
        NotFoundError: Nothing is; `where` begins the sentence.
    """
    if name not in known:
        raise NotFoundError(f"{where} {errors.no_such(what, name, sorted(known))}")
    return known[name]


def code_of(error: errors.SiltstoneError) -> Exit:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)
