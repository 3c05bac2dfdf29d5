"""Every error siltstone raises on purpose, grouped by what the caller should do.

SiltstoneError
├── RequestError              the call is wrong: change it
│   ├── TableNotFoundError, TableExistsError, SchemaMismatchError, DuplicateKeyError
│   └── SnapshotExpiredError, ReadOnlyError, ClosedError, UnsupportedFormatError
├── ConflictError             another commit won: run the transaction again
├── FencedError               another process took the store, or the app, over: stop this one
├── OwnedError                another process owns the store: join it, or read only
├── InDoubtError              the commit may or may not be durable: reopen, ask `outcome`
├── PoisonedError             an earlier write failed half-way: reopen, recovery decides what holds
├── CorruptionError           the bytes are not what we wrote: restore, never retry
├── BusyError                 a bounded wait ran out: try later
├── UnavailableError          the file system or a needed part refuses: fix it, then try again
└── InvariantError            a bug in siltstone: report it; nothing more is written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


class SiltstoneError(Exception):
    """The root of all errors that siltstone raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., SiltstoneError], tuple[object, ...]]:
        """Pickle text and fields: what a task raises in another process is raised here as it is.

        By default the text would be given to a constructor that wants the fields.
        """
        return _again, (type(self), self.args, vars(self))


def _again(
    kind: type[SiltstoneError], args: tuple[object, ...], fields: dict[str, object]
) -> SiltstoneError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


def in_words(error: BaseException) -> str:
    """Return an error as a line: its kind first, which says what to do, then its message."""
    kind = type(error).__name__
    return f"{kind}: {error}" if str(error) else kind


class RequestError(SiltstoneError):
    """The call is wrong; nothing was changed."""


class TableNotFoundError(RequestError):
    """No table of that name (or id) lives at the seq that was asked for."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"no table {table!r}; `tables()` lists what there is")


class TableExistsError(RequestError):
    """A table of that name lives already."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"table {table!r} exists already; drop it or choose another name")


class SchemaMismatchError(RequestError):
    """Rows, columns or values that do not fit the table's schema."""


class DuplicateKeyError(RequestError):
    """`insert` met a key that lives already, or the same key twice in one call."""

    def __init__(self, table: str, key: object) -> None:
        self.table, self.key = table, key
        super().__init__(f"{table}[{key!r}] exists already; use upsert to replace it")


class SnapshotExpiredError(RequestError):
    """The past that was asked for is outside what the store keeps."""

    def __init__(self, wanted: object, oldest_seq: int, newest_seq: int) -> None:
        self.wanted, self.oldest_seq, self.newest_seq = wanted, oldest_seq, newest_seq
        super().__init__(
            f"cannot read at {wanted}: the store keeps seq {oldest_seq} to {newest_seq}"
        )


class ReadOnlyError(RequestError):
    """A write through a handle, snapshot or store that only reads."""


class ClosedError(RequestError):
    """The store, transaction or snapshot is closed, or belongs to another process (fork)."""


class UnsupportedFormatError(RequestError):
    """The store was written by a newer siltstone; not a byte of it was changed."""

    def __init__(self, path: Path | str, found: object, known: object) -> None:
        self.path, self.found, self.known = Path(path), found, known
        super().__init__(
            f"{path} has format {found}, this siltstone reads up to {known}; upgrade siltstone"
        )


class ConflictError(SiltstoneError):
    """A commit after our snapshot wrote what we also write or read (first committer wins)."""

    def __init__(
        self,
        table: str,
        key: object,
        read_seq: int,
        written_seq: int,
        *,
        explained: str | None = None,
    ) -> None:
        """Say what to do, or have it `explained` where to run it again is not the answer."""
        self.table, self.key = table, key
        self.read_seq, self.written_seq = read_seq, written_seq
        super().__init__(
            explained
            or f"{table}[{key}] was written at seq {written_seq}, after our snapshot at seq"
            f" {read_seq}; run the transaction again"
        )


class FencedError(SiltstoneError):
    """A newer epoch owns the store, or a newer claim the token app; this process must stop."""

    def __init__(self, ours: int | str, theirs: int | str, *, app: str | None = None) -> None:
        self.ours, self.theirs, self.app = ours, theirs, app
        super().__init__(
            f"our epoch {ours} ended: epoch {theirs} owns the store; reopen it"
            if app is None
            else f"our claim {ours} of app {app!r} ended: {theirs} claimed it; stop this process"
        )


class OwnedError(SiltstoneError):
    """Another process owns the store; or this one does, with other options: see `differing`."""

    def __init__(
        self,
        path: Path | str,
        pid: int | None,
        host: str | None,
        endpoint: str | None = None,
        *,
        differing: Mapping[str, tuple[object, object]] | None = None,
    ) -> None:
        self.path, self.pid, self.host, self.endpoint = Path(path), pid, host, endpoint
        self.differing = dict(differing or {})
        if self.differing:
            listed = ", ".join(
                f"{name}={ours!r}, not {given!r}" for name, (ours, given) in self.differing.items()
            )
            text = (
                f"{path} is open in this process with {listed}; use the same options, or close its"
                " handles first"
            )
        else:
            text = (
                f"{path} is owned by process {pid} on {host}; open it with read_only=True, or join"
                f" it with join=True{'' if endpoint else ' (first call serve_local() there)'}, or"
                " close it there first"
            )
        super().__init__(text)


class InDoubtError(SiltstoneError):
    """This commit may or may not be durable: its write failed, or its answer was lost."""

    def __init__(self, transaction_id: str, reason: str = "the log write failed") -> None:
        self.transaction_id = transaction_id
        super().__init__(
            f"transaction {transaction_id} is in doubt: {reason}; reopen the store"
            f" and ask outcome({transaction_id!r})"
        )


class PoisonedError(SiltstoneError):
    """An earlier log write failed; this handle acknowledges nothing more. Reopen the store."""


class CorruptionError(SiltstoneError):
    """The bytes of a file are not what siltstone wrote; restore it, never retry."""

    def __init__(self, path: Path | str, offset: int | None, reason: str) -> None:
        self.path, self.offset, self.reason = Path(path), offset, reason
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path}{where}: {reason}")


class BusyError(SiltstoneError):
    """A bounded wait ran out (backpressure, a lock, a publish race); try again later."""


class UnavailableError(SiltstoneError):
    """The file system, or an optional part that is not installed, refuses; nothing was changed."""


class InvariantError(SiltstoneError):
    """A claim of siltstone about itself does not hold: a bug. Nothing more is written."""
