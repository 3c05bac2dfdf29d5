"""Work that tells what becomes of a freed block in its process; executors import it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from siltstone.errors import UnavailableError
from siltstone.spark.reads.nearest import NearestRows
from siltstone.spark.reads.task_rows import rows_of
from siltstone.spark.writes.staging import FramePiece

MIB = 1 << 20
NUMBER = StructType().add("mapped", "long")


class _Info(ctypes.Structure):
    """What mallinfo2(3) returns: ten numbers, the fifth of them `hblkhd`."""

    _fields_ = [(f"f{n}", ctypes.c_size_t) for n in range(10)]

    @property
    def mapped_bytes(self) -> int:
        return self.f4


def mapped_of_8_mib() -> int:
    """Return how many bytes of a block of 8 MiB go back as soon as it is freed."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype, libc.malloc.restype = _Info, ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free(libc.malloc(24 * MIB))  # glibc takes it for the size of what comes and goes
    before = libc.mallinfo2().mapped_bytes
    block = libc.malloc(8 * MIB)
    found = libc.mallinfo2().mapped_bytes - before
    libc.free(block)
    return found


@dataclass(frozen=True)
class Measured:
    """A task of a scan, and one of maintenance."""

    root: str

    def read(self) -> Iterator[pa.RecordBatch]:
        yield numbers(mapped_of_8_mib())

    def run(self, path: str) -> int:
        assert path == self.root
        return mapped_of_8_mib()


Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def nothing() -> Work:
    return lambda _batches: iter([numbers(mapped_of_8_mib())])


def reading(root: str) -> Work:
    return lambda _batches: rows_of(Measured(root), NUMBER)  # type: ignore[arg-type]


def writing(piece: FramePiece) -> Work:
    def work(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list[int]()
        piece.write(_none_but_measured(found))
        yield numbers(*found)

    return work


def searching(asked: NearestRows) -> Work:
    def work(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list[int]()
        list(asked(_none_but_measured(found)))
        yield numbers(*found)

    return work


def numbers(*found: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"mapped": list(found)})


def _none_but_measured(found: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield no rows; measure when the first are asked for."""
    found.append(mapped_of_8_mib())
    yield from ()


class Failing:
    """A task of maintenance that fails in the executor."""

    def run(self, path: str) -> object:
        """Fail.

        Raises:
            UnavailableError: Always.
        """
        raise UnavailableError(f"{path}: the disk of the executor is full")
