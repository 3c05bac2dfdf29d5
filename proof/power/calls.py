r"""Calls: what strace wrote down, with the line at which each began and ended.

    71 pwrite64(5<\x2f\x73>, "\x61\x62", 2, 0) = 2        one line, or two if others came between:
    72 fsync(6<\x2f\x73> <unfinished ...>
    72 <... fsync resumed>) = 0

All strings are hexadecimal (strace -xx), so no byte of a file is ever taken for punctuation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE = re.compile(rb"(\d+) +(.*)")
_RESUMED = re.compile(rb"<\.\.\. (\w+) resumed>(.*)")
_WHOLE = re.compile(rb"(\w+)\((.*)\)\s+= (0x[0-9a-f]+|-?\d+|\?)(?![0-9a-f])(.*)")
_UNFINISHED = b" <unfinished ...>"
_DETACHED = (
    b" <detached ...>"  # its process ended, and strace lets go of a thread that is in a call
)
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DESCRIPTOR = re.compile(rb"(AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


class TraceError(Exception):
    """The account of strace holds what nobody here can replay."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An open file as a call names it; `path` is what it is called at that moment."""

    number: int
    path: str
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that returned `result` (None: it never did); the lines of its two ends."""

    thread: int
    name: str
    text: bytes
    result: int | None
    began: int
    ended: int

    @property
    def is_done(self) -> bool:
        """Whether it succeeded."""
        return self.result is not None and self.result >= 0

    def strings(self) -> list[bytes]:
        """Return its strings, whole.

        Raises:
            TraceError: strace cut one off.
        """
        found = _STRING.findall(self.text)
        if any(cut for _, cut in found):
            raise TraceError(f"strace cut off a string of {self.name}: record with a larger -s")
        return [_bytes(text) for text, _ in found]

    def descriptors(self) -> list[Descriptor]:
        """Return the open files that it names."""
        return [
            Descriptor(-1 if number == b"AT_FDCWD" else int(number), _path(path), bool(deleted))
            for number, path, deleted in _DESCRIPTOR.findall(self.text)
        ]

    def paths(self) -> list[str]:
        """Return its path strings as absolute ones; relative to the descriptors before them."""
        bases = [each.path for each in self.descriptors()]
        names = [os.fsdecode(name) for name in self.strings()]
        if len(bases) < len(names):  # of mkdir and the like, where absolute paths are all there is
            bases = [os.sep] * len(names)
        return [
            os.path.normpath(os.path.join(base, name))  # noqa: PTH118 - of text, not of this disk
            for base, name in zip(bases, names, strict=False)
        ]

    def numbers(self) -> list[int]:
        """Return the integers behind its last string or descriptor."""
        ends = [m.end() for m in (*_STRING.finditer(self.text), *_DESCRIPTOR.finditer(self.text))]
        return [int(n) for n in re.findall(rb"-?\b\d+\b", self.text[max(ends, default=0) :])]


def read_calls(lines: Iterable[bytes]) -> Iterator[Call]:
    """Yield the calls in the order in which they returned; those that never did come last."""
    begun: dict[int, tuple[int, bytes]] = {}
    for number, line in enumerate(lines):
        match = _LINE.fullmatch(line.rstrip(b"\n"))
        if match is None:
            raise TraceError(f"line {number + 1} is none of strace: {line[:80]!r}")
        thread, text = int(match[1]), match[2]
        if text.startswith((b"+++", b"---", b"???(")):
            continue
        if text.endswith((_UNFINISHED, _DETACHED)):
            begun[thread] = (number, text.removesuffix(_UNFINISHED).removesuffix(_DETACHED))
            continue
        began = number
        resumed = _RESUMED.fullmatch(text)
        if resumed is not None:
            began, head = begun.pop(thread)
            text = head + resumed[2]
        yield _call(thread, text, began, number)
    for thread, (began, text) in begun.items():
        yield _call(thread, text + b") = ?", began, began)


def _call(thread: int, text: bytes, began: int, ended: int) -> Call:
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise TraceError(f"line {began + 1} is no call: {text[:80]!r}")
    result = None if match[3] == b"?" else int(match[3], 0)
    return Call(thread, match[1].decode(), match[2], result, began, ended)


def _bytes(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(rb"\x", b"").decode())


def _path(text: bytes) -> str:
    return os.fsdecode(_bytes(text)).removesuffix(" (deleted)")
