"""Paths: the directory on this machine that a path or URL means.

    shop, ../shop, ~/shop      a path; `~` is the home, links and `..` are resolved once, now
    file:///data/my%20shop     a URL of this machine, percent-decoded; `file:/data` is the same
    file:shop, file://         refused: a URL has no relative path, but people write it
    s3:// gs:// az://          a `Place` in a bucket, for those who only read; others are refused
    dbfs:/, hdfs:/ ...         refused: siltstone appends to the log and locks it: a local disk

A path is resolved once, because Lance treats `..` as the name of a folder, because a program may
change its directory, and because two names of one store must mean the same store.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PosixPath
from urllib.parse import unquote_to_bytes, urlsplit

from siltstone.bucket_url import BucketUrl, is_bucket_url
from siltstone.errors import RequestError, UnavailableError

MEMORY = ":memory:"
# Two letters at least: `C:\shop` has no scheme. Lance takes no control characters in a path.
# Colons within it: `jdbc:siltstone:/shop`.
_SCHEME = re.compile(r"(file(?=:)|[a-z][a-z0-9+.:-]+(?=:/))", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORKS = (
    "a store is a local directory: give a path ('shop', '~/shop', '/data/shop') or a file:// URL"
    " ('file:///data/shop'); `connect` also takes ':memory:' and 'http://host:port' of a server"
)


class Place(PosixPath):
    """The root of a store at a URL of a bucket, or what is below it.

    A path to those who take it apart, its text is the URL. Nothing of this machine is at it.
    """

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def absolute(self) -> Place:
        """Return the same: a URL is absolute."""
        return self

    @property
    def url(self) -> BucketUrl:
        """The URL."""
        return BucketUrl.of(str(self))


def key_of(path: Path) -> str:
    """Return how an object store names a file: without its bucket, or the first slash."""
    text = str(path)
    return text.split("/", 3)[3] if isinstance(path, Place) else text.removeprefix("/")


_ONLY_READ = (
    "a store in a bucket is only read, connect(url, read_only=True); to write, open the path with"
    " mirror=URL"
)


def only_read(root: Path) -> str:
    """Return why a store that was opened to be read is not written."""
    if isinstance(root, Place):
        return f"{root} is no local directory: {_ONLY_READ}"
    return "this store was opened read-only; open it without read_only=True"


def root_of(path: str | os.PathLike[str], *, only_reads: bool = False) -> Path:
    """Return the directory of a path or URL: absolute, without `~`, `..` and links.

    `only_reads`: a URL of a bucket is a store, too: a `Place`.

    Raises:
        RequestError: It is no path and no `file://` URL of this machine, or Lance refuses its name.
        UnavailableError: A parent directory is not readable.
    """
    if is_bucket_url(path) or isinstance(path, Place):
        url = BucketUrl.of(str(path))
        if not only_reads:
            raise RequestError(only_read(Place(str(url))))
        return Place(str(url))
    text = _text_of(path)
    try:
        root = Path(text).expanduser().resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            root.lstat()
    except RuntimeError as error:  # no such user; links in a circle
        raise _refusal(path, f": {error}") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _refusal(f"{text[:40]}...", ": name too long") from error
        raise UnavailableError(f"{text} cannot be resolved: {error}") from error
    return root


def cache_of(environment: Mapping[str, str]) -> Path:
    """Return the folder of siltstone in the user's cache; it need not be there.

    Raises:
        RuntimeError: The user has no home.
    """
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "siltstone"


def scratch_of(given: str | None) -> Path | None:
    """Return the folder that the option `scratch` means; None: the user has no home.

    Raises:
        RequestError: It is no path.
    """
    try:
        if given is None:
            return cache_of(os.environ).absolute()
        return Path(given).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # no such user; no working directory
        if given is None:
            return None
        raise RequestError(f"scratch must be a folder's path; got {given!r}: {error}") from error


def _text_of(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise _refusal(path)
    if text == MEMORY:
        raise _refusal(path, ": only `connect` takes it, and makes a new store")
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if not isinstance(path, str):
            raise _refusal(path, ", a Path made of a URL: give the URL itself")
        if scheme[1].lower() != "file":
            raise _refusal(path, f", which names a place by {scheme[1]}:")
        text = _of_url(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refusal(path, ", which is not UTF-8") from None
    if _CONTROL.search(text):
        raise _refusal(path, ", which has control characters")
    return text


def _of_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refusal(url, f": {error}") from error
    if parts.netloc not in {"", "localhost"}:
        raise _refusal(url, f", which is on {parts.netloc}")
    if "?" in url or "#" in url:
        raise _refusal(url, ": write ? as %3F and # as %23 in a URL")
    # Not `parts.path`: urlsplit drops line ends and tabs, and then it is another directory.
    place = re.sub(r"^[^:]+:(//[^/]*)?", "", url)
    if not place.startswith("/"):
        raise _refusal(url, ", which has no absolute path: write the path itself, or file:///")
    return os.fsdecode(unquote_to_bytes(place))


def _refusal(path: object, why: str = "") -> RequestError:
    return RequestError(f"{path!r} cannot be used as a store{why}; {_WORKS}")


def private_folders(refusals: list[str]) -> Iterator[Path]:
    """Yield the directories for what processes of this user share on this machine, made if absent.

    $XDG_RUNTIME_DIR/siltstone, else <temporary directory>/siltstone-<user>, each of ours alone.

    Args:
        refusals: Gets why a directory was left out.
    """
    for folder in _private_folders():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            refusals.append(f"{folder}: {error}")
            continue
        is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if stat.S_ISDIR(found.st_mode) and is_private:
            yield folder
        else:
            refusals.append(f"{folder} is not a directory of ours alone (mode 0700)")


def _private_folders() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    temporary = [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - ours alone, checked
    folders = [folder / f"siltstone-{os.geteuid()}" for folder in temporary]
    return [Path(runtime) / "siltstone", *folders] if runtime else folders
