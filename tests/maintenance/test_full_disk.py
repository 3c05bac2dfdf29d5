"""A store that filled its disk to the last block opens, and is vacuumed; nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.maintenance.full_disk import LIVES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("life", LIVES)
def test_a_store_on_a_full_disk_is_freed(life: str, tmp_path: Path) -> None:
    script = (
        f'mount -t tmpfs -o size=64m none "{tmp_path}" || exit 77;'
        f' exec "{sys.executable}" -m tests.maintenance.full_disk {life} "{tmp_path}"'
    )
    command = ["unshare", "-rm", "sh", "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if ran.returncode == 77 or "unshare failed" in ran.stderr:
        pytest.skip("nothing may be mounted here")
    assert ran.returncode == 0, ran.stderr[-4000:]
