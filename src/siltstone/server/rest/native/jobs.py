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
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Any, cast

import msgspec

from siltstone.errors import BusyError, SiltstoneError, in_words
from siltstone.lance_versions.errors import Code
from siltstone.server.http.replies import Reply
from siltstone.server.rest import schemas as bodies
from siltstone.server.rest.call import RestCall
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import HttpRefused
from siltstone.server.rest.schemas import JobAnswer, JobKind
from siltstone.store import Store

_OPEN = frozenset(("queued", "running"))


class JobRoutes:
    """See the module. Any thread."""

    def __init__(self, db: Store, limits: Limits) -> None:
        self._db, self._limits = db, limits
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, JobAnswer] = OrderedDict()
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

    def checkpoint(self, call: RestCall[bodies.NothingAsked]) -> Reply[JobAnswer]:  # noqa: ARG002
        """Flush everything committed so far into Lance."""
        return self._start("checkpoint", lambda: {"record": self._db.checkpoint().number})

    def merge(self, call: RestCall[bodies.TableJobRequest]) -> Reply[JobAnswer]:
        """Fold what is flushed into the base of one table, or of all."""
        return self._start("merge", partial(self._db.merge, call.asked.table))

    def optimize(self, call: RestCall[bodies.TableJobRequest]) -> Reply[JobAnswer]:
        """Make few large files of many small ones in one table, or in all."""
        return self._start("optimize", partial(self._db.optimize, call.asked.table))

    def vacuum(self, call: RestCall[bodies.VacuumRequest]) -> Reply[JobAnswer]:
        """Delete what nothing needs; by default only say what would go."""
        dry_run = call.asked.dry_run

        def run() -> object:
            found = self._db.vacuum(dry_run=dry_run)
            nbytes = sum(file.nbytes for file in found.files)
            return {"files": len(found.files), "bytes": nbytes, "dry_run": dry_run}

        return self._start("vacuum", run)

    def status(self, call: RestCall[None]) -> Reply[JobAnswer]:
        """Return how a job is."""
        with self._lock:
            job = self._jobs.get(call.path["id"])
        if job is None:
            raise HttpRefused(Code.INVALID_INPUT, "no such job is remembered", 404)
        return Reply(job)

    def list_all(self, _: RestCall[None]) -> Reply[bodies.JobsAnswer]:
        """Return all jobs that are remembered, the oldest first."""
        with self._lock:
            return Reply(bodies.JobsAnswer(list(self._jobs.values())))

    def _start(self, kind: JobKind, run: Callable[[], object]) -> Reply[JobAnswer]:
        job = JobAnswer(secrets.token_hex(8), kind, "queued")
        with self._lock:
            waiting = sum(other.status in _OPEN for other in self._jobs.values())
            if waiting >= self._limits.jobs_max:
                raise BusyError(f"{waiting} jobs run or wait already; try again later")
            self._jobs[job.id] = job
            self._forget()
        self._executor.submit(self._run, job, run)
        return Reply(job, None, 202, headers={"location": f"/v1/jobs/{job.id}"})

    def _forget(self) -> None:
        finished = [key for key, job in self._jobs.items() if job.status not in _OPEN]
        for key in finished[: max(0, len(finished) - self._limits.finished_jobs_max)]:
            del self._jobs[key]

    def _run(self, job: JobAnswer, run: Callable[[], object]) -> None:
        job.status = "running"
        try:
            found = _plain(run())
        except SiltstoneError as error:
            job.error, job.status = in_words(error), "failed"
        except Exception as error:  # noqa: BLE001 - a job that fails is reported, not raised
            job.error, job.status = type(error).__name__, "failed"
        else:
            job.result, job.status = found, "succeeded"


def _plain(found: object) -> dict[str, Any]:
    """Return what a job found as an object of JSON."""
    if is_dataclass(found) and not isinstance(found, type):
        found = {"outcome": type(found).__name__, **asdict(cast("Any", found))}
    return msgspec.to_builtins(found, enc_hook=str)
