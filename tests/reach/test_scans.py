"""A scan at a URL has many ranges under way at once, and no more than its share of the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st
from siltstone.process.shares import Shares
from tests.maintenance.mirrors import lived
from tests.reach.conftest import mirror
from tests.support.bucket_servers import RunningServer
from tests.support.gate_proxy import Gate, gated

MEMORY = 128 << 20
PARTS, PART_ROWS = 20, 1 << 17
PART_BYTES = 8 * PART_ROWS
OF_LANCE = 4
"""More ranges than its bound Lance asks for, so that it never waits for itself."""


def test_a_scan_asks_for_the_ranges_of_many_parts_before_the_first_is_there(
    server: RunningServer, url: str, tmp_path: Path
) -> None:
    rows = _of_many_parts(tmp_path / "s", url)
    shares = Shares.of(MEMORY).lance
    # On this machine no more than these are worth it; the scan would wait for each four of them.
    near = shares.read_ahead // PART_BYTES
    gate = Gate(wanted=2 * near)
    with (
        gated(server.endpoint, gate) as endpoint,
        st.connect(
            url,
            read_only=True,
            memory_bytes_max=MEMORY,
            storage_options=server.settings() | {"endpoint": endpoint},
        ) as far,
    ):
        found = far["log"].scan().read_all()
    assert found.equals(rows)
    assert 2 * near <= gate.most <= shares.read_ahead_far // PART_BYTES + OF_LANCE < PARTS


def _of_many_parts(root: Path, url: str) -> pa.Table:
    """Mirror a plain table whose values no encoding makes smaller; return its rows."""
    values = np.random.default_rng(7).integers(0, 1 << 62, PARTS * PART_ROWS)
    rows = pa.table({"n": pa.array(values)})
    with lived(root) as db:
        log = db.create_table("log", {"n": "int64"})
        for at in range(PARTS):
            log.append(rows.slice(at * PART_ROWS, PART_ROWS))
            db.checkpoint()
        mirror(root, url)
    return rows
