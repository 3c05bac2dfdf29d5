"""The bucket's vacuum keeps the files that only a frame of its log names."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
import pytest

from siltstone.maintenance.backup.bucket_vacuum import BucketVacuum
from siltstone.maintenance.backup.leased_records import lease
from tests.maintenance.mirrors import (
    TABLES,
    at,
    content,
    go_on,
    lived,
    mirrorer,
    restored,
    taken_from,
)
from tests.maintenance.test_bucket_vacuum import Clock, vacuumed
from tests.maintenance.test_shipping import Shipping
from tests.support.simulated_objects import SimBucket


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_load_that_is_in_the_log_alone_for_days_outlives_a_vacuum(tmp_path, is_plain):
    clock = Clock()
    bucket = SimBucket(now=clock)
    with lived(tmp_path / "s", retention_s=0) as db:
        shipping = Shipping(db, at(bucket))
        shipping.mirror()
        if is_plain:
            db["plain"].append([{"a": 77}])
        else:
            stage = db.stage("keyed")
            staged = stage.run(pa.table({"id": [7000], "v": ["staged"]}))
            with db.transaction() as tx:
                tx.attach(stage, [staged])
        assert shipping.ship() == db.seq
        clock.now += 3 * 86_400
        vacuumed(tmp_path / "s", at(bucket), grace_s=86_400.0)
        expected, seq = content(db), db.seq
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq, expected)


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_frame_keeps_its_files_though_the_store_flushed_merged_and_vacuumed_them(
    tmp_path, is_plain
):
    """A long upload: the record that it publishes is older than the log above it."""
    clock = Clock()
    bucket = SimBucket(now=clock)
    with lived(tmp_path / "s", retention_s=0) as db, ExitStack() as held:
        shipping = Shipping(db, at(bucket))
        shipping.mirror()
        mirror = mirrorer(db.path, at(bucket))
        source = lease(mirror.site, held, with_log=False)
        session = held.enter_context(mirror.session(source))
        if is_plain:
            db["plain"].append([{"a": 77}])
        else:
            stage = db.stage("keyed")
            staged = stage.run(pa.table({"id": [7000], "v": ["staged"]}))
            with db.transaction() as tx:
                tx.attach(stage, [staged])
        assert shipping.ship() == db.seq
        expected, seq = content(db), db.seq
        for number in range(3):
            go_on(db, number)
            db.merge()
            db.optimize()
        db.vacuum(dry_run=False, grace_s=0)
        session.publish(source, lambda *_: None, anyway=True)
        clock.now += 3 * 86_400
        vacuum = BucketVacuum(mirror.site, mirror.objects, TABLES, retention_s=0)
        vacuum.run(grace_s=86_400.0)
    restored(at(bucket), tmp_path / "r")
    assert taken_from(tmp_path / "r") == (seq, expected)
