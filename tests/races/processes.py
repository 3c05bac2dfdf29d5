"""Processes: workers and where they meet. A rendezvous is a socket: who comes waits for `go`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 60


class CallFailedError(Exception):
    """A call raised in its worker; `kinds` are the names of the error's classes."""

    def __init__(self, text: str, kinds: list[str]) -> None:
        super().__init__(text)
        self.kinds = kinds


class ProcessDiedError(Exception):
    """The worker ended before it answered."""


class Process:
    """A worker (see `worker`), and its calls by number."""

    def __init__(self, **environment: str) -> None:
        """`environment`: what it has beside ours."""
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[object]] = {}
        self._lock = threading.Lock()
        self._is_over = False
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.races.worker"],
            cwd=REPOSITORY,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._popen.pid
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            answer = json.loads(line)
            future = self._open.pop(answer["call"])
            if "error" in answer:
                future.set_exception(CallFailedError(answer["error"], answer["kinds"]))
            else:
                future.set_result(answer["value"])
        with self._lock:
            self._is_over = True
            for future in self._open.values():
                future.set_exception(ProcessDiedError(f"worker {self.pid}"))
            self._open.clear()

    def start(self, do: str, **arguments: object) -> Future[object]:
        """Begin a call; its future has the answer."""
        assert self._popen.stdin is not None
        number, future = next(self._numbers), Future[object]()
        with self._lock:
            if self._is_over:
                raise ProcessDiedError(f"worker {self.pid}")
            self._open[number] = future
        with contextlib.suppress(BrokenPipeError):  # dead: the listener says so
            self._popen.stdin.write(json.dumps({"call": number, "do": do, **arguments}) + "\n")
            self._popen.stdin.flush()
        return future

    def call(self, do: str, **arguments: object) -> object:
        """Do a call and wait for its answer."""
        return self.start(do, **arguments).result(WAIT_S)

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def died(self) -> int:
        """Wait until it is dead; return its exit code."""
        return self._popen.wait(WAIT_S)

    def end(self) -> None:
        """Let it end by itself, or else by force."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()
        self._listener.join()
        assert self._popen.stdout is not None
        self._popen.stdout.close()


@dataclass
class Held:
    """A process that stands at a failpoint."""

    label: str
    pid: int
    line: socket.socket

    def go(self) -> None:
        self.line.close()


class Meeting:
    """Where processes that pause come to."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()  # a socket's name has at most 107 characters
        self.address = str(Path(self._folder.name) / "meeting")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(WAIT_S)
        self._listener.bind(self.address)
        self._listener.listen()

    def expect(self, call: Future[object]) -> Held:
        """Wait for whoever comes; `call` must not end before."""
        arrival: Future[Held] = Future()

        def accept() -> None:
            try:
                arrival.set_result(self._accept())
            except OSError as error:
                arrival.set_exception(error)

        thread = threading.Thread(target=accept)
        thread.start()
        done, _ = wait([arrival, call], WAIT_S, FIRST_COMPLETED)
        if arrival not in done:
            self._wake()  # nobody will come
            thread.join()
            raise AssertionError(f"it ended without a stop: {call.exception() or call.result()}")
        thread.join()
        return arrival.result()

    def _accept(self) -> Held:
        line, _ = self._listener.accept()
        line.settimeout(WAIT_S)
        label, pid = line.makefile().readline().split() or ("", "0")
        return Held(label, int(pid), line)

    def _wake(self) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self.address)
            line.sendall(b"nobody 0\n")

    def close(self) -> None:
        self._listener.close()
        self._folder.cleanup()


class Spares:
    """Workers for one death each; the next one starts up while its predecessor is at work."""

    def __init__(self) -> None:
        self._next = Process()
        self.taken: list[Process] = []

    def take(self) -> Process:
        taken, self._next = self._next, Process()
        self.taken.append(taken)
        return taken

    def end(self) -> None:
        for process in (*self.taken, self._next):
            process.end()


@contextlib.contextmanager
def workers(count: int) -> Iterator[list[Process]]:
    """Start workers, and end them."""
    found = [Process() for _ in range(count)]
    try:
        yield found
    finally:
        for process in found:
            process.end()
