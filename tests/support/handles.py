"""Handles: stores whose handles close or are dropped, and who owns them then."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.open.closing import closer
from tests.unchanged import connect

SCHEMA = {"id": "int64", "v": "string"}


def is_owned(path: Path) -> bool:
    """Say whether some process has the lock; a descriptor of our own asks as another would."""
    fd = os.open(path / "LOCK", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def settled() -> None:
    """Wait until the closer did what finalizers asked of it, and what that asked of it."""
    for _ in range(3):
        assert closer.run(lambda: None, 60)


@contextlib.contextmanager
def dropped(path: Path) -> Generator[None]:
    """Expect the warning of a store whose last handle is dropped in the block."""
    with pytest.warns(ResourceWarning, match=rf"{path}.* without close\(\)"):  # noqa: PT031
        yield
        settled()


def filled(path: Path) -> st.Store:
    db = connect(path)
    db.create_table("t", SCHEMA, "id").upsert([{"id": i, "v": "x"} for i in range(5)])
    return db


def in_a_child(path: Path) -> str:
    """Connect in another process; return "opened" or the error."""
    script = (
        "import sys, siltstone as st\n"
        "try:\n"
        "    with st.connect(sys.argv[1], segment_bytes=65536, background=False): print('opened')\n"
        "except st.SiltstoneError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout
