"""Jobs: maintenance that somebody asked for, one at a time, while requests go on.

    QUEUED ─▶ RUNNING ─▶ SUCCEEDED
                └──────▶ FAILED      nothing is wrong: no maintenance changes a result

One thread runs them in order: two merges at once would only race. Finished ones are remembered, a
bounded number. Lock: one, for the list.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, cast

import msgspec

from siltstone.errors import BusyError, SiltstoneError, in_words
from siltstone.server.http.replies import Reply
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import Code, Refused
from siltstone.server.rest.schemas import TableJobRequest, VacuumRequest
from siltstone.store import Store

_OPEN = frozenset(("queued", "running"))


@dataclass(slots=True)
class MaintenanceJob:
    """One run of one kind of maintenance."""

    kind: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    status: str = "queued"
    result: object = None
    error: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        found: dict[str, object] = {"id": self.id, "kind": self.kind, "status": self.status}
        if self.error is not None:
            found["error"] = self.error
        if self.result is not None:
            found["result"] = self.result
        return found


class JobRoutes:
    """See the module. Any thread."""

    def __init__(self, db: Store, limits: Limits) -> None:
        self._db, self._limits = db, limits
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, MaintenanceJob] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, "siltstone-jobs")

    def close(self) -> None:
        """Wait for the job that runs; forget those that wait."""
        self._executor.shutdown(cancel_futures=True)

    @property
    def open(self) -> int:
        """How many run or wait."""
        with self._lock:
            return sum(job.status in _OPEN for job in self._jobs.values())

    # routes

    def checkpoint(self, call: RestCall) -> Reply:
        """Flush everything committed so far into Lance."""
        _ = call.asked
        return self._start("checkpoint", lambda: {"record": self._db.checkpoint().number})

    def merge(self, call: RestCall) -> Reply:
        """Fold what is flushed into the base of one table, or of all."""
        table = cast("TableJobRequest", call.asked).table
        return self._start("merge", lambda: self._db.merge(table))

    def optimize(self, call: RestCall) -> Reply:
        """Make few large files of many small ones in one table, or in all."""
        table = cast("TableJobRequest", call.asked).table
        return self._start("optimize", lambda: self._db.optimize(table))

    def vacuum(self, call: RestCall) -> Reply:
        """Delete what nothing needs; by default only say what would go."""
        dry_run = cast("VacuumRequest", call.asked).dry_run

        def run() -> object:
            found = self._db.vacuum(dry_run=dry_run)
            nbytes = sum(file.nbytes for file in found.files)
            return {"files": len(found.files), "bytes": nbytes, "dry_run": dry_run}

        return self._start("vacuum", run)

    def status(self, call: RestCall) -> Reply:
        """Return how a job is."""
        with self._lock:
            job = self._jobs.get(call.path["id"])
        if job is None:
            raise Refused(Code.INVALID_INPUT, "no such job is remembered", status=404)
        return Reply(job.to_dict())

    def list_all(self, _: RestCall) -> Reply:
        """Return all jobs that are remembered, the oldest first."""
        with self._lock:
            return Reply({"jobs": [job.to_dict() for job in self._jobs.values()]})

    def _start(self, kind: str, run: Callable[[], object]) -> Reply:
        job = MaintenanceJob(kind)
        with self._lock:
            waiting = sum(other.status in _OPEN for other in self._jobs.values())
            if waiting >= self._limits.jobs_max:
                raise BusyError(f"{waiting} jobs run or wait already; try again later")
            self._jobs[job.id] = job
            self._forget()
        self._executor.submit(self._run, job, run)
        headers = {"location": f"/v1/jobs/{job.id}"}
        return Reply(job.to_dict(), None, 202, headers=headers)

    def _forget(self) -> None:
        finished = [key for key, job in self._jobs.items() if job.status not in _OPEN]
        for key in finished[: max(0, len(finished) - self._limits.finished_jobs_max)]:
            del self._jobs[key]

    def _run(self, job: MaintenanceJob, run: Callable[[], object]) -> None:
        job.status = "running"
        try:
            found = _plain(run())
        except SiltstoneError as error:
            job.error, job.status = in_words(error), "failed"
        except Exception as error:  # noqa: BLE001 - a job that fails is told, not raised
            job.error, job.status = type(error).__name__, "failed"
        else:
            job.result, job.status = found, "succeeded"


def _plain(found: object) -> object:
    if is_dataclass(found) and not isinstance(found, type):
        found = {"outcome": type(found).__name__, **asdict(cast("Any", found))}
    return msgspec.to_builtins(found, enc_hook=str)
