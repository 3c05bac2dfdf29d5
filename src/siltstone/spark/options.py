"""Options: the `option(...)` values of reads and writes, each checked before anything happens.

Spark passes options as strings and does not know their names, so this module refuses a misspelt
one: a read at the wrong seq would be a wrong answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from siltstone.engine.read.moment import time_us_of
from siltstone.errors import RequestError

_READS = ("uri", "table", "seq", "at", "tag", "columns", "filter", "pushdown")
_WRITES = ("uri", "table", "op", "order_by", "missing", "expectSeq", "token", "merge")
_SINKS = ("uri", "table", "op", "order_by", "missing", "app")
_OF_QUERIES = ("checkpointlocation", "queryname")  # what Spark adds to the options of a sink
START, STARTS = "startingseq", ("earliest", "latest")
_FEEDS = ("uri", "table", "startingSeq", "maxRowsPerTrigger")
PUSHDOWNS = ("off", "single_use")
OPS = ("upsert", "insert", "delete", "append")
MISSINGS = REFUSED, NULL = ("refused", "null")
MERGES = AUTO, OFF, ALWAYS = ("auto", "off", "always")
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
        known = _known(given, _READS, "read", ignored=_OF_WRITES)
        moments = [name for name in ("seq", "at", "tag") if name in known]
        if len(moments) > 1:
            raise RequestError(f"give only one of the options {' and '.join(map(repr, moments))}")
        return cls(
            uri=_uri(known),
            table=_needed(known, "table", "the name of a table"),
            seq=_seq(known, "seq") if "seq" in known else None,
            at=_moment(known["at"]) if "at" in known else None,
            tag=known.get("tag"),
            columns=_names(known["columns"]) if "columns" in known else None,
            filter=known.get("filter"),
            is_single_use=_choice(known, "pushdown", PUSHDOWNS) == "single_use",
        )

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
    op: str | None = None
    order_by: str | None = None
    missing: str = REFUSED
    expect_seq: int | None = None
    token: tuple[str, int] | None = None
    merge: str = AUTO

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        known = _known(given, _WRITES, "write")
        return cls(
            uri=_uri(known),
            table=_needed(known, "table", "the name of a table"),
            op=_choice(known, "op", OPS) if "op" in known else None,
            order_by=known.get("order_by"),
            missing=_choice(known, "missing", MISSINGS),
            expect_seq=_seq(known, "expectSeq") if "expectseq" in known else None,
            token=_token(known["token"]) if "token" in known else None,
            merge=_choice(known, "merge", MERGES),
        )


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
        known = _known(given, _FEEDS, "stream of changes")
        if not known.get(START):
            raise RequestError("option 'startingSeq' is missing: 'earliest', 'latest' or a seq")
        start = known[START].lower()
        rows_max = known.get("maxrowspertrigger")
        if rows_max is not None and not _is_number(rows_max, 1):
            raise RequestError(
                f"option 'maxRowsPerTrigger' must be an integer from 1; got {rows_max!r}"
            )
        if start not in STARTS and not _is_number(start, 0):
            raise RequestError(
                f"option 'startingSeq' must be 'earliest', 'latest' or a seq; got {known[START]!r}"
            )
        return cls(
            uri=_uri(known),
            table=_needed(known, "table", "the name of a keyed table"),
            start=start if start in STARTS else int(start),
            rows_max=None if rows_max is None else int(rows_max),
        )


def is_feed(given: Mapping[str, str]) -> bool:
    """Return whether options are those of a stream of changes; Spark does not tell."""
    return any(name.lower() == START for name in given)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The table and operation of a stream's micro-batches; `app` is their app (see `sink`)."""

    uri: str
    table: str
    op: str | None = None
    order_by: str | None = None
    missing: str = REFUSED
    app: str | None = None
    checkpoint: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options of a streaming write.

        Raises:
            RequestError: An option, which the message names, is missing, unknown or invalid.
        """
        known = _known(given, _SINKS, "streaming write", ignored=_OF_QUERIES)
        return cls(
            uri=_uri(known),
            table=_needed(known, "table", "the name of a table"),
            op=_choice(known, "op", OPS) if "op" in known else None,
            order_by=known.get("order_by"),
            missing=_choice(known, "missing", MISSINGS),
            app=_needed(known, "app", "a name that is not empty") if "app" in known else None,
            checkpoint=known.get("checkpointlocation", ""),
        )


def _is_number(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least


def _known(
    given: Mapping[str, str], names: tuple[str, ...], what: str, ignored: tuple[str, ...] = ()
) -> dict[str, str]:
    found = {name.lower(): value for name, value in given.items()}
    may = {name.lower() for name in (*names, *ignored, "path")}  # `load(path)` is option "path"
    unknown = sorted(set(found) - may)
    if unknown:
        raise RequestError(
            f"a {what} has no option {unknown[0]!r}; the options are {', '.join(names)}"
        )
    return found


def _uri(found: Mapping[str, str]) -> str:
    uri, path = found.get("uri"), found.get("path")
    if uri and path and uri != path:
        raise RequestError(f"the store is given twice: uri {uri!r} and path {path!r}")
    if not uri and not path:
        raise RequestError("option 'uri' is missing: the path of a store, as all executors see it")
    return uri or path or ""


def _needed(found: Mapping[str, str], name: str, what: str) -> str:
    if not found.get(name):
        raise RequestError(f"option {name!r} is missing: {what}")
    return found[name]


def _choice(found: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return which of `choices` an option names; the first if it is not there."""
    value = found.get(name, choices[0])
    if value.lower() not in choices:
        raise RequestError(f"option {name!r} must be one of {', '.join(choices)}; got {value!r}")
    return value.lower()


def _seq(found: Mapping[str, str], name: str) -> int:
    text = found[name.lower()]
    if not _is_number(text, 0):
        raise RequestError(f"option {name!r} must be a whole number; got {text!r}")
    return int(text)


def _moment(text: str) -> str:
    time_us_of(text)  # no zone: the driver's would be another than that of the session, maybe
    return text


def _names(text: str) -> tuple[str, ...]:
    """Return the names in "id,total", or in a JSON list where a name has a comma."""
    names = _json_names(text) if text.lstrip().startswith("[") else text.split(",")
    found = tuple(name.strip() for name in names)
    if not all(found):
        raise RequestError(f"option 'columns' must be like 'id,total'; got {text!r}")
    doubled = sorted({name for name in found if found.count(name) > 1})
    if doubled:
        raise RequestError(f"option 'columns' has {doubled[0]!r} twice")
    return found


def _json_names(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(n, str) for n in found):
        raise RequestError(f"option 'columns' must be like 'id,total'; got {text!r}")
    return found


def _token(text: str) -> tuple[str, int]:
    app, colon, batch = text.rpartition(":")
    if not colon or not app or not (batch.isascii() and batch.isdigit()):
        raise RequestError(f"option 'token' must be like 'nightly:17', app and batch; got {text!r}")
    return app, int(batch)
