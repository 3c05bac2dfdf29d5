"""The names of `siltstone.spark` are what a user calls, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import siltstone.spark


@pytest.mark.parametrize("name", siltstone.spark.__all__)
def test_a_public_name_is_no_room(name: str) -> None:
    code = (
        "import siltstone.spark.sessions.source, siltstone.spark.daemon.serving, siltstone.spark;"
        f"assert callable(siltstone.spark.{name}), siltstone.spark.{name}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
