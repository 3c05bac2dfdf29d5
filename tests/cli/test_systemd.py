"""`siltstone serve` tells systemd by datagrams that it answers, lives and ends."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import siltstone as st
from siltstone.cli.commands.serve import answers
from siltstone.cli.systemd import Systemd
from tests.server.stores import opened


@contextmanager
def listening(name: str) -> Generator[socket.socket]:
    """Yield the socket that $NOTIFY_SOCKET names, as systemd has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + name[1:] if name[0] == "@" else name)
        heard.settimeout(60)
        yield heard


def lines_of(heard: socket.socket) -> dict[str, str]:
    """Return what the next datagram says."""
    lines = heard.recv(4096).decode().splitlines()
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


@contextmanager
def serving(store: Path, **environ: str) -> Generator[subprocess.Popen[str]]:
    """Yield the command, which serves a new store."""
    st.connect(store).close()
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(store), "--port", "0"]
    with subprocess.Popen(
        command,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def url_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ended(child: subprocess.Popen[str]) -> str:
    """End a service; return what it said on stderr."""
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 0, said
    return said


@pytest.mark.parametrize("is_abstract", [False, True], ids=["path", "abstract"])
def test_a_service_says_that_it_is_ready_lives_and_stops(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@siltstone-{uuid.uuid4()}" if is_abstract else str(tmp_path / "notify")
    with (
        listening(name) as heard,
        serving(tmp_path / "shop", NOTIFY_SOCKET=name, WATCHDOG_USEC="100000") as child,
    ):
        url = url_of(child)
        ready = lines_of(heard)
        assert ready == {"READY": "1", "STATUS": f"serving {tmp_path / 'shop'} at {url}"}
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert [lines_of(heard) for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        child.send_signal(signal.SIGTERM)
        rest = [lines_of(heard)]
        while "STOPPING" not in rest[-1]:
            rest.append(lines_of(heard))
        assert rest[-1]["STOPPING"] == "1"
        assert "systemd" not in ended(child)


def test_without_a_watchdog_only_the_begin_and_the_end_are_said(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with listening(name) as heard, serving(tmp_path / "shop", NOTIFY_SOCKET=name) as child:
        assert "READY" in lines_of(heard)
        ended(child)
        assert "STOPPING" in lines_of(heard)
        heard.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard.recv(4096)


@pytest.mark.parametrize("name", ["vsock:2:1234", "/nowhere/notify", "@", "x"])
def test_a_service_that_cannot_tell_goes_on_and_says_so_once(tmp_path: Path, name: str) -> None:
    with serving(tmp_path / "shop", NOTIFY_SOCKET=name, WATCHDOG_USEC="1000") as child:
        url = url_of(child)
        assert httpx.get(f"{url}/readyz").status_code == 200
        said = ended(child)
    assert said.count("cannot tell systemd") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({}, None),
    ],
)
def test_a_watchdog_is_for_the_process_that_it_names(
    environ: dict[str, str], seconds: float | None
) -> None:
    said: list[str] = []
    made = Systemd({"NOTIFY_SOCKET": "@x", **environ}, said.append)
    assert (made.watchdog_s, said) == (seconds, [])


@pytest.mark.parametrize("usec", ["0", "-1", "soon", "1.5", "٣"])
def test_a_time_of_the_watchdog_that_is_no_number_is_named(usec: str) -> None:
    said: list[str] = []
    made = Systemd({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": usec}, said.append)
    assert made.watchdog_s is None
    assert len(said) == 1
    assert usec in said[0]


def test_nobody_is_told_where_nobody_listens() -> None:
    said: list[str] = []
    made = Systemd({"WATCHDOG_USEC": "nonsense"}, said.append)
    made.ready("here")
    with made.watching(lambda: pytest.fail("asked")):
        made.stopping()
    assert said == []


def test_a_sign_of_life_is_sent_only_when_the_store_answered(tmp_path: Path) -> None:
    name, found = str(tmp_path / "notify"), iter([True, False, True, False])
    asked: queue.Queue[bool] = queue.Queue()

    def answered() -> bool:
        asked.put(next(found, False))
        return asked.queue[-1]

    with listening(name) as heard:
        told = Systemd({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "2"}, pytest.fail)
        with told.watching(answered):
            while asked.qsize() < 6:
                pass
        told.stopping()
        said = [lines_of(heard) for _ in range(3)]
    assert said[:2] == [{"WATCHDOG": "1"}] * 2
    assert "STOPPING" in said[2]


def test_a_store_answers_until_it_takes_no_writes(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        service: Any = db.serve(port=0)
        assert answers(db, service)
        service.pipeline.is_closing = True
        assert not answers(db, service)
        service.pipeline.is_closing = False
        assert answers(db, service)
        service.close()
        assert not answers(db, service)
    assert not answers(db, service)


def test_a_store_of_a_server_with_tls_answers(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=elsewhere", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0, certificate=certificate, key=key)
        assert service.url.startswith("https")
        assert answers(db, service)
        assert isinstance(db, st.Store)
