"""Session answers: how a process that plans asks the driver for what Spark does not tell it.

    a query ──▶ a planner, started by the JVM ──▶ a socket of the driver
                                                   └─▶ its session: the zone, the catalog

Spark tells a Python source no setting of its session (see `session_zone`), and not which table of
the catalog it reads (see `catalog_tables`). So the class that `register` hands to Spark carries the
address of a Unix socket in a folder of this user (mode 0700), and the driver's Python answers there
with what holds at that moment.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

Answer: TypeAlias = Callable[[SparkSession, str], str]
"""The answer of a session to what is asked about, in one line."""
Address: TypeAlias = tuple[str, str]
"""A path and the name of a session: plain, so that each version can read the class that has it."""
ANSWER_S_MAX = 10.0
QUESTION_S_MAX = 1.0  # one is heard at a time
SESSIONS_MAX = 64
QUESTION_MAX, ANSWER_MAX = 256, 65_536  # bytes
_WAITING_MAX = 128
_PAUSE_S = 0.05
_NONE = ""


def asked(address: Address, question: str, about: str = "") -> str | None:
    """Return the answer of a session; None: nobody answers, or it cannot."""
    path, session = address
    until = time.monotonic() + ANSWER_S_MAX
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            _connect(asking, path, until)
            asking.sendall(f"{question} {session} {about}\n".encode())
            return _line(asking, until, ANSWER_MAX) or None
    except (OSError, AttributeError):  # another machine, an ended driver, a system without them
        return None


class _Answers:
    """The socket of this process, and the sessions that it answers for; `_lock` guards both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[SparkSession, Mapping[str, Answer]]] = {}
        self._path: str | None = None

    def serve(
        self, session: str, spark: SparkSession, answers: Mapping[str, Answer]
    ) -> tuple[Address, bool]:
        """Answer for a session from now on; return where, and whether it is a new one.

        Of too many the first is answered for no more, and none that was stopped.

        Raises:
            OSError: There can be no socket.
        """
        with self._lock:
            self._path = self._path or self._listen()
            if session in self._sessions:
                return (self._path, session), False
            running = {n: each for n, each in self._sessions.items() if not _is_stopped(each[0])}
            self._sessions = {**running, session: (spark, answers)}
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return (self._path, session), True

    def _listen(self) -> str:
        folder = tempfile.mkdtemp(prefix="siltstone-")  # mode 0700
        path = str(Path(folder, "asked"))
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
            target=self._run, args=(asked,), name="siltstone-answers", daemon=True
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
                said = _line(asking, time.monotonic() + QUESTION_S_MAX, QUESTION_MAX)
                asking.sendall(f"{self._answer(said)}\n".encode())

    def _answer(self, said: str) -> str:
        question, _, rest = said.partition(" ")
        session, _, about = rest.partition(" ")
        with self._lock:
            found = self._sessions.get(session)
        if found is None or question not in found[1]:
            return _NONE
        try:
            return found[1][question](found[0], about)
        except Exception:  # noqa: BLE001 - stopped, or another Spark: whatever it is, none is known
            return _NONE


_ANSWERS = _Answers()


def serve(spark: SparkSession, answers: Mapping[str, Answer]) -> tuple[Address, bool] | None:
    """Let planners of a session ask it; return where, and whether that is new.

    None: it is a client's, or there is no socket.
    """
    try:
        of_jvm = cast("Any", spark)._jsparkSession  # noqa: SLF001 - nothing public names a session
        return _ANSWERS.serve(str(of_jvm.sessionUUID()), spark, answers)
    except (AttributeError, PySparkException, Py4JError, OSError):
        return None


def _is_stopped(spark: SparkSession) -> bool:
    return cast("Any", spark.sparkContext)._jsc is None  # noqa: SLF001 - nothing public says so


def _connect(asking: socket.socket, path: str, until: float) -> None:
    while True:
        asking.settimeout(_left_s(until))
        try:
            return asking.connect(path)
        except BlockingIOError:  # so many others wait
            time.sleep(_PAUSE_S)


def _line(peer: socket.socket, until: float, longest: int) -> str:
    """Return what a peer says, up to the end of its line or the longest one.

    Raises:
        OSError: It does not say it in time.
    """
    said = b""
    while not said.endswith(b"\n") and len(said) < longest:
        peer.settimeout(_left_s(until))
        more = peer.recv(longest)
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
