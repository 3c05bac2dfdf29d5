"""Options: arguments of `connect` override `SILTSTONE_*` variables override `siltstone.toml`."""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypedDict

from siltstone.bucket_url import BucketUrl, is_bucket_url
from siltstone.errors import RequestError, no_such, not_one_of
from siltstone.process.shares import Shares

_SECONDS_END = 1e18  # no clock goes so far; also beyond infinity, and what is no number
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_BOOLS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
SEGMENT_BYTES_MIN = 16 << 10
SQL_THREADS_MAX = 256
# Once: a program that is moved to other cores opens its stores with the same options as before.
_CORES = min(len(os.sched_getaffinity(0)), SQL_THREADS_MAX)
_BOUNDS: dict[str, tuple[int, float]] = {
    "memory_bytes_max": (1 << 20, math.inf),
    "memtable_bytes_max": (4096, math.inf),
    "sealed_generations_max": (1, math.inf),
    "segment_bytes": (SEGMENT_BYTES_MIN, math.inf),
    "sync_interval_ms": (1, math.inf),
    **dict.fromkeys(("retention_s", "room_timeout_s", "join_timeout_s"), (0, math.inf)),
    **dict.fromkeys(("close_upkeep_s", "close_mirror_s"), (0, math.inf)),
    "cache_bytes_max": (0, 1 << 60),
    "join_bytes_max": (0, 1 << 50),
    "sql_memory_bytes_max": (16 << 20, 1 << 50),
    "sql_temp_bytes_max": (0, 1 << 50),
    "sql_threads_max": (1, SQL_THREADS_MAX),
}
"""The least and the most of each number; what has no most is finite."""
_SETTINGS = "storage_options"
_VERIFY = ("first_use", "scrub")
_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
_UNSET: dict[str, type] = {
    "cache_bytes_max": int,
    "join_bytes_max": int,
    "scratch": str,
    "mirror": str,
}
"""The types of the options that are None until someone sets them."""
_SUFFIXES = {"_bytes": " (bytes)", "_ms": " (milliseconds)", "_s": " (seconds)"}


class StorageOptions(Mapping[str, str]):
    """Settings of a bucket's client, by name. Some are secrets: it never shows or pickles them.

    What comes back from a pickle is empty: another process has an environment of its own.
    """

    def __init__(self, given: Mapping[str, str] = MappingProxyType({})) -> None:
        self._given = dict(given)

    @classmethod
    def of(cls, given: object) -> StorageOptions:
        """Return the options that a caller gave.

        Raises:
            RequestError: They are no texts by their names; the message has no value.
        """
        if not isinstance(given, Mapping):
            raise RequestError("storage_options are texts by their names, a mapping")
        for name, value in given.items():
            if not isinstance(name, str) or not isinstance(value, str):
                wrong = f"the value of {name!r:.64} is none"
                raise RequestError(f"storage_options are texts by their names; {wrong}")
        return cls(given)

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __repr__(self) -> str:
        return f"<{len(self)} storage options>"

    def __reduce__(self) -> tuple[type[StorageOptions], tuple[()]]:
        return StorageOptions, ()

    def __deepcopy__(self, memo: object) -> StorageOptions:
        return self


NO_STORAGE_OPTIONS = StorageOptions()


@dataclass(frozen=True, slots=True)
class SqlBounds:
    """What DuckDB may use for one statement: memory, temporary files, threads."""

    memory_bytes_max: int
    temp_bytes_max: int
    threads_max: int


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an open store, in bytes, milliseconds and seconds; `connect` explains each."""

    memory_bytes_max: int = 1 << 30
    memtable_bytes_max: int = 64 << 20
    sealed_generations_max: int = 4
    segment_bytes: int = 16 << 20
    sync_interval_ms: int = 10
    retention_s: float = 7 * 86_400.0
    verify: str = "first_use"
    background: bool = True
    force: bool = False
    room_timeout_s: float = 300.0
    join_timeout_s: float = 300.0
    close_upkeep_s: float = 5.0
    close_mirror_s: float = 30.0
    group_access: bool = False
    tune_malloc: bool = False
    cache_bytes_max: int | None = None
    join_bytes_max: int | None = None
    scratch: str | None = None
    storage_options: StorageOptions = NO_STORAGE_OPTIONS
    mirror: str | None = None
    sql_memory_bytes_max: int = 1 << 30
    sql_temp_bytes_max: int = 4 << 30
    sql_threads_max: int = _CORES

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            RequestError: A value is outside its bounds.
        """
        for name, (least, most) in _BOUNDS.items():
            given = getattr(self, name)
            if given is not None and not least <= given < math.inf:
                raise RequestError(f"{name} must be at least {least}; got {given}")
            if given is not None and given > most:
                raise RequestError(f"{name} must be at most {most}; got {given}")
        if self.verify not in _VERIFY:
            raise RequestError(not_one_of("verify", self.verify, _VERIFY))
        if self.mirror is not None:
            BucketUrl.of(self.mirror)

    @property
    def shares(self) -> Shares:
        """How `memory_bytes_max` is divided."""
        return Shares.of(self.memory_bytes_max)

    @property
    def followed_bytes_max(self) -> int:
        """How much of the log a joined process reads itself: what its owner holds, by default."""
        if self.join_bytes_max is not None:
            return self.join_bytes_max
        return self.memtable_bytes_max * (self.sealed_generations_max + 1)

    @property
    def sql(self) -> SqlBounds:
        """What one SQL statement may use."""
        return SqlBounds(self.sql_memory_bytes_max, self.sql_temp_bytes_max, self.sql_threads_max)


class StoreOptions(TypedDict, total=False):
    """The keyword options of a store, for type checkers and editors; `connect` explains each."""

    memory_bytes_max: int
    memtable_bytes_max: int
    sealed_generations_max: int
    segment_bytes: int
    sync_interval_ms: int
    retention: str | float | dt.timedelta
    retention_s: float
    verify: Literal["first_use", "scrub"]
    background: bool
    force: bool
    room_timeout_s: float
    join_timeout_s: float
    close_upkeep_s: float
    close_mirror_s: float
    group_access: bool
    tune_malloc: bool
    cache_bytes_max: int
    join_bytes_max: int
    scratch: str | os.PathLike[str]
    mirror: str
    sql_memory_bytes_max: int
    sql_temp_bytes_max: int
    sql_threads_max: int


class ConnectOptions(StoreOptions, total=False):
    """The keyword options of `connect`: those of a store, of a bucket, and of a server."""

    storage_options: Mapping[str, str]

    token: str | None
    cafile: str | os.PathLike[str] | None


def resolve(root: Path, given: Mapping[str, object]) -> Options:
    """Return the options of one `connect`.

    Raises:
        RequestError: An option is unknown, or its value has the wrong type.
    """
    merged: dict[str, object] = {**_from_file(root), **_from_environment()}
    merged.update({name: value for name, value in given.items() if value is not None})
    if _SETTINGS in merged and _SETTINGS not in given:
        raise RequestError(
            f"{_SETTINGS} are given to `connect` alone: what has secrets has no file"
        )
    options = Options(storage_options=StorageOptions.of(merged.pop(_SETTINGS, {})))
    if "retention" in merged:
        merged["retention_s"] = _retention(merged.pop("retention"))
    kinds = {f.name: _UNSET.get(f.name, type(getattr(options, f.name))) for f in fields(options)}
    unknown = sorted(set(merged) - set(kinds))
    if unknown:
        known = sorted({*kinds, "retention"})
        raise RequestError(f"connect has {no_such('option', unknown, known)}")
    typed = {name: _typed(name, value, kinds[name]) for name, value in merged.items()}
    return replace(options, **typed)  # type: ignore[arg-type]


def _retention(duration: object) -> float:
    try:
        return seconds_of(duration)
    except RequestError as error:
        raise RequestError(f"retention: {error}") from None


def seconds_of(duration: object) -> float:
    """Return the seconds of "7d", "12h", "90s", a number or a timedelta."""
    if hasattr(duration, "total_seconds"):
        return float(duration.total_seconds())  # type: ignore[attr-defined]
    is_bool = isinstance(duration, bool)
    if isinstance(duration, int | float) and not is_bool and abs(duration) < _SECONDS_END:
        return float(duration)
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if found is None:
        raise RequestError(f"a duration must be like '7d', '12h' or '90s'; got {duration!r}")
    return float(found[1]) * _UNITS[found[2]]


def _typed(name: str, value: object, kind: type) -> object:
    try:
        if kind is bool and isinstance(value, str):
            return _BOOLS[value.lower()]
        if isinstance(value, bool) is not (kind is bool):
            raise ValueError
        if kind is str:
            return _text(value)
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)  # type: ignore[call-arg]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RequestError(f"{name} must be {_described(name, kind)}; got {value!r}") from None


def _text(value: object) -> str:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError
    return text


def _described(name: str, kind: type) -> str:
    unit = next((unit for suffix, unit in _SUFFIXES.items() if suffix in name), "")
    return _KINDS[kind] + unit


def _from_environment() -> dict[str, object]:
    names = {field.name for field in fields(Options)} - {_SETTINGS} | {"retention"}
    found = {name: os.environ.get(f"SILTSTONE_{name.upper()}") for name in names}
    return {name: value for name, value in found.items() if value}


def _from_file(root: Path) -> dict[str, object]:
    if is_bucket_url(str(root)):
        return {}
    try:
        text = (root / "siltstone.toml").read_text()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{root / 'siltstone.toml'} cannot be read: {error}") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{root / 'siltstone.toml'}: {error}") from error
