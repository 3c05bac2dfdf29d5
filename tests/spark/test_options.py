"""What an option may say is checked before anything is read or written, in one sentence."""

from __future__ import annotations

import pytest

from siltstone import RequestError
from siltstone.spark.context.options import (
    ChangeOptions,
    FeedOptions,
    ReadOptions,
    SinkOptions,
    WriteOptions,
)

STORE = {"uri": "/shop", "table": "orders"}


def test_options_become_values() -> None:
    found = ReadOptions.parse({**STORE, "seq": "42", "columns": "id, total", "pushdown": "OFF"})
    assert (found.uri, found.table, found.seq) == ("/shop", "orders", 42)
    assert found.columns == ("id", "total")
    assert not found.is_single_use
    assert found.pinned(7).seq == 7
    wrote = WriteOptions.parse({"path": "/shop", "Table": "orders", "OP": "Upsert"})
    assert (wrote.uri, wrote.table, wrote.op, wrote.token) == ("/shop", "orders", "upsert", None)
    token = WriteOptions.parse({**STORE, "token": "etl:nightly:17"}).token
    assert token == ("etl:nightly", 17)


def test_a_path_alone_names_the_store_and_the_table() -> None:
    for path, store in (
        ("/data/shop/t", "/data/shop"),
        ("http://host:2333/t/", "http://host:2333"),
    ):
        found = ReadOptions.parse({"path": path})
        assert (found.uri, found.table) == (store, "t")
    found = ReadOptions.parse({"path": "/data/shop/t", "table": "other"})
    assert (found.uri, found.table) == ("/data/shop/t", "other")


def test_delta_s_names_become_ours() -> None:
    assert ReadOptions.parse({**STORE, "versionAsOf": "7"}).seq == 7
    assert ReadOptions.parse({**STORE, "timestampAsOf": "2026-11-20 10:00Z"}).at is not None
    starts = {"8": 7, "1": 0, "0": 0, "latest": "latest"}
    for text, start in starts.items():
        assert FeedOptions.parse({**STORE, "startingVersion": text}).start == start
    span = {"readChangeFeed": "TRUE", "startingVersion": "5", "endingVersion": "9"}
    found = ChangeOptions.parse({**STORE, **span})
    assert (found.start, found.end) == (4, 9)
    assert found.pinned(20).end == 9


def test_names_with_commas_are_given_as_json() -> None:
    assert ReadOptions.parse({**STORE, "columns": '["a,b", "c"]'}).columns == ("a,b", "c")


def test_a_view_may_carry_what_its_writes_need() -> None:
    assert ReadOptions.parse({**STORE, "op": "upsert", "order_by": "at"}).table == "orders"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "t"}, "option 'uri' is missing"),
        ({"uri": "/shop"}, "option 'table' is missing"),
        ({"uri": "", "table": "t"}, "option 'uri' is missing"),
        ({**STORE, "path": "/other"}, "given twice: uri '/shop' and path '/other'"),
        ({**STORE, "sequ": "1"}, "a read has no option 'sequ'; did you mean 'seq'"),
        ({**STORE, "seq": "-1"}, "option 'seq' must be a whole number; got '-1'"),
        ({**STORE, "seq": "1e3"}, "option 'seq' must be a whole number"),
        ({**STORE, "seq": "1", "tag": "a"}, "give only one of the options 'seq' and 'tag'"),
        (
            {**STORE, "at": "2026-11-20T10:00"},
            r"has no zone: for UTC write it with a Z .*astimezone",
        ),
        ({**STORE, "at": "yesterday"}, "a time must be like 2026-11-20T10:00Z; got 'yesterday'"),
        ({**STORE, "columns": "a,,b"}, "option 'columns' must be like 'id,total'"),
        ({**STORE, "columns": "a,a"}, "has 'a' twice"),
        ({**STORE, "columns": "[1]"}, "option 'columns' must be like"),
        ({**STORE, "columns": "[a"}, "option 'columns' must be like"),
        ({**STORE, "pushdown": "on"}, "'pushdown' must be one of off, single_use; got 'on'"),
        ({**STORE, "token": "a:1"}, "a read has no option 'token'"),
        ({**STORE, "seq": "1", "versionAsOf": "1"}, "only one of the options 'seq' and 'versionA"),
        ({**STORE, "startingVersion": "1"}, "is for streams, and for batches with the option 'r"),
        ({"path": "/shop"}, "option 'table' is missing"),
        ({"path": "http://host:2333"}, "option 'table' is missing"),
    ],
)
def test_a_bad_option_of_a_read_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        ReadOptions.parse(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "t"}, "option 'uri' is missing"),
        (
            {**STORE, "op": "merge"},
            "'op' must be one of upsert, insert, delete, append; got 'merge'",
        ),
        ({**STORE, "seq": "1"}, "a write has no option 'seq'; .*he options are uri, table, op"),
        ({**STORE, "token": "17"}, "option 'token' must be like 'nightly:17'"),
        ({**STORE, "token": "a:b"}, "option 'token' must be like 'nightly:17'"),
        ({**STORE, "token": ":1"}, "option 'token' must be like 'nightly:17'"),
        ({**STORE, "merge": "yes"}, "'merge' must be one of auto, off, always; got 'yes'"),
    ],
)
def test_a_bad_option_of_a_write_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        WriteOptions.parse(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "t"}, "option 'uri' is missing"),
        ({"uri": "/shop"}, "option 'table' is missing"),
        (
            {**STORE, "op": "merge"},
            "'op' must be one of upsert, insert, delete, append; got 'merge'",
        ),
        (
            {**STORE, "token": "a:1"},
            "a streaming write has no option 'token'; .*he options are",
        ),
        ({**STORE, "app": ""}, "option 'app' is missing: a name that is not empty"),
    ],
)
def test_a_bad_option_of_a_sink_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        SinkOptions.parse({**given, "checkpointLocation": "/c"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (STORE, "option 'startingSeq' is missing: 'earliest', 'latest' or a seq"),
        (
            {**STORE, "startingSeq": "soon"},
            "'startingSeq' must be 'earliest', 'latest' or a seq; got",
        ),
        (
            {**STORE, "startingSeq": "-1"},
            "'startingSeq' must be 'earliest', 'latest' or a seq; got",
        ),
        ({**STORE, "startingSeq": "1", "op": "x"}, "a stream of changes has no option 'op'"),
        ({"uri": "/shop", "startingSeq": "1"}, "option 'table' is missing: the name of a keyed"),
        (
            {**STORE, "startingSeq": "1", "maxRowsPerTrigger": "many"},
            "an integer from 1; got 'many'",
        ),
    ],
)
def test_a_bad_option_of_a_stream_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        FeedOptions.parse(given)
