"""Extras: the packages that a store does without, and the refusal that says how to get one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from siltstone.errors import UnavailableError


def needed(call: str, package: str, extra: str) -> UnavailableError:
    """Return the refusal of a call whose package is not installed."""
    return UnavailableError(f"{call} needs {package}: pip install 'siltstone[{extra}]'")


def missing(error: ImportError) -> str:
    """Return the package that an import did not find, or what is wrong with one that is there."""
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return package
    return f"another version of {package or 'a package'} ({error})"


def imported(module: str, call: str, package: str, extra: str) -> Any:
    """Return a module of an extra for a call.

    Raises:
        UnavailableError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise needed(call, package, extra) from error
