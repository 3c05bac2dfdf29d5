"""Place: whether a store is still where its files were opened, and whether a store may be there."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from siltstone.errors import ReplacedError, SiltstoneError, UnavailableError
from siltstone.storage.files.files import Files, discard, refusals


@contextlib.contextmanager
def in_place(files: Files, root: Path) -> Generator[None]:
    """Raise ReplacedError if the directory is not the one that `files` are bound to, at the end.

    Also if the block failed: whatever it missed, it was missing because of that.
    """
    with named(files, root):
        yield
    require_in_place(files, root)


@contextlib.contextmanager
def named(files: Files, root: Path) -> Generator[None]:
    """As `in_place`, but only if the block failed."""
    try:
        yield
    except ReplacedError:
        raise
    except (SiltstoneError, OSError) as error:
        if not files.are_in_place():
            raise ReplacedError(root) from error
        raise


def require_in_place(files: Files, root: Path) -> None:
    """Check that `root` still leads to the directories that `files` are bound to.

    Raises:
        ReplacedError: It does not.
        UnavailableError: The file system refuses to say.
    """
    with refusals(f"cannot look at {root}"):
        if not files.are_in_place():
            raise ReplacedError(root)


def require_links(files: Files, directory: Path) -> None:
    """Check that the file system has hard links: records are published by them.

    Raises:
        UnavailableError: It has none, or refuses.
    """
    one, other = files.temporary(directory / "links"), files.temporary(directory / "links")
    with refusals(f"cannot write in {directory}"):
        files.open(one, new=True).close()
        try:
            files.link(one, other)
        except OSError as error:
            text = f"{directory} is on {files.filesystem(directory)}, where hard links are refused"
            raise UnavailableError(
                f"{text} ({error}): a store needs them; open it with read_only=True, or keep the"
                " store on another file system"
            ) from error
        finally:
            for path in (one, other):
                discard(files, path)
