"""Options: the `option(...)` values of reads and writes, each checked before anything happens.

Spark passes options as strings and does not know their names, so this module refuses a misspelt
one: a read at the wrong seq would be a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from siltstone.choices import MISSINGS, Missing, StagedOp
from siltstone.engine.read.moment import time_us_of
from siltstone.errors import RequestError, no_such, not_one_of
from siltstone.spark.context.times import ZONE, in_zone, is_local, zone_name

_OF_QUERIES = ("checkpointLocation", "queryName")  # what Spark adds to the options of a sink
START, STARTS = "startingSeq", ("earliest", "latest")
CHANGES = "readChangeFeed"
_NEEDED = {"table": "the name of a table"}
PUSHDOWNS = ("off", "single_use")
MergeWhen: TypeAlias = Literal["auto", "off", "always"]
OPS: tuple[StagedOp, ...] = get_args(StagedOp)
COMMIT_ATTEMPTS = 10
_BOOLEANS = ("true", "false")
AUTO: MergeWhen = "auto"
OFF: MergeWhen = "off"
ALWAYS: MergeWhen = "always"
MERGES: tuple[MergeWhen, ...] = get_args(MergeWhen)
# A view hands its options to its readers and to those who insert into it.
_OF_ROWS = ("op", "order_by", "missing", "expectSeq")
_OF_WRITES = (*_OF_ROWS, "primaryKey", "mergeSchema", "replaceWhere", "force")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The table, rows and seq of a read; without a seq: that of `load()`.

    `filter` is SQL that the store evaluates. `is_single_use` promises that the frame occurs in one
    query, once (see `filters`). `zone` is the one of times without an offset (see `times`).
    """

    uri: str
    table: str
    seq: int | None = None
    at: str | None = None
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    is_single_use: bool = False
    task_rows_max: int | None = None
    zone: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Return the options of a read.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        if is_feed(given):
            start = _given(given, *_STARTS)[0]
            raise RequestError(
                f"option {start!r} is for streams, and for batches with the option {CHANGES!r}"
            )
        only_one_of(given, "seq", "at", "tag", "versionAsOf", "timestampAsOf")
        return _parsed(cls, _without(CHANGES, given), "read", hidden=_OF_WRITES)

    def pinned(self, seq: int) -> ReadOptions:
        """Return the same read at `seq`."""
        return replace(self, seq=seq, at=None, tag=None)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The table and operation of a write; without an `op`, the default of `Store.stage`.

    `missing`: what becomes of columns that rows of an upsert lack. `expect_seq` is for overwrites:
    the seq after which the table must not have changed. With a `primary_key` the write creates a
    table that does not exist; with `merges_schema` it adds columns that the table lacks. With
    `replaces` an overwrite replaces only the rows that match this filter. `creates`: the commit
    makes the table, with or without a key, and it must not be there, unless it `replaces_table`.
    `attempts`: how often a commit is tried that may win against others a second time.
    """

    uri: str
    table: str
    op: StagedOp | None = None
    order_by: str | None = None
    missing: Missing = "refuse"
    expect_seq: int | None = None
    token: tuple[str, int] | None = None
    merge: MergeWhen = AUTO
    primary_key: tuple[str, ...] = ()
    merges_schema: bool = False
    replaces: str | None = None
    force: bool = False
    creates: bool = False
    replaces_table: bool = False
    attempts: int = COMMIT_ATTEMPTS

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        return _parsed(cls, given, "write")


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The table and start of a stream of changes.

    `start` is "earliest", "latest" or the seq before the first change; or else the changes begin
    with the first commit at `start_at` or later.
    """

    uri: str
    table: str
    start: int | str | None = None
    rows_max: int | None = None
    start_at: str | None = None
    zone: str | None = None
    force: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> FeedOptions:
        """Return the options of a stream of changes.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        if is_change_feed(given):
            raise RequestError(
                f"a stream is a change feed already, with the columns _seq and _op; leave out the"
                f" option {CHANGES!r}, which is for batch reads"
            )
        only_one_of(given, *_STARTS)
        needed = {"table": "the name of a keyed table"}
        if not is_feed(given):
            needed = {START: "'earliest', 'latest' or a seq", **needed}
        return _parsed(cls, given, "stream of changes", needed)


_STARTS = (START, "startingVersion", "startingTimestamp")


def is_feed(given: Mapping[str, str]) -> bool:
    """Return whether options are those of a stream of changes; Spark does not tell."""
    return bool(_given(given, *_STARTS)) and not is_change_feed(given)


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The table and range of a batch of changes: after `start`, up to `end`.

    Each is a seq, or given by a time: the first commit at `start_at` or later, the last one at
    `end_at` or before. Without an end: up to the seq of `load()`.
    """

    uri: str
    table: str
    start: int | str | None = None
    start_at: str | None = None
    end: int | None = None
    end_at: str | None = None
    zone: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ChangeOptions:
        """Return the options of a batch of changes.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        what, needed = "batch read of changes", {"table": "the name of a keyed table"}
        only_one_of(given, *_STARTS)
        only_one_of(given, "endingVersion", "endingTimestamp")
        if not _given(given, *_STARTS):
            needed |= {"startingVersion": "the first version whose changes are read"}
        found = _parsed(cls, _without(CHANGES, given), what, needed)
        if found.start == "latest":
            raise RequestError(f"a {what} has no start 'latest'; give a version or a time")
        if isinstance(found.start, int) and found.end is not None:
            first = found.start + bool(_given(given, "startingVersion"))
            if found.end < first:
                raise RequestError(f"a {what} ends at {found.end}, before it begins, at {first}")
        return found

    def pinned(self, seq: int) -> ChangeOptions:
        """Return the same range, which ends at `seq` if it has no other end."""
        return self if self.end is not None or self.end_at else replace(self, end=seq)


def is_change_feed(given: Mapping[str, str]) -> bool:
    """Return whether options ask for a batch of changes.

    Raises:
        RequestError: The option is neither true nor false.
    """
    found = {name.lower(): text for name, text in given.items()}
    return _is_true(CHANGES, found.get(CHANGES.lower(), "false"))


def only_one_of(given: Mapping[str, str], *names: str) -> None:
    """Check that at most one of some options is given."""
    found = _given(given, *names)
    if len(found) > 1:
        raise RequestError(f"give only one of the options {' and '.join(map(repr, found))}")


def _given(given: Mapping[str, str], *names: str) -> list[str]:
    has = {name.lower() for name in given}
    return [name for name in names if name.lower() in has]


def without_known(given: Mapping[str, str], known: Sequence[str], what: str) -> dict[str, str]:
    """Return the options of a statement or a stream of a catalog, their names in small letters.

    Raises:
        RequestError: One is `known` to the catalog.
    """
    found = {name.lower(): text for name, text in given.items()}
    for name in known:
        if name in found:
            raise RequestError(f"a {what} has no option {name!r}: the catalog knows it")
    return found


def _without(name: str, given: Mapping[str, str]) -> dict[str, str]:
    return {each: text for each, text in given.items() if each.lower() != name.lower()}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The table and operation of a stream's micro-batches; `app` is their app (see `writer`)."""

    uri: str
    table: str
    op: StagedOp | None = None
    order_by: str | None = None
    missing: Missing = "refuse"
    app: str | None = None
    checkpoint: str = ""
    primary_key: tuple[str, ...] = ()
    merges_schema: bool = False
    force: bool = False

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
    found = _placed({name.lower(): value for name, value in given.items()})
    may = {"uri", "path", *map(str.lower, (*own, *hidden))}  # `load(path)` is option "path"
    unknown = sorted(set(found) - may)
    if unknown:
        listed = ["uri", *(name for name in own if name not in hidden)]
        raise RequestError(f"a {what} has {no_such('option', unknown, listed)}")
    found = in_zone(found)
    values: dict[str, Any] = {"uri": _uri(found)}
    for name, missing in needed.items():
        if not found.get(name.lower()):
            raise RequestError(f"option {name!r} is missing: {missing}")
    for name, (field, parse) in own.items():
        if name.lower() in found:
            values[field] = parse(name, found[name.lower()])
    return kind(**values)


def _placed(found: dict[str, str]) -> dict[str, str]:
    """Return options with a table; of `load("/data/shop/orders")` it is the path's last part."""
    path = found.get("path", "").rstrip("/")
    store, slash, table = path.rpartition("/")
    if "table" in found or "uri" in found or not slash or not store or store.endswith("/"):
        return found
    return {**found, "path": store, "table": table}


def _uri(found: Mapping[str, str]) -> str:
    uri, path = found.get("uri"), found.get("path")
    if uri and path and uri != path:
        raise RequestError(f"the store is given twice: uri {uri!r} and path {path!r}")
    if not uri and not path:
        raise RequestError(
            "option 'uri' is missing: the path of a store, as all executors see it (a table of"
            " Spark's catalog has its options if CREATE TABLE .. USING names no columns)"
        )
    return uri or path or ""


def _text(_name: str, text: str) -> str:
    return text


def _name(name: str, text: str) -> str:
    if not text:
        raise RequestError(f"option {name!r} is missing: a name that is not empty")
    return text


def _condition(name: str, text: str) -> str:
    if not text.strip():
        raise RequestError(f"option {name!r} is missing: a filter of rows, like 'total > 3'")
    return text


def _choice(choices: tuple[str, ...], name: str, text: str) -> str:
    if text.lower() not in choices:
        raise RequestError(not_one_of(f"option {name!r}", text, choices))
    return text.lower()


def _is_true(name: str, text: str) -> bool:
    return _choice(_BOOLEANS, name, text) == "true"


def _number(least: int, kind: str, name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least:
        return int(text)
    raise RequestError(f"option {name!r} must be {kind}; got {text!r}")


def task_rows_of(text: str) -> int:
    """Return the value of the option `maxRowsPerTask`.

    Raises:
        RequestError: It is no integer from 1.
    """
    return _number(1, "an integer from 1", "maxRowsPerTask", text)


def _start(name: str, text: str) -> int | str:
    if text.lower() in STARTS:
        return text.lower()
    return _number(0, "'earliest', 'latest' or a seq", name, text)


def _version(name: str, text: str) -> int | str:
    """Return the seq before a first version; version 0 and 1 are the beginning."""
    if text.lower() == "latest":
        return "latest"
    return max(_number(0, "'latest' or a version, a whole number", name, text) - 1, 0)


def _moment(name: str, text: str) -> str:
    try:
        time_us_of(text)  # no zone: the driver's would be another than that of the session, maybe
    except RequestError as error:
        by = f", or give the zone of such times as option {ZONE!r}" if is_local(text) else ""
        raise RequestError(f"option {name!r}: {error}{by}") from None
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
    "versionAsOf": ("seq", _SEQ),
    "timestampAsOf": ("at", _moment),
    ZONE: ("zone", zone_name),
    "columns": ("columns", _names),
    "filter": ("filter", _text),
    "pushdown": ("is_single_use", lambda n, text: _choice(PUSHDOWNS, n, text) == "single_use"),
    "maxRowsPerTask": ("task_rows_max", partial(_number, 1, "an integer from 1")),
    "op": ("op", partial(_choice, OPS)),
    "order_by": ("order_by", _text),
    "missing": ("missing", partial(_choice, MISSINGS)),
    "expectSeq": ("expect_seq", _SEQ),
    "token": ("token", _token),
    "merge": ("merge", partial(_choice, MERGES)),
    "primaryKey": ("primary_key", _names),
    "mergeSchema": ("merges_schema", _is_true),
    "replaceWhere": ("replaces", _condition),
    "force": ("force", _is_true),
    "app": ("app", _name),
    "checkpointLocation": ("checkpoint", _text),
    START: ("start", _start),
    "startingVersion": ("start", _version),
    "startingTimestamp": ("start_at", _moment),
    "endingVersion": ("end", _SEQ),
    "endingTimestamp": ("end_at", _moment),
    "maxRowsPerTrigger": ("rows_max", partial(_number, 1, "an integer from 1")),
}
