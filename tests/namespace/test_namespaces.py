"""Namespaces exist from their creation to their drop, durably and at each seq, or while in use."""

# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.engine.seams import Threads
from tests.namespace.clients import make, rows
from tests.server.stores import joined_to

TEAM = {"owner": "a team"}


def spaces(ns: Any, *path: str) -> list[str]:
    return ns.list_namespaces({"id": list(path)}).namespaces


def described(ns: Any, *path: str) -> dict[str, str]:
    return ns.describe_namespace({"id": list(path)}).properties


def test_an_empty_namespace_is_there_with_its_properties_also_after_a_restart(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path, background=False) as db:
        ns = SiltstoneNamespace(db)
        made = ns.create_namespace({"id": ["a"], "properties": TEAM})
        assert made.properties == TEAM
        ns.create_namespace({"id": ["a", "b"]})
    with st.connect(tmp_path, background=False) as db:  # replayed
        ns = SiltstoneNamespace(db)
        assert (spaces(ns), spaces(ns, "a"), spaces(ns, "a", "b")) == (["a"], ["b"], [])
        assert (described(ns, "a"), described(ns, "a", "b")) == (TEAM, {})
        assert ns.list_tables({"id": ["a", "b"]}).tables == []
        db.checkpoint()
        ns.drop_namespace({"id": ["a", "b"]})
    with st.connect(tmp_path, background=False) as db:  # of a record, and replayed
        ns = SiltstoneNamespace(db)
        assert (spaces(ns), spaces(ns, "a"), described(ns, "a")) == (["a"], [], TEAM)


def test_a_namespace_is_created_once(ns: SiltstoneNamespace) -> None:
    ns.create_namespace({"id": ["a"], "properties": TEAM})
    for mode in (None, "create", "Create"):
        with pytest.raises(errors.NamespaceAlreadyExistsError, match="'a' exists already"):
            ns.create_namespace({"id": ["a"], "mode": mode})
    for mode in ("exist_ok", "ExistOk"):
        kept = ns.create_namespace({"id": ["a"], "mode": mode, "properties": {"other": "x"}})
        assert kept.properties == TEAM
    fresh = ns.create_namespace({"id": ["a"], "mode": "Overwrite", "properties": {"other": "x"}})
    assert fresh.properties == {"other": "x"} == described(ns, "a")


def test_overwriting_a_namespace_drops_nothing_that_is_in_it(
    db: Store, ns: SiltstoneNamespace
) -> None:
    ns.create_namespace({"id": ["a"], "properties": TEAM})
    db.create_table("a.t", {"n": "int64"})
    with pytest.raises(errors.NamespaceNotEmptyError, match="'a' is not empty"):
        ns.create_namespace({"id": ["a"], "mode": "overwrite"})
    assert described(ns, "a") == TEAM


def test_the_namespace_above_has_to_exist(db: Store, ns: SiltstoneNamespace) -> None:
    with pytest.raises(errors.NamespaceNotFoundError, match=r"no namespace 'a\.b'"):
        ns.create_namespace({"id": ["a", "b", "c"]})
    db.create_table("a.b.t", {"n": "int64"})
    ns.create_namespace({"id": ["a", "b", "c"]})
    db.drop_table("a.b.t")
    assert (spaces(ns), spaces(ns, "a"), spaces(ns, "a", "b")) == (["a"], ["b"], ["c"])


def test_tables_of_any_depth_are_read_and_written_by_lance(ns: SiltstoneNamespace) -> None:
    path: list[str] = []
    for level in ("a", "b", "c"):
        path.append(level)
        ns.create_namespace({"id": path})
    table = [*path, "t"]
    lance.write_dataset(rows(0, 3), namespace_client=ns, table_id=table, mode="create")
    lance.write_dataset(rows(3, 5), namespace_client=ns, table_id=table, mode="append")
    assert lance.dataset(namespace_client=ns, table_id=table).count_rows() == 5
    assert ns.list_tables({"id": path}).tables == ["t"]
    assert ns.list_tables({"id": ["a"]}).tables == []
    assert ns.list_all_tables({}).tables == ["a$b$c$t"]
    found = ns.describe_table({"id": table})
    assert (found.namespace, found.table) == (path, "t")
    ns.rename_table({"id": table, "new_table_name": "u", "new_namespace_id": ["a"]})
    assert ns.list_tables({"id": ["a"]}).tables == ["u"]
    assert spaces(ns, "a", "b") == ["c"]


def test_a_namespace_that_a_table_implies_goes_with_it_unless_it_was_created(
    db: Store, ns: SiltstoneNamespace
) -> None:
    for name in ("one.t", "two.t"):
        db.create_table(name, {"n": "int64"})
    ns.create_namespace({"id": ["two"], "mode": "exist_ok", "properties": TEAM})
    for name in ("one.t", "two.t"):
        db.drop_table(name)
    assert spaces(ns) == ["two"]
    assert described(ns, "two") == TEAM
    with pytest.raises(errors.NamespaceNotFoundError):
        ns.namespace_exists({"id": ["one"]})


def test_a_namespace_with_something_in_it_is_dropped_only_with_all_of_it(
    db: Store, ns: SiltstoneNamespace
) -> None:
    ns.create_namespace({"id": ["a"]})
    ns.create_namespace({"id": ["a", "b"]})
    db.create_table("a.b.t", {"n": "int64"}).append([{"n": 1}])
    db.create_table("a.k", {"n": "int64"}, primary_key="n").upsert({"n": 1})
    db.create_table("ab.t", {"n": "int64"})
    before = db.seq
    for path in (["a"], ["a", "b"]):
        with pytest.raises(errors.NamespaceNotEmptyError):
            ns.drop_namespace({"id": path, "behavior": "Restrict"})
    assert db.seq == before
    dropped = ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    assert dropped.properties == {}
    assert db.seq == before + 1  # one commit
    assert (spaces(ns), db.tables()) == (["ab"], ["ab.t"])
    with ns.at(seq=before) as past:
        assert (spaces(past), spaces(past, "a")) == (["a", "ab"], ["b"])
        assert lance.dataset(namespace_client=past, table_id=["a", "b", "t"]).count_rows() == 1


def test_what_is_not_there_is_said_by_the_codes_of_the_specification(
    db: Store, ns: SiltstoneNamespace
) -> None:
    ns.create_namespace({"id": ["gone"]})
    db.create_table("gone.t", {"n": "int64"})
    ns.drop_namespace({"id": ["gone"], "behavior": "cascade"})
    for ask in (ns.describe_namespace, ns.namespace_exists, ns.list_namespaces, ns.list_tables):
        with pytest.raises(errors.NamespaceNotFoundError, match="no namespace 'gone'"):
            ask({"id": ["gone"]})
    with pytest.raises(errors.NamespaceNotFoundError):
        ns.drop_namespace({"id": ["gone"]})
    assert ns.drop_namespace({"id": ["gone"], "mode": "Skip"}).properties == {}
    for ask in (ns.describe_table, ns.table_exists, ns.drop_table):
        with pytest.raises(errors.TableNotFoundError, match=r"no table 'gone\.t'"):
            ask({"id": ["gone", "t"]})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"id": ["a.b"]}, "may have no '.'"),
        ({"id": ["a", "b.c"]}, "may have no '.'"),
        ({"id": ["a", ""]}, "1 to 128 characters"),
        ({"id": ["a/b"]}, "letters, digits"),
        ({"id": ["_a"]}, "letters, digits"),
        ({"id": ["a$b"]}, "letters, digits"),
        ({"id": ["a" * 129]}, "1 to 128 characters"),
        ({"id": ["wide", "b" * 128]}, "at most 128"),
        ({"id": ["deep"] + ["x"] * 16}, "at most 16"),
        ({"id": ["a"], "mode": "replace"}, "mode must be one of"),
        ({"id": ["a"], "properties": {"n": 1}}, r"Expected `str`, got `int` - at `\$.properties"),
        ({"id": ["a"], "properties": {"n": "x" * 20_000}}, "at most 64 of 16384"),
        ({"id": ["a"], "properties": {str(n): "" for n in range(65)}}, "at most 64"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_a_wrong_namespace_is_refused_by_one_sentence(
    db: Store, ns: SiltstoneNamespace, request_: dict[str, Any], words: str
) -> None:
    db.create_table("wide.t", {"n": "int64"})
    db.create_table(".".join(["deep"] + ["x"] * 15 + ["t"]), {"n": "int64"})
    before = db.seq
    with pytest.raises(errors.InvalidInputError, match=words) as refused:
        ns.create_namespace(request_)
    assert "\n" not in str(refused.value)
    assert db.seq == before


def test_the_root_is_neither_created_nor_dropped(ns: SiltstoneNamespace) -> None:
    with pytest.raises(errors.NamespaceAlreadyExistsError):
        ns.create_namespace({"id": [], "mode": "overwrite"})
    assert ns.create_namespace({"id": [], "mode": "exist_ok"}).properties == {}
    with pytest.raises(errors.InvalidInputError, match="root"):
        ns.drop_namespace({"id": [], "behavior": "cascade"})


def test_a_table_whose_id_has_a_level_with_a_dot_is_refused(ns: SiltstoneNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"may have no '\.'"):
        ns.declare_table({"id": ["a", "t.1"]})
    make(ns, "a.t", rows(0, 2))  # one word is the whole name
    assert lance.dataset(namespace_client=ns, table_id=["a", "t"]).count_rows() == 2


def test_a_transaction_creates_a_namespace_and_a_table_in_it_or_nothing(
    db: Store, ns: SiltstoneNamespace
) -> None:
    tx = ns.transaction()
    tx.create_namespace({"id": ["a"]})
    lance.write_dataset(rows(0, 2), namespace_client=tx, table_id=["a", "t"], mode="create")
    assert (spaces(tx), spaces(ns)) == (["a"], [])
    tx.rollback()
    assert (spaces(ns), db.tables()) == ([], [])
    with ns.transaction() as tx:
        tx.create_namespace({"id": ["a"], "properties": TEAM})
        lance.write_dataset(rows(0, 2), namespace_client=tx, table_id=["a", "t"], mode="create")
    assert (described(ns, "a"), db["a.t"].count()) == (TEAM, 2)


CREATE: dict[str, Any] = {"id": ["a"]}
TABLE: dict[str, Any] = {"id": ["a", "t"]}
RENAME = {"id": ["r"], "new_table_name": "t", "new_namespace_id": ["a"]}
RACES: dict[str, tuple[bool, str, dict[str, Any], str, dict[str, Any]]] = {
    "a table first, then the drop": (True, "declare_table", TABLE, "drop_namespace", CREATE),
    "the drop first, then a table": (True, "drop_namespace", CREATE, "declare_table", TABLE),
    "the drop first, then a rename": (True, "drop_namespace", CREATE, "rename_table", RENAME),
    "the drop twice": (True, "drop_namespace", CREATE, "drop_namespace", CREATE),
    "one below first, then the drop": (
        *(True, "create_namespace", {"id": ["a", "b"]}),
        *("drop_namespace", CREATE),
    ),
    "the drop first, then one below": (
        *(True, "drop_namespace", CREATE),
        *("create_namespace", {"id": ["a", "b"]}),
    ),
    "the creation twice": (False, "create_namespace", CREATE, "create_namespace", CREATE),
    "a table first, then the creation": (
        *(False, "declare_table", TABLE),
        *("create_namespace", CREATE),
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_the_first_committer_wins_a_namespace(db: Store, ns: SiltstoneNamespace, race: str) -> None:
    is_there, first, its, second, theirs = RACES[race]
    db.create_table("r", {"n": "int64"})
    if is_there:
        ns.create_namespace(CREATE)
    winner, loser = ns.transaction(), ns.transaction()
    getattr(winner, first)(its)
    getattr(loser, second)(theirs)
    winner.commit()
    seen = (spaces(ns), spaces(ns, "a") if spaces(ns) else [], db.tables())
    with pytest.raises(st.ConflictError):
        loser.commit()
    assert (spaces(ns), spaces(ns, "a") if spaces(ns) else [], db.tables()) == seen


def test_a_table_comes_into_a_namespace_that_was_created_meanwhile(
    db: Store, ns: SiltstoneNamespace
) -> None:
    with ns.transaction() as tx:
        tx.declare_table(TABLE)
        ns.create_namespace(CREATE)
    assert (spaces(ns), db.tables()) == (["a"], ["a.t"])


def test_who_loses_a_creation_hears_that_it_exists(db: Store, ns: SiltstoneNamespace) -> None:
    threads = Threads()
    found: list[object] = []

    def create(owner: str) -> None:
        try:
            ns.create_namespace({"id": ["a"], "properties": {"owner": owner}})
            found.append(owner)
        except errors.NamespaceAlreadyExistsError as error:
            found.append(error)

    for owner in "abcdefgh":
        threads.start(create, owner)
    threads.join()
    (winner,) = [each for each in found if isinstance(each, str)]
    assert len(found) == 8
    assert described(ns, "a") == {"owner": winner}


def test_readers_and_joined_processes_see_namespaces(db: Store, ns: SiltstoneNamespace) -> None:
    ns.create_namespace({"id": ["a"], "properties": TEAM})
    seq = db.seq
    with st.connect(db.path, read_only=True) as beside:
        other = SiltstoneNamespace(beside)
        assert described(other, "a") == TEAM
        ns.drop_namespace({"id": ["a"]})
        assert spaces(other) == []
        with pytest.raises(errors.PermissionDeniedError):
            other.create_namespace({"id": ["b"]})
        with other.at(seq=seq) as past:
            assert described(past, "a") == TEAM
            with pytest.raises(errors.PermissionDeniedError):
                past.drop_namespace({"id": ["a"]})


def test_a_joined_process_creates_and_drops_namespaces(db: Store) -> None:
    with joined_to(db) as joined:
        ns = SiltstoneNamespace(joined)
        assert ns.create_namespace({"id": ["a"], "properties": TEAM}).properties == TEAM
        with pytest.raises(errors.NamespaceAlreadyExistsError, match="'a' exists already"):
            ns.create_namespace({"id": ["a"]})
        with ns.transaction() as tx:
            tx.create_namespace({"id": ["a", "b"]})
            assert (spaces(tx, "a"), spaces(ns, "a")) == (["b"], [])
        with pytest.raises(errors.NamespaceNotEmptyError):
            ns.drop_namespace({"id": ["a"]})
        assert (described(ns, "a"), spaces(ns, "a")) == (TEAM, ["b"])
        ns.drop_namespace({"id": ["a"], "behavior": "cascade"})
        assert spaces(SiltstoneNamespace(db)) == []


def test_backups_have_the_namespaces_and_vacuum_forgets_those_of_long_ago(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        ns = SiltstoneNamespace(db)
        for name in ("old", "new"):
            ns.create_namespace({"id": [name], "properties": TEAM})
        ns.drop_namespace({"id": ["old"]})
        db.backup(tmp_path / "backup")
        db.create_table("t", {"n": "int64"}, primary_key="n").upsert({"n": 1})
        for _ in range(2):
            db.checkpoint()
            db.vacuum(dry_run=False, grace_s=-1e9)
        known = db._core.state().view.record.catalog.namespaces
        assert [space.name for space in known] == ["new"]
        db.create_table("u", {"n": "int64"})
        db.checkpoint()
        known = db._core.state().view.record.catalog.namespaces
        assert [space.name for space in known] == ["new"]
        assert spaces(ns) == ["new"]
    st.restore(tmp_path / "backup", tmp_path / "again")
    with st.connect(tmp_path / "again", background=False) as db:
        assert described(SiltstoneNamespace(db), "new") == TEAM
        assert spaces(SiltstoneNamespace(db)) == ["new"]
        assert db.verify(deep=True).is_sound


def test_the_log_says_which_namespaces_a_commit_created_or_dropped(tmp_path: Path) -> None:
    with st.connect(tmp_path, background=False) as db:
        ns = SiltstoneNamespace(db)
        ns.create_namespace({"id": ["a"]})
        ns.create_namespace({"id": ["a", "b"]})
        ns.drop_namespace({"id": ["a", "b"]})
        assert [entry.changes for entry in db.log()] == [
            ("drop namespace a.b",), ("create namespace a.b",), ("create namespace a",)
        ]  # fmt: skip


def test_an_overwrite_that_is_refused_leaves_a_transaction_as_it_was(
    ns: SiltstoneNamespace,
) -> None:
    ns.create_namespace({"id": ["a"], "properties": TEAM})
    with ns.transaction() as tx:
        with pytest.raises(errors.InvalidInputError, match="properties of 20001 characters"):
            tx.create_namespace(
                {"id": ["a"], "mode": "overwrite", "properties": {"x": "y" * 20_000}}
            )
        assert described(tx, "a") == TEAM
    assert described(ns, "a") == TEAM


def test_a_drop_that_was_applied_is_told_again_whatever_came_since(
    db: Store, ns: SiltstoneNamespace
) -> None:
    ns.create_namespace({"id": ["a"], "properties": TEAM})
    with ns.transaction(token=("app", 1)) as tx:
        assert tx.drop_namespace({"id": ["a"]}).properties == TEAM
    db.create_table("a.t", {"n": "int64"})
    with ns.transaction(token=("app", 1)) as tx:
        tx.drop_namespace({"id": ["a"]})
    assert db.tables() == ["a.t"]


def test_the_bound_counts_the_namespaces_of_one_transaction(
    ns: SiltstoneNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siltstone.engine.catalog.namespaces.NAMESPACES_MAX", 3)
    ns.create_namespace({"id": ["a"]})
    many = ns.transaction()
    for name in "bcd":
        many.create_namespace({"id": [name]})
    with pytest.raises(st.RequestError, match="at most 3"):
        many.commit()
    with ns.transaction() as tx:  # as many as there may be, with one in the place of another
        tx.drop_namespace({"id": ["a"]})
        for name in "bcd":
            tx.create_namespace({"id": [name]})
    assert spaces(ns) == ["b", "c", "d"]


def test_a_cascade_drops_no_table_that_was_moved_out_meanwhile(
    db: Store, ns: SiltstoneNamespace
) -> None:
    ns.create_namespace({"id": ["a"]})
    db.create_table("a.t", {"n": "int64"}, primary_key="n")
    tx = ns.transaction()
    tx.drop_namespace({"id": ["a"], "behavior": "cascade"})
    db.rename_table("a.t", "kept")
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db.tables() == ["kept"]
