"""All errors that siltstone raises on purpose, grouped by the caller's next step.

SiltstoneError
├── RequestError              the call is wrong: change it
│   ├── TableNotFoundError, TableExistsError, SchemaMismatchError, DuplicateKeyError
│   ├── SnapshotExpiredError, ReadOnlyError, ClosedError, UnsupportedFormatError
│   ├── AccessError           a server wants another access token: get one
│   └── LimitError            it needs more memory, or disk, than it may have: ask for less
├── ConflictError             another commit won: run the transaction again
├── FencedError               another process owns the store, or the app, now: stop this one
├── OwnedError                another process owns the store: join it, or open it read-only
├── InDoubtError              the commit may or may not be durable: reopen, ask `outcome`
│   └── NotShippedError       it is durable here, and not known to be in the bucket: wait on
├── PoisonedError             an earlier write failed half-way: reopen, recovery decides what holds
├── CorruptionError           the bytes are not those that we wrote: restore, never retry
├── BusyError                 a wait reached its limit: try later
├── UnavailableError          the file system refuses, or a package is missing: fix it, try again
│   ├── LanceRefusedError     it is one table that Lance cannot write: change or drop that one
│   └── ReplacedError         the directory was deleted, moved or replaced: open what is there
└── InvariantError            a bug in siltstone: report it; nothing more is written
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path

NAMES_MAX = 20
"""So many names a message lists."""
COMPARED_MAX = 1_000
"""With so many names a mistyped one is compared, and with so many characters of each (next)."""
COMPARED_CHARACTERS_MAX = 64
MEANT_MAX = 3


class SiltstoneError(Exception):
    """The root of all errors that siltstone raises on purpose.

    Examples:
        >>> try:
        ...     db["gone"]
        ... except st.SiltstoneError as error:
        ...     print(type(error).__name__)
        TableNotFoundError
    """

    def __reduce__(self) -> tuple[Callable[..., SiltstoneError], tuple[object, ...]]:
        """Pickle message and fields, so that an error of another process is raised here unchanged.

        By default pickle would pass the message to a constructor that takes the fields.
        """
        return _again, (type(self), self.args, vars(self))


def _again(
    kind: type[SiltstoneError], args: tuple[object, ...], fields: dict[str, object]
) -> SiltstoneError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


def in_words(error: BaseException) -> str:
    """Return an error as one line: the name of its class, then its message."""
    kind = type(error).__name__
    return f"{kind}: {error}" if str(error) else kind


def no_such(what: str, name: object, known: Iterable[object]) -> str:
    """Return the words for a name that nothing has: what may be meant, and which names there are.

    For example: "no column 'totl'; did you mean 'total'? The columns are id, total".

    Args:
        what: What the name is of, in the singular: "column", "option".
        name: The name that was given, or a list of names that were.
        known: The names that there are; the message lists `NAMES_MAX` of them.
    """
    given: list[object] = list(name) if isinstance(name, list) else [name]
    names = [str(each) for each in known]
    several = f"{what}es" if what.endswith("x") else f"{what}s"
    text = f"no {what if len(given) == 1 else several} {listed(map(_quoted, given))}"
    if not names:
        return f"{text}; there are no {several}"
    there_are = f"he {several} are {listed(names)}"
    meant = list(dict.fromkeys(found for each in given[:MEANT_MAX] for found in alike(each, names)))
    if not meant:
        return f"{text}; t{there_are}"
    return f"{text}; did you mean {' or '.join(map(repr, meant[:MEANT_MAX]))}? T{there_are}"


def not_one_of(what: str, given: object, choices: Iterable[object]) -> str:
    """Return the words for a value that is not among a few.

    For example: "isolation must be one of snapshot, serializable; got 'snap'; did you mean
    'snapshot'?"

    Args:
        what: What has the value: "isolation".
        given: The value.
        choices: The values that there are.
    """
    names = [str(each) for each in choices]
    text = f"{what} must be one of {', '.join(names)}; got {told(given)}"
    meant = alike(given, names) if isinstance(given, str) else []
    return f"{text}; did you mean {' or '.join(map(repr, meant))}?" if meant else text


def alike(name: object, known: Iterable[object]) -> list[str]:
    """Return the names that are most like a mistyped one, the best first; often none."""
    from difflib import get_close_matches  # noqa: PLC0415 - only the unlucky pay for it

    given = str(name)
    if not 0 < len(given) <= COMPARED_CHARACTERS_MAX:
        return []
    folded: dict[str, str] = {}
    for each in islice(known, COMPARED_MAX):
        folded.setdefault(str(each)[:COMPARED_CHARACTERS_MAX].casefold(), str(each))
    return [folded[found] for found in get_close_matches(given.casefold(), folded, MEANT_MAX)]


def told(given: object) -> str:
    """Return what a caller gave, for a message: of rows and columns the type alone."""
    rows = ("__arrow_c_stream__", "__arrow_c_array__", "__array__", "__dataframe__")
    if any(hasattr(given, each) for each in rows) and getattr(given, "ndim", 1) != 0:
        return f"a {type(given).__name__}"
    return _quoted(given)


def listed(names: Iterable[str]) -> str:
    """Return names for a message; of very many some, and how many there are more."""
    found = list(names)
    more = f" and {len(found) - NAMES_MAX:,} more" if len(found) > NAMES_MAX else ""
    return ", ".join(found[:NAMES_MAX]) + more


def _quoted(name: object) -> str:
    return f"{name!r:.128}"


class RequestError(SiltstoneError):
    """The call is wrong; nothing was changed.

    Examples:
        >>> db.create_table("", {"id": "int64"})
        Traceback (most recent call last):
        siltstone.errors.RequestError: a table name must be a non-empty string; got ''
    """


class TableNotFoundError(RequestError):
    """There is no table with this name (or id) at the requested seq.

    Examples:
        >>> db["order"]
        Traceback (most recent call last):
        siltstone.errors.TableNotFoundError: there is no table 'order'; did you mean 'orders'? ...
    """

    def __init__(
        self,
        table: str,
        known: Iterable[str] | None = None,
        *,
        seq: int | None = None,
        why: str = "",
    ) -> None:
        """`known`: the tables there, at a past `seq`; `why`: what became of it, where known."""
        self.table = table
        if why:
            text = f"there is no table {table!r}: {why}"
        elif known is None:
            text = f"there is no table {table!r}; `tables()` lists the tables"
        else:
            when = "" if seq is None else f" (at seq {seq})"
            text = f"there is {no_such('table', table, known)}{when}"
        super().__init__(text)


class TableExistsError(RequestError):
    """A table with this name exists already.

    Examples:
        >>> db.create_table("orders", {"id": "int64"})
        Traceback (most recent call last):
        siltstone.errors.TableExistsError: table 'orders' exists already; ...
    """

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(f"table {table!r} exists already; drop it or choose another name")


class SchemaMismatchError(RequestError):
    """Rows, columns or values do not fit the table's schema.

    Examples:
        >>> orders.upsert({"id": "three", "amount": 1.0, "note": "c"})
        Traceback (most recent call last):
        siltstone.errors.SchemaMismatchError: column 'id' is int64, not str 'three'
    """


class DuplicateKeyError(RequestError):
    """`insert` got a key that exists already, or the same key twice in one call.

    Examples:
        >>> orders.insert({"id": 1, "amount": 1.0, "note": "c"})
        Traceback (most recent call last):
        siltstone.errors.DuplicateKeyError: orders[1] exists already; use upsert to replace it
    """

    def __init__(self, table: str, key: object, *, is_repeated: bool = False) -> None:
        """`is_repeated`: the rows of the call have the key twice."""
        self.table, self.key = table, key
        text = "exists already; use upsert to replace it"
        if is_repeated:
            text = "is twice among the rows: give each key once, or order_by where it can be given"
        super().__init__(f"{table}[{key!r}] {text}")


class SnapshotExpiredError(RequestError):
    """The store does not keep the requested seq.

    Examples:
        >>> db.snapshot(seq=db.seq + 1)
        Traceback (most recent call last):
        siltstone.errors.SnapshotExpiredError: cannot read at seq 6: the store keeps seq 0 to 5
    """

    def __init__(self, wanted: object, oldest_seq: int, newest_seq: int) -> None:
        self.wanted, self.oldest_seq, self.newest_seq = wanted, oldest_seq, newest_seq
        super().__init__(
            f"cannot read at {wanted}: the store keeps seq {oldest_seq} to {newest_seq}"
        )


class ReadOnlyError(RequestError):
    """A write through a read-only handle, snapshot or store.

    Examples:
        >>> st.connect("shop", read_only=True)["orders"].delete(1)
        Traceback (most recent call last):
        siltstone.errors.ReadOnlyError: this store was opened read-only; ...
    """


class AccessError(RequestError):
    """The server wants an access token that this client does not show, or not of that role.

    Examples:
        >>> st.AccessError("the token is not known to this server", status=401).status
        401
    """

    def __init__(self, reason: str, *, status: int = 403) -> None:
        """`status`: 401 for no token or an unknown one, 403 for one whose role is too low."""
        self.status = status
        super().__init__(reason)


class ClosedError(RequestError):
    """The store, transaction or snapshot is closed, or belongs to another process (fork).

    Examples:
        >>> tx = db.transaction()
        >>> tx.rollback()
        >>> tx["orders"]
        Traceback (most recent call last):
        siltstone.errors.ClosedError: the transaction is ended; begin a new one
    """


class UnsupportedFormatError(RequestError):
    """A siltstone of another format wrote the store; nothing was changed.

    Examples:
        >>> error = st.UnsupportedFormatError("shop", found=5, known=6)
        >>> error.found, error.known
        (5, 6)
    """

    def __init__(self, path: Path | str, found: object, known: object) -> None:
        self.path, self.found, self.known = Path(path), found, known
        super().__init__(
            f"{path} has format {found}, and this siltstone opens format {known} alone; export the"
            " store with the siltstone that wrote it, or make a demo store again"
        )


class LimitError(RequestError):
    """The call needs more memory or temporary files than `bytes_max`; nothing was changed.

    Examples:
        >>> st.LimitError("the query needs more memory", bytes_max=1 << 20).bytes_max
        1048576
    """

    def __init__(self, reason: str, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        super().__init__(reason)


class ConflictError(SiltstoneError):
    """A commit after our snapshot wrote rows that we also write or read (first committer wins).

    Examples:
        >>> with db.transaction() as tx:
        ...     tx["orders"].update(1, amount=8.0)
        ...     receipt = orders.update(1, amount=9.0)  # another commit, which is first
        Traceback (most recent call last):
        siltstone.errors.ConflictError: orders[1] was written at seq 6; ...
    """

    def __init__(
        self,
        table: str,
        key: object,
        read_seq: int,
        written_seq: int,
        *,
        explained: str | None = None,
    ) -> None:
        """`explained`: the message, where running the transaction again does not help."""
        self.table, self.key = table, key
        self.read_seq, self.written_seq = read_seq, written_seq
        self.tries, self.is_explained = 1, explained is not None
        super().__init__(
            explained
            or f"{table}[{key}] was written at seq {written_seq}, after our snapshot at seq"
            f" {read_seq}; run the transaction again"
        )

    def tell_tries(self, tries: int) -> None:
        """Say that the transaction was tried so often, and that this was its last conflict."""
        self.tries = tries
        if tries > 1 and not self.is_explained:
            text = (
                f"tried {tries} times, and another commit won each time; the last one wrote"
                f" {self.table}[{self.key}] at seq {self.written_seq}, after our snapshot at seq"
                f" {self.read_seq}: try again later, or with more attempts"
            )
            self.args = (text,)


class FencedError(SiltstoneError):
    """A newer epoch owns the store, or a newer claim owns the token's app; stop this process.

    Examples:
        >>> st.FencedError(ours=3, theirs=4).theirs
        4
    """

    def __init__(self, ours: int | str, theirs: int | str, *, app: str | None = None) -> None:
        self.ours, self.theirs, self.app = ours, theirs, app
        ended = f"{theirs} claimed it" if theirs else "no process claimed it, or it was forgotten"
        super().__init__(
            f"our epoch {ours} ended: epoch {theirs} owns the store; reopen it"
            if app is None
            else f"our claim {ours} of app {app!r} ended: {ended}; stop this process"
        )


class OwnedError(SiltstoneError):
    """Another process owns the store, or this one does with other options (see `differing`).

    Examples:
        >>> st.OwnedError("shop", pid=4711, host="atlas").pid
        4711
    """

    def __init__(
        self,
        path: Path | str,
        pid: int | None,
        host: str | None,
        endpoint: str | None = None,
        *,
        differing: Mapping[str, tuple[object, object]] | None = None,
        cannot_serve: str | None = None,
    ) -> None:
        """`cannot_serve`: why no process can join that one, if it tried to serve."""
        self.path, self.pid, self.host, self.endpoint = Path(path), pid, host, endpoint
        self.cannot_serve = cannot_serve
        self.differing = dict(differing or {})
        if self.differing:
            listed = ", ".join(
                f"{name}={ours!r}, not {given!r}" for name, (ours, given) in self.differing.items()
            )
            text = (
                f"{path} is open in this process with {listed}; use the same options, or close its"
                " handles first"
            )
        elif cannot_serve:
            text = (
                f"{path} is owned by process {pid} on {host}, which no other process can join:"
                f" {cannot_serve}; put that right and start it again, or open the store with"
                " read_only=True"
            )
        else:
            text = (
                f"{path} is owned by process {pid} on {host}; open it with read_only=True, or join"
                f" it with join=True{_first(host, endpoint)}, or close it there first"
            )
        super().__init__(text)


def _first(host: str | None, endpoint: str | None) -> str:
    """Say what an owner has to do before others can join it."""
    if host is not None and host != platform.node():
        return " (first call serve(host) there, with an address that this machine reaches)"
    return "" if endpoint else " (first call serve_local() there)"


class InDoubtError(SiltstoneError):
    """This commit may or may not be durable: its write failed, or its answer was lost.

    Examples:
        >>> receipt = orders.delete(1)
        >>> error = st.InDoubtError(receipt.transaction_id)
        >>> db.outcome(error.transaction_id)
        'committed'
    """

    def __init__(self, transaction_id: str, reason: str = "the log write failed") -> None:
        self.transaction_id = transaction_id
        super().__init__(
            f"transaction {transaction_id} is in doubt: {reason}; reopen the store"
            f" and ask outcome({transaction_id!r})"
        )


class NotShippedError(InDoubtError):
    """This commit is durable and visible here; in doubt is whether the bucket has it already.

    It is not to be run again: `Store.wait_shipped(seq)` waits on. `receipt` is that of the commit;
    None where `wait_shipped` itself gave up.

    Examples:
        >>> issubclass(st.NotShippedError, st.ConflictError)  # so `Store.run` never repeats it
        False
    """

    def __init__(self, seq: int, reason: str, receipt: object = None) -> None:
        self.seq, self.receipt = seq, receipt
        self.transaction_id: str = getattr(receipt, "transaction_id", "")
        text = f"seq {seq} is committed here, and not yet known to be in the bucket: {reason}"
        super(InDoubtError, self).__init__(
            f"{text}; do not run it again, but wait on with wait_shipped({seq})"
        )


class PoisonedError(SiltstoneError):
    """An earlier write to the log failed; this handle acknowledges no more commits. Reopen it.

    Examples:
        >>> issubclass(st.PoisonedError, st.RequestError)  # no fault of the call
        False
    """


class CorruptionError(SiltstoneError):
    """The bytes of a file are not those that siltstone wrote; restore it, never retry.

    Examples:
        >>> st.CorruptionError("wal/1-1.wal", 4096, "the checksum differs").offset
        4096
    """

    def __init__(self, path: Path | str, offset: int | None, reason: str) -> None:
        self.path, self.offset, self.reason = Path(path), offset, reason
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path}{where}: {reason}")


class BusyError(SiltstoneError):
    """A wait reached its limit (backpressure, a lock, a publish race); try again later.

    Examples:
        >>> issubclass(st.BusyError, st.RequestError)  # the same call may succeed later
        False
    """


class UnavailableError(SiltstoneError):
    """The file system refuses, or an optional package is missing; nothing was changed.

    Examples:
        >>> issubclass(st.UnavailableError, st.RequestError)  # the call may be right
        False
    """


class LanceRefusedError(UnavailableError):
    """Lance cannot write the rows of one table, and nothing that the system lacks is the cause.

    Examples:
        >>> issubclass(st.LanceRefusedError, st.UnavailableError)
        True
    """


class ReplacedError(UnavailableError):
    """The directory at the path is not the store's any more; another one there was not changed.

    Examples:
        >>> st.ReplacedError("shop", why="another store").why
        'another store'
    """

    def __init__(self, path: Path | str, why: str = "") -> None:
        """`why`: what was found there, where more is known."""
        self.path, self.why = Path(path), why
        found = f" ({why})" if why else ""
        super().__init__(
            f"{path} was moved, deleted or replaced, or its LOCK was, while this process had the"
            f" store open{found}; what is there now was not changed: close this store, and open"
            " the new one"
        )


class InvariantError(SiltstoneError):
    """Siltstone found a bug in itself. This handle writes nothing more.

    Examples:
        >>> issubclass(st.InvariantError, st.RequestError)  # a bug of ours: please report it
        False
    """
