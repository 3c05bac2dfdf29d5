"""The bucket's vacuum keeps the files that only a frame of its log names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.maintenance.mirrors import at, content, lived, restored, taken_from
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
