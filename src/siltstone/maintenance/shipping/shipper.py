"""Shipper: sends what is durable in a store's log into a bucket, as the log there.

    WAITING ──a record of ours is in the bucket; its log is claimed──▶ SHIPPING
       ▲                                                                 │ segments were recycled
       └──────────── until a record has what is missing ◀────────────────┘ before they were read
    any ──another process has the log, or it diverged, or damage──▶ ENDED, which says why

    durable here (MARK) ─▶ the files that it names are put ─▶ the frame is put ─▶ *shipped*

What became durable while one frame was put goes into the next one. Shipped is a prefix: a record of
the bucket, and the frames above it without a gap. So behind a gap nothing is put before a record
that ends there is in the bucket, and it must be one that this store knows as its own: another copy
of it may be mirrored there.

The commit path knows nothing of it. Who waits for a commit asks after that is done (`wait`), and
wakes the thread; other commits go along, or within `LOOK_S`.

Lock: `_changed`, over assignments and short sums. One thread ships; any may call the rest.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from siltstone.errors import (
    BusyError,
    CorruptionError,
    ReplacedError,
    RequestError,
    UnavailableError,
    in_words,
)
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.log.log_object import BEGINNING, LoggedGroup, LogPlace
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.shipped_log import above
from siltstone.maintenance.gc.sweep import StoppedError
from siltstone.maintenance.shipping.local_tail import Line, LocalTail
from siltstone.maintenance.shipping.named_files import NamedFiles
from siltstone.process import threads
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.objects.log.claim import TakenOver, take_over
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.log.retire import Retirer
from siltstone.storage.objects.log.writer import LogWriter
from siltstone.storage.objects.objects import Objects
from siltstone.storage.site import Site

LOOK_S = 0.5
"""How often the thread looks for commits that no caller waits for, and for records."""
PAUSE_S = 5.0
"""After a failure."""
PLACES_MAX = 1 << 16
"""So many frames are remembered to find the floor of a record; else the one before stays."""
_log = logging.getLogger(__name__)


class Shipper:
    """See the module.

    Args:
        site: The store, which this process owns.
        objects: The bucket.
        record: Returns the newest record that the owner knows.
        require_ours: Refuses a record of the bucket that is not of this store's line, by a
            RequestError; and a bucket that a mirror elsewhere claimed last, by a BusyError. It is
            asked again when the log was taken: who claims the bucket later then takes the log.
    """

    def __init__(
        self,
        site: Site,
        objects: Objects,
        *,
        record: Callable[[], Record],
        require_ours: Callable[[BucketRecord], object],
        look_s: float = LOOK_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._site, self._record, self._require_ours = site, record, require_ours
        self._look_s, self._pause_s = look_s, pause_s
        self._objects, self.url = objects, objects.url
        self._stopping, self._wanted = threading.Event(), threading.Event()
        own = replace(objects, caller="log", pause=self._pause, abandon=self._require_time)
        self._bucket, self._log = Bucket(own), ObjectLog(own)
        self._files, self._retirer = NamedFiles(site, own), Retirer(ObjectLog(objects.of("log")))
        self._tail = LocalTail(site, record)
        self._writer: LogWriter | None = None
        self._sent: list[LoggedGroup] = []
        """What is under way."""
        self._end = 0
        """The last seq of the log in the bucket, or of the record behind which it goes on."""
        self._needs: int | None = None
        """A record with this seq, before the log goes on; None: it goes on."""
        self._changed = threading.Condition()
        self.shipped_seq = self._forgotten = 0
        """The last seq that outlives this machine; 0 until that is known."""
        self._places: deque[tuple[int, LogPlace]] = deque()
        self._next = BEGINNING
        self.failure: str | None = None
        """Why nothing is shipped now; None: it goes on."""
        self._is_over = self._is_ending = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    # any thread

    @property
    def is_begun(self) -> bool:
        """Whether anything was to be shipped yet."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread, unless it runs or ended.

        Raises:
            UnavailableError: The system has no more threads; the next call tries again.
        """
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threads.started(self._run, "siltstone-shipper")

    def wait(self, seq: int, timeout_s: float) -> str | None:
        """Wait until a durable commit is shipped; return why it is not, or None: it is.

        Raises:
            UnavailableError: As `start`.
        """
        self.start()
        with self._changed:
            if self.shipped_seq < seq:
                self._wanted.set()
                self._changed.wait_for(lambda: self.shipped_seq >= seq or self._is_over, timeout_s)
            if self.shipped_seq >= seq:
                return None
            return self.failure or f"the bucket did not have it within {timeout_s:g} s"

    def floor(self, seq: int) -> LogPlace | None:
        """Return where the log goes on above a record that ends at `seq`; None: not known here."""
        with self._changed:
            if self._writer is None or seq < self._forgotten:
                return None
            above = (place for last, place in self._places if last > seq)
            return next(above, self._next)

    def published(self, record: BucketRecord) -> None:
        """Hear of a record that is in the bucket, and delete the frames that it holds.

        Raises:
            UnavailableError: The server does not answer; the next one deletes them.
        """
        floor = LogPlace(record.wal_epoch, record.wal_floor)
        with self._changed:
            while self._places and self._places[0][1].number < floor.number:
                self._places.popleft()
        self._wanted.set()
        if floor.epoch:
            self._retirer.retire(floor)

    def finish(self, timeout_s: float) -> None:
        """Ship what is durable, for at most so long, and end."""
        with self._starting:
            self._is_ending = True
            thread = self._thread
            if thread is None:
                self._stopping.set()  # another process may have the store when one begins to wait
        if thread is None:
            self._over("the store was closed")
        else:
            self._wanted.set()
            thread.join(timeout_s)
            self._stopping.set()
            self._wanted.set()
            thread.join()

    # the thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                is_ending = self._is_ending  # read first: what was durable before it is shipped
                self.ship()
                if self._is_over or is_ending:
                    break
                self._wanted.wait(self._pause_s if self.failure else self._look_s)
                self._wanted.clear()
        finally:
            self._over(self.failure or "the store was closed")
            self._tail.close()

    def ship(self) -> None:
        """Ship all that is durable now, or say why not: `failure`. For the thread."""
        try:
            while not self._stopping.is_set() and self._step():
                pass
        except StoppedError:
            return
        except (UnavailableError, BusyError, OSError) as error:
            if isinstance(error, ReplacedError):
                self._over(in_words(error))
            else:
                self._say(in_words(error))
        except Exception as error:  # noqa: BLE001 - a thread of its own: those who wait hear it
            _log.warning("%s gets no more commits: %s", self.url, in_words(error))
            self._over(in_words(error))

    def _step(self) -> bool:
        """Do one thing; False: there is nothing to do now."""
        if self._writer is None:
            return self._take_over()
        if self._needs is not None and not self._catch_up(self._needs):
            return False
        if self._writer.is_in_doubt:
            self._landed(self._writer.again())
            return True
        groups = self._next_groups()
        if groups is None:
            self._needs = self._end + 1
            return True
        if not groups:
            self._say(None)
            return False
        self._sent = groups
        self._landed(self._writer.append(groups))
        return True

    def _next_groups(self) -> list[LoggedGroup] | None:
        """Return what goes into the next frame, its files in the bucket; None: it is gone here."""
        groups = self._tail.behind(self._end)
        if groups:
            try:
                self._files.put(groups)
            except CorruptionError:
                if groups[-1].last_seq > self._record().flushed_seq:
                    raise
                return None  # they were merged since, and vacuumed: a record has the rows
        return groups

    def _landed(self, place: LogPlace) -> None:
        """Tell those who wait that a frame is in the bucket, and all before it."""
        assert self._writer is not None
        self._end = self._sent[-1].last_seq
        with self._changed:
            self._remember(self._end, place)
            self._next = self._writer.at
            self._reach(self._end)

    def _remember(self, last_seq: int, place: LogPlace) -> None:
        self._places.append((last_seq, place))
        if len(self._places) > PLACES_MAX:
            self._forgotten = self._places.popleft()[0]

    def _reach(self, seq: int) -> None:
        """Raise what is shipped. The lock is held."""
        self.shipped_seq = max(self.shipped_seq, seq)
        self.failure = None
        self._changed.notify_all()

    # from a record on

    def _newest(self) -> BucketRecord | None:
        numbers = self._bucket.numbers()
        return self._bucket.read(numbers[-1]) if numbers else None

    def _take_over(self) -> bool:
        """Become the writer of the bucket's log, behind what it has; False: not yet."""
        if self._newest_of_ours() is None:
            self._say("the bucket has no record yet: it is being mirrored")
            return False
        self._places.clear()
        self._sent = []
        taken = take_over(self._log, self._floor, bytes.fromhex(self._site.new_token()))
        newest = self._newest_of_ours()
        assert newest is not None
        self._go_on(newest, taken)
        return True

    def _newest_of_ours(self) -> BucketRecord | None:
        """Return the newest record; the store may forget one as soon as there is a later one.

        Raises:
            RequestError, BusyError: See `require_ours`.
        """
        newest = self._newest()
        while newest is not None:
            try:
                self._require_ours(newest)
            except RequestError:
                looked, newest = newest.number, self._newest()
                if newest is None or newest.number == looked:
                    raise
            else:
                break
        return newest

    def _floor(self) -> LogPlace:
        newest = self._newest()
        return BEGINNING if newest is None else newest.log_begin

    def _go_on(self, newest: BucketRecord, taken: TakenOver) -> None:
        """Go on behind the frames that were found, if they are of this store's line."""
        groups = (each for frame in taken.frames for each in self._log.groups(frame))
        found = above(newest, groups, self.url)
        self._end = found[-1].last_seq if found else newest.seq
        for frame in taken.frames:
            self._remember(frame.last_seq, frame.place)
        line = Line.OTHER if found is None else Line.SAME
        if found:
            line = self._tail.line_of(found[-1])
        if line is Line.OTHER:
            raise RequestError(
                f"{self.url} diverged: its log has commits up to seq {self._end} that"
                f" {self._site.root} does not have; another copy of the store was shipped there, or"
                " this one was rolled back: choose another prefix"
            )
        self._needs = self._end if line is Line.UNKNOWN else None
        with self._changed:
            self._writer, self._next = taken.writer, taken.writer.at
            self._reach(newest.seq if self._needs else self._end)

    def _catch_up(self, needs: int) -> bool:
        """Go on behind the newest record, if it holds what the log here has no more."""
        newest = self._newest_of_ours()
        if newest is not None and newest.seq >= needs:
            self._end, self._needs = newest.seq, None
            with self._changed:
                self._reach(newest.seq)
            return True
        missing = f"the log was recycled before commits behind seq {self._end} were shipped"
        self._say(f"{missing}; it goes on behind the next record that is mirrored")
        return False

    # saying so

    def _pause(self, seconds: float) -> None:
        """Wait between two tries of a request."""
        if not self._stopping.is_set():
            self._objects.pause(seconds)
        self._require_time()

    def _require_time(self) -> None:
        if self._stopping.is_set():
            raise StoppedError

    def _say(self, failure: str | None) -> None:
        if failure is not None and failure != self.failure:
            _log.warning("%s gets no commits now: %s", self.url, failure)
        with self._changed:
            self.failure = failure

    def _over(self, why: str) -> None:
        with self._changed:
            self.failure, self._is_over = why, True
            self._changed.notify_all()
