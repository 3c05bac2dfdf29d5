"""Stock clients that ask the server for fresh rows see what was committed a moment ago."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import lancedb
import pytest

import siltstone as st
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.server.rest.server import RestServer
from tests.namespace.clients import append, ids, opened, rows
from tests.server.rest import Rest, rest_of
from tests.server.test_rest_namespace import space_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
Served = tuple[st.Store, RestServer, Rest]
FRESH = {"x-siltstone-keyed": "fresh"}


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A keyed table of which 0 and 1 are merged; 2 came since, and 1 is gone."""
    with rest_of(tmp_path_factory.mktemp("fresh") / "shop") as (db, service, rest):
        db._parts.fresh = FreshVersions(db._core, interval_s=0)
        table = db.create_table("k", {"id": "int64", "v": "string"}, "id")
        table.upsert([{"id": 0, "v": "a"}, {"id": 1, "v": "b"}])
        db.checkpoint()
        db.merge()
        table.upsert({"id": 2, "v": "c"})
        table.delete(1)
        yield db, service, rest


def test_pylance_asks_by_a_header_and_sees_the_newest_rows(served: Served) -> None:
    db, service, _ = served
    merged, fresh = space_of(service), space_of(service, **FRESH)
    assert ids(opened(merged, "k")) == [0, 1]
    handle = opened(fresh, "k")
    assert (ids(handle), handle.version) == ([0, 2], db.seq)
    db["k"].upsert({"id": 3, "v": "d"})
    assert ids(opened(fresh, "k")) == [0, 2, 3]
    assert ids(handle) == [0, 2]
    handle.checkout_latest()
    assert handle.to_table(filter="id > 2").to_pylist() == [{"id": 3, "v": "d"}]
    assert ids(opened(merged, "k")) == [0, 1]


def test_lancedb_asks_by_a_property_and_sees_the_newest_rows(served: Served) -> None:
    db, service, _ = served
    properties = {"uri": service.url, "header.x-siltstone-keyed": "fresh"}
    connected = lancedb.connect_namespace(
        "rest", properties, read_consistency_interval=timedelta(0)
    )
    table = connected.open_table("k")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 2]
    db["k"].upsert({"id": 3, "v": "d"})
    assert table.search().where("id > 2").limit(9).to_arrow()["v"].to_pylist() == ["d"]
    assert table.count_rows() == 3
    assert lancedb.connect_namespace("rest", {"uri": service.url}).open_table("k").count_rows() == 2


def test_a_snapshot_is_fresh_at_its_own_seq_over_all_tables(served: Served) -> None:
    db, service, _ = served
    seq = db.seq
    db.create_table("never", {"id": "int64"}, "id").upsert({"id": 7})
    db["k"].upsert({"id": 3, "v": "d"})
    past = space_of(service, **FRESH, **{"x-siltstone-snapshot": f"seq:{seq}"})
    now = space_of(service, **FRESH, **{"x-siltstone-snapshot": f"seq:{db.seq}"})
    assert (ids(opened(past, "k")), opened(past, "k").version) == ([0, 2], seq)
    assert (ids(opened(now, "k")), ids(opened(now, "never"))) == ([0, 2, 3], [7])
    assert opened(space_of(service), "never").count_rows() == 0


def test_what_cannot_be_fresh_is_refused(served: Served) -> None:
    _, _, rest = served
    stale = rest.post("/v1/table/k/version/list", x_siltstone_keyed="stale")
    assert stale.code == (400, 13)
    key = rest.post("/v1/transaction/begin").json["id"]
    inside = rest.post("/v1/table/k/describe", **FRESH, x_siltstone_txn=key)
    assert inside.code == (400, 13)
    assert "query and scan" in inside.json["error"]
    assert rest.post("/v1/table/k/describe", x_siltstone_txn=key).status == 200


def test_who_commits_to_a_keyed_table_is_told_the_right_call(
    served: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lance says "unknown" of every refused commit; the reason is on its stderr and in our log."""
    db, service, rest = served
    seq, right = db.seq, ("upsert", "merge_insert_into_table", "nothing was committed")
    properties = {"uri": service.url, "header.x-siltstone-keyed": "fresh"}
    for write in (
        lambda: opened(space_of(service), "k").delete("id = 0"),
        lambda: append(space_of(service, **FRESH), "k", rows(9, 10)),
        lambda: lancedb.connect_namespace("rest", properties).open_table("k").add(rows(9, 10)),
    ):
        caplog.clear()
        capfd.readouterr()
        with caplog.at_level(logging.WARNING), pytest.raises((OSError, RuntimeError)):
            write()
        shown = capfd.readouterr().err
        for words in right:
            assert words in caplog.text
            assert words in shown
    given = {"version": 3, "manifest_path": "x"}
    refused = rest.post("/v1/table/k/version/create", given)
    assert refused.code == (400, 13)
    assert all(words in refused.json["error"] for words in right)
    described = rest.post("/v1/table/k/describe").json["properties"]
    assert described["siltstone.kind"] == "keyed"
    assert "insert_into_table" in described["siltstone.written_by"].split(",")
    assert (db.seq, db["k"].count()) == (seq, 2)
