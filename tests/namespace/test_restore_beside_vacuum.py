"""What a client restores is there when it is committed, whatever vacuum took meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from siltstone.storage.tables.values import StagedVersion
from tests.namespace.clients import make, rows
from tests.namespace.staging import Staging


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with st.connect(tmp_path / "shop", segment_bytes=65536, background=False, retention="0s") as db:
        yield db


def restored(db: Store) -> dict[str, Any]:
    """Return the request by which a client would restore version 1 of "p" as version 4."""
    client = Staging(SiltstoneNamespace(db))
    first = lance.dataset(namespace_client=client, table_id=["p"], version=1)
    with contextlib.suppress(OSError):  # it looks for the version that it believes committed
        first.restore()
    return client.staged[0]


def given(request: dict[str, Any]) -> StagedVersion:
    return StagedVersion(request["version"], request["manifest_path"], request["manifest_size"])


def filled(db: Store) -> None:
    make(SiltstoneNamespace(db), "p", rows(0, 5))
    db["p"].overwrite(rows(100, 103))
    db.checkpoint()


def test_a_version_that_a_reader_alone_keeps_is_not_restored(db: Store) -> None:
    filled(db)
    with db.snapshot():
        db["p"].append(rows(103, 104))
        db.checkpoint()
        request = restored(db)
        db.vacuum(dry_run=False)
        with db.transaction() as tx:
            assert tx.lance.versions("p").find(1) is None
        tx = db.transaction()
        with contextlib.suppress(st.RequestError):
            tx.lance.import_version("p", given(request))
    db.vacuum(dry_run=False)
    tx.commit()
    assert sorted(db["p"].to_arrow()["id"].to_pylist()) == [100, 101, 102, 103]


def test_a_version_that_is_kept_is_restored_beside_a_vacuum(db: Store) -> None:
    filled(db)
    db["p"].append(rows(103, 104))
    request = restored(db)
    with db.transaction() as tx:
        tx.lance.import_version("p", given(request))
        db.checkpoint()
        db.vacuum(dry_run=False)
    db.vacuum(dry_run=False)
    assert sorted(db["p"].to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
