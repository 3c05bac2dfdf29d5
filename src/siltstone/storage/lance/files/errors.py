"""Lance errors: the one place that maps errors of Lance to ours.

Lance raises plain OSError with a Rust text for nearly everything, ValueError for a wrong request,
and a panic of its decoders as a BaseException that no `except Exception` sees.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from siltstone import errors

_NO_SPACE_TEXTS = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 122")
_REFUSED_TEXTS = (
    "Permission denied", "os error 13", "Read-only file system", "os error 30",
    "Too many open files", "os error 24", "Input/output error", "os error 5)",
    "File too large", "os error 27",
)  # fmt: skip
# As errors, as Rust prints them in a panic, and of Python that Lance calls: of allocations, and of
# threads that do not start.
_SHORT_TEXTS = (
    "Cannot allocate memory", "(os error 12)", "Os { code: 12,", "kind: OutOfMemory",
    "Resource temporarily unavailable", "(os error 11)", "Os { code: 11,",
    "Resources exhausted: ", "ResourcesExhausted(", ": MemoryError:", "can't start new thread",
)  # fmt: skip
_OF_REQUESTS = "Invalid user input"  # a filter, or a column that is not there, out of a scan
_UNFIT_TEXTS = (
    "Schema error", "Append with different schema", "Not supported", "not implemented",
    "contains null", "non-nullable", "declared as non-null", "KMeans cannot train",
)  # fmt: skip
_OVERFLOW_TEXT = "Offset overflow error"
# Of the tags of promoted versions, when two processes promote at once.
_MET_TEXTS = ("Version not found error", "Ref conflict error", "Ref not found error")

# Of files that are not published yet, when a vacuum with no grace, or a clean-up, takes them.
_GONE_TEXTS = ("was not found: Not found", "error: Not found: ")


# Of a client of a bucket: what it did not get, and what it was not given.
_REQUEST = re.compile(
    r"Generic (?:S3|GCS|MicrosoftAzure) error: .*|The operation lacked (?:the necessary|valid) .*"
    r"|Error performing [A-Z]+ https?:.*|Failed to fetch storage options: .*", re.DOTALL
)  # fmt: skip
_ABSENT = re.compile(r"Not found: \S")
# What the client says of itself: places in its source, and queries of URLs, which may be signed.
_NOISE = re.compile(r",? *(?:/rustc|/home|src)/\S*|\?[^\s)]*|, max_retries: .*?(?= - )|[\s:,]+$")


class OffsetOverflow(errors.CorruptionError):
    """A batch has more bytes than 32-bit offsets count; if it is one row, the file is damaged."""


def is_overflow(error: BaseException) -> bool:
    """Return whether Lance gave up because a batch has more bytes than 32-bit offsets count."""
    return _OVERFLOW_TEXT in str(error)


def is_absent(error: errors.CorruptionError) -> bool:
    """Return whether Lance says that a file is not there."""
    return _ABSENT.search(error.reason) is not None


def is_panic(error: BaseException) -> bool:
    """Return whether `error` is a panic of Rust code (pyo3 gives the class no importable name)."""
    return type(error).__name__ == "PanicException"


def classify(error: BaseException, folder: Path, *, is_reading: bool) -> errors.SiltstoneError:
    """Return our error for an error of Lance over the dataset in `folder`."""
    text = str(error)
    if isinstance(error, errors.SiltstoneError):
        return error
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _has(text, _NO_SPACE_TEXTS):
        return errors.UnavailableError(f"{folder}: no space left; free some, then try again")
    if (
        isinstance(error, MemoryError)
        or getattr(error, "errno", None) in (errno.ENOMEM, errno.EAGAIN)
        or (_has(text.replace(str(folder), ""), _SHORT_TEXTS) and _OF_REQUESTS not in text)
    ):
        return errors.UnavailableError(
            f"{folder}: not enough memory or threads; free some, then try again: {text}"
        )
    if _has(text, _REFUSED_TEXTS):
        return errors.UnavailableError(f"{folder}: the file system refuses: {text}")
    return (
        _classify_read(error, folder, text) if is_reading else _classify_write(error, folder, text)
    )


def _classify_write(error: BaseException, folder: Path, text: str) -> errors.SiltstoneError:
    if _has(text, _MET_TEXTS):
        return errors.UnavailableError(
            f"{folder}: another process promotes at the same time; try again: {text}"
        )
    if _has(text, _GONE_TEXTS):
        gone = text.partition("Not found: ")[2].partition(",")[0] or text
        return errors.UnavailableError(
            f"{folder}: files of this write were deleted meanwhile; try again: {gone}"
        )
    if isinstance(error, (ValueError, TypeError, NotImplementedError)) or _has(text, _UNFIT_TEXTS):
        return errors.SchemaMismatchError(f"{folder}: Lance cannot store these rows: {text}")
    if is_panic(error):
        return errors.InvariantError(f"{folder}: Lance panicked while it wrote: {text}")
    return errors.LanceRefusedError(f"{folder}: the write failed: {text}")


@contextmanager
def translated(folder: Path, *, is_reading: bool) -> Generator[None]:
    """Run calls of Lance; convert their errors to ours."""
    try:
        yield
    except errors.SiltstoneError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            raise classify(error, folder, is_reading=is_reading) from error
        raise


def _classify_read(error: BaseException, folder: Path, text: str) -> errors.SiltstoneError:
    if isinstance(error, (TypeError, KeyError)) or _OF_REQUESTS in text:
        return errors.RequestError(f"{folder}: {text}")
    request = _REQUEST.search(text)
    if request is not None:
        said = " ".join(_NOISE.sub("", request[0]).split())
        return errors.UnavailableError(f"{folder}: the bucket cannot be read: {said}")
    damage = OffsetOverflow if is_overflow(error) else errors.CorruptionError
    return damage(folder, None, f"Lance cannot read it: {text}")


def _has(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)
