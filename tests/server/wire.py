"""A wire between a joined process and the owner that a test can cut at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Wire:
    """Forwards bytes both ways. `cut` says what happens to the answer of a marked request.

    A request is marked when it holds `mark`. With `before` it never reaches the owner; otherwise
    `event` runs when the owner's answer arrives here, and the answer is dropped, but for what
    `rest` leaves of its first bytes. With `pause` the request arrives late: after `pause` ran.
    """

    def __init__(self, address: Path, target: str) -> None:
        self.address = address
        self._target = target
        self.mark: bytes | None = None
        self.is_before = False
        self.event: Callable[[], object] = lambda: None
        self.rest: Callable[[bytes], bytes] = lambda _: b""
        self.pause: Callable[[], object] | None = None
        self.cuts = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(address))
        self._listener.listen(16)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
            try:
                owner.connect(self._target)
            except OSError:
                return
            back = threading.Thread(target=self._back, args=(owner, client), daemon=True)
            self._marked = False
            back.start()
            with contextlib.suppress(OSError):
                while data := client.recv(1 << 16):
                    if self.mark is not None and self.mark in data and self.pause is not None:
                        self.mark = None
                        self.pause()
                    elif self.mark is not None and self.mark in data:
                        self._marked = True
                        if self.is_before:
                            self.mark, self.cuts = None, self.cuts + 1
                            break
                    owner.sendall(data)
            for end in (owner, client):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, owner: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := owner.recv(1 << 16):
                if self._marked:
                    self.mark, self.cuts = None, self.cuts + 1
                    client.sendall(self.rest(data))
                    self.event()
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire_to(address: Path, folder: Path) -> Iterator[Wire]:
    wire = Wire(folder / "wire.sock", str(address))
    try:
        yield wire
    finally:
        wire.close()
