"""What docs/deploy.md shows is tried: units, the lines of the container, the drill, the upgrade."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.server.rest.tokens import new_token, tokens_of
from tests.cli.test_systemd import serving, url_of
from tests.nightly import by_day
from tests.server.stores import opened
from tests.test_documents import FENCED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
COMMAND = f"{sys.executable} -m siltstone"


def files_of_the_page() -> dict[str, str]:
    """Return what the page shows of files, by their names in its first lines."""
    blocks = (fenced[2] for fenced in FENCED.finditer(PAGE))
    named = ((re.match(r"# (\S+)\n", block), block) for block in blocks)
    return {found[1]: block for found, block in named if found is not None}


FILES = files_of_the_page()
UNITS = [name for name in FILES if name.endswith((".service", ".timer"))]


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    """Return `siltstone` as a program of one path."""
    made = tmp_path / "bin" / "siltstone"
    made.parent.mkdir()
    made.write_text(f'#!/bin/sh\nexec {COMMAND} "$@"\n')
    made.chmod(0o755)
    return made


def test_the_page_has_its_files() -> None:
    names = ["siltstone", "siltstone-backup", "siltstone-maintain"]
    services = {f"/etc/systemd/system/{name}.service" for name in names}
    timers = {f"/etc/systemd/system/{name}.timer" for name in names[1:]}
    others = {"Containerfile", "/etc/nginx/nginx.conf", "upgrade.sh"}
    assert set(FILES) == services | timers | others


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_in_the_units(tmp_path: Path, wrapper: Path) -> None:
    for name in UNITS:
        text = FILES[name].replace("/opt/siltstone/bin/siltstone", str(wrapper))
        (tmp_path / Path(name).name).write_text(text)
    for name in UNITS:
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", tmp_path / Path(name).name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        ours = [line for line in found.stderr.splitlines() if "siltstone" in line]
        assert (found.returncode, ours) == (0, []), found.stderr


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_the_command_of_a_unit_has_no_option_that_is_not_there(
    name: str, tmp_path: Path, wrapper: Path
) -> None:
    line = re.search(r"^ExecStart=\S+ (.*)$", FILES[name], re.MULTILINE)
    assert line is not None
    found = subprocess.run(
        [wrapper, *shlex.split(line[1])], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert found.returncode != 2, found.stderr  # wrong usage
    assert "there is no store" in found.stderr


def test_the_lines_of_the_container_run_and_its_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is installed without those that it needs, which the tests have already."""
    lines = FILES["Containerfile"].splitlines()
    dist, opt, data, token = (tmp_path / n for n in ("dist", "opt", "data", "tokens"))
    _build(dist)
    moved = {"/dist/": f"{dist}/", "/opt/siltstone": str(opt), "/data": str(data)}
    moved |= {"10001": str(os.getuid()), "/run/secrets/tokens": str(token)}
    moved |= {"python -m": f"{sys.executable} -m"}

    def here(text: str) -> str:
        for name, place in moved.items():
            text = text.replace(name, place)
        return text

    monkeypatch.setenv("PIP_NO_DEPS", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for run in [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]:
        subprocess.run(["sh", "-ec", here(run)], check=True, capture_output=True)
    site = next(opt.glob("lib/python*/site-packages"))
    (site / "tests.pth").write_text("\n".join(p for p in sys.path if "site-packages" in p))
    secret = new_token()
    token.write_text(f"me read {secret}\n")
    token.chmod(0o600)
    settings = next(line for line in lines if line.startswith("ENV ")).removeprefix("ENV ")
    environ = dict(each.split("=", 1) for each in shlex.split(here(settings)))
    command = next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD ")
    shell, flag, line = json.loads(command)
    with subprocess.Popen(
        [shell, flag, f"{here(line)} --port 0"],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            url = url_of(child).replace("0.0.0.0", "127.0.0.1")
            assert httpx.get(f"{url}/readyz").status_code == 200
            child.send_signal(signal.SIGTERM)
            _, said = child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == 0, said
    assert len([line for line in lines if line and line[0] != "#"]) == 10


def _build(dist: Path) -> None:
    """Make the package, as `uv build --wheel` does, of the modules alone."""
    name = "siltstone-0.1.0"
    dist.mkdir()
    info = {
        "METADATA": "Metadata-Version: 2.1\nName: siltstone\nVersion: 0.1.0\n"
        "Provides-Extra: server\nProvides-Extra: sql\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\nsiltstone = siltstone.cli:main\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(dist / f"{name}-py3-none-any.whl", "w") as wheel:
        for path in sorted((ROOT / "src" / "siltstone").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                wheel.write(path, path.relative_to(ROOT / "src"))
        for file, text in info.items():
            wheel.writestr(f"{name}.dist-info/{file}", text)


def _shop(path: Path) -> None:
    with st.connect(path, background=False) as db:
        db.create_table("orders", {"id": "int64", "item": "string"}, "id")
        db["orders"].insert([{"id": n, "item": "lamp"} for n in range(3)])


def test_the_restore_drill_prints_what_the_page_says(tmp_path: Path, wrapper: Path) -> None:
    drill = next(f[2] for f in FENCED.finditer(PAGE) if f[1] == "console")
    moved = drill.replace("/var/lib/siltstone", str(tmp_path / "lib"))
    moved = moved.replace("/var/backups/siltstone", str(tmp_path / "backups"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "backups").mkdir()
    _shop(tmp_path / "lib" / "shop")
    environ = {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    for part in moved.split("$ ")[1:]:
        command, _, expected = part.partition("\n")
        found = subprocess.run(
            ["sh", "-ec", f"{command} 2>&1"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        told = ".*".join(re.escape(piece) for piece in expected.split("..."))
        lines = sorted(found.stdout.splitlines()), sorted(expected.splitlines())
        assert len(lines[0]) == len(lines[1]), found.stdout
        assert re.fullmatch(told, found.stdout) or "verify" in command, found.stdout
        if "verify" in command:  # what is said on stderr may come before or after
            assert any(line.startswith("sound (deep): ") for line in lines[0])
    assert not (tmp_path / "lib" / "drill").exists()


def test_the_script_of_the_upgrade_copies_all_tables_and_back(
    tmp_path: Path, wrapper: Path
) -> None:
    script = tmp_path / "upgrade.sh"
    script.write_text(FILES["upgrade.sh"])
    _shop(tmp_path / "old")
    with st.connect(tmp_path / "old", background=False) as db:
        db.create_table("lines", {"o": "int64", "n": "int32", "v": "float64"}, ["o", "n"])
        db["lines"].insert([{"o": 1, "n": n, "v": None} for n in range(4)])
        db.create_table("events", {"at": pa.timestamp("us", "UTC")})
        before = {name: db[name].to_arrow() for name in db.tables()}
        keys = {name: db[name].primary_key for name in db.tables()}
    ways = [("old", "new", "there"), ("new", "back", "again")][: by_day(1, 2)]
    for a, b, files in ways:
        places = [tmp_path / each for each in (a, b, files)]
        subprocess.run(["sh", script, wrapper, wrapper, *places], check=True, capture_output=True)
    for name in [way[1] for way in ways]:
        with st.connect(tmp_path / name, read_only=True) as db:
            assert {table: db[table].primary_key for table in db.tables()} == keys
            for table, rows in before.items():
                assert sorted(db[table].to_arrow().to_pylist(), key=str) == sorted(
                    rows.to_pylist(), key=str
                )
                assert db[table].schema == rows.schema


def test_the_alerts_name_metrics_that_there_are(tmp_path: Path) -> None:
    told = set(re.findall(r"`(siltstone_\w+)`", PAGE))
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64"}, "id")
        service = db.serve(port=0)
        for _ in range(2):  # the first request is counted when it is over
            shown = httpx.get(f"{service.url}/metrics").text
    assert len(told) >= 7
    assert [name for name in told if not re.search(rf"^{name}\b", shown, re.MULTILINE)] == []


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx here")
def test_a_client_works_through_nginx_with_tls(tmp_path: Path) -> None:
    key, certificate = _certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    secret = new_token()
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64"}, "id")
        service: Any = db.serve(port=0, tokens=tokens_of(f"me write {secret}", "test"))
        text = FILES["/etc/nginx/nginx.conf"].replace("127.0.0.1:2333", f"127.0.0.1:{service.port}")
        text = text.replace("/etc/siltstone/cert.pem", str(certificate)).replace("2443", str(port))
        text = text.replace("/etc/siltstone/key.pem", str(key))
        (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\n{text}")
        # Its modules are named from the prefix on, so that stays the system's.
        log = f"daemon off; error_log {tmp_path}/log;"
        command = ["nginx", "-c", str(tmp_path / "nginx.conf"), "-g", log]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        (tmp_path / "pid").unlink(missing_ok=True)  # the trial made one
        with subprocess.Popen(command) as proxy:
            try:
                while not (tmp_path / "pid").exists():
                    assert proxy.poll() is None
                _works(f"https://localhost:{port}", secret, certificate)
            finally:
                proxy.terminate()


def _certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return key, certificate


def _works(url: str, secret: str, certificate: Path) -> None:
    with st.connect(url, token=secret, cafile=str(certificate)) as joined:
        with joined.transaction() as tx:
            tx["t"].insert({"id": 1})
            assert tx["t"].get(1) == {"id": 1}
        assert joined["t"].count() == 1


def test_a_service_that_is_stopped_beside_a_hundred_requests_loses_no_acknowledged_one(
    tmp_path: Path,
) -> None:
    store = tmp_path / "shop"
    acknowledged: list[int] = []

    async def main(url: str, stop: Any) -> None:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:

            async def insert(number: int) -> None:
                op = {"table": "orders", "op": "insert", "rows": [{"id": number, "item": "lamp"}]}
                try:
                    answer = await client.post("/v1/transaction/apply", json={"ops": [op]})
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    acknowledged.append(number)
                    if len(acknowledged) == 10:
                        stop()

            await asyncio.gather(*(insert(number) for number in range(100, 200)))

    with serving(store) as child:
        url = url_of(child)
        with st.connect(url) as db:
            db.create_table("orders", {"id": "int64", "item": "string"}, "id")
        asyncio.run(main(url, lambda: child.send_signal(signal.SIGTERM)))
        _, said = child.communicate(timeout=120)
        assert child.returncode == 0, said
    assert "Traceback" not in said
    with st.connect(store, read_only=True) as db:
        rows = set(db["orders"].to_arrow()["id"].to_pylist())
    assert set(acknowledged) <= rows
    assert len(acknowledged) >= 10
