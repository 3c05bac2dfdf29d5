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
from siltstone.joined.connection import refused
from siltstone.joined.frames import frame
from siltstone.joined.store import JoinedStore
from siltstone.joined.values import encode
from tests.server.stores import opened

HELLO = {
    "path": "/", "identity": [0, 0], "body_bytes_max": 1, "store": "", "epoch": 1, "pid": 1,
    "idle_s": 60.0,
}  # fmt: skip
Join = Callable[[], object]


@contextmanager
def _answering(listener: socket.socket, answer_: bytes) -> Iterator[list[bytes]]:
    """Answer one connection's requests; yield what it asked."""
    listener.listen()
    asked: list[bytes] = []

    def answer() -> None:
        client, _ = listener.accept()
        with client:
            while request := client.recv(1 << 16):  # until the client closes it
                asked.append(request)
                client.sendall(answer_)

    answering = threading.Thread(target=answer)
    answering.start()
    yield asked
    answering.join()


@contextmanager
def an_owner(body: bytes) -> Iterator[tuple[Join, list[bytes]]]:
    """An owner on this machine that answers `body`."""
    with _owner_of(frame.answer(200, 0, "", body)) as found:
        yield found


@contextmanager
def _owner_of(answer: bytes) -> Iterator[tuple[Join, list[bytes]]]:
    with (
        tempfile.TemporaryDirectory(prefix="s-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        address = Path(folder) / "s.sock"
        listener.bind(str(address))
        with _answering(listener, answer) as asked:
            yield lambda: JoinedStore(Path(folder), str(address)), asked


@contextmanager
def a_server(body: bytes, status: str = "200 OK") -> Iterator[tuple[Join, list[bytes]]]:
    """A server that answers `body`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with _answering(listener, _http(body, status)) as asked:
            yield lambda: st.connect(url), asked


def _http(body: bytes, status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


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
    start = b"GET /v1/" if other is a_server else frame.OPENING
    assert request.startswith(start)
    assert b"hello" in request


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


def test_an_owner_that_speaks_http_on_its_socket_is_an_older_siltstone() -> None:
    words = f"version 4 .* or an older one.* {protocol.VERSION}; use one"
    refused = pytest.raises(st.RequestError, match=words)
    with _owner_of(_http(b"this is no HTTP request", "400 Bad Request")) as (join, asked), refused:
        join()
    assert len(asked) == 1


def refusal_of(owner: st.Store, opening: bytes) -> bytes:
    """Return what an owner answers to what opens a connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(30)
        client.connect(str(owner.serve_local()))
        client.sendall(opening)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_an_older_siltstone_that_asks_by_http_gets_its_error_as_that_reads_it(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "shop") as owner:
        told = refusal_of(owner, b"GET /v1/hello HTTP/1.1\r\nhost: localhost\r\n\r\n")
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-length: %d\r\n" % len(body) in head
    error = refused(400, body)
    assert isinstance(error, st.RequestError)
    said = f"speaks version {protocol.VERSION} of the protocol, this siltstone 4"
    assert said in str(error)


NEXT_OPENING = b"siltstone rpc %d\n" % (protocol.VERSION + 1)


@pytest.mark.parametrize("opening", [NEXT_OPENING, b"\x16\x03\x01 hello"])
def test_what_opens_a_connection_in_another_way_is_refused_and_the_connection_ends(
    tmp_path: Path, opening: bytes
) -> None:
    with opened(tmp_path / "shop") as owner:
        told = refusal_of(owner, opening)
    head = frame.answer_head(told)
    assert head.status == 400
    error = refused(head.status, told[frame.ANSWER.size + head.id_bytes :])
    assert isinstance(error, st.RequestError)
    assert "siltstone" in str(error)
