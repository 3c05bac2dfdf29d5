"""Each bound is met exactly: what is at it is taken, one more is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.catalog.definitions import APP_CHARACTERS_MAX, HOLDER_CHARACTERS_MAX
from siltstone.engine.commit.recent_writes import Keys, RecentWrites
from siltstone.engine.filter.compiler import TEXT_BYTES_MAX
from siltstone.formats.schema import COLUMNS_MAX, NAME_CHARACTERS_MAX
from siltstone.query.sql import sql
from siltstone.server.rest.tokens import (
    TOKEN_CHARACTERS_MAX,
    TOKEN_CHARACTERS_MIN,
    TOKENS_MAX,
    tokens_of,
)
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}
TAG_CHARACTERS_MAX = 128


@dataclass(frozen=True)
class Bound:
    """`use` asks for so much; `largest` and `smallest` are the last that are fine."""

    use: Callable[[Store, int], object]
    largest: int
    smallest: int = 1


def columns(count: int) -> dict[str, str]:
    return {"id": "int64"} | {f"c{n}": "int64" for n in range(1, count)}


def widen(db: Store, count: int) -> None:
    with db.transaction() as tx:
        tx.create_table("wide", columns(count - 1), "id")
        tx["wide"].add_column("last", "int64")


def tokens(count: int = 1, characters: int = TOKEN_CHARACTERS_MIN) -> object:
    lines = [f"n{n} read {str(n).rjust(characters, 'x')}" for n in range(count)]
    return tokens_of("\n".join(lines), "the file")


BOUNDS = {
    "columns of a new table": Bound(
        lambda db, n: db.create_table("wide", columns(n), "id"), COLUMNS_MAX
    ),
    "columns with one that is added": Bound(widen, COLUMNS_MAX, 2),
    "characters of a table's name": Bound(
        lambda db, n: db.create_table("n" * n, SCHEMA), NAME_CHARACTERS_MAX
    ),
    "characters of a column's name": Bound(
        lambda db, n: db["t"].add_column("n" * n, "int64"), NAME_CHARACTERS_MAX
    ),
    "characters of a tag": Bound(lambda db, n: db.tag("n" * n), TAG_CHARACTERS_MAX),
    "characters of an app": Bound(lambda db, n: db.claim("n" * n), APP_CHARACTERS_MAX),
    "characters of a holder": Bound(lambda db, n: db.claim("app", "n" * n), HOLDER_CHARACTERS_MAX),
    "bytes of a filter": Bound(lambda db, n: db["t"].count("v = 1".ljust(n)), TEXT_BYTES_MAX, 5),
    "characters of a statement": Bound(
        lambda db, n: db.sql("select 1".ljust(n)).fetchall(), sql.TEXT_BYTES_MAX, 8
    ),
    "tokens of a server": Bound(lambda _db, n: tokens(n), TOKENS_MAX),
    "characters of a token": Bound(
        lambda _db, n: tokens(characters=n), TOKEN_CHARACTERS_MAX, TOKEN_CHARACTERS_MIN
    ),
}
BELOW_TOO = ["characters of a token"]
"""Bounds that have a lower end of their own; the others end where there is nothing."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path, fake_env()) as store:
        store.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
        yield store


@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_at_a_bound_is_taken(db: Store, name: str) -> None:
    BOUNDS[name].use(db, BOUNDS[name].largest)


@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_smallest_is_taken(db: Store, name: str) -> None:
    BOUNDS[name].use(db, BOUNDS[name].smallest)


@pytest.mark.parametrize("name", BOUNDS)
def test_one_more_than_a_bound_is_refused_and_changes_nothing(db: Store, name: str) -> None:
    seq, names = db.seq, db.tables()
    with pytest.raises(st.RequestError):
        BOUNDS[name].use(db, BOUNDS[name].largest + 1)
    assert (db.seq, db.tables(), db.tags()) == (seq, names, {})


@pytest.mark.parametrize("name", BELOW_TOO)
def test_one_less_than_a_lower_bound_is_refused(db: Store, name: str) -> None:
    with pytest.raises(st.RequestError):
        BOUNDS[name].use(db, BOUNDS[name].smallest - 1)


def test_recent_writes_up_to_their_bound_are_all_remembered_and_above_it_the_oldest_go() -> None:
    size = Keys(["a"]).nbytes
    recent = RecentWrites(bytes_max=3 * size)
    for seq, key in enumerate("abc", 1):
        recent.remember(1, seq, Keys([key]))
        recent.forget(0)
    assert (recent.nbytes, recent.floor) == (3 * size, 0)
    recent.remember(1, 4, Keys(["d"]))
    recent.forget(0)
    assert (recent.nbytes, recent.floor) == (3 * size, 1)
    assert recent.conflict(1, 1, Keys(["b"])) == ("b", 2)
