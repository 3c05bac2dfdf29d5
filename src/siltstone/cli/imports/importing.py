"""Importing: the rows of a source, committed to a table in chunks, each exactly once.

    one chunk    one commit
    several      claim ──▶ a commit for each ──▶ forget, or claim as done
                 each holds the rows, the token (app, batch), and a new claim, whose holder says how
                 far it is: part, rows of it, rows of all

The app is "import TABLE". A run that was killed left it; the same command reads how far it was, and
goes on behind that. Its claim fences a run that is still alive. What comes before, and the part
that was begun, must be unchanged. Held in memory: a chunk and what its format reads ahead.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from siltstone.api.results import TokenApp
from siltstone.cli.exits import UsageError
from siltstone.cli.files import Rows
from siltstone.cli.imports.parts import Pieces, Source, SourcePart
from siltstone.errors import AccessError, SchemaMismatchError
from siltstone.store import Store

CHUNK_BYTES_MAX = 128 << 20
"""Of the rows of one commit, as Arrow has them; a commit holds at most 256 MiB."""
_DIGEST = 12
_DONE = "done."
"""What the holder begins with once all rows are in."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The table: `creates` it with `columns` (None: those of its rows) and `key`, or appends."""

    name: str
    columns: pa.Schema | None = None
    key: tuple[str, ...] = ()
    creates: bool = False

    @property
    def app(self) -> str:
        """The app of the tokens."""
        return f"import {self.name}"


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of it: rows of this run, the seq of its last commit, how many commits it had."""

    rows: int
    seq: int
    commits: int
    transaction_id: str
    rate: int = 0
    """Rows per second."""


@dataclass(frozen=True, slots=True)
class ImportChunk:
    """Rows, and where they end: in which part, behind how many of its rows."""

    rows: Rows
    part: int
    behind: int

    @property
    def count(self) -> int:
        return _count(self.rows)


@dataclass(frozen=True, slots=True)
class ImportPlace:
    """How far an import is: see the module. `total` are the rows of all parts."""

    part: int = 0
    rows: int = 0
    total: int = 0
    table: int = 0
    before: str = ""
    now: str = ""

    @classmethod
    def of(cls, holder: str) -> ImportPlace | None:
        """Return what a holder says; None: it is another one."""
        try:
            part, rows, total, table, before, now, _ = holder.split(".")
            return cls(int(part, 16), int(rows, 16), int(total, 16), int(table, 16), before, now)
        except ValueError:
            return None

    def holder(self, run: str) -> str:
        """Return it as the holder of a claim of one run."""
        numbers = f"{self.part:x}.{self.rows:x}.{self.total:x}.{self.table:x}"
        return f"{numbers}.{self.before}.{self.now}.{run}"

    def within(self, parts: Sequence[SourcePart]) -> ImportPlace:
        """Return it with what tells that the parts are the same."""
        before = _digest(parts[: self.part])
        return replace(self, before=before, now=_digest(parts[self.part : self.part + 1]))

    def is_of(self, parts: Sequence[SourcePart]) -> bool:
        """Say whether what was imported is the begin of these parts, as they are now."""
        if self.part >= len(parts):
            return False
        found = self.within(parts)
        return found.before == self.before and (not self.rows or found.now == self.now)


def _digest(parts: Sequence[SourcePart]) -> str:
    text = "\n".join(part.fingerprint for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


class Import:
    """One run; see the module. One thread."""

    def __init__(
        self,
        store: Store,
        target: ImportTarget,
        source: Source,
        run: str = "",
        *,
        keeps_app: bool = False,
        bytes_max: int = CHUNK_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look how far an earlier run was.

        Args:
            store: The store of the table.
            target: The table.
            source: Its rows.
            run: Another text for each run; by default a random one.
            keeps_app: One of several imports: it always has an app, until `forget`. If an earlier
                run was done with it, this one does nothing.
            bytes_max: Of the rows of one commit.
            clock: For the rate.

        Raises:
            UsageError: An earlier run was of other files.
        """
        self._keeps_app = keeps_app
        self._store, self._target, self._parts = store, target, source.parts
        self._run, self._bytes_max, self._clock = run or secrets.token_hex(3), bytes_max, clock
        self._progress: Progress = lambda *_: None
        self.is_done = False
        self.place: ImportPlace | None = None
        self.place = self._begun()
        self._commits, self._rows, self._started = 0, 0, 0.0
        self._first: pa.Table | None = None

    @property
    def name(self) -> str:
        """That of the table."""
        return self._target.name

    def run(self, progress: Progress | None = None) -> Imported:
        """Import what is left.

        Args:
            progress: Hears of each commit: rows and their rate, bytes read, all bytes.

        Raises:
            SiltstoneError: Rows do not fit, or a commit was refused; `place` says what is in.
        """
        if self.is_done:
            return Imported(0, self._store.seq, 0, "")
        self._progress, self._started = progress or self._progress, self._clock()
        chunks = self._chunks()
        if self.place is None:
            first, second = next(chunks), next(chunks, None)
            if second is None and not self._keeps_app:
                return self._alone(first)
            chunks = chain([first] if second is None else [first, second], chunks)
            del first, second
        return self._each(chunks)

    def write_first(self) -> None:
        """Commit the first chunk, and leave it at that.

        Raises:
            SiltstoneError: Its rows do not fit, or no table has such columns.
        """
        self._alone(next(self._chunks()))

    def _begun(self) -> ImportPlace | None:
        """Return how far an earlier run was.

        Raises:
            UsageError: It was of other files.
        """
        found = self._app()
        if found is None:
            return None
        table = self._id_of_table()
        if found.holder.startswith(_DONE):
            self.is_done = self._keeps_app and found.holder.startswith(f"{_DONE}{table or 0:x}.")
        place = ImportPlace.of(found.holder)
        if not self.is_done and (place is None or place.table != table):
            self.forget()  # it is over, or its table is gone
            return None
        if place is None:
            return None
        if not place.is_of(self._parts):
            raise UsageError(
                f"an import of {self._target.name!r} ended after {place.total:,} rows, of other"
                " files or of files that have changed since: give the same ones again; or let its"
                f" rows be, and begin anew: siltstone apps forget '{self._target.app}'"
            )
        return place

    def _app(self) -> TokenApp | None:
        apps = {app.name: app for app in self._store.token_apps()}
        return apps.get(self._target.app)

    def _id_of_table(self) -> int | None:
        names = self._store.tables()
        return self._store[self._target.name].id if self._target.name in names else None

    # one commit

    def _alone(self, chunk: ImportChunk) -> Imported:
        with self._store.transaction() as tx:
            self._write(tx, chunk, creates=self._target.creates)
        assert tx.receipt is not None
        return Imported(chunk.count, tx.receipt.seq, 1, tx.receipt.transaction_id)

    def _write(self, tx: Any, chunk: ImportChunk, *, creates: bool) -> None:
        target = self._target
        if creates:
            tx.create_table(target.name, target.columns, target.key, data=chunk.rows)
            return
        table = tx[target.name]
        try:
            (table.insert if table.primary_key and target.creates else table.append)(chunk.rows)
        except SchemaMismatchError as error:
            name = self._parts[chunk.part].name
            raise SchemaMismatchError(f"{name}: {error}") from error

    # several

    def _each(self, chunks: Iterator[ImportChunk]) -> Imported:
        place = self.place or ImportPlace(table=self._id_of_table() or 0).within(self._parts)
        claim = self._store.claim(self._target.app, place.holder(self._run))
        app = self._app()
        batch = 0 if app is None else app.batch + 1
        seq, last = self._store.seq, ""
        for chunk in chunks:
            creates = self._target.creates and self.place is None
            with self._store.transaction(token=(self._target.app, batch), claim=claim) as tx:
                self._write(tx, chunk, creates=creates)
                table = tx[self._target.name].id
                place = ImportPlace(chunk.part, chunk.behind, place.total + chunk.count, table)
                place = place.within(self._parts)
                next_claim = tx.claim(self._target.app, place.holder(self._run))
            assert tx.receipt is not None
            seq, last = tx.receipt.seq, tx.receipt.transaction_id
            self.place, claim, batch = place, next_claim, batch + 1
            self._commits, self._rows = self._commits + 1, self._rows + chunk.count
            self._tell(place)
        self.place = place
        if self._keeps_app:
            self._mark_done()
        else:
            self.forget()
        return Imported(self._rows, seq, self._commits, last, self._rate())

    def forget(self) -> None:
        """Forget the app, as all of it is in, or nothing of it counts any more.

        A server allows that to an admin alone: for others the app stays, and says that it is over.
        """
        try:
            self._store.forget_token_app(self._target.app)
        except AccessError:
            self._mark_done()

    def _mark_done(self) -> None:
        table = 0 if self.place is None else self.place.table
        self._store.claim(self._target.app, f"{_DONE}{table:x}.{self._run}")

    def _rate(self) -> int:
        seconds = self._clock() - self._started
        return int(self._rows / seconds) if seconds > 0 else 0

    def _tell(self, place: ImportPlace) -> None:
        part = self._parts[place.part]
        done = sum(each.weight for each in self._parts[: place.part])
        done += min(part.gauge.read, part.weight)
        text = f"{place.total:,} rows, {self._rate():,} rows/s"
        self._progress(text, done, sum(part.weight for part in self._parts))

    # chunks

    def _chunks(self) -> Iterator[ImportChunk]:
        """Yield what is left; nothing of an import that was complete."""
        first, skipped = (0, 0) if self.place is None else (self.place.part, self.place.rows)
        known, made = self._known(), False
        for number, part in enumerate(self._parts[first:], first):
            behind = skipped
            for rows in chunked(self._pieces(part, known, skipped), self._bytes_max):
                if known is None and isinstance(rows, pa.Table):
                    known = rows.schema  # the types of the first part are those of all
                behind += _count(rows)
                made = True
                yield ImportChunk(rows, number, behind)
            skipped = 0
        if not made and self.place is None:
            yield ImportChunk([] if self._first is None else self._first, 0, 0)

    def _pieces(self, part: SourcePart, known: pa.Schema | None, skipped: int) -> Pieces:
        """Yield the rows of a part behind those that are in; keep the first empty piece."""
        for piece in part.read(known):
            if self._first is None and _count(piece) == 0 and isinstance(piece, pa.Table):
                self._first = piece
            rest = _behind(piece, skipped)
            skipped = max(0, skipped - _count(piece))
            if rest is not None:
                yield rest

    def _known(self) -> pa.Schema | None:
        if self._target.creates and self.place is None:
            return self._target.columns
        return self._store[self._target.name].schema


def chunked(pieces: Pieces, bytes_max: int) -> Iterator[Rows]:
    """Yield rows together, or cut, so that each has about `bytes_max` bytes; none is empty."""
    held, nbytes = list[pa.Table](), 0
    for piece in chain.from_iterable(_cut(piece, bytes_max) for piece in pieces):
        is_list = isinstance(piece, list)
        if held and (is_list or nbytes + piece.nbytes > bytes_max):
            yield pa.concat_tables(held)
            held, nbytes = [], 0
        if is_list:
            yield piece
        else:
            held.append(piece)
            nbytes += piece.nbytes
    if held:
        yield pa.concat_tables(held)


def _cut(piece: Any, bytes_max: int) -> Iterator[Any]:
    """Yield a piece as tables of at most about so many bytes, or as it is if it is a list."""
    if isinstance(piece, list):
        if piece:
            yield piece
        return
    if isinstance(piece, pa.RecordBatchReader):
        for batch in piece:
            yield from _cut(batch, bytes_max)
        return
    table = pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece
    if not table.num_rows:
        return
    rows = max(1, table.num_rows * bytes_max // max(table.nbytes, 1))
    for place in range(0, table.num_rows, rows):
        yield table.slice(place, rows)


def _behind(piece: Any, skipped: int) -> Any:
    """Return the rows of a piece behind so many; None: there are none."""
    if skipped >= _count(piece):
        return None
    if not skipped:
        return piece
    return piece[skipped:] if isinstance(piece, list) else piece.slice(skipped)


def _count(rows: Any) -> int:
    return len(rows) if isinstance(rows, list) else rows.num_rows
