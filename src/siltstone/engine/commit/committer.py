"""Commit: the one path by which a write becomes durable and then visible.

    admit ──▶ log ──▶ apply ──▶ reveal: to other processes (MARK), and here (`shown`)
              the commit point: before it a crash forgets the write, after it a crash keeps it

Group commit by leader and followers: a caller that finds no leader becomes the leader. It takes the
whole queue, writes it as one frame, and wakes the next leader before its followers, so that the
next sync overlaps their waking. There is no commit thread: a single writer pays no hop. Steps
(seal, a late sync) wait in the same queue and run between two groups, never between log and apply.

Locks: `_queue_lock` for the queue and the leadership; that of `shown` to swap the state, which is
read without a lock. Only the leader writes the log, memtables and catalog.

The file is long so that the whole path, of callers and leader, can be read in one piece.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.commit_log import CommitLog, transaction_id
from siltstone.engine.commit import admission, effects, interrupts
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.engine.commit.news import News
from siltstone.engine.commit.recent_writes import OpenTransactions, RecentWrites
from siltstone.engine.commit.shown import Shown
from siltstone.engine.commit.waiters import DONE, LEAD, Waiter, divided, fail, taken_lock, wait
from siltstone.engine.commit.write_set import (
    AdvancePart,
    AttachPart,
    BatchPart,
    Receipt,
    RowPart,
    WriteSet,
)
from siltstone.engine.levels.attached import run_bytes
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
from siltstone.formats.log import group
from siltstone.formats.log.frame import Buffer
from siltstone.formats.manifest import Catalog
from siltstone.process.latency import BOUNDS_S, Latency
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import Seq, require

FRAME_BYTES_MAX = 256 << 20
_SURELY_FITS = FRAME_BYTES_MAX // 256  # a row's size is guessed, and may be 100 times too low

_NEVER = 1 << 62
SLOW_S = 1.0
"""A commit that takes longer is told of in the log."""
_log = NoticeLog(__name__)


class Log(Protocol):
    """The part of the WAL that a commit uses; `storage.wal.wal.Wal` implements it."""

    def append(
        self, *, first_seq: Seq, last_seq: Seq, payload: Sequence[Buffer], sync: bool = True
    ) -> None: ...

    def tell(self) -> None: ...

    def sync(self) -> None: ...

    def rotate(self) -> int: ...

    @property
    def durable_seq(self) -> int: ...


class Throttle(Protocol):
    """What holds writers back; `maintenance.schedule.scheduler.Scheduler` does."""

    @property
    def is_background(self) -> bool:
        """Whether flushes and merges have their own threads."""
        ...

    def room(self, write_set: WriteSet) -> None:
        """Wait while there is too much that is not flushed or merged; see `Committer.free`."""
        ...

    def grown(self, active_bytes: int) -> int:
        """Hear the bytes of the active memtables; return from which on to hear them again."""
        ...

    def after_commit(self) -> None:
        """Do urgent work in the writer's thread, where there is no background."""
        ...


class _Unhindered:
    """The throttle of a store that is not maintained yet: none."""

    is_background = True

    def room(self, write_set: WriteSet) -> None:
        pass

    def grown(self, active_bytes: int) -> int:  # noqa: ARG002 - it never asks again
        return _NEVER

    def after_commit(self) -> None:
        pass


class Committer:
    """Serializes commits (see the module)."""

    def __init__(
        self,
        *,
        log: Log,
        state: State,
        epoch: int,
        last_time_us: int,
        clock_ns: Callable[[], int],
        clock_s: Callable[[], float],
        recent: RecentWrites,
        transactions: OpenTransactions,
        latency: Latency,
    ) -> None:
        """Go on after `state.visible`.

        `clock_ns` is the time of day, `clock_s` never goes back. `latency` gets the commits, from
        their wait for room to their receipt.
        """
        self.shown = Shown(state)
        self._log, self._epoch = log, epoch
        self._last_seq, self._last_time = state.visible, last_time_us
        self._logged_from = 0
        """The first seq of the group whose frame was last given to the log."""
        self._clock_ns, self._clock_s = clock_ns, clock_s
        self._recent, self._transactions, self._latency = recent, transactions, latency
        self._throttle: Throttle = _Unhindered()
        self.free: tuple[Sequence[object], int] = (), 0
        """No commit asks for room while these generations are sealed, and fewer bytes active."""
        self._told_bytes = 0
        self.news = News()
        """Told of each group, and of each step: a late sync is one."""
        self._queue_lock = allocate_lock()
        self._queue: list[Waiter] = []
        self.is_led = False
        """Whether a commit is under way. Written under the lock of the queue, read by anyone."""
        self._is_in_doubt = False
        self.active_bytes = 0

    def heed(self, throttle: Throttle) -> None:
        """Let `throttle` hold writers back; called once, before there are writers.

        It needs the committer, so it is made later.
        """
        self._throttle = throttle

    @property
    def state(self) -> State:
        """What readers see. It may wait while a commit is being shown, see `shown`."""
        return self.shown.state

    @property
    def durable_seq(self) -> int:
        """The last seq that survives a power loss; only rows up to it may leave this process."""
        return min(self._log.durable_seq, self.state.visible)

    @property
    def last_time_us(self) -> int:
        """The time of the last commit, also of one that recovery found; 0: there is none."""
        return self._last_time

    @property
    def poisoned(self) -> bool:
        """Whether a log write failed; the committer acknowledges no more commits."""
        return self._is_in_doubt

    def current(self) -> State:
        """Return the present state (a function, for callers that hold their own lock)."""
        return self.state

    # the callers' side

    def commit(self, write_set: WriteSet) -> Receipt:
        """Wait for room; make `write_set` durable and visible; return its receipt.

        Raises:
            BusyError: There was no room for too long; nothing was written.
            ConflictError, RequestError, FencedError: The commit was refused; nothing was written.
            UnavailableError: There is no space for the log; nothing was written.
            InDoubtError: The log write failed; recovery decides.
            PoisonedError: An earlier one failed.
            admission.MovedError, admission.RecheckError, admission.OlderBatchError,
                recent_writes.ForgottenError: The caller handles these (`engine.write.submission`).
        """
        begun_s, (sealed, below) = self._clock_s(), self.free
        if self.active_bytes >= below or self.shown.state.view.sealed is not sealed:
            self._throttle.room(write_set)
        if write_set.nbytes > FRAME_BYTES_MAX:
            raise RequestError(
                f"the transaction has {write_set.nbytes} bytes; a frame holds {FRAME_BYTES_MAX}"
            )
        if armed:
            cross(Failpoint.COMMIT_BEFORE_FRAME)
        waiter = Waiter(write_set)
        if get_ident() == interrupts.main:
            with DeferredSignals():
                interrupt = self._enter(waiter)
        else:
            interrupt = self._enter(waiter)
        if interrupt is not None or waiter.error is not None:
            fail(waiter, interrupt)
        if armed:
            cross(Failpoint.COMMIT_AFTER_FRAME)
        latency, took_s = self._latency, self._clock_s() - begun_s
        with latency.lock:
            latency.buckets[bisect_left(BOUNDS_S, took_s)] += 1
            latency.seconds += took_s
        throttle = self._throttle
        if not throttle.is_background:
            throttle.after_commit()
        receipt: Receipt = waiter.result  # type: ignore[assignment]
        return receipt if took_s <= SLOW_S else _told_slow(receipt, took_s)

    def commit_all(self, write_sets: Sequence[WriteSet]) -> list[Receipt | BaseException] | None:
        """Commit write sets of rows alone as if each had its own thread.

        They are neighbours in the queue, so mostly one group, and one sync: threads that brought
        them would have to be woken. Each is small (`commit` has the bound and the errors).

        Returns the receipt or the error of each. None, and nothing is committed: they would have to
        wait for room. Then each of them may `commit`, and wait by itself.

        Raises:
            BaseException: A signal's handler raised it meanwhile; what was given is committed, or
                not, as always.
        """
        begun_s, (sealed, below) = self._clock_s(), self.free
        size = sum(each.nbytes for each in write_sets)
        if self.active_bytes + size > below or self.shown.state.view.sealed is not sealed:
            return None
        for each in write_sets:
            require(not each.changes and each.staged_us is None, "a group has rows alone")
        if armed:
            cross(Failpoint.COMMIT_BEFORE_FRAME)
        require(len(write_sets), "a group has members")  # an empty one would have no leader
        waiters = [Waiter(write_set, wake=taken_lock()) for write_set in write_sets]
        self._enter_all(waiters)
        if armed:
            cross(Failpoint.COMMIT_AFTER_FRAME)
        latency, took_s = self._latency, self._clock_s() - begun_s
        with latency.lock:
            latency.buckets[bisect_left(BOUNDS_S, took_s)] += len(waiters)
            latency.seconds += took_s * len(waiters)
        if took_s > SLOW_S:
            _tell_slow(took_s, sum(each.rows for each in write_sets))
        throttle = self._throttle
        if not throttle.is_background:
            throttle.after_commit()
        return [waiter.error or waiter.result for waiter in waiters]  # type: ignore[misc]

    def run(self, step: Callable[[], object]) -> object:
        """Run `step` between two groups, alone, and return what it returns."""
        waiter = Waiter(step=step)
        with DeferredSignals():
            interrupt = self._enter(waiter)
        if interrupt is not None or waiter.error is not None:
            fail(waiter, interrupt)
        return waiter.result

    def sync(self) -> None:
        """Make asynchronous commits durable."""
        if self._log.durable_seq < self.state.visible:
            self.run(self._log.sync)

    def swap_view(self, change: Callable[[View], View]) -> View:
        """Replace the view by `change(view)`; for maintenance, which changes no result."""
        shown = self.shown
        with DeferredSignals(), shown.lock:
            before = shown.state
            view = change(before.view)
            shown.state = State(view, before.visible)
            return view

    def _enter_all(self, waiters: Sequence[Waiter]) -> None:
        """Give waiters places one behind the other, and wait until all of them are done."""
        interrupts_: list[BaseException] = []
        with DeferredSignals():
            with self._queue_lock:
                leads = not self.is_led
                self._queue += waiters
                self.is_led = True
            if leads:
                waiters[0].state = LEAD
                assert waiters[0].wake is not None
                waiters[0].wake.release()
            for waiter in waiters:  # each: one that left would be an heir that never leads
                try:
                    interrupt = self._enter(waiter)
                except BaseException as error:  # noqa: BLE001 - raised below
                    interrupt = error
                if interrupt is not None:
                    interrupts_.append(interrupt)
        if interrupts_:
            raise interrupts_[0]

    def _enter(self, waiter: Waiter) -> BaseException | None:
        """Lead at once, or wait until another leader is done; return what interrupted the wait."""
        interrupt: BaseException | None = None
        leads = False
        if waiter.wake is None:  # else it has its place
            with self._queue_lock:
                leads = not self.is_led
                if not leads:
                    waiter.wake = taken_lock()
                self._queue.append(waiter)
                self.is_led = True  # last: whatever fails above leaves no queue without a leader
        if not leads:
            assert waiter.wake is not None
            interrupt = wait(waiter.wake)
            if waiter.state != LEAD:
                return interrupt
        with self._queue_lock:
            queue = self._queue
            taken, self._queue = (queue, []) if len(queue) == 1 else divided(queue)
        try:
            if self._is_in_doubt or taken[0].step is not None:
                self._run_apart(taken)
            else:
                self._write(taken)
        except BaseException as error:
            self._fail(taken, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._hand_over(taken, waiter)
        return interrupt

    # the leader's side

    def _hand_over(self, taken: list[Waiter], own: Waiter) -> None:
        """Wake the next leader first: its sync overlaps the waking of our followers."""
        with self._queue_lock:
            heir = self._queue[0] if self._queue else None
            self.is_led = heir is not None
        for waiter in taken:
            waiter.state = DONE
        if heir is not None:
            heir.state = LEAD
            assert heir.wake is not None
            heir.wake.release()
        for waiter in taken:
            if waiter is not own:
                assert waiter.wake is not None
                waiter.wake.release()
        if self.news.waiting:
            self.news.tell()

    def _run_apart(self, taken: list[Waiter]) -> None:
        """Run a step; after a commit that is in doubt, refuse whatever it is."""
        if self._is_in_doubt:
            for waiter in taken:
                waiter.error = PoisonedError("an earlier commit is in doubt; reopen the store")
            return
        waiter = taken[0]
        assert waiter.step is not None
        try:
            waiter.result = waiter.step()
        except OSError as error:
            self._is_in_doubt = True
            waiter.error = PoisonedError(f"the log failed ({error}); reopen the store")
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised there
            waiter.error = error

    def _write(self, taken: list[Waiter]) -> None:
        """Admit and remember a group in one pass, log it, apply it."""
        catalog, first = self.shown.state.view.catalog, self._last_seq + 1
        admitted: list[Waiter] = []
        members: list[group.Member] = []
        blobs: list[pa.Buffer] = []
        size, is_sync, changes_view = 0, False, False
        for waiter in taken:
            write_set = waiter.write_set
            assert write_set is not None
            seq, few = first + len(admitted), write_set.few
            try:
                if few is not None and write_set.planned is catalog:
                    # Rows alone, made by these very definitions: only their keys are left to check.
                    self._recent.take(seq, few.written, write_set.read_seq)
                    entries = few.entries
                else:
                    catalog, entries = self._admit_anew(write_set, seq, catalog, blobs)
                    changes_view |= effects.changes_view(write_set)
            except Exception as error:  # noqa: BLE001 - refused: it is raised in its own thread
                waiter.error = admission.refusal(write_set, error, catalog)
                continue
            admitted.append(waiter)
            members.append(group.Member(write_set.number, write_set.rows, write_set.token, entries))
            is_sync |= write_set.is_sync
            size += write_set.nbytes
        if not members:
            return
        time_us = max(self._clock_ns() // 1000, self._last_time + 1)
        payload = group.encode(self._epoch, time_us, members, blobs)
        self._logged_from = first
        try:
            if size > _SURELY_FITS:
                _refuse_too_large(payload)
            self._log.append(
                first_seq=Seq(first),
                last_seq=Seq(self._last_seq + len(members)),
                payload=payload,
                sync=is_sync,
            )
        except (UnavailableError, RequestError) as error:  # refused: not a byte was written
            self._refuse(taken, admitted, error)
            return
        except (OSError, PoisonedError) as error:
            self._poison(_hanging_on(taken, admitted), error)
            return
        tell = self._log.tell if is_sync else None
        self._apply(admitted, first, time_us, tell, changes_view=changes_view)

    def _admit_anew(
        self, write_set: WriteSet, seq: int, catalog: Catalog, blobs: list[pa.Buffer]
    ) -> tuple[Catalog, list[group.Entry]]:
        """Admit whatever it is, and remember its keys last; return the catalog after it."""
        after = admission.admit(write_set, seq, catalog, self._recent)
        self._refuse_late_load(write_set)
        entries = effects.entries_of(write_set, blobs)
        for part in write_set.parts:
            self._recent.remember(part.incarnation, seq, part.keys())
        return after, entries

    def _fail(self, taken: list[Waiter], error: BaseException) -> None:
        """End a group of which a step failed: refuse it if its frame is not in the log's hands."""
        is_logged = self._logged_from == self._last_seq + 1
        if isinstance(error, Exception) and taken[0].step is None and not is_logged:
            self._refuse(taken, (), error)
        else:
            self._poison(_hanging_on(taken, taken), error)

    def _refuse(
        self, taken: Sequence[Waiter], admitted: Sequence[Waiter], error: Exception
    ) -> None:
        """Refuse the admitted, and who was refused only because of them: they never committed."""
        self._recent.take_back(self._last_seq + 1)
        self._logged_from = 0
        catalog = self.state.view.catalog
        for waiter in taken:
            write_set = waiter.write_set
            assert write_set is not None
            try:
                if waiter not in admitted:
                    admission.admit(write_set, self._last_seq + 1, catalog, self._recent)
                    self._refuse_late_load(write_set)
            except Exception as own:  # noqa: BLE001 - as in `_write`
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
        self,
        admitted: list[Waiter],
        first: int,
        time_us: int,
        tell: Callable[[], object] | None,
        *,
        changes_view: bool,
    ) -> None:
        """Put the rows into the memtables, then show the whole group in one assignment.

        `tell` shows it to other processes, if it is durable.
        """
        shown, last = self.shown, first + len(admitted) - 1
        if not changes_view:
            self._apply_rows(shown.state.view, admitted, first, time_us)
        with shown.lock:
            before = shown.state
            view = before.view
            if changes_view:
                view = self._applied_to(view, admitted, first, time_us)
            if tell is not None:
                shown.before = before
                del shown.state  # from here on who asks for it waits
                try:
                    tell()
                except BaseException:
                    shown.put_back()
                    raise
            shown.state, shown.before = State(view, last), None
        self._last_seq, self._last_time = last, time_us + len(admitted) - 1
        if self.active_bytes >= self._told_bytes:
            self._told_bytes = self._throttle.grown(self.active_bytes)
        if self._recent.is_due:
            self._recent.forget(self._transactions.oldest(self.current))

    def _applied_to(self, view: View, admitted: list[Waiter], first: int, time_us: int) -> View:
        """Return the view after commits, one by one: a bulk commit shuts an active memtable."""
        for index, waiter in enumerate(admitted):
            assert waiter.write_set is not None
            view = effects.changed(view, waiter.write_set, first + index, time_us + index)
            self._apply_rows(view, [waiter], first + index, time_us + index)
        return view

    def _apply_rows(self, view: View, admitted: list[Waiter], first: int, time_us: int) -> None:
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

    def _poison(self, waiters: list[Waiter], error: BaseException) -> None:
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


def _hanging_on(taken: Sequence[Waiter], admitted: Sequence[Waiter]) -> list[Waiter]:
    """Return who fails with the admitted: also who was sent back because of their tokens.

    Such a one would take the token for applied, and its caller would get a receipt for nothing.
    """
    sent_back = (admission.AlreadyAppliedError, admission.OlderBatchError)
    hanging = [waiter for waiter in taken if isinstance(waiter.error, sent_back)]
    for waiter in hanging:
        waiter.error = None
    return [*admitted, *(waiter for waiter in hanging if waiter not in admitted)]


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


def _told_slow(receipt: Receipt, took_s: float) -> Receipt:
    _tell_slow(took_s, receipt.rows or 0)
    return receipt


def _tell_slow(took_s: float, rows: int) -> None:
    _log.info("slow commit: %d rows took %.2f s, with the wait for room and the sync", rows, took_s)
