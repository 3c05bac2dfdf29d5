"""The matrix of clients and operations in the documentation is what the clients do, all of it.

SILTSTONE_WRITE_MATRIX=1 writes the page anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lance_namespace.errors import LanceNamespaceError

from siltstone.server.http.pipeline import Counters
from tests.clients import matrix_page
from tests.clients.clients import CLIENTS, Client, Refused
from tests.clients.operations import OPERATIONS, Operation, Tables
from tests.server.rest import rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
# What LanceDB's remote client takes for the host of its database.
HOST = "dev.us-east-1.api.lancedb.com"
HEAD = """# Which client supports which operation

The tests write this page (`tests/clients`): they run every operation with every client and check
the store afterwards. DuckDB and Polars read the result of a scan over HTTP.

- **yes**: it works. A remark describes the result.
- **refused**: the server refuses with a code of the specification; nothing changed. If the server
  refuses a commit, Lance reports "unknown" and prints the server's reason on the client's
  standard error; the server's log has the reason, too.
- **no**: the client cannot express the operation, or refuses it itself.

"""


def refusals(counters: Counters) -> int:
    return sum(count for (_, status), count in counters.by_route.items() if status >= 400)


def cell(client: Client, operation: Operation, tables: Tables) -> str:
    """Return what a client gets of an operation."""
    work = getattr(client, operation.name, None)
    if work is None:
        return "no"
    tables.prepare()
    before = refusals(client.service.pipeline.counters)
    try:
        remark = work()
    except AssertionError:
        raise
    except Exception as error:
        if refusals(client.service.pipeline.counters) > before:
            return f"refused, {told(error)}"
        if not is_own_refusal(error):
            raise
        return "no"
    assert operation.is_done(client.db), (type(client).__name__, operation.title)
    return f"yes, {remark}" if remark else "yes"


def is_own_refusal(error: Exception) -> bool:
    """Say whether a client refuses by itself; a mistake of ours is none."""
    found = re.search(r"not (yet )?(supported|implemented)|unsupported", repr(error).lower())
    return isinstance(error, NotImplementedError) or found is not None


def told(error: Exception) -> str:
    """Return the code of the specification that an error of a client carries, if it does."""
    if "Commit result" in str(error) and "is unknown" in str(error):
        return "reported as unknown"
    if isinstance(error, Refused | LanceNamespaceError):
        return str(int(error.code))
    found = re.search(r'"code": ?(\d+)', str(getattr(error, "body", "")) + str(error))
    assert found, repr(error)
    return found[1]


def test_the_page_is_what_the_clients_do(tmp_path: Path) -> None:
    lines = [
        "| operation | " + " | ".join(client.name for client in CLIENTS) + " |",
        "| --- |" + " --- |" * len(CLIENTS),
    ]
    with rest_of(tmp_path / "shop", allowed_hosts=[HOST]) as (db, service, _):
        clients, tables = [make(db, service) for make in CLIENTS], Tables(db)
        for operation in OPERATIONS:
            cells = [cell(client, operation, tables) for client in clients]
            lines.append(f"| {operation.title} | " + " | ".join(cells) + " |")
    page = HEAD + "\n".join(lines) + "\n"
    if os.environ.get("SILTSTONE_WRITE_MATRIX"):
        matrix_page.write(matrix_page.OPERATIONS, page)
    assert matrix_page.read(matrix_page.OPERATIONS) == page
