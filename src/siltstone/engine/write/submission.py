"""Submission: a write set's way through the committer, with the answers its caller must give.

The leader never touches Lance and evaluates no predicate. Where admission needs that, it sends the
write set back, and its own thread does the work and comes again; each reason has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.commit.admission import (
    AlreadyAppliedError,
    MovedError,
    OlderBatchError,
    RecheckError,
    SchemaMovedError,
)
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.recent_writes import ForgottenError
from siltstone.engine.commit.write_set import (
    BLIND,
    AdvancePart,
    BatchPart,
    Part,
    Receipt,
    RowPart,
    WriteSet,
)
from siltstone.engine.filter.filters import Filter
from siltstone.engine.order.key_range import RangePredicate
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.view import State, View
from siltstone.engine.write.keyed_writes import has_other_values, widened
from siltstone.engine.write.plain_writes import PlainWrites
from siltstone.errors import ConflictError, RequestError, SchemaMismatchError
from siltstone.formats.keys import Key
from siltstone.formats.log import group
from siltstone.formats.log.group import DELETE
from siltstone.formats.manifest import TableDefinition

ROUNDS_MAX = 64
KEYS_CHECKED_MAX = 10_000


def submit(
    core: Core,
    make: Callable[[], WriteSet | Receipt],
    plain: Sequence[PlainWrites] = (),
    view: View | None = None,
) -> Receipt:
    """Commit what `make` returns, and count a conflict; see `Committer.commit` for the errors."""
    try:
        return _submitted(core, make, plain, view)
    except ConflictError:
        with core.latency.lock:
            core.latency.conflicts += 1
        raise


def _submitted(
    core: Core,
    make: Callable[[], WriteSet | Receipt],
    plain: Sequence[PlainWrites],
    view: View | None,
) -> Receipt:
    made = make()
    for _ in range(ROUNDS_MAX):
        if isinstance(made, Receipt):
            return made
        try:
            return core.submit(made)
        except (AlreadyAppliedError, OlderBatchError) as found:
            return applied(core, made, found)
        except ForgottenError as lost:
            raise ConflictError("*", "*", made.read_seq or 0, lost.floor) from None
        except (SchemaMovedError, MovedError, RecheckError, ConflictError) as lost:
            made = _again(core, make, made, lost, plain, view)
    if isinstance(made, Receipt):
        return made
    raise ConflictError("*", "*", made.read_seq or 0, core.state().visible)


def _again(
    core: Core,
    make: Callable[[], WriteSet | Receipt],
    made: WriteSet,
    lost: Exception,
    plain: Sequence[PlainWrites],
    view: View | None,
) -> WriteSet | Receipt:
    """Return what to commit after a lost race; a Receipt if nothing is left to do."""
    if isinstance(lost, SchemaMovedError):
        return _widen(core, made, lost)
    if isinstance(lost, MovedError):
        _rebase(core, made, lost, plain)
        again = make()
        if isinstance(again, Receipt):  # what it wanted is there, as a first version
            return again
        return msgspec.structs.replace(again, number=made.number)
    if isinstance(lost, RecheckError):
        _recheck(core, made, lost, view)
        return made
    assert isinstance(lost, ConflictError)
    return _renewed(core, made, lost)


def applied(core: Core, made: WriteSet, found: AlreadyAppliedError | OlderBatchError) -> Receipt:
    """Return the old receipt of a token; what an async commit applied is synced for a sync one."""
    is_last = isinstance(found, AlreadyAppliedError)
    receipt = Receipt(found.seq, found.rows) if is_last else _older(core, made)
    if made.is_sync:
        core.writer().sync()
    return receipt


def _older(core: Core, made: WriteSet) -> Receipt:
    token = made.token
    assert token is not None
    found = core.commits.find_token(core.state(), token)
    if found is None:
        last = catalogs.app_of(core.state().view.catalog, token.app).batch
        raise RequestError(
            f"batch {token.batch} of app {token.app!r} was never applied and the app is at batch"
            f" {last}; batches of an app strictly increase"
        )
    return Receipt(found.seq, found.rows, found.transaction)


def _widen(core: Core, made: WriteSet, moved: SchemaMovedError) -> WriteSet:
    table = catalogs.by_id(core.state().view.catalog, moved.table)
    assert table is not None
    name = catalogs.name_of(table)
    read_seq = made.read_seq or 0
    changes = [entry for entry in made.changes if not isinstance(entry, group.Truncate)]
    if any(getattr(entry, "table", None) == moved.table for entry in changes):
        raise ConflictError(name, "*", read_seq, moved.seq)
    if made.read_seq is BLIND and any(_has_rows(part, moved.table) for part in made.parts):
        # What the new column has by now is not seen: the caller makes its rows anew, or is refused.
        raise ConflictError(name, "*", read_seq, moved.seq)
    newest = table_schema_of(catalogs.schema_of(table))
    try:
        parts = [
            widened(part, newest)
            if part.table == moved.table and not isinstance(part, AdvancePart)
            else part
            for part in made.parts
        ]
    except ConflictError:
        if moved.seq <= read_seq:  # no conflict: the transaction saw it, and would again
            raise SchemaMismatchError(
                f"a column of {name!r} was renamed or dropped, or takes no null any more, since the"
                " rows were staged; stage them again"
            ) from None
        raise ConflictError(name, "*", read_seq, moved.seq) from None
    return msgspec.structs.replace(made, parts=parts, few=None)


def _has_rows(part: Part, table: int) -> bool:
    """Say whether a part replaces rows of a table, and does not only delete some."""
    if part.table != table or isinstance(part, AdvancePart):
        return False
    if isinstance(part, RowPart):
        return bool(part.upserts)
    return not isinstance(part, BatchPart) or part.op != DELETE


def _renewed(core: Core, made: WriteSet, lost: ConflictError) -> WriteSet:
    """Send a blind write whose table was truncated meanwhile to the new incarnation.

    It read nothing, so it is as if it had come behind the truncate; anything else stays a conflict.
    """
    if made.read_seq is not BLIND:
        raise lost
    parts = [_in_newest_incarnation(core, part) for part in made.parts]
    if all(a is b for a, b in zip(parts, made.parts, strict=True)):
        raise lost
    return msgspec.structs.replace(made, parts=parts, few=None)


def _in_newest_incarnation(core: Core, part: Part) -> Part:
    table = catalogs.by_id(core.state().view.catalog, part.table)
    newest = part.incarnation if table is None else catalogs.incarnation_of(table).id
    if newest == part.incarnation or not isinstance(part, RowPart | BatchPart):
        return part
    return msgspec.structs.replace(part, incarnation=newest)


def _rebase(core: Core, made: WriteSet, moved: MovedError, plain: Sequence[PlainWrites]) -> None:
    table = catalogs.by_id(core.state().view.catalog, moved.table)
    assert table is not None
    incarnation = catalogs.incarnation_of(table)
    version = catalogs.version_of(incarnation)

    def refuse() -> NoReturn:
        raise ConflictError(
            catalogs.name_of(table), "*", made.read_seq or 0, 0 if version is None else version.seq
        )

    writes = next((w for w in plain if w.table == moved.table), None)
    newest = table_schema_of(catalogs.schema_of(table))
    if writes is None:
        refuse()
    is_other = any(newest.names.get(i) != n for i, n in writes.table_schema.names.items())
    is_other |= has_other_values(writes.table_schema, newest)
    # Otherwise the columns are own changes.
    if is_other and not writes.versions.is_moved_only(incarnation):
        refuse()
    writes.rebase(incarnation, refuse)


def _recheck(core: Core, made: WriteSet, recheck: RecheckError, view: View | None) -> None:
    """Refuse if a key written since the scans holds their predicate, before or after.

    The image at the read seq counts too: an update that leaves the predicate, or a delete, would
    have changed what was read (Fekete et al., TODS 2005).
    """
    reads = made.reads
    assert reads is not None
    assert view is not None
    now = recheck.now or core.state()
    for incarnation, predicates in reads.scans.items():
        table = catalogs.owner_of(now.view.catalog, incarnation)
        name = catalogs.name_of(table)
        keys, is_all = _keys_since(core, recheck, incarnation, reads.checked)
        if not is_all or (keys and None in predicates):
            raise ConflictError(name, "*", made.read_seq or 0, recheck.upto)
        if keys:
            _refuse_other_types(table, made.read_seq or 0, recheck.upto)
            _check_images(core, made, view, now, table, keys, predicates, recheck.upto)
    reads.checked = now.visible if recheck.now is None else recheck.upto


def _keys_since(
    core: Core, recheck: RecheckError, incarnation: int, checked: int
) -> tuple[Sequence[Key], bool]:
    """Return the keys written to a table since the last look, and whether these are all."""
    if recheck.keys is None:
        return core.recent.keys_since(incarnation, checked, KEYS_CHECKED_MAX)
    found = recheck.keys.get(incarnation, ())
    return [tuple(key) if type(key) is list else key for key in found], True


def _refuse_other_types(table: TableDefinition, read_seq: int, upto: int) -> None:
    """Refuse if a type was widened since: a predicate knows no value that the old one lacks."""
    then, newest = catalogs.schema_of(table, read_seq), catalogs.schema_of(table)
    if table_schema_of(newest).has_other_types(table_schema_of(then)):
        raise ConflictError(catalogs.name_of(table), "*", read_seq, upto)


def _check_images(
    core: Core,
    made: WriteSet,
    view: View,
    now: State,
    table: TableDefinition,
    keys: Sequence[object],
    predicates: Sequence[Filter | RangePredicate | None],
    upto: int,
) -> None:
    read_seq = made.read_seq or 0
    before = core.readers.open(view, table, read_seq)
    # By the columns that the predicates name, whatever was renamed since.
    after = core.readers.open(now.view, table, now.visible, defined_at=read_seq)
    assert isinstance(before, KeyedReader)
    assert isinstance(after, KeyedReader)
    for key in keys:
        for row in (before.get(key), after.get(key)):
            if row is not None and any(p is not None and p.matches(row) for p in predicates):
                codec = table_schema_of(catalogs.schema_of(table)).codec
                name = catalogs.name_of(table)
                raise ConflictError(name, codec.to_user(key), read_seq, upto)
