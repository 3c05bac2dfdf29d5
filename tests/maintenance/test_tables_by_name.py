"""Maintenance goes by the names that tables have now, also those that no record knows yet.

A table that was created or renamed since the last checkpoint is in the log alone. Who asks for it
by its name means it; who uses a name that it had before means no table, or another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone import admin
from siltstone.errors import TableNotFoundError
from siltstone.maintenance.compaction.optimize import Optimizer
from tests.cli.shell import Shell
from tests.server.rest import Rest
from tests.server.stores import joined_to

SCHEMA = {"id": "int64", "v": "int64"}
Do = Callable[[str], Any]
OPTIONS: dict[str, Any] = {"background": False, "segment_bytes": 65_536}


class Place:
    """A store whose owner serves, and ways to ask for maintenance of a table by its name."""

    def __init__(self, db: st.Store, capsys: pytest.CaptureFixture[str]) -> None:
        self.db, self._shell = db, Shell(db.path, capsys)
        self._open = ExitStack()
        self.joined = self._open.enter_context(joined_to(db))
        self._rest = Rest(db.serve(port=0))

    def close(self) -> None:
        self._rest.close()
        self._open.close()

    def do(self, door: str, work: str, table: str) -> list[str]:
        """Do it; return the tables that it says it was done to."""
        ways: dict[str, Callable[[], Any]] = {
            "owner": lambda: getattr(self.db, work)(table).tables,
            "joined": lambda: getattr(self.joined, work)(table).tables,
            "beside": lambda: getattr(admin, f"{work}_store")(self.db.path, table).tables,
            "rest": lambda: self._by_rest(work, table),
            "cli": lambda: self._by_shell(work, table),
        }
        return list(ways[door]())

    def _by_rest(self, work: str, table: str) -> list[str]:
        asked = self._rest.post(f"/v1/{work}", {"table": table})
        assert asked.status == 202, asked.body
        while True:
            job = self._rest.get(f"/v1/jobs/{asked.json['id']}").json
            if job["status"] == "failed":
                assert "TableNotFoundError" in job["error"], job
                raise TableNotFoundError(table)
            if job["status"] == "succeeded":
                return job["result"]["tables"]

    def _by_shell(self, work: str, table: str) -> list[str]:
        code = self._shell(work, table, "--db", self.db.path, "--json")
        if code == 3:
            raise TableNotFoundError(table)
        assert code == 0, self._shell.err
        return [name for name in self._shell_json()["tables"].split(",") if name]

    def _shell_json(self) -> Any:
        import json

        return json.loads(self._shell.out)


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        for name in ("t", "u"):
            db.create_table(name, SCHEMA, primary_key="id")
            fill(db, name)
        made = Place(db, capsys)
        yield made
        made.close()


def fill(db: st.Store, name: str, parts: int = 3) -> None:
    """Leave several parts in history, not merged."""
    for part in range(parts):
        db[name].upsert([{"id": 10 * part + n, "v": part} for n in range(5)])
        db.checkpoint()


def is_merged(db: st.Store, name: str) -> bool:
    db._owner().checkpointer.refresh()
    incarnation = db[name]._look()[1].incarnations[-1].id
    return db._core.state().view.levels[incarnation].storage.base is not None


DOORS = ["owner", "joined", "beside", "rest", "cli"]


@pytest.mark.parametrize("door", DOORS)
def test_a_renamed_table_is_found_by_its_new_name_alone(place: Place, door: str) -> None:
    place.db.rename_table("t", "new")
    for work in ("optimize", "merge"):
        with pytest.raises(TableNotFoundError):
            place.do(door, work, "t")
        assert place.do(door, work, "new") == ["new"]
    assert is_merged(place.db, "new")
    assert not is_merged(place.db, "u")


@pytest.mark.parametrize("door", DOORS)
def test_of_two_tables_that_swapped_their_names_the_right_one_is_merged(
    place: Place, door: str
) -> None:
    with place.db.transaction() as tx:
        tx.rename_table("t", "aside")
        tx.rename_table("u", "t")
        tx.rename_table("aside", "u")
    assert place.do(door, "optimize", "t") == ["t"]
    assert place.do(door, "merge", "t") == ["t"]
    assert is_merged(place.db, "t")
    assert not is_merged(place.db, "u")


@pytest.mark.parametrize("door", DOORS)
def test_a_table_that_was_never_flushed_has_nothing_to_do(place: Place, door: str) -> None:
    place.db.create_table("young", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    place.db.create_table("plain", SCHEMA).append({"id": 1, "v": 1})
    assert "young" in place.db.tables()
    for name in ("young", "plain"):
        assert place.do(door, "merge", name) == []
        assert place.do(door, "optimize", name) == []
    assert place.db["young"].count() == 1


@pytest.mark.parametrize("door", DOORS)
def test_a_dropped_table_and_one_that_never_was_are_not_found(place: Place, door: str) -> None:
    place.db.drop_table("t")
    for work in ("merge", "optimize"):
        for name in ("t", "nope"):
            with pytest.raises(TableNotFoundError, match=name):
                place.do(door, work, name)
    assert place.do(door, "merge", "u") == ["u"]


@pytest.mark.parametrize("door", DOORS)
def test_a_renamed_plain_table_is_optimized_by_its_new_name(place: Place, door: str) -> None:
    table = place.db.create_table("p", SCHEMA)
    for n in range(3):
        table.append({"id": n, "v": n})
    place.db.checkpoint()
    place.db.rename_table("p", "q")
    with pytest.raises(TableNotFoundError):
        place.do(door, "optimize", "p")
    if door in ("beside", "cli"):  # the owner takes it over when it looks for news
        return
    assert place.do(door, "optimize", "q") == ["q"]


def test_an_index_is_made_and_given_up_beside_an_owner_by_the_new_name(place: Place) -> None:
    db = place.db
    db.merge()
    db.rename_table("t", "new")
    with pytest.raises(TableNotFoundError):
        admin.create_index_in(db.path, "t", "v")
    admin.create_index_in(db.path, "new", "v")
    db._owner().checkpointer.refresh()
    assert "v" in [index.name for index in db["new"].indexes()]
    with pytest.raises(TableNotFoundError):
        admin.drop_index_in(db.path, "t", "v")
    admin.drop_index_in(db.path, "new", "v")
    db._owner().checkpointer.refresh()
    assert "v" not in [index.name for index in db["new"].indexes()]
    db.create_table("young", SCHEMA, primary_key="id")
    with pytest.raises(st.BusyError, match=r"'young' .* checkpoint"):
        admin.create_index_in(db.path, "young", "v")


def test_a_store_that_nobody_owns_is_merged_by_the_names_in_its_log(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", **OPTIONS) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        fill(db, "t")
        db.rename_table("t", "new")
        db.create_table("young", SCHEMA, primary_key="id")
    with pytest.raises(TableNotFoundError):
        admin.merge_store(tmp_path / "s", "t")
    assert admin.optimize_store(tmp_path / "s", "new").tables == ("new",)
    assert admin.merge_store(tmp_path / "s", "new").tables == ("new",)
    assert admin.merge_store(tmp_path / "s", "young").tables == ()


def test_what_a_dead_optimize_left_is_found_by_the_new_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = place.db
    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "_publish", killed)
        with pytest.raises(KeyboardInterrupt):
            db.optimize("t")
    assert [job.state for job in db.jobs()].count("dead") == 1
    db.rename_table("t", "new")
    db.optimize("u")
    assert [job.state for job in db.jobs()].count("dead") == 1, "it is of another table"
    assert db.optimize("new").tables == ("new",)
    assert [job.state for job in db.jobs()].count("dead") == 0


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("table", [7, ["t"], b"t", True])
def test_what_is_no_name_is_refused(place: Place, table: Any) -> None:
    for use in (place.db.merge, place.db.optimize):
        with pytest.raises(st.RequestError):
            use(table)
    for use in (admin.merge_store, admin.optimize_store):
        with pytest.raises(st.RequestError):
            use(place.db.path, table)
