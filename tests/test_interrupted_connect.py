"""Ctrl-C at any line of `connect`: the path can be opened again at once, by this process or others.

Python runs a signal's handler between any two steps of the main thread. So each line of the files
by which a store is opened is visited, and the standard library's by which threads wait.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.open import shared
from tests.crash.moments import IS_LONG, chance
from tests.engine.seams import Threads
from tests.nightly import by_day
from tests.support.handles import is_owned
from tests.support.traced import signalled
from tests.unchanged import SMALL, connect

WHERE = (
    "siltstone/store.py",
    "siltstone/local/store.py",
    "siltstone/open/shared.py",
    "siltstone/open/owner.py",
    "siltstone/open/environment.py",
    "siltstone/open/parts.py",
    "siltstone/open/closing.py",
    "storage/manifest/ownership.py",
    "storage/wal/reserve.py",
    threading.__file__,
)
LINES_MIN = 40
SCHEMA = {"id": "int64"}


def lines() -> Iterator[int]:
    """Yield the lines that are visited, without an end."""
    stride = 1 if IS_LONG else by_day(8, 2)
    return itertools.count(chance(os.environ["PYTEST_CURRENT_TEST"]).randint(1, stride), stride)


def at_each_line(open_it: Callable[[], object], check: Callable[[str], None]) -> None:
    """Call `open_it`, interrupted at another line each time; a handle that it returns is closed.

    By day at every eighth line: which ones, the commit says.
    """
    for nth in lines():
        with signalled(nth, where=WHERE) as line:
            try:
                handle = open_it()
            except KeyboardInterrupt:
                handle = None
        if not line.has_acted:
            handle.close()  # type: ignore[union-attr]
            break
        assert handle is None, line.at
        check(line.at)
    assert nth > LINES_MIN


def elsewhere(work: Callable[[], object]) -> None:
    """Do it in another thread, which waits for what this one may have left locked."""
    threads = Threads()
    threads.start(work)
    threads.join()


def use(path: Path, **options: object) -> None:
    with connect(path, **options) as db:
        assert db["t"].count() == 1


def descriptors(path: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return [name for name in found if name.startswith(f"{path}/")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with connect(tmp_path / "s") as db:
        db.create_table("t", SCHEMA, "id").upsert({"id": 1})
    return tmp_path / "s"


@pytest.mark.parametrize("options", [{}, {"join": True}], ids=["owner", "join"])
def test_ctrl_c_at_any_line_of_an_opening_leaves_the_path_to_all(
    store: Path, options: dict[str, object]
) -> None:
    def check(at: str) -> None:
        assert not is_owned(store), at
        assert not descriptors(store), at
        assert store not in shared._registry.stores, at
        elsewhere(functools.partial(use, store, memory_bytes_max=1 << 26))

    at_each_line(lambda: connect(store, **options), check)


def test_ctrl_c_at_any_line_of_a_second_opening_leaves_the_first_handle_alone(store: Path) -> None:
    db = connect(store)

    def check(at: str) -> None:
        assert len(shared._registry.stores[store].handles) == 1, at
        elsewhere(functools.partial(use, store))
        assert db["t"].count() == 1, at

    at_each_line(lambda: connect(store), check)
    db.close()
    assert not is_owned(store)


def test_ctrl_c_at_any_line_of_a_readers_opening_keeps_no_lease(store: Path) -> None:
    def check(at: str) -> None:
        assert not descriptors(store), at

    at_each_line(lambda: st.connect(store, read_only=True), check)


def test_ctrl_c_at_any_line_leaves_no_directory_of_a_store_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def check(at: str) -> None:
        assert not list(tmp_path.iterdir()), at

    at_each_line(lambda: st.connect(":memory:", **SMALL), check)


def test_ctrl_c_at_any_line_of_a_wait_for_another_thread_keeps_no_lock(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "WAIT_S", 0)
    with connect(store) as db:
        held = shared._registry.stores[store]
        for nth in lines():
            held.phase, held.worker = shared.StorePhase.CLOSING, 0  # as if another thread closed it
            with (
                signalled(nth, where=WHERE) as line,
                pytest.raises((KeyboardInterrupt, st.OwnedError)),
            ):
                connect(store)
            held.phase = shared.StorePhase.OPEN
            elsewhere(functools.partial(use, store))
            assert (len(held.handles), db["t"].count()) == (1, 1), line.at
            if not line.has_acted:
                break
    assert nth > LINES_MIN
