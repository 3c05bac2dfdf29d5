"""Commit: the one path by which a write becomes durable and then visible.

    admit ──▶ log ──▶ apply ──▶ reveal
              the commit point: before it a crash forgets the write, after it a crash keeps it

Group commit by leader and followers: a caller that finds no leader becomes the leader. It takes the
whole queue, writes it as one frame, and wakes the next leader before its followers, so that the
next sync overlaps their waking. There is no commit thread: a single writer pays no hop. Steps
(seal, a late sync) wait in the same queue and run between two groups, never between log and apply.

Locks: `_queue_lock` for the queue and the leadership; `_state_lock` to swap `state`, never held
over I/O. `state` is read without a lock. Only the leader writes the log, memtables and catalog.

The file is long so that the whole path, of callers and leader, can be read in one piece.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

import msgspec
import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.commit import admission, effects, interrupts
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.engine.commit.recent_writes import OpenTransactions, RecentWrites
from siltstone.engine.commit.write_set import (
    AdvancePart,
    AttachPart,
    BatchPart,
    Receipt,
    RowPart,
    WriteSet,
)
from siltstone.engine.levels.attached import run_bytes
from siltstone.engine.levels.commit_log import CommitLog, transaction_id
from siltstone.engine.levels.memtable import Memtable, append_batch
from siltstone.engine.read.view import (
    Generation,
    Levels,
    State,
    View,
    is_empty,
)
from siltstone.errors import (
    ConflictError,
    InDoubtError,
    PoisonedError,
    RequestError,
    UnavailableError,
)
from siltstone.failpoints import Failpoint, armed, cross
from siltstone.formats import group
from siltstone.formats.frame import Buffer
from siltstone.formats.manifest import Catalog
from siltstone.units import Seq, require

GROUP_BYTES_MAX = 32 << 20
FRAME_BYTES_MAX = 256 << 20
_SURELY_FITS = FRAME_BYTES_MAX // 256  # a row's size is guessed, and may be 100 times too low

_NEVER = 1 << 62

_WAITING, _LEAD, _DONE = 0, 1, 2


class Log(Protocol):
    """The part of the WAL that a commit uses; `storage.wal.wal.Wal` implements it."""

    def append(
        self, *, first_seq: Seq, last_seq: Seq, payload: Sequence[Buffer], sync: bool = True
    ) -> None: ...

    def sync(self) -> None: ...

    def rotate(self) -> int: ...

    @property
    def durable_seq(self) -> int: ...


class _Waiter(msgspec.Struct, eq=False):
    """One caller in the queue: a write set, or a step to run alone.

    `wake` is taken for it; who leads at once has none.
    """

    write_set: WriteSet | None = None
    step: Callable[[], object] | None = None
    state: int = _WAITING
    error: BaseException | None = None
    result: object = None
    wake: LockType | None = None


class Committer:
    """Serializes commits (see the module)."""

    def __init__(
        self,
        *,
        log: Log,
        state: State,
        epoch: int,
        last_time_us: int,
        clock: Callable[[], int],
        recent: RecentWrites,
        transactions: OpenTransactions,
    ) -> None:
        """Go on after `state.visible`."""
        self.state = state
        self._log, self._epoch = log, epoch
        self._last_seq, self._last_time = state.visible, last_time_us
        self._clock = clock
        self._recent, self._transactions = recent, transactions
        self.on_growth: Callable[[int], int] = lambda _: _NEVER
        """Called with the bytes of the active memtables, from those on that it returned last."""
        self.free: tuple[Sequence[object], int] = (), 0
        """Nobody asks for room while these generations are sealed, and fewer bytes active."""
        self._told_bytes = 0
        self._queue_lock, self._state_lock = allocate_lock(), allocate_lock()
        self._queue: list[_Waiter] = []
        self.is_led = False
        """Whether a commit is under way. Written under the lock of the queue, read by anyone."""
        self._is_in_doubt = False
        self.active_bytes = 0

    @property
    def durable_seq(self) -> int:
        """The last seq that survives a power loss; only rows up to it may leave this process."""
        return min(self._log.durable_seq, self.state.visible)

    @property
    def poisoned(self) -> bool:
        """Whether a log write failed; the committer acknowledges no more commits."""
        return self._is_in_doubt

    def current(self) -> State:
        """Return the present state (a function, for callers that hold their own lock)."""
        return self.state

    # the callers' side

    def commit(self, write_set: WriteSet) -> Receipt:
        """Make `write_set` durable and visible; return its receipt.

        Raises:
            ConflictError, RequestError, FencedError: The commit was refused; nothing was written.
            UnavailableError: There is no space for the log; nothing was written.
            InDoubtError: The log write failed; recovery decides.
            PoisonedError: An earlier one failed.
            admission.MovedError, admission.RecheckError, admission.OlderBatchError: The caller
                handles these (`engine.write.transaction`).
        """
        if write_set.nbytes > FRAME_BYTES_MAX:
            raise RequestError(
                f"the transaction has {write_set.nbytes} bytes; a frame holds {FRAME_BYTES_MAX}"
            )
        if armed:
            cross(Failpoint.COMMIT_BEFORE_FRAME)
        waiter = _Waiter(write_set)
        if get_ident() == interrupts.main:
            with DeferredSignals():
                interrupt = self._enter(waiter)
        else:
            interrupt = self._enter(waiter)
        if interrupt is not None or waiter.error is not None:
            _fail(waiter, interrupt)
        if armed:
            cross(Failpoint.COMMIT_AFTER_FRAME)
        return waiter.result  # type: ignore[return-value]

    def commit_all(self, write_sets: Sequence[WriteSet]) -> list[Receipt | BaseException]:
        """Commit write sets as if each had a thread of its own; return receipt or error of each.

        They are neighbours in the queue, so mostly one group, and one sync: threads that brought
        them would have to be woken. Each is small (`commit` has the bound and the errors).

        Raises:
            BaseException: A signal's handler raised it meanwhile; what was given is committed, or
                not, as always.
        """
        if armed:
            cross(Failpoint.COMMIT_BEFORE_FRAME)
        waiters = [_Waiter(write_set, wake=_taken_lock()) for write_set in write_sets]
        interrupts_: list[BaseException] = []
        with DeferredSignals():
            self._line_up(waiters)
            for waiter in waiters:  # each: one that left would be an heir that never leads
                try:
                    interrupt = self._enter(waiter)
                except BaseException as error:  # noqa: BLE001 - raised below
                    interrupt = error
                if interrupt is not None:
                    interrupts_.append(interrupt)
        if interrupts_:
            raise interrupts_[0]
        if armed:
            cross(Failpoint.COMMIT_AFTER_FRAME)
        return [waiter.error or waiter.result for waiter in waiters]  # type: ignore[misc]

    def run(self, step: Callable[[], object]) -> object:
        """Run `step` between two groups, alone, and return what it returns."""
        waiter = _Waiter(step=step)
        with DeferredSignals():
            interrupt = self._enter(waiter)
        if interrupt is not None or waiter.error is not None:
            _fail(waiter, interrupt)
        return waiter.result

    def sync(self) -> None:
        """Make asynchronous commits durable."""
        if self._log.durable_seq < self.state.visible:
            self.run(self._log.sync)

    def swap_view(self, change: Callable[[View], View]) -> View:
        """Replace the view by `change(view)`; for maintenance, which changes no result."""
        with DeferredSignals(), self._state_lock:
            self.state = State(change(self.state.view), self.state.visible)
            return self.state.view

    def _line_up(self, waiters: Sequence[_Waiter]) -> None:
        """Give waiters their places, one behind the other; each must `_enter` then, in order."""
        with self._queue_lock:
            leads = not self.is_led
            self._queue += waiters
            self.is_led = True
        if leads:
            waiters[0].state = _LEAD
            assert waiters[0].wake is not None
            waiters[0].wake.release()

    def _enter(self, waiter: _Waiter) -> BaseException | None:
        """Lead at once, or wait until another leader is done; return what interrupted the wait."""
        interrupt: BaseException | None = None
        leads = False
        if waiter.wake is None:  # else it has its place
            with self._queue_lock:
                leads = not self.is_led
                if not leads:
                    waiter.wake = _taken_lock()
                self._queue.append(waiter)
                self.is_led = True  # last: whatever fails above leaves no queue without a leader
        if not leads:
            assert waiter.wake is not None
            interrupt = _wait(waiter.wake)
            if waiter.state != _LEAD:
                return interrupt
        with self._queue_lock:
            queue = self._queue
            taken, self._queue = (queue, []) if len(queue) == 1 else _divided(queue)
        try:
            if taken[0].step is not None:
                self._run_step(taken[0])
            else:
                self._write(taken)
        except BaseException as error:
            self._poison(taken, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._hand_over(taken, waiter)
        return interrupt

    # the leader's side

    def _hand_over(self, taken: list[_Waiter], own: _Waiter) -> None:
        """Wake the next leader first: its sync overlaps the waking of our followers."""
        with self._queue_lock:
            heir = self._queue[0] if self._queue else None
            self.is_led = heir is not None
        for waiter in taken:
            waiter.state = _DONE
        if heir is not None:
            heir.state = _LEAD
            assert heir.wake is not None
            heir.wake.release()
        for waiter in taken:
            if waiter is not own:
                assert waiter.wake is not None
                waiter.wake.release()

    def _run_step(self, waiter: _Waiter) -> None:
        assert waiter.step is not None
        try:
            if self._is_in_doubt:
                raise PoisonedError("an earlier commit is in doubt; reopen the store")
            waiter.result = waiter.step()
        except OSError as error:
            self._is_in_doubt = True
            waiter.error = PoisonedError(f"the log failed ({error}); reopen the store")
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised there
            waiter.error = error

    def _write(self, taken: list[_Waiter]) -> None:
        admitted = self._admit(taken)
        if not admitted:
            return
        first, last = self._last_seq + 1, self._last_seq + len(admitted)
        time_us = max(self._clock(), self._last_time + 1)
        is_sync = changes_view = False
        size, blobs = 0, list[pa.Buffer]()
        members: list[group.Member] = []  # no comprehensions: most groups have one member
        for waiter in admitted:
            write_set = waiter.write_set
            assert write_set is not None
            few = write_set.few
            if few is None:
                entries = effects.entries_of(write_set, blobs)
                changes_view |= effects.changes_view(write_set)
            else:
                entries = few.entries
            members.append(group.Member(write_set.number, write_set.rows, write_set.token, entries))
            is_sync |= write_set.is_sync
            size += write_set.nbytes
        payload = group.encode(self._epoch, time_us, members, blobs)
        try:
            if size > _SURELY_FITS:
                _refuse_too_large(payload)
            self._log.append(
                first_seq=Seq(first), last_seq=Seq(last), payload=payload, sync=is_sync
            )
        except (UnavailableError, RequestError) as error:  # refused: not a byte was written
            self._recent.take_back(first)
            self._refuse(taken, admitted, error)
            return
        except (OSError, PoisonedError) as error:
            self._poison(_hanging_on(taken, admitted), error)
            return
        self._apply(admitted, first, time_us, changes_view=changes_view)
        self._last_seq, self._last_time = last, time_us + len(admitted) - 1
        if self.active_bytes >= self._told_bytes:
            self._told_bytes = self.on_growth(self.active_bytes)

    def _admit(self, taken: list[_Waiter]) -> list[_Waiter]:
        if self._is_in_doubt:
            return _refused_in_doubt(taken)
        if self._recent.is_due:
            self._recent.forget(self._transactions.oldest(self.current))
        catalog = self.state.view.catalog
        admitted: list[_Waiter] = []
        for waiter in taken:
            write_set = waiter.write_set
            assert write_set is not None
            seq = self._last_seq + 1 + len(admitted)
            few, read_seq = write_set.few, write_set.read_seq
            try:
                if (
                    few is not None
                    and write_set.planned is catalog  # rows alone, made by these very definitions
                    and write_set.reads is None
                    and (read_seq is None or read_seq >= self._recent.floor)
                ):
                    lost = self._recent.take(seq, few.written, read_seq)
                    if lost is not None:
                        admission.refuse(write_set, lost, catalog)
                else:
                    catalog = self._admit_anew(write_set, seq, catalog)
            except Exception as error:  # noqa: BLE001 - refused: it is raised in its own thread
                waiter.error = error
                continue
            admitted.append(waiter)
        return admitted

    def _admit_anew(self, write_set: WriteSet, seq: int, catalog: Catalog) -> Catalog:
        """Admit whatever it is; return the catalog after it."""
        after = admission.admit(write_set, seq, catalog, self._recent)
        self._refuse_late_load(write_set)
        for part in write_set.parts:
            self._recent.remember(part.incarnation, seq, part.keys())
        return after

    def _refuse(
        self, taken: Sequence[_Waiter], admitted: Sequence[_Waiter], error: Exception
    ) -> None:
        """Refuse the admitted, and who was refused only because of them: they never committed."""
        catalog = self.state.view.catalog
        for waiter in taken:
            write_set = waiter.write_set
            assert write_set is not None
            try:
                if waiter not in admitted:
                    admission.admit(write_set, self._last_seq + 1, catalog, self._recent)
                    self._refuse_late_load(write_set)
            except Exception as own:  # noqa: BLE001 - as in `_admit`
                waiter.error = own
            else:
                waiter.error = error

    def _refuse_late_load(self, write_set: WriteSet) -> None:
        """A load straight to base is right only where no row version is, nor one of this group."""
        for part in write_set.parts:
            if isinstance(part, AdvancePart) and part.base is not None:
                levels = self.state.view.levels.get(part.incarnation)
                written = self._recent.written_since(part.incarnation, self._last_seq)
                if levels is None or not is_empty(levels) or written:
                    name = catalogs.name_of(
                        catalogs.owner_of(self.state.view.catalog, part.incarnation)
                    )
                    raise ConflictError(name, "*", 0, written or self._last_seq)

    def _apply(
        self, admitted: list[_Waiter], first: int, time_us: int, *, changes_view: bool
    ) -> None:
        """Put the rows into the memtables, then show the whole group in one assignment."""
        view = self.state.view
        if not changes_view:
            self._apply_rows(view, admitted, first, time_us)
            with self._state_lock:
                self.state = State(self.state.view, first + len(admitted) - 1)
            return
        with self._state_lock:
            view = self.state.view
            for index, waiter in enumerate(admitted):
                assert waiter.write_set is not None
                view = effects.changed(view, waiter.write_set, first + index, time_us + index)
                # One by one: a bulk commit shuts the memtable that earlier members write to.
                self._apply_rows(view, [waiter], first + index, time_us + index)
            self.state = State(view, first + len(admitted) - 1)

    def _apply_rows(self, view: View, admitted: list[_Waiter], first: int, time_us: int) -> None:
        for index, waiter in enumerate(admitted):
            write_set, seq = waiter.write_set, first + index
            assert write_set is not None
            tables: list[int] = []
            for part in write_set.parts:
                tables.append(part.incarnation)
                if isinstance(part, RowPart):
                    view.levels[part.incarnation].active.append_rows(
                        part.table_schema, part.upserts, part.row_keys, part.deletes, seq
                    )
                elif isinstance(part, BatchPart):
                    append_batch(
                        view.levels[part.incarnation].active,
                        part.table_schema,
                        part.batch,
                        part.codes,
                        part.op,
                        seq,
                    )
                elif isinstance(part, AttachPart):
                    self.active_bytes += run_bytes(part.rows)
            view.log.append(
                time_us + index,
                self._epoch,
                write_set.number,
                write_set.token,
                tuple(tables),
                write_set.rows,
            )
            self.active_bytes += write_set.nbytes
            name = transaction_id(self._epoch, write_set.number)
            waiter.result = Receipt(seq, write_set.rows, name)

    def _poison(self, waiters: list[_Waiter], error: BaseException) -> None:
        """The frame may or may not be durable: say so to each member, acknowledge nothing more."""
        self._is_in_doubt = True
        for waiter in waiters:
            if waiter.write_set is not None and waiter.error is None:
                name = transaction_id(self._epoch, waiter.write_set.number)
                waiter.error = InDoubtError(name)
                waiter.error.__cause__ = error
            elif waiter.error is None:
                waiter.error = PoisonedError(f"the log failed ({error}); reopen the store")

    # the seal: a step of the leader

    def seal(self) -> Generation | None:
        """Swap in empty memtables and a new segment; return the sealed generation, if any.

        Commits continue in the next group without waiting; open transactions keep their buffers.
        """
        sealed = self.run(self._seal)
        assert sealed is None or isinstance(sealed, Generation)
        return sealed

    def _seal(self) -> Generation | None:
        view = self.state.view
        if not view.log.count:
            return None
        segment = self._log.rotate()
        require(self._log.durable_seq == self._last_seq, "a rotation left frames unsynced")
        generation = Generation(
            number=view.generation,
            last_seq=self._last_seq,
            last_time_us=self._last_time,
            segment_end=segment,
            catalog=view.catalog,
            log=view.log,
            sources={n: lv.unsealed for n, lv in view.levels.items() if lv.unsealed},
        )
        self.swap_view(lambda now: _sealed(now, generation))
        self.active_bytes = self._told_bytes = 0
        return generation


def _refused_in_doubt(taken: Sequence[_Waiter]) -> list[_Waiter]:
    for waiter in taken:
        waiter.error = PoisonedError("an earlier commit is in doubt; reopen the store")
    return []


def _fail(waiter: _Waiter, interrupt: BaseException | None) -> NoReturn:
    """Raise what interrupted the caller, or the error of its work."""
    try:
        raise interrupt or waiter.error or AssertionError
    finally:  # else this frame and the error hold each other, and so a lease, until a gc
        waiter.error = interrupt = None


def _divided(queue: list[_Waiter]) -> tuple[list[_Waiter], list[_Waiter]]:
    """Return what the leader takes, the write sets or the one step at the head, and the rest."""
    size = count = 0
    for waiter in queue:
        if waiter.write_set is None:
            break
        size += waiter.write_set.nbytes
        if count and size > GROUP_BYTES_MAX:
            break
        count += 1
    count = count or 1
    return queue[:count], queue[count:]


def _taken_lock() -> LockType:
    lock = allocate_lock()
    lock.acquire()
    return lock


def _wait(wake: LockType) -> BaseException | None:
    """Wait until the waiter is done, or made the next leader; return a Ctrl-C that came meanwhile.

    A follower that left the queue would be an heir that never leads: all later commits would hang.
    """
    interrupt: BaseException | None = None
    while True:
        try:
            wake.acquire()
        except BaseException as error:  # noqa: BLE001 - a signal handler may raise anything
            interrupt = error
        else:
            return interrupt


def _hanging_on(taken: Sequence[_Waiter], admitted: Sequence[_Waiter]) -> list[_Waiter]:
    """Return who fails with the admitted: also who was sent back because of their tokens.

    Such a one would take the token for applied, and its caller would get a receipt for nothing.
    """
    sent_back = (admission.AlreadyAppliedError, admission.OlderBatchError)
    hanging = [waiter for waiter in taken if isinstance(waiter.error, sent_back)]
    for waiter in hanging:
        waiter.error = None
    return [*admitted, *hanging]


def _refuse_too_large(payload: Sequence[object]) -> None:
    """Refuse a frame above its bound: it is one transaction, whose size was guessed too low."""
    size = sum(memoryview(part).nbytes for part in payload)  # type: ignore[arg-type]
    if size > FRAME_BYTES_MAX:
        raise RequestError(
            f"the transaction has {size} bytes; a frame holds at most {FRAME_BYTES_MAX}"
        )


def _sealed(view: View, generation: Generation) -> View:
    levels = {
        number: _seal_levels(old) if number in generation.sources else old
        for number, old in view.levels.items()
    }
    return view.changed(
        levels=levels,
        sealed=(*view.sealed, generation),
        log=CommitLog(generation.last_seq + 1),
        generation=generation.number + 1,
    )


def _seal_levels(old: Levels) -> Levels:
    fresh = Memtable(old.active.contents.tail.table_schema)
    sealed = (*old.sealed, old.active) if old.active.rows else old.sealed
    return replace(old, sealed=sealed, active=fresh, pending=0)
