"""A copy of a store never takes from a bucket what another one was told is shipped."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import RequestError, SiltstoneError
from tests.maintenance.mirrors import at, lived, mirrored, restored, with_mirror
from tests.maintenance.test_shipping import Shipping, write
from tests.support.simulated_objects import SimBucket


@pytest.fixture
def bucket() -> SimBucket:
    return SimBucket()


def rows_restored(bucket: SimBucket, target: Path) -> set[object]:
    restored(at(bucket), target)
    with st.connect(target, background=False) as db:
        return {row["v"] for row in db["keyed"].scan().read_all().to_pylist()}


@pytest.mark.parametrize("takes", [False, True])
def test_a_copy_that_mirrors_leaves_what_the_other_one_shipped(
    bucket: SimBucket, tmp_path: Path, takes: bool
) -> None:
    """The bucket is free, and its newest record is one that both know."""
    root, other = tmp_path / "s", tmp_path / "copy"
    with lived(root) as db:
        Shipping(db, at(bucket)).mirror()
    shutil.copytree(root, other)
    with st.connect(root, background=False) as db:
        shipping = Shipping(db, at(bucket))
        for number in range(3):
            write(db, number)
        assert shipping.ship() == db.seq
    with st.connect(other, background=False) as db:
        write(db, 10)
        db.checkpoint()
    with suppress(RequestError):
        mirrored(other, at(bucket), take=takes)
    assert {"w0", "w1", "w2"} <= rows_restored(bucket, tmp_path / "r")


def test_a_store_that_was_rolled_back_leaves_what_it_shipped_before(
    bucket: SimBucket, tmp_path: Path
) -> None:
    root, before = tmp_path / "s", tmp_path / "before"
    with lived(root) as db:
        Shipping(db, at(bucket)).mirror()
    shutil.copytree(root, before)
    with st.connect(root, background=False) as db:
        shipping = Shipping(db, at(bucket))
        write(db, 0)
        assert shipping.ship() == db.seq
    shutil.rmtree(root)
    before.rename(root)  # its disk is of the day before
    with st.connect(root, background=False) as db:
        write(db, 10)
        db.checkpoint()
    with suppress(RequestError):
        mirrored(root, at(bucket))
    assert "w0" in rows_restored(bucket, tmp_path / "r")


def test_a_copy_ships_nothing_while_the_mirror_of_the_other_one_has_the_bucket(
    bucket: SimBucket, tmp_path: Path
) -> None:
    root, other, shipped = tmp_path / "s", tmp_path / "copy", False
    with lived(root):
        pass
    mirrored(root, at(bucket))
    shutil.copytree(root, other)
    with with_mirror(root, at(bucket), retention_s=0) as holder:
        write(holder, 0)
        holder.checkpoint()
        with suppress(SiltstoneError), with_mirror(other, at(bucket), close_mirror_s=0) as db:
            write(db, 10)
            db.wait_shipped(timeout_s=5)
            shipped = True
        write(holder, 1)
        holder.checkpoint()
    rows = rows_restored(bucket, tmp_path / "r")
    assert not shipped or "w10" in rows
