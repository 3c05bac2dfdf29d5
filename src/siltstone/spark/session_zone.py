"""Session zone: how a process that plans asks the driver for the time zone of its session.

    load(timestampAsOf, no offset) ──▶ a planner, started by the JVM ──▶ a socket of the driver
                                                                          └─▶ spark.conf

Spark tells a Python source no setting of its session, and a zone that was noted at `register()`
would be wrong after `SET TIME ZONE`. So the class that `register` hands to Spark carries the
address of a Unix socket in a folder of this user (mode 0700), and the driver's Python answers there
with the zone of that moment. Where nobody answers, a time without an offset is refused.

A stream has a copy of its session, with the registered class and the settings of its start. A read
in its batches cannot be told from one in the session, so the driver answers only if both have one
zone.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siltstone.spark.times import SESSION_ZONE

ANSWER_S_MAX = 10.0
QUESTION_S_MAX = 1.0  # one is heard at a time
SESSIONS_MAX = 64
_TEXT_MAX = 256
_WAITING_MAX = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """Where the zone of one session is asked; pickles, and is of use on the driver's machine."""

    path: str
    session: str

    def zone(self) -> str | None:
        """Return the zone of the session now; None: nobody answers, or its streams have another."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(ANSWER_S_MAX)
                asking.connect(self.path)
                asking.sendall(f"{self.session}\n".encode())
                return _line(asking) or None
        except OSError:  # another machine, an ended driver, one that is busy
            return None


class _Answers:
    """The socket of this process, and the sessions that it answers for; `_lock` guards both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, SparkSession] = {}
        self._path: str | None = None

    def serve(self, session: str, spark: SparkSession) -> Asked:
        """Answer for a session from now on; of too many the first is answered for no more.

        Raises:
            OSError: There can be no socket.
        """
        with self._lock:
            self._path = self._path or self._listen()
            self._sessions.pop(session, None)
            self._sessions[session] = spark
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return Asked(self._path, session)

    def _listen(self) -> str:
        folder = tempfile.mkdtemp(prefix="siltstone-")  # mode 0700
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = str(Path(folder, "zone"))
        asked = socket.socket(socket.AF_UNIX)
        try:
            asked.bind(path)
            asked.listen(_WAITING_MAX)
        except OSError:
            asked.close()
            raise
        threading.Thread(
            target=self._run, args=(asked,), name="siltstone-zone", daemon=True
        ).start()
        return path

    def _run(self, asked: socket.socket) -> None:
        with asked:
            while True:
                asking, _ = asked.accept()
                with asking, contextlib.suppress(OSError):
                    asking.settimeout(QUESTION_S_MAX)
                    with self._lock:
                        spark = self._sessions.get(_line(asking))
                    asking.sendall(f"{'' if spark is None else _zone_of(spark)}\n".encode())


_ANSWERS = _Answers()


def serve(spark: SparkSession) -> Asked | None:
    """Let planners of a session ask for its zone; None: it is a client's, or there is no socket."""
    try:
        of_jvm = cast("Any", spark)._jsparkSession  # noqa: SLF001 - nothing public names a session
        return _ANSWERS.serve(str(of_jvm.sessionUUID()), spark)
    except (AttributeError, PySparkException, Py4JError, OSError):
        return None


def _zone_of(spark: SparkSession) -> str:
    """Return the zone of a session and of the copies that its streams have of it; "": none."""
    try:
        running = [cast("Any", query)._jsq for query in spark.streams.active]  # noqa: SLF001 - only
        # a query of the JVM has its session
        copies = [query.streamingQuery().sparkSessionForStream().conf() for query in running]
        zones = {spark.conf.get(SESSION_ZONE), *(conf.get(SESSION_ZONE) for conf in copies)}
    except (AttributeError, PySparkException, Py4JError, OSError):  # stopped, or another Spark
        return ""
    return str(zones.pop()) if len(zones) == 1 else ""


def _line(peer: socket.socket) -> str:
    """Return what a peer says, up to the end of its line.

    Raises:
        OSError: It does not say it in time.
    """
    said = b""
    while not said.endswith(b"\n") and len(said) < _TEXT_MAX:
        more = peer.recv(_TEXT_MAX)
        if not more:
            break
        said += more
    return said.decode(errors="replace").removesuffix("\n")
