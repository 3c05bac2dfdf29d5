"""Causes: what runs out or goes wrong; `hurt` begins a cycle of it, `heal` takes the cause away.

disk-error    the file system refuses a step of ours (EIO, ENOSPC, EMFILE), once or from then on
disk-full     a real file system of 16 MiB is full (skipped where nothing may be mounted)
file-size     a real limit of the process on the size of files (RLIMIT_FSIZE): Lance's, too
descriptors   a real limit on open files (RLIMIT_NOFILE)
memory        a real limit on the address space (RLIMIT_AS). Native code may end the process of it
              (Rust aborts, msgspec's encoder does not look): another one takes its store up
threads       real threads do not start: their stacks would fit no address space
clock         the clock jumps by years, back and forth
slow-disk     each sync takes half a second
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from proof.exhaustion.faulty_files import Faults, FaultyFiles
from siltstone.open.environment import Env
from siltstone.storage.manifest.manifest_store import system_time_us

DISK_BYTES = 16 << 20
SLOW_SYNC_S = 0.5


@dataclass(slots=True)
class Cause:
    """What `Ledger` needs of a cause: where, in which surroundings, and how it comes and goes."""

    hurt: Callable[[], object]
    heal: Callable[[], object]
    env: Env = field(default_factory=Env)
    options: dict[str, object] = field(default_factory=dict)
    excused: tuple[type[Exception], ...] = ()
    bytes_max: int = 2_000
    is_mortal: bool = False


def disk_error(_folder: Path, rng: random.Random) -> Cause:
    faults = Faults()

    def hurt() -> None:
        code = rng.choice([errno.EIO, errno.ENOSPC, errno.EMFILE])
        faults.order(rng.choice([1, 2, 3, 5, 8, 13, 30, 60]), code, is_sticky=rng.random() < 0.5)

    return Cause(hurt, faults.clear, Env(files=FaultyFiles(faults)))


def disk_full(folder: Path, rng: random.Random) -> Cause:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    subprocess.run(command, check=True)
    ballast = folder / "ballast"

    def hurt() -> None:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        left = rng.choice([0, 4096, 20_000, 70_000, 150_000])
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(4096, free - left))

    return Cause(hurt, ballast.unlink)


def _limited(kind: int, value: Callable[[], int]) -> tuple[Callable[[], None], Callable[[], None]]:
    before = resource.getrlimit(kind)
    return (
        lambda: resource.setrlimit(kind, (value(), before[1])),
        lambda: resource.setrlimit(kind, before),
    )


def file_size(_folder: Path, rng: random.Random) -> Cause:
    return Cause(*_limited(resource.RLIMIT_FSIZE, lambda: rng.choice([0, 100, 1000, 4096, 60_000])))


def descriptors(_folder: Path, rng: random.Random) -> Cause:
    def value() -> int:
        used = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        free = itertools.count()
        wanted = rng.randint(0, 12)
        return next(itertools.islice((n for n in free if n not in used), wanted, None))

    return Cause(*_limited(resource.RLIMIT_NOFILE, value))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def memory(_folder: Path, rng: random.Random) -> Cause:
    """Of Python's own, `MemoryError` says enough, and so must `SystemError`.

    An extension (pyarrow was seen) that finds no memory may return without having said so.
    """

    def value() -> int:
        return _address_space() + rng.choice([0, 1, 4, 16, 64]) * (1 << 20)

    limits = _limited(resource.RLIMIT_AS, value)
    return Cause(*limits, excused=(MemoryError, SystemError), bytes_max=2 << 20, is_mortal=True)


def threads(_folder: Path, _rng: random.Random) -> Cause:
    """No address space has room for such a stack; threads of Rust are not asked."""
    return Cause(
        lambda: threading.stack_size(1 << 46),
        lambda: threading.stack_size(0),
        options={"background": True},
    )


def clock(_folder: Path, rng: random.Random) -> Cause:
    shift = [0]

    def hurt() -> None:
        shift[0] = rng.choice([-1, 1]) * rng.choice([1, 10**6, 10**9, 10**12, 10**14])

    def heal() -> None:
        shift[0] = 0

    return Cause(hurt, heal, Env(now_us=lambda: system_time_us() + shift[0]))


def slow_disk(_folder: Path, _rng: random.Random) -> Cause:
    faults = Faults()

    def hurt() -> None:
        faults.sync_s = SLOW_SYNC_S

    def heal() -> None:
        faults.sync_s = 0.0

    return Cause(hurt, heal, Env(files=FaultyFiles(faults)))


CAUSES: dict[str, Callable[[Path, random.Random], Cause]] = {
    "disk-error": disk_error,
    "disk-full": disk_full,
    "file-size": file_size,
    "descriptors": descriptors,
    "memory": memory,
    "threads": threads,
    "clock": clock,
    "slow-disk": slow_disk,
}
MORTAL = {"memory"}
"""Causes that native code may die of."""
