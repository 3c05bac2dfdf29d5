"""Why a commit was refused stands in the description of its table: Lance does not say it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.lance_versions.turns import Turns
from siltstone.namespace import SiltstoneNamespace
from tests.server.stores import opened

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as store:
        store.create_table("k", ROWS.schema, primary_key="id").upsert(ROWS)
        store.create_table("p", ROWS.schema).append(ROWS)
        store.checkpoint()
        store.merge()
        yield store


def told(space: Any, table: str) -> str | None:
    return space.describe_table({"id": [table]}).properties.get("siltstone.refused")


def test_the_reason_of_a_refused_commit_is_told_until_the_next_one(db: st.Store) -> None:
    space = SiltstoneNamespace(db)
    assert told(space, "k") is None
    with pytest.raises(Exception, match=r".") as caught:
        lance.write_dataset(ROWS, namespace_client=space, table_id=["k"], mode="append")
    assert caught.value is not None
    assert "has a primary key" in (told(space, "k") or "")
    assert told(space, "p") is None
    space.answers("describe_table", {"id": ["p"]})
    lance.write_dataset(ROWS, namespace_client=space, table_id=["p"], mode="append")
    assert told(space, "p") is None


def test_a_commit_that_holds_forgets_the_reason() -> None:
    turns = Turns()
    turns.note_outcome("t", "x" * 5_000)
    assert len(turns.refusal_of("t") or "") == 1_000
    assert turns.within("tx").refusal_of("t") is None
    turns.note_outcome("t", None)
    assert turns.refusal_of("t") is None


def test_the_reasons_are_bounded() -> None:
    turns = Turns()
    for number in range(1_000):
        turns.note_outcome(f"t{number}", "no")
    assert sum(turns.refusal_of(f"t{number}") is not None for number in range(1_000)) == 256
    assert turns.refusal_of("t999") == "no"


CODED = pa.table({"id": [1], "code": pa.array(["a"]).dictionary_encode()})


def test_a_table_whose_first_version_is_refused_is_not_left_behind(db: st.Store) -> None:
    space = SiltstoneNamespace(db)
    with pytest.raises(Exception, match=r"."):
        lance.write_dataset(CODED, namespace_client=space, table_id=["new"])
    assert space.list_tables({"id": []}).tables == ["k", "p"]
    with pytest.raises(Exception, match=r"refused.*'code' .*dictionary"):
        space.describe_table({"id": ["new"]})
    lance.write_dataset(ROWS, namespace_client=space, table_id=["new"])
    assert db["new"].count() == 2
    assert told(space, "new") is None


def test_a_table_that_another_client_made_meanwhile_stays(db: st.Store) -> None:
    space = SiltstoneNamespace(db)
    lance.write_dataset(ROWS, namespace_client=space, table_id=["new"])
    with pytest.raises(Exception, match=r"."):
        lance.write_dataset(CODED, namespace_client=space, table_id=["new"], mode="overwrite")
    assert db["new"].count() == 2


def test_the_log_of_lance_is_refused_by_its_name(db: st.Store) -> None:
    space = SiltstoneNamespace(db)
    dataset = lance.dataset(namespace_client=space, table_id=["p"])
    with pytest.raises(OSError, match="unknown"):  # so Lance says it; nothing was committed
        dataset.initialize_mem_wal(unsharded=True)
    assert "MemWAL is not offered" in (told(space, "p") or "")
    assert "upsert" in (told(space, "p") or "")
    assert db["p"].count() == 2
    assert db.verify().is_sound
