"""`siltstone serve` writes its log to stderr, a line for each event, and waits for no reader."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import siltstone as st
from siltstone.server.rest.tokens import digest_of

SECRET = "slt_" + "x" * 43


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    with st.connect(path, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
    return path


@contextmanager
def serving(
    shop: Path, *options: str
) -> Generator[tuple[subprocess.Popen[bytes], http.client.HTTPConnection]]:
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(shop), "--port", "0"]
    line = f"alice admin sha256:{digest_of(SECRET).hex()}"
    environment = {**os.environ, "SILTSTONE_SERVER_TOKENS": line}
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        pipesize=4096,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rpartition(b":")[2])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            yield process, connection
    finally:
        process.kill()
        process.communicate()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> int:
    headers = {"authorization": f"Bearer {SECRET}"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def ended(process: subprocess.Popen[bytes]) -> list[str]:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors.decode().splitlines()


def test_lines_of_json_have_the_requests_by_route_and_no_secret(shop: Path) -> None:
    with serving(shop, "--log-format", "json", "--access-log") as (process, connection):
        assert ask(connection, "POST", "/v1/table/t/count_rows?delimiter=%24", {}) == 200
        assert ask(connection, "GET", "/v1/transaction/1-private/describe") == 405
        assert ask(connection, "POST", "/v1/transaction/1-private/describe", {}) == 404
        assert ask(connection, "POST", "/v1/checkpoint", {}) == 202
        found = [json.loads(line) for line in ended(process)]
    for line in found:
        assert {"time", "level", "logger", "message"} <= set(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    messages = "\n".join(line["message"] for line in found)
    for text in ("opened ", "serving ", "checkpoint: ", "finishing running requests", "closed "):
        assert text in messages
    accesses = [line for line in found if line["logger"] == "siltstone.access"]
    assert [(a["method"], a["route"], a["status"], a["client"]) for a in accesses] == [
        ("POST", "/v1/table/{id}/count_rows", 200, "alice"),
        ("POST", "/v1/transaction/{id}/describe", 404, "alice"),
        ("POST", "/v1/checkpoint", 202, "alice"),
    ]
    assert all(0 < access["seconds"] < 600 and access["request"] for access in accesses)
    whole = json.dumps(found)
    assert SECRET not in whole
    assert "private" not in whole


def test_lines_of_text_begin_with_time_and_level_and_the_level_can_be_chosen(shop: Path) -> None:
    with serving(shop) as (process, connection):
        assert ask(connection, "POST", "/v1/checkpoint", {}) == 202
        found = ended(process)
    assert found
    for line in found:
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (INFO|WARNING) siltstone\.\S+ \S", line), line
    assert not [line for line in found if "siltstone.access" in line]
    with serving(shop, "--log-level", "error") as (process, connection):
        assert ask(connection, "POST", "/v1/checkpoint", {}) == 202
        assert ended(process) == []


def test_a_reader_of_stderr_that_does_not_read_stops_neither_requests_nor_the_end(
    shop: Path,
) -> None:
    with serving(shop, "--access-log") as (process, connection):
        rows = [{"table": "t", "op": "upsert", "rows": [{"id": 1}]}]
        for _ in range(100):  # 10 kB of lines, and the pipe holds 4
            assert ask(connection, "GET", "/v1/jobs") == 200
        assert ask(connection, "POST", "/v1/transaction/apply", {"ops": rows}) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    with st.connect(shop, background=False) as db:
        assert db["t"].get(1) == {"id": 1}
