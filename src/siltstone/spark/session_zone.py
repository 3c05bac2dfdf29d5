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
import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TypeAlias, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siltstone.spark.times import SESSION_ZONE

Address: TypeAlias = tuple[str, str]
"""A path and the name of a session: plain, so that each version can read the class that has it."""
ANSWER_S_MAX = 10.0
QUESTION_S_MAX = 1.0  # one is heard at a time
SESSIONS_MAX = 64
_TEXT_MAX = 256
_WAITING_MAX = 128
_PAUSE_S = 0.05
_NONE = ""


def zone_at(address: Address) -> str | None:
    """Return the zone of a session now; None: nobody answers, or its streams have another."""
    path, session = address
    until = time.monotonic() + ANSWER_S_MAX
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            _connect(asking, path, until)
            asking.sendall(f"{session}\n".encode())
            return _line(asking, until) or None
    except (OSError, AttributeError):  # another machine, an ended driver, a system without them
        return None


class _Answers:
    """The socket of this process, and the sessions that it answers for; `_lock` guards both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, SparkSession] = {}
        self._path: str | None = None

    def serve(self, session: str, spark: SparkSession) -> tuple[Address, bool]:
        """Answer for a session from now on; return where, and whether it is a new one.

        Of too many the first is answered for no more, and none that was stopped.

        Raises:
            OSError: There can be no socket.
        """
        with self._lock:
            self._path = self._path or self._listen()
            if session in self._sessions:
                return (self._path, session), False
            running = {n: each for n, each in self._sessions.items() if not _is_stopped(each)}
            self._sessions = {**running, session: spark}
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return (self._path, session), True

    def _listen(self) -> str:
        folder = tempfile.mkdtemp(prefix="siltstone-")  # mode 0700
        path = str(Path(folder, "zone"))
        asked = socket.socket(socket.AF_UNIX)
        try:
            asked.bind(path)
            asked.listen(_WAITING_MAX)
        except OSError:
            asked.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        atexit.register(_remove, folder, os.getpid())
        threading.Thread(
            target=self._run, args=(asked,), name="siltstone-zone", daemon=True
        ).start()
        return path

    def _run(self, asked: socket.socket) -> None:
        while True:
            try:
                asking, _ = asked.accept()
            except OSError:  # no descriptor is left
                time.sleep(_PAUSE_S)
                continue
            with asking, contextlib.suppress(OSError):
                session = _line(asking, time.monotonic() + QUESTION_S_MAX)
                with self._lock:
                    spark = self._sessions.get(session)
                asking.sendall(f"{_NONE if spark is None else _zone_of(spark)}\n".encode())


_ANSWERS = _Answers()


def serve(spark: SparkSession) -> tuple[Address, bool] | None:
    """Let planners of a session ask for its zone; return where, and whether that is new.

    None: it is a client's, or there is no socket.
    """
    try:
        of_jvm = cast("Any", spark)._jsparkSession  # noqa: SLF001 - nothing public names a session
        return _ANSWERS.serve(str(of_jvm.sessionUUID()), spark)
    except (AttributeError, PySparkException, Py4JError, OSError):
        return None


def _zone_of(spark: SparkSession) -> str:
    """Return the zone of a session and of the copies that its streams have of it; "": none."""
    try:
        # Only a query of the JVM has its session.
        running = [cast("Any", query)._jsq for query in spark.streams.active]  # noqa: SLF001
        copies = [query.streamingQuery().sparkSessionForStream().conf() for query in running]
        zones = {spark.conf.get(SESSION_ZONE), *(conf.get(SESSION_ZONE) for conf in copies)}
    except Exception:  # noqa: BLE001 - stopped, or another Spark: whatever it is, none is known
        return _NONE
    return str(zones.pop()) if len(zones) == 1 else _NONE


def _is_stopped(spark: SparkSession) -> bool:
    return cast("Any", spark.sparkContext)._jsc is None  # noqa: SLF001 - nothing public says so


def _connect(asking: socket.socket, path: str, until: float) -> None:
    while True:
        asking.settimeout(_left_s(until))
        try:
            return asking.connect(path)
        except BlockingIOError:  # so many others wait
            time.sleep(_PAUSE_S)


def _line(peer: socket.socket, until: float) -> str:
    """Return what a peer says, up to the end of its line.

    Raises:
        OSError: It does not say it in time.
    """
    said = b""
    while not said.endswith(b"\n") and len(said) < _TEXT_MAX:
        peer.settimeout(_left_s(until))
        more = peer.recv(_TEXT_MAX)
        if not more:
            break
        said += more
    return said.decode(errors="replace").removesuffix("\n")


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # not a fork that ends before its parent
        shutil.rmtree(folder, ignore_errors=True)
