"""Several tables are committed in one step, by one request or by statements of a transaction."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from subprocess import PIPE
from typing import Any

import lance
import pytest
from lance_namespace import errors

import siltstone as st
from siltstone.api.store import Store
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import staged

FIRST = [{"start_version": 1, "end_version": 2}]
# The writers and the commits of each: 20 x 50 takes minutes, as Lance has losers try again.
WRITERS, COMMITS = (20, 50) if os.environ.get("SILTSTONE_SOAK") else (6, 8)
RACES = 1_000 if os.environ.get("SILTSTONE_SOAK") else 10


def committed(ns: SiltstoneNamespace, *requests: dict[str, Any]) -> dict[str, Any]:
    operations = [{"create_table_version": request} for request in requests]
    return ns.batch_commit_tables({"operations": operations}).to_dict()


def test_a_batch_commits_all_tables_at_one_seq(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 10))
    make(ns, "b", rows(0, 10))
    make(ns, "gone", rows(0, 1))
    append(ns, "a", rows(10, 20))
    before = db.seq
    answer = ns.batch_commit_tables(
        {
            "operations": [
                {"create_table_version": staged(ns, "a", rows(20, 30))},
                {"declare_table": {"id": ["new"]}},
                {"create_table_version": staged(ns, "b", rows(10, 13))},
                {
                    "delete_table_versions": {
                        "id": ["a"],
                        "ranges": FIRST,
                    }
                },
                {"deregister_table": {"id": ["gone"]}},
            ]
        }
    )
    kinds = [next(iter(result.to_dict())) for result in answer.results]
    assert kinds == [
        *("create_table_version", "declare_table", "create_table_version"),
        *("delete_table_versions", "deregister_table"),
    ]
    assert db.outcome(answer.transaction_id) == "committed"
    assert db.seq == before + 1
    assert (db["a"].count(), db["b"].count()) == (30, 13)
    assert db.tables() == ["a", "b", "new"]
    listed = ns.list_table_versions({"id": ["a"]}).versions
    assert [version.version for version in listed] == [2, 3]
    with db.snapshot(seq=before) as past:
        assert (past["a"].count(), past["b"].count(), past["gone"].count()) == (20, 10, 1)


def test_a_batch_with_one_loser_changes_nothing(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 10))
    make(ns, "b", rows(0, 10))
    first, second = staged(ns, "a", rows(10, 20)), staged(ns, "b", rows(10, 20))
    append(ns, "b", rows(50, 60))
    before = db.seq
    with pytest.raises(errors.ConcurrentModificationError):
        committed(ns, first, second)
    assert db.seq == before
    assert ids(opened(ns, "a")) == list(range(10))
    newest = ns.list_table_versions({"id": ["a"], "limit": 1, "descending": True})
    assert newest.versions[0].version == 1


def test_the_same_manifest_twice_is_the_same_version(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 10))
    request = staged(ns, "a", rows(10, 20))
    first = ns.create_table_version(request)
    seq = db.seq
    second = ns.create_table_version(request)
    assert first.version.manifest_path == second.version.manifest_path
    assert first.version.manifest_path != request["manifest_path"]
    assert db.seq == seq
    assert db["a"].count() == 20


def test_statements_see_each_other_and_nobody_else_does_until_the_commit(
    db: Store, ns: SiltstoneNamespace
) -> None:
    make(ns, "a", rows(0, 5))
    make(ns, "b", rows(0, 5))
    db.create_table("k", {"id": "int64"}, primary_key="id")
    with ns.transaction() as tx:
        append(tx, "a", rows(5, 15))
        opened(tx, "a").delete("id = 0")
        opened(tx, "b").delete("id < 2")
        make(tx, "c", rows(0, 1))
        tx.transaction["k"].insert({"id": 1})
        assert (opened(tx, "a").count_rows(), opened(tx, "b").count_rows()) == (14, 3)
        assert (opened(ns, "a").count_rows(), opened(ns, "b").count_rows()) == (5, 5)
        assert db.tables() == ["a", "b", "k"]
        before = db.seq
    assert db.seq == before + 1
    assert (db["a"].count(), db["b"].count(), db["c"].count(), db["k"].count()) == (14, 3, 1, 1)
    with ns.at(seq=before) as past:
        assert (opened(past, "a").count_rows(), opened(past, "b").count_rows()) == (5, 5)
    append(ns, "a", rows(100, 101))
    assert opened(ns, "a").count_rows() == 15


def test_the_first_committer_wins(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 5))
    make(ns, "b", rows(0, 5))
    tx = ns.transaction()
    append(tx, "a", rows(5, 6))
    append(tx, "b", rows(5, 6))
    append(ns, "b", rows(10, 11))
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert ids(opened(ns, "a")) == list(range(5))
    assert ids(opened(ns, "b")) == [0, 1, 2, 3, 4, 10]


def test_a_rollback_leaves_nothing(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 5))
    tx = ns.transaction()
    append(tx, "a", rows(5, 6))
    tx.rollback()
    assert opened(ns, "a").count_rows() == 5
    append(ns, "a", rows(7, 8))
    assert ids(opened(ns, "a")) == [0, 1, 2, 3, 4, 7]


def test_writers_at_once_lose_nothing_and_leave_no_hole(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "t", rows(0, 1))
    writers, commits = WRITERS, COMMITS
    done: list[list[int]] = [[] for _ in range(writers)]

    def write(writer: int) -> None:
        for n in range(commits):
            number = 1 + writer * commits + n
            while True:
                with contextlib.suppress(OSError):  # Lance gives up after 20 rounds, or 30 s
                    append(ns, "t", rows(number, number + 1))
                    break
            done[writer].append(number)

    threads = [threading.Thread(target=write, args=[writer]) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(each) for each in done] == [commits] * writers
    assert sorted(db["t"].to_arrow()["id"].to_pylist()) == list(range(1 + writers * commits))
    listed = [v.version for v in ns.list_table_versions({"id": ["t"]}).versions]
    assert listed == list(range(1, 2 + writers * commits))


def test_of_two_batches_over_the_same_tables_one_wins(db: Store, ns: SiltstoneNamespace) -> None:
    make(ns, "a", rows(0, 1))
    make(ns, "b", rows(0, 1))
    for round_ in range(1, 21):
        won = _race(ns, 100 * round_)
        assert len(won) == 1
        assert ids(opened(ns, "a"))[-1] == won[0] == ids(opened(ns, "b"))[-1]
        assert db["a"].count() == db["b"].count() == 1 + round_


CLIENT = """
import http.client, json, sys
for line in sys.stdin:
    port, body = line.split(" ", 1)
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request("POST", "/v1/table/batch-commit", body, {"content-type": "application/json"})
    print(connection.getresponse().status, flush=True)
"""


def test_of_two_processes_with_batches_over_the_same_tables_one_wins(
    db: Store, ns: SiltstoneNamespace
) -> None:
    for name in "abc":
        make(ns, name, rows(0, 1))
    port = db.serve(port=0).port
    command = [sys.executable, "-c", CLIENT]
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(2)
        ]
        for first in range(1, 2 * RACES, 2):
            pairs = zip(clients, ("ab", "bc"), strict=True)
            paths: list[dict[str, str]] = []
            for number, (client, names) in enumerate(pairs, first):
                row = rows(number, number + 1)
                given = {name: staged(ns, name, row, "overwrite") for name in names}
                operations = [{"create_table_version": each} for each in given.values()]
                client.stdin.write(f"{port} {json.dumps({'operations': operations})}\n")
                paths.append({name: each["manifest_path"] for name, each in given.items()})
            for client in clients:
                client.stdin.flush()
            codes = [int(client.stdout.readline()) for client in clients]
            assert sorted(codes) == [200, 409], codes
            won, lost = codes.index(200), codes.index(409)
            for name in paths[won]:
                assert newest(ns, name) == token(paths[won][name])
            for name in paths[lost].keys() - paths[won]:
                assert newest(ns, name) != token(paths[lost][name])
        for client in clients:
            client.stdin.close()
    found = [db[name].to_arrow()["id"].to_pylist() for name in "abc"]
    assert found[1] in (found[0], found[2])
    assert [len(each) for each in found] == [1, 1, 1]
    counts = [len(ns.list_table_versions({"id": [name]}).versions) - 1 for name in "abc"]
    assert counts[0] + counts[2] == counts[1] == RACES


def newest(ns: SiltstoneNamespace, name: str) -> str:
    """Return the token of the client that made the newest version."""
    found = ns.list_table_versions({"id": [name], "limit": 1, "descending": True})
    return found.versions[0].manifest_path.split("/")[-2]


def token(staged_path: str) -> str:
    return staged_path.rpartition(".manifest-")[2]


def _race(ns: SiltstoneNamespace, first: int) -> list[int]:
    """Commit two batches at once; return the rows of the winners."""
    batches = {
        number: [staged(ns, name, rows(number, number + 1)) for name in "ab"]
        for number in (first, first + 1)
    }
    won: list[int] = []
    barrier = threading.Barrier(2)

    def commit(number: int) -> None:
        barrier.wait()
        with contextlib.suppress(errors.ConcurrentModificationError):
            committed(ns, *batches[number])
            won.append(number)

    threads = [threading.Thread(target=commit, args=[number]) for number in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_version_that_is_staged_again_under_an_applied_token_is_shown_to_nobody(
    db: Store, ns: SiltstoneNamespace
) -> None:
    folder = make(ns, "t", rows(0, 5)).uri
    for _ in range(2):
        with ns.transaction(token=("etl", 1)) as tx:
            append(tx, "t", rows(5, 10))
        assert ids(lance.dataset(folder)) == list(range(10))
    assert db["t"].count() == 10
    append(ns, "t", rows(20, 21))
    assert ids(lance.dataset(folder)) == ids(opened(ns, "t")) == [*range(10), 20]
