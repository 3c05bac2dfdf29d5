"""A request that cannot be served gets the spec's code and one sentence, and changes nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import staged

Change = Callable[[dict[str, Any]], object]


def _absolute(request: dict[str, Any]) -> Path:
    return Path("/" + request["manifest_path"])


def _truncate(request: dict[str, Any]) -> None:
    path = _absolute(request)
    path.write_bytes(path.read_bytes()[:-20])
    request["manifest_size"] = path.stat().st_size


def _garble(request: dict[str, Any]) -> None:
    path = _absolute(request)
    noise = random.Random(5)
    path.write_bytes(noise.randbytes(len(path.read_bytes())))


def _link(request: dict[str, Any]) -> None:
    path = _absolute(request)
    elsewhere = path.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _lose_data(request: dict[str, Any]) -> None:
    data = _absolute(request).parent.parent / "data"
    max(data.iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()


def _cut_data(request: dict[str, Any]) -> None:
    data = _absolute(request).parent.parent / "data"
    newest = max(data.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    os.truncate(newest, newest.stat().st_size - 1)


def _named_as(inside: str) -> Change:
    """Give the manifest a uuid of which a directory of ours is called so."""

    def change(request: dict[str, Any]) -> None:
        path = _absolute(request)
        private = path.parents[1] / "_siltstone" / inside
        private.mkdir(exist_ok=True)
        if inside != "strangers":  # what a transaction of ours has staged
            (private / f"{path.name.partition('-')[0]}").write_bytes(b"ours")
        new = path.with_name(f"{path.name.partition('-')[0]}-{inside}")
        path.rename(new)
        request["manifest_path"] = str(new)

    return change


def _set(**values: object) -> Change:
    return lambda request: request.update(values)


BAD: dict[str, tuple[Change, type[Exception]]] = {
    "an unknown table": (_set(id=["nobody"]), errors.TableNotFoundError),
    "no table": (_set(id=[]), errors.TableNotFoundError),
    "three levels": (_set(id=["a", "b", "c"]), errors.TableNotFoundError),
    "version N+2": (
        lambda r: r.update(version=4, manifest_path=r["manifest_path"].replace("613", "611")),
        errors.InvalidInputError,
    ),
    "version 0": (_set(version=0), errors.InvalidInputError),
    "a version that is text": (_set(version="3"), errors.InvalidInputError),
    "an old version": (
        lambda r: r.update(version=1, manifest_path=r["manifest_path"].replace("613", "614")),
        errors.ConcurrentModificationError,
    ),
    "another name": (
        lambda r: r.update(manifest_path=r["manifest_path"].replace("613", "612")),
        errors.InvalidInputError,
    ),
    "no path": (_set(manifest_path=None), errors.InvalidInputError),
    "an absolute path": (_set(manifest_path="/etc/passwd"), errors.InvalidInputError),
    "a path upwards": (
        lambda r: r.update(
            manifest_path=r["manifest_path"].replace("/_versions/", "/x/../_versions/")
        ),
        errors.InvalidInputError,
    ),
    "a missing file": (lambda r: _absolute(r).unlink(), errors.InvalidInputError),
    "a wrong size": (_set(manifest_size=7), errors.InvalidInputError),
    "a manifest cut off": (_truncate, errors.InvalidInputError),
    "a manifest of noise": (_garble, errors.InvalidInputError),
    "a symlink": (_link, errors.InvalidInputError),
    "lost data": (_lose_data, errors.InvalidInputError),
    "data cut off": (_cut_data, errors.InvalidInputError),
    "the folder of what is set aside": (_named_as("strangers"), errors.InvalidInputError),
    "the folder of a transaction": (_named_as("0" * 32), errors.InvalidInputError),
    "a branch": (_set(branch="dev"), errors.UnsupportedOperationError),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_version_is_refused_and_changes_nothing(
    db: Store, ns: SiltstoneNamespace, what: str
) -> None:
    make(ns, "t", rows(0, 10))
    request = staged(ns, "t", rows(10, 20))
    change, kind = BAD[what]
    change(request)
    before = db.seq
    with pytest.raises(kind) as found:
        ns.create_table_version(request)
    assert "\n" not in str(found.value)
    assert db.seq == before
    assert ids(opened(ns, "t")) == list(range(10))
    append(ns, "t", rows(50, 51))
    assert db["t"].count() == 11


@pytest.mark.parametrize(
    "field",
    [
        pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        pa.field("d", pa.dictionary(pa.int32(), pa.string())),
        pa.field("_hidden", pa.int64()),
    ],
    ids=["blob", "dictionary", "reserved name"],
)
def test_a_column_that_no_table_can_have_is_refused(
    db: Store, ns: SiltstoneNamespace, field: pa.Field
) -> None:
    with pytest.raises(OSError, match="unknown"):  # so Lance says it; nothing was committed
        make(ns, "t", pa.schema([field]).empty_table())
    assert db.tables() == []


def test_a_manifest_of_another_table_is_refused(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 10))
    make(ns, "b", rows(0, 10))
    request = staged(ns, "a", rows(10, 20)) | {"id": ["b"]}
    with pytest.raises(errors.InvalidInputError):
        ns.create_table_version(request)
    assert db["b"].count() == 10


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [{}],
        [{"declare_table": {"id": ["x"]}, "deregister_table": {"id": ["t"]}}],
        [{"declare_table": {"id": [f"x{n}"]}} for n in range(10_000)],
        [{"declare_table": {"id": ["x"]}}, {"drop_everything": {}}],
        [{"declare_table": {"id": ["x"], "location": "/tmp/elsewhere"}}],
        [{"declare_table": {"id": ["x"]}}, {"declare_table": {"id": [".."]}}],
        "all of them",
    ],
    ids=["none", "no kind", "two kinds", "10,000", "unknown", "location", "bad name", "text"],
)
def test_a_bad_batch_is_refused_whole(
    db: Store, ns: SiltstoneNamespace, operations: object
) -> None:
    make(ns, "t", rows(0, 1))
    before = db.seq
    with pytest.raises(errors.InvalidInputError):
        ns.batch_commit_tables({"operations": operations})
    assert (db.seq, db.tables()) == (before, ["t"])


def test_one_version_twice_in_a_batch_is_refused(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 1))
    both = [{"create_table_version": staged(ns, "t", rows(n, n + 1))} for n in (1, 2)]
    with pytest.raises(errors.InvalidInputError):
        ns.batch_commit_tables({"operations": both})
    assert db["t"].count() == 1


def test_what_is_not_there_is_said_by_its_code(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 1))
    with pytest.raises(errors.TableNotFoundError):
        ns.describe_table({"id": ["nobody"]})
    with pytest.raises(errors.NamespaceNotFoundError):
        ns.list_tables({"id": ["nowhere"]})
    with pytest.raises(errors.TableVersionNotFoundError):
        ns.describe_table_version({"id": ["t"], "version": 9})
    with pytest.raises(errors.TableAlreadyExistsError):
        ns.declare_table({"id": ["t"]})
    with pytest.raises(errors.InvalidInputError):
        ns.batch_delete_table_versions({"id": ["t"], "ranges": [{"start_version": 0}]})
    with pytest.raises(errors.UnsupportedOperationError):
        ns.register_table({"id": ["t"], "location": "/tmp/t"})
    with pytest.raises(errors.InvalidInputError):
        ns.list_table_versions({"id": ["t"], "page_token": "../.."})


def test_versions_of_a_keyed_table_are_refused_with_the_right_call(
    db: Store, ns: SiltstoneNamespace
) -> None:
    db.create_table("k", {"id": "int64", "v": "string"}, primary_key="id")
    db["k"].upsert(rows(0, 10))
    db.checkpoint()
    db.merge()
    db["k"].upsert({"id": 99, "v": "fresh"})
    dataset = opened(ns, "k")
    assert ids(dataset) == list(range(10))
    with pytest.raises(OSError, match="unknown"):
        dataset.insert(rows(100, 101))
    with pytest.raises(errors.InvalidInputError, match="upsert"):
        ns.create_table_version({"id": ["k"], "version": 3, "manifest_path": "x"})
    assert db["k"].count() == 11


def test_a_read_only_store_answers_reads_alone(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 10))
    with st.connect(db.path, read_only=True) as beside:
        other = SiltstoneNamespace(beside)
        assert opened(other, "t").count_rows() == 10
        with pytest.raises(errors.PermissionDeniedError):
            other.declare_table({"id": ["x"]})
    with ns.at() as past, pytest.raises(errors.PermissionDeniedError):
        past.declare_table({"id": ["x"]})


def test_a_table_in_a_namespace_has_its_name_in_front(db: Store, ns: SiltstoneNamespace) -> None:
    db.create_table("sales.orders", {"id": "int64"})
    assert ns.list_namespaces({"id": []}).namespaces == ["sales"]
    assert ns.list_tables({"id": ["sales"]}).tables == ["orders"]
    assert ns.list_tables({"id": []}).tables == []
    ns.rename_table({"id": ["sales", "orders"], "new_table_name": "old"})
    assert db.tables() == ["sales.old"]
    ns.drop_table({"id": ["sales", "old"]})
    assert db.tables() == []


def test_versions_are_listed_in_pages(ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 1))
    for n in range(1, 5):
        append(ns, "t", rows(n, n + 1))
    first = ns.list_table_versions({"id": ["t"], "limit": 2, "descending": True})
    assert [v.version for v in first.versions] == [5, 4]
    more = {"id": ["t"], "limit": 2, "descending": True, "page_token": first.page_token}
    assert [v.version for v in ns.list_table_versions(more).versions] == [3, 2]
