"""Machines: processes with a host name, a root and a place for sockets of their own; one kernel.

Each has a mount namespace, in which the shared directory is at a path of its own, as machines mount
a file system of the network. What one kernel cannot show: locks that do not work (`is_remote`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_ENTER = 'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
_REMOTE = """
from siltstone.storage.files.files import RealFiles
RealFiles.filesystem = lambda *_: "nfs4"
"""


@cache
def lacking() -> str | None:
    """Return what this machine lacks to be several ones; None: nothing."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "unshare (util-linux)"
    tried = subprocess.run(_unshare("sh", "-c", "hostname x"), capture_output=True, check=False)
    if tried.returncode:
        return f"namespaces of its own: {tried.stderr.decode().strip()}"
    return None if address() else "an address beside the loopback ones"


def address() -> str:
    """Return an address of this machine that is no loopback one; "" if it has none."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found += [each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)]  # type: ignore[misc]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("203.0.113.1", 9))  # nothing is sent
        found.append(asked.getsockname()[0])
    return next((each for each in found if ":" not in each and not each.startswith("127.")), "")


def _unshare(*command: str) -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *as_root, "--mount", "--uts", "--", *command]


@dataclass(frozen=True)
class Machine:
    """One machine; `root` is where it has the shared directory."""

    name: str
    shared: Path
    root: Path

    @classmethod
    def of(cls, name: str, shared: Path, at: str = "") -> Machine:
        """Return a machine that has `shared` in a directory beside it; skip where there is none.

        `at` is that directory's name; by default no other machine has the same.
        """
        if (lack := lacking()) is not None:
            pytest.skip(f"this machine lacks {lack}")
        root = shared.parent / (at or f"at-{name}")
        for path in (root, shared.parent / f"sockets-{name}"):
            path.mkdir(mode=0o700, exist_ok=True)
        return cls(name, shared, root)

    def command(self, *command: str) -> list[str]:
        """Return what runs a command on it."""
        entered = ["sh", "-c", _ENTER, "sh", self.name, str(self.shared), str(self.root), *command]
        return _unshare(*entered)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of its processes."""
        sockets = str(self.shared.parent / f"sockets-{self.name}")
        return {**os.environ, "XDG_RUNTIME_DIR": sockets, "TMPDIR": sockets, **more}

    def python(self, code: str, *, is_remote: bool = False, **more: str) -> list[str]:
        """Run Python there and return the lines that it prints; what it raises is a line, too."""
        body = "\n".join(f"    {line}" for line in code.strip().splitlines())
        program = (
            f"{_REMOTE if is_remote else ''}import siltstone as st\nroot = {str(self.root)!r}\n"
            f"try:\n{body}\nexcept st.SiltstoneError as error:\n"
            "    print(type(error).__name__, error)\n"
        )
        done = subprocess.run(
            self.command(sys.executable, "-c", program),
            env=self.environment(**more),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    @contextmanager
    def running(self, *command: str, **more: str) -> Generator[subprocess.Popen[str]]:
        """Run a command there as long as the block lasts."""
        process = subprocess.Popen(
            self.command(*command),
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
