"""Cases: what a client expects of a store, and how each client of the matrix is answered.

    @case("namespaces", *CLIENTS, refused={Generated: Refusal(...)}, causes=[1])
    def test_an_empty_namespace_is_listed(guest, team): ...

A case runs once for each client that it names: it passes, or, where `refused` says so, it ends in
the error that stands there and in no other. A client that is not named has no words for the case.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError
from lancedb.remote.errors import HttpError

from tests.conformance.guests import Guest, NoWordsError, Pylance, PylanceInProcess
from tests.conformance.lancedb_guests import LanceDBNamespace, LanceDBRemote
from tests.conformance.operation_guests import Generated, OperationsInProcess

FILES = (Pylance, LanceDBNamespace, PylanceInProcess)
"""The clients that open the files of a table, and commit versions."""
STATEMENTS = (LanceDBRemote, Generated, OperationsInProcess)
"""The clients that ask the store to read and write rows."""
CLIENTS: tuple[type[Guest], ...] = (
    *(Pylance, LanceDBNamespace, LanceDBRemote, Generated, PylanceInProcess, OperationsInProcess),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that refuses, by name.

    Attributes:
        error: The class that the client raises.
        words: A regular expression that its message holds.
        why: The reason, for the page.
        by_client: The client refuses by itself; the store hears nothing of it.
    """

    error: type[Exception]
    words: str
    why: str
    by_client: bool = False


def not_offered(
    words: str, why: str, error: type[Exception] = UnsupportedOperationError
) -> dict[type[Guest], Refusal]:
    """Return how the store refuses a statement that it does not offer, for each client of them."""
    coded = Refusal(error, words, why)
    return {
        LanceDBRemote: Refusal(HttpError, words, why),
        Generated: coded,
        OperationsInProcess: coded,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """One case; `kind` is its class in the matrix."""

    kind: str
    sentence: str
    place: tuple[str, int]
    clients: tuple[type[Guest], ...]
    refused: Mapping[type[Guest], Refusal] = field(default_factory=dict[type[Guest], Refusal])
    causes: tuple[int, ...] = ()


CASES: dict[tuple[str, int], Case] = {}
"""Every case by its module and line, once the modules of this folder are imported."""


def case(
    kind: str,
    *clients: type[Guest],
    refused: Mapping[type[Guest], Refusal] | None = None,
    causes: tuple[int, ...] = (),
) -> Callable[[Callable[..., None]], Any]:
    """Make a function a case of the class `kind`, for `clients`."""
    refusals = dict(refused or {})
    assert clients
    assert set(refusals) <= set(clients)

    def made(function: Callable[..., None]) -> Any:
        sentence = function.__name__.removeprefix("test_").replace("_", " ")
        code = function.__code__
        place = code.co_filename, code.co_firstlineno
        CASES[place] = Case(kind, sentence, place, clients, refusals, causes)

        @functools.wraps(function)
        def run(guest: Guest, **given: Any) -> None:
            refusal = refusals.get(type(guest))
            if refusal is None:
                function(guest, **given)
                return
            with pytest.raises(refusal.error) as caught:
                function(guest, **given)
            assert type(caught.value) is refusal.error, repr(caught.value)
            assert re.search(refusal.words, told(caught.value)), told(caught.value)

        names = [re.sub(r"\W+", "-", client.name) for client in clients]
        return pytest.mark.parametrize("guest", clients, indirect=True, ids=names)(run)

    return made


def told(error: BaseException) -> str:
    """Return what an error says, with what it was raised from."""
    words, cause = str(error), error.__cause__
    return f"{words}; {told(cause)}" if cause is not None else words


@contextmanager
def refused_with(words: str, kind: type[Exception] = LanceNamespaceError) -> Generator[None]:
    """Assert that the block ends in an error that says `words`, through every client.

    Clients that know the specification's errors raise `kind`; Lance's own errors have no classes.
    """
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the words are looked for below
        yield
    error = caught.value
    if isinstance(error, AssertionError | NoWordsError):
        raise error
    assert re.search(words, told(error)), told(error)
    assert not isinstance(error, LanceNamespaceError) or isinstance(error, kind), repr(error)
