"""A client of the REST server that knows nothing but HTTP, and stores that are served."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import siltstone as st
from siltstone.server.rest.server import RestServer
from tests.server.stores import opened


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> tuple[int, int]:
        """The status and the code of a flat error; each has one sentence."""
        found = self.json
        assert set(found) <= {"error", "code", "detail", "instance"}, found
        assert isinstance(found["error"], str)
        assert found["error"]
        assert "\n" not in found["error"]
        assert "Traceback" not in found["error"]
        return self.status, found["code"]

    @property
    def seq(self) -> int:
        return int(self.headers["x-siltstone-seq"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.body
        if self.body[:6] == b"ARROW1":
            return pa.ipc.open_file(self.body).read_all().to_pylist()
        return pa.ipc.open_stream(self.body).read_all().to_pylist()


class Rest:
    """One connection; what it is asked is sent as it stands."""

    def __init__(self, service: RestServer, **headers: str) -> None:
        self.service, self.headers = service, headers
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        if isinstance(body, pa.Table):
            body = stream_of(body)
        if isinstance(body, dict | list):
            body = json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            self._connection.request(method, path, body, {**self.headers, **named})
            response = self._connection.getresponse()
            answer = response.read()
        except BaseException:
            self._connection.close()
            raise
        lowered = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, lowered, answer)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def close(self) -> None:
        self._connection.close()


def stream_of(rows: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, **options) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


@contextmanager
def rest_of(path: Path, **options: object) -> Iterator[tuple[st.Store, RestServer, Rest]]:
    """Yield a store, its server, and a client of it."""
    with opened(path) as db, rest_to(db, **options) as (service, client):
        yield db, service, client


@contextmanager
def rest_to(db: st.Store, **options: object) -> Iterator[tuple[RestServer, Rest]]:
    """Yield the server of an open store, and a client of it."""
    service = db.serve(**{"port": 0, **options})
    client = Rest(service)
    try:
        yield service, client
    finally:
        client.close()
