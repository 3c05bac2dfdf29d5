"""Workers: what holds in the Python processes that Spark starts: errors, and which siltstone runs.

Spark shows an error of a Python process with its traceback before it, and starts a new process
after an error. So of an error of siltstone only the sentence is shown.

What travels to another process names the siltstone that made it: another version may read its
fields as others.
"""

from __future__ import annotations

import functools
import os
import pickle
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from siltstone.errors import SiltstoneError, UnavailableError

Sealed: TypeAlias = tuple[Callable[[str, bytes], Any], tuple[str, bytes]]
_HIDE, _RUNTIME = "SPARK_HIDE_TRACEBACK", "SPARK_PYTHON_RUNTIME"


@contextmanager
def one_sentence() -> Generator[None]:
    """Let Spark show an error of siltstone without a traceback; also a decorator of functions."""
    try:
        yield
    except SiltstoneError:
        if _RUNTIME in os.environ:  # else it is not a process that Spark ends after the error
            os.environ[_HIDE] = "1"
        raise


@functools.cache
def version() -> str:
    """Return the version of the siltstone that runs here."""
    from importlib.metadata import version as version_of  # noqa: PLC0415 - it takes 30 ms

    return version_of("siltstone")


def sealed(kind: Callable[..., Any], *fields: object) -> Sealed:
    """Return `kind(*fields)` in the form of `__reduce__`, which only this version opens."""
    return opened, (version(), pickle.dumps((kind, fields)))


@one_sentence()
def opened(made_by: str, payload: bytes) -> Any:
    """Return what `sealed` was given.

    Raises:
        UnavailableError: Another version of siltstone made it.
    """
    if made_by != version():
        raise UnavailableError(
            f"the process on {socket.gethostname()} has siltstone {version()}, the one that sent it"
            f" work has {made_by}; driver and executors need the same version"
        )
    kind, fields = pickle.loads(payload)  # noqa: S301 - `sealed` made it
    return kind(*fields)
