"""A client of another release than the owner, or the server, gets one error that says so.

Who answers here says what an owner of that release would say.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined import protocol
from siltstone.joined.store import JoinedStore
from siltstone.joined.values import encode

HELLO = {"path": "/", "identity": [0, 0], "body_bytes_max": 1, "epoch": 1, "pid": 1}
Join = Callable[[], object]


@contextmanager
def _answering(listener: socket.socket, body: bytes, status: str) -> Iterator[list[bytes]]:
    """Answer one connection's requests with `body`; yield what it asked."""
    listener.listen()
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    asked: list[bytes] = []

    def answer() -> None:
        client, _ = listener.accept()
        with client:
            while request := client.recv(1 << 16):  # until the client closes it
                asked.append(request)
                client.sendall(head + body)

    answering = threading.Thread(target=answer)
    answering.start()
    yield asked
    answering.join()


@contextmanager
def an_owner(body: bytes, status: str = "200 OK") -> Iterator[tuple[Join, list[bytes]]]:
    """An owner on this machine that answers `body`."""
    with (
        tempfile.TemporaryDirectory(prefix="s-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        address = Path(folder) / "s.sock"
        listener.bind(str(address))
        with _answering(listener, body, status) as asked:
            yield lambda: JoinedStore(Path(folder), str(address)), asked


@contextmanager
def a_server(body: bytes, status: str = "200 OK") -> Iterator[tuple[Join, list[bytes]]]:
    """A server that answers `body`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with _answering(listener, body, status) as asked:
            yield lambda: st.connect(url), asked


@pytest.mark.parametrize("other", [an_owner, a_server])
@pytest.mark.parametrize("version", [protocol.VERSION - 1, protocol.VERSION + 1, None, "2"])
def test_another_version_is_refused_by_both_numbers_and_nothing_is_asked(
    other: Callable[..., object], version: object
) -> None:
    with other(encode({"version": version} | HELLO)) as (join, asked):
        words = f"version {version} of .* {protocol.VERSION}; use one siltstone on both sides"
        with pytest.raises(st.RequestError, match=words):
            join()
    (request,) = asked
    assert request.startswith(b"GET /v1/")


@pytest.mark.parametrize("other", [an_owner, a_server])
@pytest.mark.parametrize("body", [b"", b"<html>", encode([1]), encode({"version": 1})[:-2]])
def test_an_answer_that_is_none_of_siltstones_is_refused(
    other: Callable[..., object], body: bytes
) -> None:
    with other(body) as (join, _), pytest.raises(st.SiltstoneError, match="siltstone"):
        join()


def test_a_server_that_knows_no_joined_clients_is_refused_with_what_it_said() -> None:
    refused = pytest.raises(st.SiltstoneError, match=r"answered 404: b'not here'")
    with a_server(b"not here", "404 Not Found") as (join, _), refused:
        join()
