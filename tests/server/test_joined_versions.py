"""A process that joins an owner of another release of siltstone gets one error that says so."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined import protocol
from siltstone.joined.store import JoinedStore
from siltstone.joined.values import encode


def test_an_owner_that_speaks_another_version_is_refused_by_both_numbers() -> None:
    other = protocol.VERSION - 1
    body = encode({"version": other, "path": "/", "identity": [0, 0], "body_bytes_max": 1})
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with (
        tempfile.TemporaryDirectory(prefix="s-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        address = Path(folder) / "s.sock"
        listener.bind(str(address))
        listener.listen()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                assert client.recv(1 << 16).startswith(b"GET /v1/hello")
                client.sendall(head + body)
                client.recv(1)  # until it is closed

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(st.RequestError, match=f"version {other} .* {protocol.VERSION};"):
            JoinedStore(Path(folder), str(address))
        answering.join()
