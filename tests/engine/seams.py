"""Seams: a store whose log can be held up, and whose tables do something else first."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from siltstone.local.store import LocalStore
from siltstone.open.environment import Env
from siltstone.options import Options
from siltstone.storage.files.files import Buffer, File, RealFiles
from siltstone.storage.manifest.manifest_store import system_time_us
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.store_tables import Tables
from tests.support.fake_lance import fake_lance

WAIT_S = 30


class GatedFiles:
    """Real files. While `hold` is on, a sync of a log segment waits at the gate."""

    def __init__(self) -> None:
        self._real = RealFiles()
        self._open = threading.Event()
        self._open.set()
        self.arrived = threading.Semaphore(0)
        self.failure: OSError | None = None
        self.no_space = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def below(self, root: Path) -> GatedFiles:
        return self  # by paths

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait(self) -> None:
        """Wait until somebody stands at the gate."""
        assert self.arrived.acquire(timeout=WAIT_S), "nobody came to the gate"

    def pass_gate(self) -> None:
        failure = self.failure  # who stands at the gate already is not meant
        if not self._open.is_set():
            self.arrived.release()
            assert self._open.wait(WAIT_S), "nobody opened the gate"
        if failure is not None:
            raise failure

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        file = self._real.open(path, create=create, new=new, write=write)
        return _GatedFile(file, self) if path.suffix == ".wal" and write else file

    def preallocate(self, path: Path, size: int) -> None:
        if self.no_space:
            raise OSError(28, "No space left on device", str(path))
        self._real.preallocate(path, size)


class _GatedFile:
    def __init__(self, file: File, gate: GatedFiles) -> None:
        self._file, self._gate = file, gate

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._gate.pass_gate()
        self._file.sync()

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        self._file.pwritev(buffers, offset)
        self.sync()
        return True


class HookedTables:
    """Tables that call `hooks[name]` before the method `name` of a part does its work."""

    def __init__(self, tables: Tables) -> None:
        self.hooks: dict[str, Callable[..., object]] = {}
        for field in fields(Tables):
            setattr(self, field.name, _HookedPart(getattr(tables, field.name), self.hooks))


class _HookedPart:
    def __init__(self, part: object, hooks: dict[str, Callable[..., object]]) -> None:
        self._part, self.hooks = part, hooks

    def __getattr__(self, name: str) -> object:
        method = getattr(self._part, name)

        def call(*args: object, **options: object) -> object:
            hook = self.hooks.get(name)
            if hook is not None:
                hook(*args)
            return method(*args, **options)

        return call


def fake_env(
    files: object | None = None,
    hooked: list[HookedTables] | None = None,
    now_us: Callable[[], int] = system_time_us,
) -> Env:
    """Return an environment with fake tables; `hooked` gets the tables of each open."""

    def tables(root: Path, opened: object, verify: str) -> HookedTables:
        made = HookedTables(fake_lance(root, opened))
        if hooked is not None:
            hooked.append(made)
        return made

    return Env(files=files or RealFiles(), tables=tables, now_us=now_us, warm_up=lambda: None)


def open_store(root: Path, env: Env, **options: object) -> LocalStore:
    """Open with small segments and without a background, unless `options` say otherwise."""
    merged = {"segment_bytes": 65_536, "background": False, **options}
    return LocalStore.open(root, Options(**merged), env=env)


def until(claim: Callable[[], object]) -> None:
    """Wait until `claim` holds, which another thread is about to make true."""
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while time.monotonic() < deadline:  # a claim may be slow: it may read a store
        if claim():
            return
        pause.wait(0.001)
    raise AssertionError("it never came true")


class Threads:
    """Threads whose first error is raised at `join`; a thread that hangs is an error."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, work: Callable[..., object], *args: object) -> None:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - raised again at join
                self.errors.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, steps: Callable[[], int] = lambda: 0) -> None:
        """Wait for all. One hangs if no step is done for `WAIT_S`; `steps` counts those done."""
        for thread in self._threads:
            before = -1
            while thread.is_alive():
                done = steps()
                if done <= before:
                    faulthandler.dump_traceback(sys.__stderr__)
                    raise AssertionError("a thread hangs")
                before = done
                thread.join(WAIT_S)
        if self.errors:
            raise self.errors[0]


def jobs_of(root: Path) -> Jobs:
    """Return the job records of a store as another process sees them."""
    env = fake_env()
    return Jobs(env.files, root, env.now_us, env.new_token)
