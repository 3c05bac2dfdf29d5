"""Lake: SeaweedFS on loopback, and the same server behind proxies that add time.

The server is started for a measurement and ended with it, with telemetry off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from siltstone.bucket_url import BucketUrl
from siltstone.storage.objects.objects import Objects
from siltstone.storage.objects.obstore_server import ObstoreServer
from tests.support.bucket_servers import RunningServer, free_ports, seaweed

ADDED_MS = (0, 30, 100)


@dataclass(frozen=True)
class Door:
    """The bucket at one address; its requests take `added_ms` more."""

    added_ms: int
    endpoint: str
    server: RunningServer
    proxy: subprocess.Popen[str] | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings of obstore, and of siltstone."""
        return self.server.settings() | {"endpoint": self.endpoint}

    @property
    def environment(self) -> dict[str, str]:
        """The settings of clients that read the environment, or take its names."""
        found = self.server.environment | {"AWS_ENDPOINT_URL": self.endpoint}
        return found | {"AWS_ENDPOINT": self.endpoint, "AWS_ALLOW_HTTP": "true"}

    @contextmanager
    def entered(self) -> Generator[None]:
        """Have the environment in this process within the block."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name, text in before.items():
                if text is None:
                    del os.environ[name]
                else:
                    os.environ[name] = text

    def url(self) -> str:
        """Return a URL where nothing is yet."""
        return f"{self.server.url}/{uuid.uuid4().hex}"

    def objects(self, url: str) -> Objects:
        return Objects(ObstoreServer(BucketUrl.of(url), self.settings), "bench")

    def requests(self) -> int:
        """Return how many requests came through its proxy."""
        assert self.proxy is not None
        asks, answers = cast("IO[str]", self.proxy.stdin), cast("IO[str]", self.proxy.stdout)
        asks.write("\n")
        asks.flush()
        return int(answers.readline())


@dataclass(frozen=True)
class Lake:
    """A running server: without a proxy, and by the milliseconds that are added."""

    direct: Door
    doors: dict[int, Door]


@contextmanager
def lake(folder: Path) -> Generator[Lake]:
    """Run the server until the block ends; it skips or fails as in a test."""
    folder.mkdir(parents=True)
    with seaweed(folder) as server, ExitStack() as proxies:
        target = int(server.endpoint.rpartition(":")[2])
        doors: dict[int, Door] = {}
        for added_ms in ADDED_MS:
            (port,) = free_ports(1)
            proxy = proxies.enter_context(proxied(port, target, added_ms))
            doors[added_ms] = Door(added_ms, f"http://127.0.0.1:{port}", server, proxy)
        yield Lake(Door(0, server.endpoint, server), doors)


@contextmanager
def proxied(port: int, target: int, added_ms: int) -> Generator[subprocess.Popen[str]]:
    """Run a proxy at a port of this machine, to another one, until the block ends."""
    words = ["bench.reach.delay", str(port), str(target), str(added_ms / 1e3)]
    command = [sys.executable, "-m", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as proxy:
        try:
            assert cast("IO[str]", proxy.stdout).readline() == "ready\n"
            yield proxy
        finally:
            proxy.kill()
