"""Stage task: rows of one bulk commit, written by any process before a transaction names them.

    begin ─▶ run, in any number of processes ─▶ Transaction.attach ─▶ commit
    a folder   synced files, not visible          one pin over all      one frame: visible

The folder, `<home>/.attached/<job>`, has a mark that says who may delete the files (`JobFolder`).

A job may be for a table that its commit creates, or for columns that its commit adds: `schema` is
what the table has then. The folder of a new table's rows has the name of the job.

The rows are written where they will be read: in the base of a keyed table without a row version, in
a dataset of the job for other keyed tables (`.attached/<job>`), among the files of a plain table. A
crash at any step leaves files that no frame names; vacuum deletes them after the grace period, also
if the transaction comes later than that. The result of a repeated or late `run` is attached only if
its `Staged` is given. Pieces stream: no process holds all rows of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pyarrow as pa

from siltstone.choices import Missing, StagedOp
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.partial_rows import check_missing
from siltstone.engine.catalog.row_input import one_batch, stream_of
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.core import Core
from siltstone.engine.read.view import is_empty
from siltstone.engine.write.job_folder import JobFolder
from siltstone.engine.write.plain_writes import dataset_of
from siltstone.errors import RequestError, SchemaMismatchError, no_such, not_one_of
from siltstone.formats.conversion.arrow_stream import packed
from siltstone.formats.conversion.conform import conform
from siltstone.formats.manifest import Pin, Schema, TableDefinition
from siltstone.formats.schema import history_field
from siltstone.formats.types.blobs import is_blob
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.site import site_of
from siltstone.storage.tables.kept_names import kept_of
from siltstone.storage.tables.keys.key_cover import TableKeys
from siltstone.storage.tables.keys.staged_keys import KeySorter
from siltstone.storage.tables.tables import TableWriter
from siltstone.storage.tables.values import NO_FILES, StagedFiles
from siltstone.storage.tables.values import join as join_files

KEYED_OPS, PLAIN_OPS = ("insert", "upsert", "delete"), ("append", "insert")
BASE, ATTACHED, PLAIN = "base", "attached", "plain"
NEW_TABLE = 0
"""The table's id in a job whose commit creates the table; no table has it."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of one `StageTask.run`: durable, not yet visible. Pickles.

    `inline`: its rows, as an Arrow IPC stream, if no file has them: the commit makes them durable.
    `named`: the columns that they name, where others are kept (None: no row, or all columns).

    Examples:
        >>> stage = db.stage("events")
        >>> stage.run(events.head(1)).rows
        1
    """

    job: str
    files: StagedFiles
    inline: bytes | None = None
    named: tuple[str, ...] | None = None

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return self.files.rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StageTask:
    """A bulk commit in the making; get it from `Store.stage`. Pickles.

    Pieces are staged on `pin`; `home` is the table's own folder.
    `above_us` is the gc horizon of the record on which it began, `began_us` is never before it.
    `missing` is what becomes of the
    columns that rows of an upsert do not name; other ops have null there.

    Examples:
        >>> stage = db.stage("events")
        >>> stage.run(events.head(2)).rows
        2
    """

    root: str
    verify: str
    job: str
    table: str
    table_id: int
    incarnation: int
    schema: Schema
    op: str
    order_by: str | None
    target: str
    home: str
    pin: Pin
    began_us: int
    above_us: int = 0
    store_id: str = ""
    missing: Missing = "null"
    keeps_last: bool = False
    """Of rows with equal keys the last one counts, as in one `upsert`; else they are refused."""

    @property
    def may_repeat(self) -> bool:
        """Whether several rows may have one key."""
        return self.op == "delete" or self.order_by is not None or self.keeps_last

    @property
    def creates(self) -> bool:
        """Whether the commit creates the table."""
        return self.table_id == NEW_TABLE

    def __repr__(self) -> str:
        return f"<StageTask {self.op} into {self.table!r}, job {self.job}>"

    @property
    def arrow(self) -> pa.Schema:
        """The columns that rows may have; for a delete only the key, others are ignored."""
        table_schema = table_schema_of(self.schema)
        if self.op != "delete":
            return table_schema.arrow
        names = table_schema.codec.names
        return pa.schema([table_schema.arrow.field(n).with_nullable(False) for n in names])

    def run(self, rows: object, *, inline_bytes_max: int = 0) -> Staged:
        """Write one piece of the job; in any process that sees the store's path.

        The piece is durable on return. If you run the same rows twice, you get two pieces: give one
        of them to `Transaction.attach`.

        Args:
            rows: Arrow data, or an iterable of record batches; it is read once and streamed.
            inline_bytes_max: So few bytes of rows travel in the result, and only the commit makes
                them durable. A small commit is faster so. Rows of a table without a key never do.

        Raises:
            SchemaMismatchError: A column does not fit or is missing, or a key is null; nothing was
                staged.
            UnavailableError: The disk refuses (full, not writable); nothing was staged.
        """
        tables = site_of(self.root, self.verify).tables
        return self.run_through(tables.writer, rows, inline_bytes_max, sorter_of(self, tables.keys))

    def run_through(
        self,
        tables: TableWriter,
        rows: object,
        inline_bytes_max: int = 0,
        sorter: KeySorter | None = None,
    ) -> Staged:
        """Write one piece through the tables of an open store; see `run`.

        `sorter` stages the keys of the rows, too, so that the commit merges them. The process that
        commits needs none: it would sort them once more early than late, and write a file more.
        """
        batches = _batches(rows)
        named = None
        if self.missing == "keep":
            named, batches = _named(batches)
        fitting = self._conformed(batches)
        few: list[pa.RecordBatch] = []
        if inline_bytes_max and self.may_inline:
            few, is_all = _taken(fitting, inline_bytes_max)
            if is_all:
                files = replace(NO_FILES, rows=sum(batch.num_rows for batch in few))
                return Staged(self.job, files, packed(self.arrow, few), named)
        written = tables.stage(self.pin, self._stored(itertools.chain(few, fitting), sorter))
        if sorter is not None:
            written = replace(written, keys=sorter.ended())
        return Staged(self.job, written, None, named)

    @property
    def may_inline(self) -> bool:
        """Whether rows may travel in a `Staged`: a plain table takes files, a blob is one."""
        return self.target != PLAIN and not any(map(is_blob, self.arrow))

    def _conformed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields, codec = self.arrow, table_schema_of(self.schema).rows
        for batch in batches:
            given = batch
            if self.op == "delete":
                given = batch.select([n for n in fields.names if n in batch.schema.names])
            found = conform(given, self.schema, fields)  # what else is wrong comes first
            if self.missing == "refuse":
                codec.refuse_lacking(batch.schema.names)
            yield found

    def _stored(
        self, batches: Iterable[pa.RecordBatch], sorter: KeySorter | None
    ) -> Iterator[pa.RecordBatch]:
        stored = stored_fields(table_schema_of(self.schema), self.target, self.op)
        for batch in batches:
            if sorter is not None:
                sorter.add(batch)
            yield pa.RecordBatch.from_arrays(batch.columns, schema=stored)

    def in_hand(self, staged: Sequence[Staged]) -> pa.RecordBatch | None:
        """Return the rows of the pieces, if all of them are inline; they are checked again.

        Raises:
            RequestError, SchemaMismatchError: A piece belongs to another job, or its rows are none.
        """
        self._check(staged)
        if not self.may_inline or any(piece.inline is None for piece in staged):
            return None
        found = [batch for piece in staged for batch in self._unpacked(piece) if batch.num_rows]
        return one_batch(found, self.arrow)

    def _unpacked(self, piece: Staged) -> Iterator[pa.RecordBatch]:
        assert piece.inline is not None
        try:
            source = pa.ipc.open_stream(piece.inline)
        except (pa.ArrowException, OSError, TypeError) as error:
            raise RequestError(f"a piece of {self!r} cannot be read: {error}") from error
        return self._conformed(_batches(source))

    def filed(self, tables: TableWriter, staged: Sequence[Staged]) -> list[Staged]:
        """Return the pieces, those that are inline written to files: neighbours to one.

        The rows keep their order, which decides between equal values of `order_by`.
        """
        self._check(staged)
        filed: list[Staged] = []
        for is_inline, pieces in itertools.groupby(staged, lambda piece: piece.inline is not None):
            if is_inline:
                rows = itertools.chain.from_iterable(map(self._unpacked, pieces))
                filed.append(replace(self, missing="null").run_through(tables, rows))
            else:
                filed += pieces
        return filed

    def discard(self, staged: Sequence[Staged] = ()) -> bool:
        """Delete staged pieces. Returns False if a transaction has tried to attach them.

        Vacuum deletes pieces that are not given, and those that a late task still writes. Call it
        after the commit, too: of pieces that are attached it deletes what only the attach reads,
        the staged keys, and the folder of a job whose rows are all in the log.
        """
        site = site_of(self.root, self.verify)
        return self.discard_through(site.files, site.root, staged)

    def discard_through(self, files: Files, root: Path, staged: Sequence[Staged] = ()) -> bool:
        """Discard through these files; see `discard`."""
        self._check(staged)
        folder = JobFolder(files, root / self.marks)
        with refusals(f"cannot discard {self!r}"):
            for keys in (keys for piece in staged for keys in piece.files.keys):
                with suppress(OSError):  # nothing reads them any more, and a vacuum takes them
                    files.unlink(root / keys.run.path)
            is_ours = folder.discard()
            if is_ours:
                for file in (file for piece in staged for file in piece.files.files):
                    for name in filter(None, (file.path, kept_of(file.path))):
                        with suppress(FileNotFoundError):
                            files.unlink(root / name)
            if staged and all(piece.inline is not None for piece in staged):
                self._remove(folder, root)  # each micro-batch of a stream is such a job
            return is_ours

    def _remove(self, folder: JobFolder, root: Path) -> None:
        if folder.remove_without_rows() and self.target == ATTACHED:
            with suppress(OSError):
                folder.files.unlink(root / self.pin.inventory)  # of the folder's first version

    @property
    def marks(self) -> str:
        """The folder with the state of the job."""
        return f"{self.home}/.attached/{self.job}"

    def _check(self, staged: Sequence[Staged]) -> None:
        for piece in staged:
            if not isinstance(piece, Staged) or piece.job != self.job:
                raise RequestError(f"{piece!r:.80} was not staged by {self!r}")

    def joined(self, files: Files, root: Path, staged: Sequence[Staged]) -> StagedFiles:
        """Mark the job as attached and return its pieces as one; afterwards only vacuum deletes.

        Raises:
            RequestError: A piece belongs to another job or is given twice, or the job was discarded
                or vacuumed.
        """
        self._check(staged)
        whole = join_files([piece.files for piece in staged])
        if len({file.path for file in whole.files}) < len(whole.files):
            raise RequestError(f"a piece of {self!r} is given twice")
        with refusals(f"{self!r} cannot be attached"):
            try:
                JobFolder(files, root / self.marks).attach()
                sizes = [files.size(root / file.path) for file in whole.files]
            except FileNotFoundError as error:
                raise RequestError(f"{self!r} was discarded or vacuumed; stage it again") from error
        if sizes != [file.size for file in whole.files]:
            raise RequestError(f"{self!r} has files of other sizes than were staged")
        return whole

    def started_us(self, files: Files, root: Path, staged: Sequence[Staged]) -> int:
        """Return the start time by its files: the clock of their writer may be behind ours.

        Raises:
            RequestError: A piece belongs to another job.
            UnavailableError: The file system refuses.
        """
        self._check(staged)
        oldest_us = self.began_us
        with refusals(f"{self!r} cannot be attached"):
            for path in (root / file.path for piece in staged for file in piece.files.files):
                with suppress(FileNotFoundError):  # vacuumed; `joined` says so
                    oldest_us = min(oldest_us, int(files.mtime(path) * 1e6))
        return max(oldest_us, self.above_us)


def sorter_of(task: StageTask, keys: TableKeys) -> KeySorter | None:
    """Return what stages the keys of one piece of a job; None: its table has none."""
    if task.target == PLAIN:
        return None
    return keys.sorter(task.marks, table_schema_of(task.schema).codec)


def begin(
    core: Core,
    name: str,
    op: StagedOp | None = None,
    order_by: str | None = None,
    *,
    schema: object = None,
    primary_key: str | Sequence[str] = (),
    missing: Missing = "refuse",
) -> StageTask:
    """Begin a bulk commit into the table `name`; see `Store.stage`.

    Raises:
        TableNotFoundError, RequestError: There is no such table, op or column to order by; or the
            table has another key, or cannot have the columns of `schema`.
        UnavailableError: The file system refuses.
    """
    core.check()
    check_missing(missing)
    view = core.state().view
    if schema is not None and definitions.named(view.catalog, name) is None:
        return _begin_new(core, name, op, order_by, schema, primary_key, missing)
    table = catalogs.find(view.catalog, name)
    definitions.refuse_other(table, None, primary_key)
    added = () if schema is None else definitions.added(table, schema)
    table_schema = table_schema_of(definitions.widened(table, added))
    chosen = _op(name, table_schema, op)
    _check_order(table_schema, chosen, order_by)
    job, begun = core.site.new_token(), core.begun()
    incarnation = catalogs.incarnation_of(table)
    levels = view.levels.get(incarnation.id)
    if levels is None:
        home, pin = _plain_pin(core, table, table_schema, added)
        target = PLAIN
    else:
        # A first base is written under the schema of its table.
        is_first = is_empty(levels) and not (incarnation.versions or added or chosen == "delete")
        is_first &= missing != "keep"
        target, home = BASE if is_first else ATTACHED, levels.storage.folder
        folder = f"{home}/base" if target == BASE else f"{home}/.attached/{job}"
        pin = core.tables.writer.create(folder, stored_fields(table_schema, target, chosen))
    return _opened(core, StageTask(
        str(core.root), core.verify, job, name, table.id, incarnation.id, table_schema.schema,
        chosen, order_by, target, home, pin, begun.first_us, begun.above_us, view.record.store_id,
        _missing(chosen, missing),
    ))  # fmt: skip


def _missing(op: str, missing: Missing) -> Missing:
    return missing if op == "upsert" else "null"


def _plain_pin(
    core: Core, table: TableDefinition, table_schema: TableSchema, added: Sequence[pa.Field]
) -> tuple[str, Pin]:
    """Return the dataset of a plain table, and a version to stage on, with the columns `added`."""
    home, version = dataset_of(table)
    if version is None:
        return home, core.tables.writer.create(home, table_schema.arrow)
    if added:
        fields = [table_schema.arrow.field(field.name) for field in added]
        version = core.tables.writer.alter(version, rename={}, drop=(), add=fields)
    return home, version


def _begin_new(
    core: Core,
    name: str,
    op: StagedOp | None,
    order_by: str | None,
    schema: object,
    primary_key: str | Sequence[str],
    missing: Missing,
) -> StageTask:
    """Begin a job whose commit creates the table."""
    view = core.state().view
    new_secret = core.tables.keys.new_secret
    created = definitions.create(view.catalog, NEW_TABLE, name, schema, primary_key, new_secret)
    table_schema = table_schema_of(created.schema)
    chosen = _op(name, table_schema, op)
    _check_order(table_schema, chosen, order_by)
    job, begun = core.site.new_token(), core.begun()
    home = f"tables/{name}-{job}"
    target = PLAIN if table_schema.keys is None else ATTACHED
    folder = home if target == PLAIN else f"{home}/.attached/{job}"
    pin = core.tables.writer.create(folder, stored_fields(table_schema, target, chosen))
    return _opened(core, StageTask(
        str(core.root), core.verify, job, name, NEW_TABLE, NEW_TABLE, created.schema,
        chosen, order_by, target, home, pin, begun.first_us, begun.above_us, view.record.store_id,
        _missing(chosen, missing),
    ))  # fmt: skip


def _opened(core: Core, task: StageTask) -> StageTask:
    """Return a new job, with the mark that its files may be discarded."""
    folder = JobFolder(core.files, core.root / task.marks)
    with refusals(f"cannot stage in {folder.path}"):
        folder.open()
    return task


def stored_fields(table_schema: TableSchema, target: str, op: str) -> pa.Schema:
    """Return the columns of the files: above base named by id, for a delete only the key."""
    if target != ATTACHED:
        return table_schema.arrow
    columns = {column.id: column for column in table_schema.schema.columns}
    ids = table_schema.schema.key if op == "delete" else tuple(columns)
    return pa.schema([history_field(columns[column_id]) for column_id in ids])


def _op(name: str, table_schema: TableSchema, op: str | None) -> str:
    is_plain = table_schema.keys is None
    kind, ops, default = (
        ("plain", PLAIN_OPS, "append") if is_plain else ("keyed", KEYED_OPS, "upsert")
    )
    if op is not None and op not in ops:
        raise RequestError(f"{name!r} is a {kind} table: {not_one_of('op', op, ops)}")
    return op or default


def _check_order(table_schema: TableSchema, op: str, order_by: str | None) -> None:
    if order_by is None:
        return
    if table_schema.keys is None or op == "delete":
        raise RequestError(f"order_by decides between equal keys; {op} does not take it")
    if order_by not in table_schema.arrow.names:
        raise SchemaMismatchError(no_such("column", order_by, table_schema.arrow.names))
    kind = table_schema.arrow.field(order_by).type
    if pa.types.is_nested(kind):
        raise RequestError(f"column {order_by!r} is {kind}, which has no order")


def _taken(batches: Iterator[pa.RecordBatch], bytes_max: int) -> tuple[list[pa.RecordBatch], bool]:
    """Take batches until they have more than `bytes_max`; return whether these are all."""
    taken: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        taken.append(batch)
        nbytes += batch.nbytes
        if nbytes > bytes_max:
            return taken, False
    return taken, True


def _named(
    batches: Iterator[pa.RecordBatch],
) -> tuple[tuple[str, ...] | None, Iterator[pa.RecordBatch]]:
    """Return the columns that all batches name, and the batches; None: there is no batch.

    Raises, from the iterator:
        SchemaMismatchError: One names others.
    """
    first = next(batches, None)
    if first is None:
        return None, batches
    names = tuple(first.schema.names)

    def alike() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in batches:
            if set(batch.schema.names) != set(names):
                raise SchemaMismatchError(
                    f"staged rows name the columns {list(names)} and {batch.schema.names}; with"
                    ' missing="keep" all rows of a job name the same'
                )
            yield batch

    return names, alike()


def _batches(rows: object) -> Iterator[pa.RecordBatch]:
    stream = stream_of(rows)
    if stream is None and (isinstance(rows, str | bytes | dict) or not isinstance(rows, Iterable)):
        raise RequestError(f"staged rows must be Arrow data or record batches; got {rows!r:.80}")
    source = stream if stream is not None else cast("Iterable[object]", rows)
    try:
        for batch in source:
            if not isinstance(batch, pa.RecordBatch):
                raise RequestError(f"staged rows must be record batches; got {batch!r:.80}")
            yield batch
    except pa.ArrowException as error:
        raise RequestError(f"the rows cannot be read: {error}") from error
