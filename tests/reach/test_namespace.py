"""Other clients of Lance read a mirror's tables through a namespace, and write none."""

from __future__ import annotations

from typing import Any

import lancedb
import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.errors import RequestError
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, make, opened, rows
from tests.reach.conftest import Mirrored


@pytest.fixture
def ns(far: st.Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the servers of tests have no TLS
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    return SiltstoneNamespace(far)


def sorted_rows(dataset: Any) -> list[dict[str, object]]:
    return sorted(dataset.to_table().to_pylist(), key=repr)


def test_pylance_reads_what_was_mirrored(ns: Any, shop: Mirrored) -> None:
    assert ns.list_tables({"id": []}).tables == ["docs", "keyed", "plain"]
    assert sorted_rows(opened(ns, "plain")) == shop.at[shop.seq]["plain"]
    keyed = opened(ns, "keyed")
    assert {row["id"] for row in sorted_rows(keyed)} <= {
        row["id"] for row in shop.at[shop.seq]["keyed"]
    }
    assert keyed.to_table(filter="id = 8")["v"].to_pylist() == ["again"]
    where = ns.describe_table({"id": ["plain"], "with_table_uri": True})
    assert where.location.startswith(f"{shop.url}/tables/plain-")
    assert where.table_uri == where.location
    assert where.storage_options is None


def test_all_tables_are_read_at_a_seq_and_at_a_tag(ns: Any, shop: Mirrored) -> None:
    for seq in (shop.changed, shop.seq):
        with ns.at(seq=seq) as past:
            assert sorted_rows(opened(past, "plain")) == shop.at[seq]["plain"]
    with ns.at(tag="first") as past:
        assert sorted_rows(opened(past, "plain")) == shop.at[shop.tagged]["plain"]
        assert sorted_rows(opened(past, "keyed")) == shop.at[shop.tagged]["keyed"]


def test_each_listed_version_of_a_plain_table_is_read(ns: Any, shop: Mirrored) -> None:
    found = ns.list_table_versions({"id": ["plain"]}).versions
    assert len(found) > 1
    counts = [opened(ns, "plain", version=each.version).count_rows() for each in found]
    assert counts == sorted(counts)
    assert counts[-1] == len(shop.at[shop.seq]["plain"])


def test_rows_are_asked_of_the_namespace(ns: Any, shop: Mirrored) -> None:
    assert ns.count_table_rows({"id": ["keyed"]}).count == len(shop.at[shop.seq]["keyed"])
    asked = {"id": ["docs"], "k": 2, "vector": {"single_vector": [3.0, 1.0, 2.0, 3.0]}}
    found = pa.ipc.open_file(pa.BufferReader(ns.query_table(asked).data)).read_all()
    assert found.num_rows == 2


def test_lancedb_reads_what_was_mirrored(ns: Any, shop: Mirrored) -> None:
    db = lancedb.LanceNamespaceDBConnection(ns)
    assert db.list_tables().tables == ["docs", "keyed", "plain"]
    table = db.open_table("plain")
    assert sorted(table.to_arrow().to_pylist(), key=repr) == shop.at[shop.seq]["plain"]


def test_writes_are_refused_in_one_sentence(ns: Any) -> None:
    for work in (
        lambda: ns.declare_table({"id": ["new"]}),
        lambda: ns.drop_table({"id": ["plain"]}),
        lambda: ns.insert_into_table({"id": ["plain"]}, _stream()),
        lambda: make(ns, "new", rows(0, 1)),
        ns.transaction,
    ):
        with pytest.raises(Exception, match="open the path with mirror=URL") as found:
            work()
        assert "\n" not in str(found.value)
    with pytest.raises(errors.PermissionDeniedError, match="mirror=URL"):
        ns.create_table_version({"id": ["plain"], "version": 9, "manifest_path": "x"})
    before = opened(ns, "plain").count_rows()
    with pytest.raises(OSError, match=r"unknown|mirror=URL"):  # Lance passes no reason on
        append(ns, "plain", rows(0, 1).rename_columns(["a", "b"]).select(["a"]))
    assert opened(ns, "plain").count_rows() == before


def test_a_fresh_version_is_not_made_in_a_bucket(far: st.Store) -> None:
    with pytest.raises(RequestError, match="mirror=URL"):
        SiltstoneNamespace(far, keyed="fresh")


def _stream() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"a": [1]}))
    return sink.getvalue().to_pybytes()
