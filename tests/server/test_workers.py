"""All workers of a web server write to one store: the first one owns it, the others join."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path

import siltstone as st

APP = """
import os
import siltstone as st

stores = []

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    seq = stores[0]["orders"].insert({"worker": os.getpid(), "n": int(scope["path"][1:])}).seq
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": str(seq).encode()})

async def lifespan(receive, send):
    await receive()
    with st.connect(os.environ["SHOP"], join=True) as db:
        stores.append(db)
        for n in range(20):
            db["orders"].insert({"worker": os.getpid(), "n": n})
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
"""
SERVE = ("--workers", "2", "--port", "0", "--no-access-log", "--timeout-worker-healthcheck", "120")


def test_two_workers_of_uvicorn_write_to_one_store(tmp_path: Path) -> None:
    (tmp_path / "shop_app.py").write_text(APP)
    with st.connect(tmp_path / "shop") as db:
        schema = {"worker": "int64", "n": "int64"}
        db.create_table("orders", schema, primary_key=("worker", "n"))
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "--app-dir", str(tmp_path), "shop_app:app", *SERVE],
        env={**os.environ, "SHOP": str(tmp_path / "shop")},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            port = _port_when_all_began(server)
            seqs = [_post(port, n) for n in range(100, 120)]
        finally:
            server.terminate()
            server.communicate()
    with st.connect(tmp_path / "shop") as db:
        rows = db["orders"].scan().read_all().to_pylist()
    began = {row["worker"] for row in rows if row["n"] < 100}
    assert len(began) == 2
    for worker in began:
        numbers = sorted(row["n"] for row in rows if row["worker"] == worker)
        assert numbers[:20] == list(range(20))
    assert sorted(row["n"] for row in rows if row["n"] >= 100) == list(range(100, 120))
    assert seqs == sorted(set(seqs))


def _port_when_all_began(server: subprocess.Popen[str]) -> int:
    """Return the port that uvicorn tells, once both workers have begun."""
    assert server.stderr is not None
    told = ""
    while told.count("Application startup complete") < 2:
        line = server.stderr.readline()
        told += line
        assert line, told
        assert "startup failed" not in line, told
    found = re.search(r"running on http://127\.0\.0\.1:(\d+)", told)
    assert found is not None, told
    return int(found[1])


def _post(port: int, n: int) -> int:
    """Let a worker write a row; return its seq."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", f"/{n}")
    answer = client.getresponse()
    assert answer.status == 201
    seq = int(answer.read())
    client.close()
    return seq
