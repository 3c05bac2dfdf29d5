"""A file system without hard links is refused to owners: records are published by them."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from siltstone.errors import UnavailableError
from siltstone.local.store import LocalStore
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from tests.maintenance.stores import env_of, open_store


class WithoutLinks(RealFiles):
    """A file system as FAT is, and as some of FUSE are."""

    def link(self, old: Path, new: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(old))


def test_an_owner_is_refused_by_the_name_of_what_is_missing(tmp_path: Path) -> None:
    env = replace(env_of(), files=WithoutLinks())
    with open_store(tmp_path / "s") as db:
        db.create_table("t", {"id": "int64"}, "id").upsert({"id": 1})
    before = sorted(tmp_path.rglob("*"))
    for root in (tmp_path / "s", tmp_path / "new"):
        with pytest.raises(UnavailableError, match="hard links"):
            LocalStore.open(root, Options(background=False), env=env)
    assert sorted(tmp_path.rglob("*")) == before, "and nothing was made"
    with LocalStore.open(tmp_path / "s", Options(), env=env, read_only=True) as reader:
        assert reader["t"].count() == 1
