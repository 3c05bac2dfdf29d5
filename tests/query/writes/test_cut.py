"""A statement is cut where its clauses begin, whatever words are in texts, names and comments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

import siltstone as st
from siltstone.errors import RequestError
from siltstone.query.sql.writes.parse import KEPT_MAX, kept, write_of
from siltstone.query.sql.writes.statements import InsertStatement, UpdateStatement
from siltstone.query.sql.writes.words import words_of

PIECES = some.sampled_from(
    [
        *("'it''s -- /* '", "$$ ' $$", "$a$ $$ $a$", "E'\\' x'", "/* a /* b */ ' */", "-- '\n"),
        *(
            '"a "" b"',
            "(",
            ")",
            "[1]",
            "?",
            "$2",
            "$name",
            "1.5e-3",
            "x::int",
            "ä",
            "->>",
            " ",
            ";",
        ),
    ]
)


@given(some.lists(PIECES, max_size=12))
def test_words_are_all_of_a_text_in_its_order(pieces: list[str]) -> None:
    text = " ".join(pieces)
    try:
        words = words_of(text)
    except RequestError:
        assert text.count("(") != text.count(")") or ";" in text or _closes_early(pieces)
        return
    assert [word.text for word in words] == [words.text[w.start : w.end] for w in words]
    starts = [word.start for word in words]
    assert starts == sorted(starts)
    assert "?" not in [word.text for word in words]


def _closes_early(pieces: list[str]) -> bool:
    depth = 0
    for piece in pieces:
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            return True
    return False


@pytest.mark.parametrize(
    "text",
    [
        "update orders set who = 'from x where y' where id = 1",
        "update orders set who = /* from */ 'a' -- where\n where id = 1",
        'update orders set "who" = $$set$$ where id = 1',
        "UPDATE orders SET who = CASE WHEN total IS DISTINCT FROM 3 THEN 'a' END WHERE id = 1",
        "update orders set who = (select 'a' from rates where true limit 1) where id = 1",
        "update orders set who = E'\\'where' where id = 1",
        "/* set */ update main.orders /* a /* b */ from */ set who = 'ä' where (id) = 1",
        "update orders set who = extract(year from day)::varchar where id = 1 returning who",
    ],
)
def test_a_clause_begins_at_its_word_alone(own: st.Store, text: str) -> None:
    found = write_of(text)
    assert found is not None
    assert isinstance(found.statement, UpdateStatement)
    assert found.statement.sources == ""
    assert found.statement.where.strip("()").startswith("id")
    assert own.sql(text).rows == 1
    assert own.sql("select count(*) from orders where who is null").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        "select 1", "from orders", "with a as (select 'insert') from a", "explain delete from a",
        "update extensions", "", "with delete as (select 1) from delete", "values (1)",
    ],
)  # fmt: skip
def test_what_only_reads_is_no_statement_that_writes(text: str) -> None:
    assert write_of(text) is None


def test_the_last_statements_are_kept_and_no_more(own: st.Store) -> None:
    for number in range(KEPT_MAX + 50):
        assert write_of(f"delete from orders where id = {number + 1000}") is not None
    assert kept.cache_info().currsize == KEPT_MAX
    found = write_of("insert into orders (id) values (?)")
    assert found is write_of("insert into orders (id) values (?)")
    assert found is not None
    assert isinstance(found.statement, InsertStatement)
    assert found.parameters == {"p1"}
    assert own.sql("insert into orders (id) values (?)", [50]).rows == 1


def test_statements_of_constants_and_a_frame_that_is_copied_do_without_duckdb(
    own: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.sql("select 1")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("siltstone.query.sql.sql.read", refuse)
    copied = own["orders"].to_arrow()
    assert copied.num_rows == 3
    for text in (
        "insert into orders values (4, 'x', 1.5, '2026-01-01')",
        "insert or replace into orders (id, who) values (4, null), (5, 'y')",
        "insert into orders (id, who) values (5, 'z') on conflict do update set who=excluded.who",
        "insert into orders (id) values (5) on conflict do nothing",
        "update orders set who = 'q', total = default where id = 5",
        "delete from orders where id = 5 or who in ('a', 'b')",
        "delete from orders where id = 4",
        "insert or replace into orders select * from copied",
        "insert into orders from copied on conflict do nothing",
    ):
        own.sql(text)
    assert own["orders"].count() == 3


@pytest.mark.parametrize("piece", ["$a{}$ ", "$$ {} ", "'' {} ' ", "/* {} ", '" {} '])
def test_a_long_text_without_its_end_is_read_once(piece: str) -> None:
    text = "delete from t where " + "".join(piece.format(number) for number in range(80_001))
    with pytest.raises(RequestError):
        words_of(text)


@pytest.mark.parametrize("blank", [" ", "\t", "\f", "\r", "\u00a0", "\u2003", "\u3000", "\ufeff"])
def test_what_duckdb_takes_for_a_blank_is_one(own: st.Store, blank: str) -> None:
    assert own.sql(blank.join(["delete", "from", "orders", "where", "id=1"])).rows == 1


@pytest.mark.parametrize("letter", ["\v", "\x1c", "\x85", "\u1680", "\u2028"])
def test_no_other_letter_is_a_blank(own: st.Store, letter: str) -> None:
    with pytest.raises(st.RequestError):
        own.sql(f"delete from orders{letter}where id = 1")
    assert own["orders"].count() == 3
