"""Session answers: how a process that plans asks the driver for what Spark does not tell it.

    a query ──▶ a planner, started by the JVM ──▶ a socket of the driver, one for each question
                                                   └─▶ its session: the zone, the catalog

Spark tells a Python source no setting of its session (see `session_zone`), and not which table of
the catalog it reads (see `catalog_tables`). So the class that `register` hands to Spark carries the
address of a folder of this user (mode 0700) with Unix sockets, where the driver's Python answers
with what holds at that moment. A question that takes long does not hold up those at other sockets.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

Answer: TypeAlias = Callable[[SparkSession, str, float], str]
"""What a session answers in one line, to what it is asked about, up to a time of the clock
`time.monotonic()`, which all processes of a machine share."""
Address: TypeAlias = tuple[str, str]
"""A folder and the name of a session: plain, so that each version can read the class that has it.
"""
ANSWER_S_MAX = 10.0
QUESTION_S_MAX = 1.0  # one is heard at a time
SESSIONS_MAX = 64
QUESTION_MAX, ANSWER_MAX = 512, 65_536  # bytes
_WAITING_MAX = 128
_PAUSE_S = 0.05
_NONE = ""


@dataclass(frozen=True, slots=True)
class Desk:
    """The answer to a question, and how many of them are looked for at once."""

    answer: Answer
    threads: int = 1


def asked(address: Address, question: str, about: str = "") -> str | None:
    """Return the answer of a session; None: no driver answers, or it cannot.

    Raises:
        TimeoutError: It takes too long.
    """
    folder, session = address
    until = time.monotonic() + ANSWER_S_MAX
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            _connect(asking, str(Path(folder, question)), until)
            asking.sendall(f"{session} {until:.3f} {about}\n".encode())
            return _line(asking, until, ANSWER_MAX) or None
    except TimeoutError:
        raise
    except (OSError, AttributeError):  # another machine, an ended driver, a system without them
        return None


class Answers:
    """The sockets of this process, and the sessions that it answers for; `_lock` guards both."""

    def __init__(self, desks: Mapping[str, Desk]) -> None:
        self._desks = dict(desks)
        self._lock = threading.Lock()
        self._sessions: dict[str, SparkSession] = {}
        self._folder: str | None = None

    def serve(self, spark: SparkSession) -> tuple[Address, bool] | None:
        """Let planners of a session ask it; return where, and whether that is new.

        None: it is a client's, or there is no socket.
        """
        try:
            of_jvm = cast("Any", spark)._jsparkSession  # noqa: SLF001 - nothing public names a session
            return self.serve_as(str(of_jvm.sessionUUID()), spark)
        except (AttributeError, PySparkException, Py4JError, OSError, RuntimeError):
            return None

    def serve_as(self, session: str, spark: SparkSession) -> tuple[Address, bool]:
        """Answer for a session from now on; return where, and whether it is a new one.

        Of too many the first is answered for no more, and none that was stopped.

        Raises:
            OSError, RuntimeError: There can be no socket, or no thread.
        """
        with self._lock:
            self._folder = self._folder or self._listen()
            if session in self._sessions:
                return (self._folder, session), False
            running = {n: each for n, each in self._sessions.items() if not _is_stopped(each)}
            self._sessions = {**running, session: spark}
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return (self._folder, session), True

    def _listen(self) -> str:
        folder = tempfile.mkdtemp(prefix="siltstone-")  # mode 0700
        opened: list[socket.socket] = []
        try:
            for question, desk in self._desks.items():
                opened.append(socket.socket(socket.AF_UNIX))
                opened[-1].bind(str(Path(folder, question)))
                opened[-1].listen(_WAITING_MAX)
                for _ in range(desk.threads):
                    self._start(question, opened[-1], desk)
        except (OSError, RuntimeError):  # RuntimeError: there is no room for a thread
            for each in opened:
                each.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        atexit.register(_remove, folder, os.getpid())
        return folder

    def _start(self, question: str, listening: socket.socket, desk: Desk) -> None:
        name, args = f"siltstone-{question}", (listening, desk)
        threading.Thread(target=self._run, args=args, name=name, daemon=True).start()

    def _run(self, listening: socket.socket, desk: Desk) -> None:
        while listening.fileno() >= 0:  # closed if another thread could not start
            try:
                asking, _ = listening.accept()
            except OSError:  # no descriptor is left
                time.sleep(_PAUSE_S)
                continue
            # A session that was stopped, another Spark: whatever it is, there is no answer, and the
            # next one is heard.
            with asking, contextlib.suppress(Exception):
                said = _line(asking, time.monotonic() + QUESTION_S_MAX, QUESTION_MAX)
                session, until, about = said.split(" ", 2)
                answer = self._answer(desk, session, about, float(until))
                asking.settimeout(QUESTION_S_MAX)
                asking.sendall(f"{answer}\n".encode())

    def _answer(self, desk: Desk, session: str, about: str, until: float) -> str:
        with self._lock:
            spark = self._sessions.get(session)
        if spark is None or time.monotonic() > until:  # who asked has left
            return _NONE
        return desk.answer(spark, about, until)


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
