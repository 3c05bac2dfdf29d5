"""A script is cut into its commands, in whatever pieces it comes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import RequestError
from siltstone.local.statements.script import commands, is_whole

SCRIPT = """\
select 1; -- a comment; with a semicolon
.mode csv
/* one; /* within; */ another */ select ';', $$;$$, $tag$;$tag$, E'\\';', ";" ;; ;
  .tables;
insert into t
values (1); select (2; select 'the last one'
"""
FOUND = [
    ("select 1", 1),
    (".mode csv", 2),
    ("select ';', $$;$$, $tag$;$tag$, E'\\';', \";\"", 3),
    (".tables", 4),
    ("insert into t\nvalues (1)", 5),
    ("select (2", 6),
    ("select 'the last one'", 6),
]


@given(some.lists(some.integers(0, len(SCRIPT)), max_size=12))
def test_pieces_of_any_size_give_the_same_commands_on_the_same_lines(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(SCRIPT)]
    pieces = [SCRIPT[begin:end] for begin, end in pairwise(ends)]
    assert [(each.text, each.line) for each in commands(pieces)] == FOUND


def test_a_command_comes_as_soon_as_it_is_whole() -> None:
    seen: list[str] = []

    def pieces() -> object:
        for piece in ("select 1", ";", ".tab", "les\n", "select 'a", "';"):
            yield piece
            seen.append(piece)

    found = [(each.text, len(seen)) for each in commands(pieces())]  # type: ignore[arg-type]
    assert found == [("select 1", 1), (".tables", 3), ("select 'a'", 5)]


@pytest.mark.parametrize(
    "text", ["", "  ", "-- only this", "select 1;", "select (1;", ".tables\n", "select 1; -- done"]
)
def test_a_text_is_whole_where_a_command_ends(text: str) -> None:
    assert is_whole(text)


@pytest.mark.parametrize(
    "text", ["select 1", "select 'a;", 'select "a;', "select $$;", "/* select 1;", "select 1; /* x"]
)
def test_a_text_goes_on_where_a_command_does(text: str) -> None:
    assert not is_whole(text)


def test_a_statement_that_does_not_end_has_a_bound() -> None:
    def without_end() -> object:
        while True:
            yield "select '" + "x" * 65_536

    with pytest.raises(RequestError, match="line 1: a statement has at most 1048576 characters"):
        list(commands(without_end()))  # type: ignore[arg-type]
