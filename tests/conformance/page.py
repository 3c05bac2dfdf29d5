"""Page: the part of `docs/client-matrix.md` that the cases of this folder make.

`SILTSTONE_WRITE_MATRIX=1` with the tests of this folder writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.conformance.cases import CASES, CLIENTS, Case, Refusal
from tests.conformance.guests import Guest


@dataclass(frozen=True, slots=True)
class Cause:
    """Why suites of other projects failed once; `checks` are tests outside of this folder."""

    text: str
    checks: tuple[str, ...] = ()


CAUSES: dict[int, Cause] = {
    1: Cause("Namespaces could not be made, nested or left empty"),
    2: Cause("LanceDB's remote reads without a limit were refused"),
    3: Cause(
        "Computed columns, a filter after the search, the namespace of a renamed table and the"
        " table of a tag were passed over"
    ),
    4: Cause("A table made over REST had a first version that could not be read"),
    5: Cause("Tags could not be listed by pylance: a member had another name"),
    6: Cause("Answers named a location where no table is"),
    7: Cause("Column types were refused without a reason, and left an empty table behind"),
    8: Cause("Vectors in updates, ranges of distances, ids of rows and vectors in structs failed"),
    9: Cause(
        "Bodies that are null were taken; the document of the routes had no schemas",
        (
            "tests/server/test_rest_bad_input.py",
            "tests/server/test_rest_schema.py",
            "tests/server/test_rest_members.py",
        ),
    ),
    10: Cause(
        "A search for as many rows as there are took more memory than its bound",
        ("tests/server/test_rest_queries.py",),
    ),
    11: Cause(
        "Heavy statements of one client kept the health routes waiting",
        ("tests/server/test_rest_health.py", "tests/server/test_statements.py"),
    ),
    12: Cause(
        "Slow heads kept others out; a length beside chunks was taken",
        ("tests/server/test_rest_limits.py",),
    ),
    13: Cause("Datasets could not be pickled; results of SQL lacked the usual methods"),
}

HEAD = """\
## What the suites of Lance and LanceDB ask

The cases of `tests/conformance` ask what the suites of Lance and LanceDB ask, in our own words, and
run against a server and in the store's own process. pylance and LanceDB's namespace connection open
the files of a table; the other clients ask the store for rows. A number counts the cases that pass;
a dash means that the client has no call for what these cases ask.

"""
_REFUSED = """\

### What is refused

Nothing changes when a case is refused.

"""
_CAUSES = """\

### Why suites failed once

"""


def page() -> str:
    """Return the part of the page; all modules of cases are imported."""
    parts = [HEAD, *_table(["cases", *(each.name for each in CLIENTS)], _matrix())]
    parts += [
        _REFUSED,
        *_table(["case", "client, and the class of its error", "reason"], _refusals()),
    ]
    parts += [_CAUSES, *_table(["cause", "now", "cases"], _causes())]
    return "".join(parts)


def _cases() -> list[Case]:
    return [CASES[place] for place in sorted(CASES)]


def _table(header: list[str], rows: Iterable[list[str]]) -> Iterable[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(row) + " |\n"


def _matrix() -> Iterable[list[str]]:
    for kind in dict.fromkeys(each.kind for each in _cases()):
        cases = [each for each in _cases() if each.kind == kind]
        yield [kind, *(_cell(cases, client) for client in CLIENTS)]


def _cell(cases: list[Case], client: type[Guest]) -> str:
    asked = [each for each in cases if client in each.clients]
    refused = sum(client in each.refused for each in asked)
    if not asked:
        return "–"
    return f"{len(asked) - refused}, {refused} refused" if refused else str(len(asked))


def _refusals() -> Iterable[list[str]]:
    for each in _cases():
        same: dict[str, list[str]] = {}
        for client in CLIENTS:
            if client in each.refused:
                refusal = each.refused[client]
                told = f"{client.name} (`{refusal.error.__name__}`)"
                same.setdefault(_reason(refusal), []).append(told)
        for reason, clients in same.items():
            yield [each.sentence, "; ".join(clients), reason]


def _reason(refusal: Refusal) -> str:
    return f"by the client: {refusal.why}" if refusal.by_client else refusal.why


def _causes() -> Iterable[list[str]]:
    for number, cause in CAUSES.items():
        cases = [each for each in _cases() if number in each.causes]
        by_store = [r for each in cases for r in each.refused.values() if not r.by_client]
        now = "gone, or refused as above" if by_store else "gone"
        checks = [str(len(cases))] if cases else []
        yield [f"{cause.text}.", now, ", ".join([*checks, *(f"`{each}`" for each in cause.checks)])]
