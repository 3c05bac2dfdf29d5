"""`tune_malloc` bounds what malloc keeps of freed memory, for the process and for its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.process import malloc

pytestmark = pytest.mark.skipif(malloc._library() is None, reason="no glibc: nothing is bounded")

MIB = 1 << 20
_STORE = """
import json, sys
import siltstone as st
db = st.connect(sys.argv[1], background=False, **json.loads(sys.argv[2]))
"""
_COMMAND_LINE = """
import contextlib, runpy
with contextlib.suppress(SystemExit):
    runpy.run_module("siltstone", run_name="__main__", alter_sys=True)
"""
_SERVER = """
import runpy, signal, sys

def measure(*_):
    exec(measured, {})
    signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGUSR1, measure)
measured = sys.argv.pop()
runpy.run_module("siltstone", run_name="__main__", alter_sys=True)
"""
_MEASURED = """
import ctypes, json

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype = Info, ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(24 << 20))  # glibc takes it for the size of what comes and goes
before = libc.mallinfo2().hblkhd
block = libc.malloc(8 << 20)
print(json.dumps(libc.mallinfo2().hblkhd - before))
"""


def mapped_of_8_mib(root: Path, options: dict[str, object], **environment: str) -> int:
    """Return how many bytes of a block of 8 MiB go back as soon as it is freed."""
    return mapped_after(_STORE, str(root), json.dumps(options), **environment)


def mapped_after(work: str, *arguments: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", work + _MEASURED, *arguments],
        env=os.environ | environment,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return int(json.loads(done.stdout.splitlines()[-1]))


def test_a_process_keeps_freed_memory_unless_its_host_asks_for_less(tmp_path: Path) -> None:
    assert mapped_of_8_mib(tmp_path / "s", {}) == 0
    assert mapped_of_8_mib(tmp_path / "s", {"tune_malloc": True}) > 8 * MIB
    assert mapped_of_8_mib(tmp_path / "s", {}, SILTSTONE_TUNE_MALLOC="true") > 8 * MIB


def test_arrow_takes_its_buffers_from_malloc_if_that_is_bound(tmp_path: Path) -> None:
    asked = "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    for options, is_malloc in (({}, False), ({"tune_malloc": True}, True)):
        command = [sys.executable, "-c", _STORE + asked, tmp_path / "s", json.dumps(options)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert (found.stdout.strip() == "system") is is_malloc


def test_the_command_line_gives_freed_memory_back_unless_it_is_told_not_to(tmp_path: Path) -> None:
    for name, environment, is_given_back in (
        ("a", {}, True),
        ("b", {"SILTSTONE_TUNE_MALLOC": "false"}, False),
    ):
        given = ("init", "--db", str(tmp_path / name))
        found = mapped_after(_COMMAND_LINE, *given, **environment)
        assert (found > 8 * MIB) is is_given_back
        assert (tmp_path / name).is_dir()


def test_a_server_gives_freed_memory_back_while_it_serves(tmp_path: Path) -> None:
    for name, environment, is_given_back in (
        ("a", {}, True),
        ("b", {"SILTSTONE_TUNE_MALLOC": "false"}, False),
    ):
        command = [sys.executable, "-c", _SERVER, "serve", "--port", "0", "--db", tmp_path / name]
        st.connect(tmp_path / name, background=False).close()
        with subprocess.Popen(
            [*command, _MEASURED], env=os.environ | environment, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("http")
            server.send_signal(signal.SIGUSR1)
            found = int(server.stdout.readline())
            assert server.wait(60) == 0
        assert (found > 8 * MIB) is is_given_back


def test_a_reader_may_ask_for_it_too(tmp_path: Path) -> None:
    st.connect(tmp_path / "s", background=False).close()
    assert mapped_of_8_mib(tmp_path / "s", {"read_only": True, "tune_malloc": True}) > 8 * MIB


def test_freed_memory_is_given_back_after_each_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims = list[None]()
    monkeypatch.setattr(malloc, "trim", lambda: trims.append(None))
    with st.connect(tmp_path / "s", background=False, tune_malloc=True) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        for key in range(3):
            table.upsert({"id": key})
            db.checkpoint()
    assert len(trims) >= 3
    del trims[:]
    with st.connect(tmp_path / "s", background=False) as db:
        db["t"].upsert({"id": 9})
        db.checkpoint()
    assert not trims


def test_what_the_option_takes_is_a_boolean(tmp_path: Path) -> None:
    with pytest.raises(st.RequestError, match="tune_malloc"):
        st.connect(tmp_path / "s", tune_malloc="often")  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()
