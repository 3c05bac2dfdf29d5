"""FolderServer: a bucket in a directory of this machine, for tests of more than one process.

A key is the name of a file, percent-encoded. A put writes a temporary file and links or renames it;
conditions on an ETag are checked under a lock of the directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from siltstone.storage.objects.server import Exists, FoundObject, ObjectHead, Streamed


class FolderServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"s3://{self._folder.name}"

    def put(self, key: str, data: bytes, *, is_new: bool = False, etag: str | None = None) -> str:
        temporary = self._folder / f".{uuid.uuid4().hex}"
        temporary.write_bytes(data)
        try:
            with self._locked():
                there = self._read(key)
                if (is_new and there is not None) or (
                    etag is not None and (there is None or _etag(there) != etag)
                ):
                    raise Exists
                temporary.rename(self._path(key))
        finally:
            temporary.unlink(missing_ok=True)
        return _etag(data)

    def put_streamed(self, key: str, body: Streamed) -> str:
        return self.put(key, b"".join(body.parts()))

    def get(self, key: str, start: int = 0, end: int | None = None) -> FoundObject | None:
        data = self._read(key)
        return None if data is None else FoundObject(data[start:end], self._head(key, data))

    def head(self, key: str) -> ObjectHead | None:
        data = self._read(key)
        return None if data is None else self._head(key, data)

    def list_after(self, prefix: str, after: str) -> Iterator[list[ObjectHead]]:
        keys = sorted(unquote(each.name) for each in self._folder.iterdir() if each.name[0] != ".")
        found = [self.head(key) for key in keys if key.startswith(prefix) and key > after]
        if found:
            yield [head for head in found if head is not None]

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / quote(key, safe="")

    def _read(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None

    def _head(self, key: str, data: bytes) -> ObjectHead:
        return ObjectHead(key, len(data), _etag(data), self._path(key).stat().st_mtime)

    @contextmanager
    def _locked(self) -> Generator[None]:
        with (self._folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
