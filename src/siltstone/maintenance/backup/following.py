"""Following: a mirror that goes on, in a process of its own or in a thread of the owner's.

    claim ─▶ the newest record is leased, copied, published ─▶ a newer one? the newest then ─▶ ...
      ▲                     │ no answer: once more, after a pause        skipped ones are no gap
      └─────────────────────┘

It knows what the bucket has, so it lists it once; its memory is the names of the files of two
records. It releases a lease when the record is there, so a slow upload keeps the files of one
record, at most.

A bucket that is claimed elsewhere is asked again and again by the owner's thread. What another try
would not change ends it: the mirror diverged, or was taken, or the store was replaced.

Lock: none. One thread runs it; any thread may call `Stop`, `finish`, and read `state`, which is
assigned as a whole.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from siltstone.errors import (
    BusyError,
    ReplacedError,
    SiltstoneError,
    UnavailableError,
    in_words,
)
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.bucket_vacuum import INTERVAL_S
from siltstone.maintenance.backup.leased_records import LeasedRecords, lease
from siltstone.maintenance.backup.mirror import Mirrored, Mirrorer, MirrorSession
from siltstone.maintenance.gc.sweep import StoppedError
from siltstone.process import threads

LOOK_S = 1.0
"""How often it looks for a newer record: one look is one name that is not there."""
PAUSE_S = 30.0
"""After a failure."""
RECORDS_MAX = 256
"""Between two vacuums, which have all records of the bucket in memory."""
_log = logging.getLogger(__name__)


class Stop:
    """Ends a mirror between any two requests. Any thread."""

    def __init__(self, event: threading.Event | None = None) -> None:
        self._event, self._has_no_time = event or threading.Event(), threading.Event()

    def set(self) -> None:
        self._event.set()

    def now(self) -> None:
        """End it amid a request, too, which may still be done."""
        self._has_no_time.set()
        self.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def check_requests(self) -> None:
        """Let a request be waited for.

        Raises:
            StoppedError: It is to end now.
        """
        if self._has_no_time.is_set():
            raise StoppedError

    def check(self) -> None:
        """Let a step go on.

        Raises:
            StoppedError: It was stopped.
        """
        if self._event.is_set():
            raise StoppedError

    def pause(self, seconds: float) -> None:
        """Wait between two tries of a request.

        Raises:
            StoppedError: It was stopped.
        """
        self._event.wait(seconds)
        self.check()


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a mirror is at: the record that it leases, and what of it is not in the bucket yet.

    `sizes` are the files of that record. `failure`: why the last try ended; None: it did not.
    """

    record: int = 0
    left_bytes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None


class Following:
    """See the module.

    Args:
        mirrorer: Its `step` is `stop.check`, and its requests wait by `stop.pause`.
        stop: Ends it.
        hears: Called after each publish.
        vacuum: Vacuums the bucket, now and then.
        is_patient: A bucket that does not answer at first, or is claimed, is asked again.
    """

    def __init__(
        self,
        mirrorer: Mirrorer,
        stop: Stop,
        *,
        hears: Callable[[Mirrored], object] = lambda _: None,
        vacuum: Callable[[], object] | None = None,
        is_patient: bool = False,
        look_s: float = LOOK_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.mirrorer, self.url = mirrorer, mirrorer.objects.url
        self._stop, self._hears = stop, hears
        self._vacuum, self._vacuumed_at, self._vacuumed = vacuum, -INTERVAL_S, 1
        self._is_patient, self._look_s, self._pause_s = is_patient, look_s, pause_s
        self._news = threading.Event()
        self._is_ending = False
        self._copied: int | None = None
        self._thread: threading.Thread | None = None
        self.state = MirrorState()

    # --- one thread

    def run(self, *, take: bool = False, adopt: bool = False) -> None:
        """Mirror the newest record, and the newest one again whenever there is one, until a stop.

        Raises:
            SiltstoneError: As `Mirrorer.run`, if another try would not change it; or, unless it is
                patient, before the first publish.
        """
        while not self._stop.is_set:
            try:
                self._claim_and_follow(take=take, adopt=adopt)
            except StoppedError:
                return
            except (UnavailableError, BusyError) as error:
                is_known = self._is_patient or self._copied is not None
                if isinstance(error, ReplacedError) or not is_known:
                    raise
                self._failed(error)
                if self._is_ending:
                    return
                self._news.wait(self._pause_s)
                self._news.clear()
            else:
                return
            take = adopt = False

    def _claim_and_follow(self, *, take: bool, adopt: bool) -> None:
        site = self.mirrorer.site
        with ExitStack() as held:
            leases = held.enter_context(ExitStack())
            source = lease(site, leases, with_log=False)
            session = held.enter_context(self.mirrorer.session(source, take=take, adopt=adopt))
            while True:
                self._copy(session, source)
                is_due = self._is_vacuum_due(session)
                if is_due:
                    session.publish(source, self._say, anyway=True)
                leases.close()
                if is_due:
                    assert session.newest is not None
                    self._vacuum_bucket(session.newest.number)
                if not self._has_newer(source.record):
                    return
                source = lease(site, leases, with_log=False)

    def _copy(self, session: MirrorSession, source: LeasedRecords) -> None:
        self.state = MirrorState(source.record.number, sizes=source.sizes)
        made = session.publish(source, self._say)
        self._copied = source.record.number
        self.state = MirrorState()
        self._hears(made)

    def _is_vacuum_due(self, session: MirrorSession) -> bool:
        """Say whether an hour has passed, or many records were published: a vacuum reads them."""
        if self._vacuum is None or self._is_ending or session.newest is None:
            return False
        published = session.newest.number - self._vacuumed
        is_time = time.monotonic() - self._vacuumed_at >= INTERVAL_S
        return published >= RECORDS_MAX or (is_time and published > 0)

    def _vacuum_bucket(self, number: int) -> None:
        """Vacuum; what fails there is garbage for the next one, and no reason to end a mirror."""
        assert self._vacuum is not None
        self._vacuumed_at, self._vacuumed = time.monotonic(), number
        try:
            self._vacuum()
        except SiltstoneError as error:
            _log.warning("the vacuum of the mirror at %s failed: %s", self.url, in_words(error))

    def _say(self, path: str, done: int, total: int) -> None:
        del path
        self.state = replace(self.state, left_bytes=total - done)

    def _has_newer(self, copied: Record) -> bool:
        """Wait for a newer record; False: the end came first, and there is none."""
        while True:
            self._stop.check()
            is_ending = self._is_ending  # read first: what was published before the end is copied
            if self.mirrorer.site.manifests.newer_record(copied) is not None:
                return True
            if is_ending:
                return False
            self._news.wait(self._look_s)
            self._news.clear()

    def _failed(self, error: SiltstoneError) -> None:
        self.state = MirrorState(failure=in_words(error))
        _log.warning("the mirror at %s waits: %s", self.url, in_words(error))

    # --- a thread of an owner

    def start(self) -> None:
        """Run it in a thread, which ends by `finish`. If there is none, it fails alone."""
        try:
            self._thread = threads.started(self._run, "siltstone-mirror")
        except UnavailableError as error:
            self._failed(error)

    def _run(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - a thread of its own: `state` and the log say it
            self.state = MirrorState(failure=in_words(error))
            _log.warning("the mirror at %s ended: %s", self.url, in_words(error))

    def finish(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Copy what is the newest record now, and end; say whether it is there.

        Args:
            seconds: For how long at most.
            is_over: Asked all the time; ends it at once.
        """
        if self._thread is None:
            return True
        self._is_ending = True
        self._news.set()
        began = time.monotonic()
        while self._thread.is_alive():
            has_no_time = time.monotonic() - began >= seconds
            if has_no_time or is_over():
                self.mirrorer.claims.leave()
                self._stop.now()
                self._news.set()
                self._thread.join()
            self._thread.join(min(_TICK_S, seconds))
        self._thread = None
        newest = self.mirrorer.site.manifests.newest().number
        is_there = self.state.failure is None and self._copied == newest
        if not is_there:
            self.mirrorer.owe()
        return is_there


_TICK_S = 0.05
