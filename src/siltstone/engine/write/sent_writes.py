"""Sent writes: the write set of a transaction that ran in another process, and how it commits here.

    u32 little-endian   length of the head
    head                msgpack: [read seq, sync, reads | nil, claim | nil, since | nil]
                        zero bytes up to a multiple of 8
    writes              a group of one commit, as the log has it: its token, and rows alone
    reads               [{incarnation: [key...]}, [scanned incarnation...], checked seq,
                         {incarnation of a plain table: the version that was read}]

Nobody here knew of the transaction before. Recent writes decide if they reach back to its read seq;
else what is kept of the past does (`PastSnapshot`), or the commit is a conflict. Predicates are not
sent: where a table that was scanned was written since, the sender gets the keys (`Recheck`), looks
at them by its own views, and sends again with a later `checked`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog import definitions
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.commit.admission import (
    AlreadyAppliedError,
    OlderBatchError,
    RecheckError,
    SchemaMovedError,
)
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.effects import entries_of
from siltstone.engine.commit.recent_writes import ForgottenError
from siltstone.engine.commit.write_set import (
    BatchPart,
    ReadSet,
    Receipt,
    RowPart,
    WriteSet,
    few_rows,
)
from siltstone.engine.filter.filters import Filter
from siltstone.engine.order.key_range import RangePredicate
from siltstone.engine.read.view import State
from siltstone.engine.recover.replay import batch_fields
from siltstone.engine.write.past_snapshot import PastSnapshot
from siltstone.engine.write.submission import KEYS_CHECKED_MAX, applied, submit
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError, SnapshotExpiredError
from siltstone.formats.conversion.conform import conform
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.manifest import Catalog, TableDefinition
from siltstone.formats.rows import Row, UnfitError
from siltstone.units import require

_LENGTH, _ALIGNED = struct.Struct("<I"), 8
_MISFITS = (pa.ArrowException, ArithmeticError, TypeError, ValueError, UnfitError)


class SentReads(msgspec.Struct, array_like=True, frozen=True):
    """The reads of a serializable transaction: see `ReadSet`."""

    keys: dict[int, list]
    scans: list[int]
    checked: int
    versions: dict[int, int]


class _Head(msgspec.Struct, array_like=True, frozen=True):
    read_seq: int
    is_sync: bool
    reads: SentReads | None
    claim: int | None
    app_since: int | None


class Recheck(msgspec.Struct, frozen=True):
    """What was written to scanned tables up to the seq `upto`, by key: by incarnation."""

    upto: int
    keys: dict[int, list]


_decode_head = msgspec.msgpack.Decoder(_Head).decode


def encode(write_set: WriteSet) -> bytes:
    """Return a write set of rows, and a token, as it is sent."""
    are_rows = all(isinstance(part, RowPart | BatchPart) for part in write_set.parts)
    require(are_rows and not write_set.changes, "a write set that is sent has rows alone")
    assert write_set.read_seq is not None
    blobs = list[pa.Buffer]()
    entries = entries_of(write_set, blobs)
    reads, sent = write_set.reads, None
    if reads is not None:
        keys = {number: list(found) for number, found in reads.keys.items()}
        sent = SentReads(keys, list(reads.scans), reads.checked, reads.versions)
    token, claim, since = write_set.token, write_set.claim, write_set.app_since
    head = msgspec.msgpack.encode(_Head(write_set.read_seq, write_set.is_sync, sent, claim, since))
    member = group.Member(0, 0, token, entries)
    gap = b"\0" * (_start_of_writes(len(head)) - _LENGTH.size - len(head))
    return b"".join((_LENGTH.pack(len(head)), head, gap, *group.encode(0, 0, [member], blobs)))


def _start_of_writes(head: int) -> int:
    """Return where the writes begin behind a head: NumPy reads numbers in their places alone."""
    end = _LENGTH.size + head
    return end + -end % _ALIGNED


def decode(body: bytes | memoryview, number: int, catalog: Catalog) -> WriteSet:
    """Return the write set that was sent, by the tables of `catalog`.

    Raises:
        RequestError: The body is none, or its rows do not fit.
        TableNotFoundError: A table of it is gone.
        ConflictError: A table has another schema than its rows.
    """
    view = memoryview(body)
    try:
        (size,) = _LENGTH.unpack_from(view)
        head = _decode_head(view[_LENGTH.size : _LENGTH.size + size])
        writes, blobs = group.decode(view[_start_of_writes(size) :])
        (member,) = writes.members
    except Exception as error:  # any decoder may refuse any bytes in its own way
        raise RequestError(f"these are no writes of a transaction: {error}") from error
    token = member.token
    if token is not None:
        definitions.token_of((token.app, token.batch))
    definitions.check_claim(head.claim, token)
    parts = [_part(entry, blobs, head.read_seq, catalog) for entry in member.entries]
    reads = None if head.reads is None else _reads(head.reads, catalog)
    return WriteSet(
        number=number,
        read_seq=head.read_seq,
        parts=parts,
        token=token,
        claim=head.claim,
        app_since=head.app_since,
        reads=reads,
        is_sync=head.is_sync,
        rows=sum(part.rows for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        planned=catalog if token is None else None,
        few=few_rows(parts) if reads is None and token is None else None,
    )


def _part(
    entry: group.Entry, blobs: Sequence[pa.Buffer], read_seq: int, catalog: Catalog
) -> RowPart | BatchPart:
    if not isinstance(entry, group.RowsEntry | group.Batch):
        raise RequestError(f"a transaction of another process writes rows, not {type(entry)}")
    table = catalogs.owner_if_known(catalog, entry.incarnation)
    if table is None or not catalogs.is_alive(table):
        raise catalogs.dropped(entry.incarnation, table)
    table_schema = table_schema_of(catalogs.schema_of(table))
    newest = catalogs.incarnation_of(table)
    if newest.id != entry.incarnation or table_schema.id != entry.schema:
        changed = max(newest.seq, table.schemas[-1].seq)
        raise ConflictError(catalogs.name_of(table), "*", read_seq, changed)
    if table_schema.keys is None:
        raise RequestError(f"{catalogs.name_of(table)!r} is a plain table")
    try:
        if isinstance(entry, group.RowsEntry):
            return _few(entry, table.id, table_schema)
        return _many(entry, blobs[entry.blob], table.id, table_schema)
    except (*_MISFITS, SchemaMismatchError, IndexError) as error:
        name = catalogs.name_of(table)
        raise RequestError(f"rows of {name!r} do not fit its columns: {error}") from error


def _few(entry: group.RowsEntry, table: int, table_schema: TableSchema) -> RowPart:
    key_of, codec = table_schema.codec.key_of, table_schema.rows
    upserts: list[Row] = [tuple(row) for row in entry.upserts]
    removed = [table_schema.delete_row(key) for key in entry.deletes]
    if codec.is_checkable:
        codec.check_stored([*upserts, *removed])
    else:
        codec.to_batch([*upserts, *removed])
    for place, column in enumerate(table_schema.schema.columns):
        if not column.nullable and any(row[place] is None for row in upserts):
            raise UnfitError(f"null in {column.name!r}")
    keys, deletes = [key_of(row) for row in upserts], [key_of(row) for row in removed]
    if len({*keys, *deletes}) != len(keys) + len(deletes):
        raise UnfitError("a key is there twice")
    return RowPart(table, entry.incarnation, table_schema, upserts, keys, deletes)


def _many(entry: group.Batch, blob: pa.Buffer, table: int, table_schema: TableSchema) -> BatchPart:
    if entry.op not in {group.UPSERT, group.DELETE}:
        raise UnfitError(f"a batch of the unknown kind {entry.op}")
    fields, codec = batch_fields(table_schema, entry.op), table_schema.codec
    batch = conform(pa.ipc.read_record_batch(blob, fields), table_schema.schema, fields)
    codes = codec.codes(batch)
    if len(np.unique(codes)) < len(codes) and (
        codec.exact or len(set(codec.keys(batch))) < len(codes)
    ):
        raise UnfitError("a key is there twice")
    return BatchPart(table, entry.incarnation, table_schema, batch, codes, entry.op, blob)


def _reads(sent: SentReads, catalog: Catalog) -> ReadSet:
    """Return what was read; of a scan the predicate stays with its transaction."""
    keys: dict[int, set[Key]] = {}
    for number, found in sent.keys.items():
        table = _read_table(number, catalog, is_plain=False)
        codec = table_schema_of(catalogs.schema_of(table)).codec
        try:
            keys[number] = {tuple(key) if len(codec.names) > 1 else key for key in found}
            codec.codes_of(list(keys[number]))
        except (*_MISFITS, AttributeError) as error:
            name = catalogs.name_of(table)
            raise RequestError(f"what was read of {name!r} are no keys of it: {error}") from error
    for number in sent.scans:
        _read_table(number, catalog, is_plain=False)
    for number in sent.versions:
        _read_table(number, catalog, is_plain=True)
    scans: dict[int, list[Filter | RangePredicate | None]] = {each: [None] for each in sent.scans}
    return ReadSet(keys, scans, dict(sent.versions), sent.checked)


def _read_table(number: int, catalog: Catalog, *, is_plain: bool) -> TableDefinition:
    table = catalogs.owner_if_known(catalog, number)
    if table is None:
        raise catalogs.dropped(number, table)
    if is_plain == bool(catalogs.schema_of(table).key):
        raise RequestError(f"{catalogs.name_of(table)!r} was not read as a table of its kind")
    return table


def adopt(tx: EngineTransaction, body: bytes) -> None:
    """Go on in `tx` with a transaction that another process began at the same seq.

    A scan counts as one of the whole table: its predicate was not sent. What fences its token is
    what it found when it began, not what is known now.

    Raises:
        RequestError, TableNotFoundError, ConflictError: As of `decode`.
    """
    tx.require_open()
    made = decode(body, 0, tx.catalog)
    for part in made.parts:
        writes = tx.rows.keyed(tx.definition(part.table))
        if isinstance(part, RowPart):
            writes.own.append(part.table_schema, part.upserts, part.row_keys, part.deletes)
        else:
            assert isinstance(part, BatchPart)
            writes.append_batch(part.batch, part.codes, part.op)
    if made.reads is not None:
        tx.note_reads(made.reads)
    tx.note_app(made.claim, made.app_since)


def commit(core: Core, write_set: WriteSet) -> Receipt | Recheck:
    """Commit a write set that `decode` returned; see `Committer.commit` for other errors.

    Raises:
        ConflictError: Another commit won, or what was written since its read seq is not kept.
    """
    try:
        return _committed(core, write_set)
    except ConflictError:
        with core.latency.lock:
            core.latency.conflicts += 1
        raise


def _committed(core: Core, write_set: WriteSet) -> Receipt | Recheck:
    read_seq = write_set.read_seq or 0
    if read_seq > core.state().visible:  # MARK showed it a moment before we do
        core.writer().run(lambda: None)
        if read_seq > core.state().visible:
            raise RequestError(f"this store has no seq {read_seq} yet; another one was read")
    now = core.state()  # first: what is written from here on is looked at the next time
    try:
        return core.submit(write_set)
    except SchemaMovedError as moved:
        table = catalogs.by_id(core.state().view.catalog, moved.table)
        name = "*" if table is None else catalogs.name_of(table)
        raise ConflictError(name, "*", read_seq, moved.seq) from None
    except RecheckError as found:
        return _recheck(core, write_set, now, found.upto)
    except (AlreadyAppliedError, OlderBatchError) as found:
        return applied(core, write_set, found)
    except ForgottenError:
        return _by_the_past(core, write_set)


def _recheck(core: Core, write_set: WriteSet, now: State, upto: int) -> Recheck:
    reads = write_set.reads
    assert reads is not None
    found: dict[int, list[Key]] = {}
    for incarnation in reads.scans:
        keys, is_all = core.recent.keys_since(incarnation, reads.checked, KEYS_CHECKED_MAX)
        if not is_all:
            name = catalogs.name_of(catalogs.owner_of(now.view.catalog, incarnation))
            raise ConflictError(name, "*", write_set.read_seq or 0, upto)
        found[incarnation] = keys
    return Recheck(now.visible, found)


def _by_the_past(core: Core, write_set: WriteSet) -> Receipt:
    """Look through what is kept since the read seq, and commit as if it was read now."""
    read_seq, number = write_set.read_seq or 0, next(core.transactions.numbers)
    state = core.transactions.begin(number, core.state)
    try:
        assert isinstance(state, State)
        try:
            past = PastSnapshot.of(core, state, read_seq)
        except SnapshotExpiredError as error:
            explained = f"{error}; run the transaction again"
            raise ConflictError("*", "*", read_seq, state.visible, explained=explained) from error
        reads, parts = write_set.reads, write_set.parts
        if past is not None and not _is_applied(write_set, state.view.catalog):
            past.check(parts, (), reads)
        if reads is not None:
            reads.checked = max(reads.checked, state.visible)
        made = msgspec.structs.replace(write_set, read_seq=state.visible)
        return submit(core, lambda: made, (), state.view)
    finally:
        core.transactions.end(number)


def _is_applied(write_set: WriteSet, catalog: Catalog) -> bool:
    token = write_set.token
    return token is not None and token.batch <= catalogs.app_of(catalog, token.app).batch
