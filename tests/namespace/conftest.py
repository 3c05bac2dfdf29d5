from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with st.connect(tmp_path / "shop", segment_bytes=65536, background=False) as db:
        yield db


@pytest.fixture
def ns(db: Store) -> SiltstoneNamespace:
    return SiltstoneNamespace(db)
