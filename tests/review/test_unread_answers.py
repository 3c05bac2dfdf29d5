"""What a joined process does not read of its answers is bounded in the owner."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from siltstone.joined import protocol
from siltstone.joined.frames import frame
from siltstone.joined.values import encode
from siltstone.server.rpc.frame_connection import FrameConnection
from tests.server.stores import opened


def test_answers_that_a_client_does_not_read_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends requests one behind the other, 50 bytes each; the owner keeps all answers."""
    size, most = 100_000, 64 << 20
    connections, made = list[FrameConnection](), FrameConnection.connection_made

    def noted(self: FrameConnection, transport: Any) -> None:
        connections.append(self)
        made(self, transport)

    monkeypatch.setattr(FrameConnection, "connection_made", noted)
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        owner["t"].upsert({"id": 1, "v": "x" * size})
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(owner.serve_local()))
            head = (f"table/{owner['t'].id}/get", protocol.VALUES_TYPE, "", "", "")
            ask = b"".join(frame.request_parts(head, encode([[1], {}])))
            sock.settimeout(1)
            sock.sendall(frame.OPENING)
            with contextlib.suppress(TimeoutError):  # bounded: it does not read on
                sock.sendall(ask * 3000)
            kept = 0
            for _ in range(60):
                sizes = [c.transport.get_write_buffer_size() for c in connections]
                kept = max(kept, *sizes, 0)
                if kept > most:
                    break
                threading.Event().wait(0.05)
    assert kept <= most


def test_a_client_that_reads_late_gets_all_its_answers(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as owner:
        owner.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        owner["t"].upsert({"id": 1, "v": "x" * 100_000})
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(owner.serve_local()))
            head = (f"table/{owner['t'].id}/get", protocol.VALUES_TYPE, "", "", "")
            sock.sendall(
                frame.OPENING + b"".join(frame.request_parts(head, encode([[1], {}]))) * 99
            )
            sock.settimeout(30)
            for _ in range(99):
                (size,) = frame.LENGTH.unpack(_exactly(sock, frame.LENGTH.size))
                assert len(_exactly(sock, size)) > 100_000


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        came = sock.recv(size - len(data))
        assert came
        data += came
    return bytes(data)
