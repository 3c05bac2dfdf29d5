"""Options: the `option(...)` values of reads and writes, each checked before anything happens.

Spark passes options as strings and does not know their names, so this module refuses a misspelt
one: a read at the wrong seq would be a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from siltstone.choices import StagedOp
from siltstone.engine.read.moment import time_us_of
from siltstone.errors import RequestError, no_such, not_one_of

_OF_QUERIES = ("checkpointLocation", "queryName")  # what Spark adds to the options of a sink
START, STARTS = "startingSeq", ("earliest", "latest")
_NEEDED = {"table": "the name of a table"}
PUSHDOWNS = ("off", "single_use")
Missing: TypeAlias = Literal["refused", "null"]
MergeWhen: TypeAlias = Literal["auto", "off", "always"]
OPS: tuple[StagedOp, ...] = get_args(StagedOp)
REFUSED: Missing = "refused"
NULL: Missing = "null"
MISSINGS: tuple[Missing, ...] = get_args(Missing)
AUTO: MergeWhen = "auto"
OFF: MergeWhen = "off"
ALWAYS: MergeWhen = "always"
MERGES: tuple[MergeWhen, ...] = get_args(MergeWhen)
# A view hands its options to whoever reads it and to whoever inserts into it.
_OF_WRITES = ("op", "order_by", "missing", "expectSeq")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The table, rows and seq of a read; without a seq: that of `load()`.

    `filter` is SQL that the store evaluates. `is_single_use` promises that the frame occurs in one
    query, once (see `filters`).
    """

    uri: str
    table: str
    seq: int | None = None
    at: str | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    is_single_use: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Return the options of a read.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        found = _parsed(cls, given, "read", hidden=_OF_WRITES)
        moments = [name for name in ("seq", "at", "tag") if getattr(found, name) is not None]
        if len(moments) > 1:
            raise RequestError(f"give only one of the options {' and '.join(map(repr, moments))}")
        return found

    def pinned(self, seq: int) -> ReadOptions:
        """Return the same read at `seq`."""
        return replace(self, seq=seq, at=None, tag=None)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The table and operation of a write; without an `op`, the default of `Store.stage`.

    `missing`: whether rows of an upsert may lack columns. `expect_seq` is for overwrites: the seq
    after which the table must not have changed.
    """

    uri: str
    table: str
    op: StagedOp | None = None
    order_by: str | None = None
    missing: Missing = REFUSED
    expect_seq: int | None = None
    token: tuple[str, int] | None = None
    merge: MergeWhen = AUTO

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        return _parsed(cls, given, "write")


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The table and start of a stream of changes. `start` is "earliest", "latest" or a seq."""

    uri: str
    table: str
    start: int | str
    rows_max: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> FeedOptions:
        """Return the options of a stream of changes.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        needed = {START: "'earliest', 'latest' or a seq", "table": "the name of a keyed table"}
        return _parsed(cls, given, "stream of changes", needed)


def is_feed(given: Mapping[str, str]) -> bool:
    """Return whether options are those of a stream of changes; Spark does not tell."""
    return START.lower() in map(str.lower, given)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The table and operation of a stream's micro-batches; `app` is their app (see `writer`)."""

    uri: str
    table: str
    op: StagedOp | None = None
    order_by: str | None = None
    missing: Missing = REFUSED
    app: str | None = None
    checkpoint: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options of a streaming write.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        return _parsed(cls, given, "streaming write", hidden=_OF_QUERIES)


T = TypeVar("T")
_Parser = Callable[[str, str], object]  # of the name and the text of an option


def _parsed(
    kind: type[T],
    given: Mapping[str, str],
    what: str,
    needed: Mapping[str, str] = _NEEDED,
    hidden: tuple[str, ...] = (),
) -> T:
    """Return the fields of a kind of options, with the defaults of those that are not given.

    Args:
        kind: A dataclass.
        given: The options, in any case.
        what: Its name in messages.
        needed: What is missing if an option is.
        hidden: Options that messages do not list; one that has no field is ignored.
    """
    has = {field.name for field in fields(cast("Any", kind))}
    own = {name: parser for name, parser in _FIELDS.items() if parser[0] in has}
    found = {name.lower(): value for name, value in given.items()}
    may = {"uri", "path", *map(str.lower, (*own, *hidden))}  # `load(path)` is option "path"
    unknown = sorted(set(found) - may)
    if unknown:
        listed = ["uri", *(name for name in own if name not in hidden)]
        raise RequestError(f"a {what} has {no_such('option', unknown, listed)}")
    values: dict[str, Any] = {"uri": _uri(found)}
    for name, missing in needed.items():
        if not found.get(name.lower()):
            raise RequestError(f"option {name!r} is missing: {missing}")
    for name, (field, parse) in own.items():
        if name.lower() in found:
            values[field] = parse(name, found[name.lower()])
    return kind(**values)


def _uri(found: Mapping[str, str]) -> str:
    uri, path = found.get("uri"), found.get("path")
    if uri and path and uri != path:
        raise RequestError(f"the store is given twice: uri {uri!r} and path {path!r}")
    if not uri and not path:
        raise RequestError("option 'uri' is missing: the path of a store, as all executors see it")
    return uri or path or ""


def _text(_name: str, text: str) -> str:
    return text


def _name(name: str, text: str) -> str:
    if not text:
        raise RequestError(f"option {name!r} is missing: a name that is not empty")
    return text


def _choice(choices: tuple[str, ...], name: str, text: str) -> str:
    if text.lower() not in choices:
        raise RequestError(not_one_of(f"option {name!r}", text, choices))
    return text.lower()


def _is_single_use(name: str, text: str) -> bool:
    return _choice(PUSHDOWNS, name, text) == "single_use"


def _number(least: int, kind: str, name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least:
        return int(text)
    raise RequestError(f"option {name!r} must be {kind}; got {text!r}")


def _start(name: str, text: str) -> int | str:
    if text.lower() in STARTS:
        return text.lower()
    return _number(0, "'earliest', 'latest' or a seq", name, text)


def _moment(_name: str, text: str) -> str:
    time_us_of(text)  # no zone: the driver's would be another than that of the session, maybe
    return text


def _names(name: str, text: str) -> tuple[str, ...]:
    """Return the names in "id,total", or in a JSON list where a name has a comma."""
    try:
        is_json = text.lstrip().startswith("[")
        given = msgspec.json.decode(text, type=list[str]) if is_json else text.split(",")
    except msgspec.DecodeError:
        given = []
    found = tuple(each.strip() for each in given)
    if not found or not all(found):
        raise RequestError(f"option {name!r} must be like 'id,total'; got {text!r}")
    doubled = sorted({each for each in found if found.count(each) > 1})
    if doubled:
        raise RequestError(f"option {name!r} has {doubled[0]!r} twice")
    return found


def _token(name: str, text: str) -> tuple[str, int]:
    app, colon, batch = text.rpartition(":")
    if not colon or not app or not (batch.isascii() and batch.isdigit()):
        raise RequestError(
            f"option {name!r} must be like 'nightly:17', app and batch; got {text!r}"
        )
    return app, int(batch)


_SEQ = partial(_number, 0, "a whole number")
_FIELDS: dict[str, tuple[str, _Parser]] = {
    "table": ("table", _text),
    "seq": ("seq", _SEQ),
    "at": ("at", _moment),
    "tag": ("tag", _text),
    "columns": ("columns", _names),
    "filter": ("filter", _text),
    "pushdown": ("is_single_use", _is_single_use),
    "op": ("op", partial(_choice, OPS)),
    "order_by": ("order_by", _text),
    "missing": ("missing", partial(_choice, MISSINGS)),
    "expectSeq": ("expect_seq", _SEQ),
    "token": ("token", _token),
    "merge": ("merge", partial(_choice, MERGES)),
    "app": ("app", _name),
    "checkpointLocation": ("checkpoint", _text),
    START: ("start", _start),
    "maxRowsPerTrigger": ("rows_max", partial(_number, 1, "an integer from 1")),
}
