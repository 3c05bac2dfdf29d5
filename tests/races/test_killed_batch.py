"""A server killed in a batch commit: behind its frame all tables show it, before it none."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import siltstone as st
from siltstone.failpoints import Failpoint, Point
from siltstone.namespace import SiltstoneNamespace
from tests.namespace.clients import append, ids, make, opened, rows
from tests.namespace.staging import staged
from tests.races.ledger import killed_at, points_of
from tests.races.processes import Process, Spares
from tests.server.rest import rest_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the clients' own making
OPTIONS = {"background": False, "segment_bytes": 65_536}
BEFORE = {"a": list(range(20)), "b": list(range(10)), "gone": [0]}
AFTER = {"a": list(range(30)), "b": list(range(20)), "new": None}
BEHIND_THE_FRAME = [Failpoint.COMMIT_AFTER_FRAME, *points_of("show")]


@dataclass(frozen=True)
class Made:
    """A store with versions that clients staged, and the operations that commit them."""

    root: Path
    operations: list[dict[str, Any]]

    def at(self, root: Path) -> Made:
        """Return the same at another place."""
        shutil.copytree(self.root, root)
        names = [str(where).removeprefix("/") for where in (self.root, root)]
        return Made(root, json.loads(json.dumps(self.operations).replace(*names)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("batch") / "shop"
    with st.connect(root, **OPTIONS) as db:
        ns = SiltstoneNamespace(db)
        for name, end in (("a", 10), ("b", 10), ("gone", 1)):
            make(ns, name, rows(0, end))
        append(ns, "a", rows(10, 20))
        operations = [
            {"create_table_version": staged(ns, "a", rows(20, 30))},
            {"declare_table": {"id": ["new"]}},
            {"create_table_version": staged(ns, "b", rows(10, 20))},
            {
                "delete_table_versions": {
                    "id": ["a"],
                    "ranges": [{"start_version": 1, "end_version": 2}],
                }
            },
            {"deregister_table": {"id": ["gone"]}},
        ]
    return Made(root, operations)


def shown(db: st.Store) -> dict[str, list[int] | None]:
    """Return what a stock client reads of each table; None of one without a version."""
    ns = SiltstoneNamespace(db)
    found: dict[str, list[int] | None] = {}
    for name in db.tables():
        has_versions = ns.list_table_versions({"id": [name]}).versions
        found[name] = ids(opened(ns, name)) if has_versions else None
    return found


def killed(server: Process, made: Made, order: str) -> None:
    """Let a server die in the batch; its client hears nothing of it."""
    server.call("open", root=str(made.root))
    address = urlsplit(str(server.call("serve")))
    server.call("arm", orders=order, socket="")
    wire = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    wire.request("POST", "/v1/table/batch-commit", json.dumps({"operations": made.operations}))
    with pytest.raises(ConnectionError):
        wire.getresponse()
    wire.close()
    assert server.died() == -signal.SIGKILL


def check(made: Made, *, is_there: bool) -> None:
    """Check what the next server shows, and that the same batch ends as it must."""
    with rest_of(made.root) as (db, _, rest):
        assert shown(db) == (AFTER if is_there else BEFORE)
        seq = db.seq
        again = rest.post("/v1/table/batch-commit", {"operations": made.operations})
        if is_there:
            assert again.code == (409, 5)
            assert db.seq == seq
        else:
            assert again.status == 200, again.body
        assert shown(db) == AFTER
        append(SiltstoneNamespace(db), "b", rows(90, 91))
        assert db["b"].count() == 21
        assert db.verify(deep=True).is_sound


@killed_at([*points_of("take"), *points_of("ddl"), *points_of("commit"), *points_of("show")])
def test_a_server_killed_in_a_batch_commit_leaves_all_tables_with_it_or_none(
    spares: Spares, made: Made, tmp_path: Path, point: Point
) -> None:
    here = made.at(tmp_path / "shop")
    killed(spares.take(), here, f"{point.label}=kill")
    check(here, is_there=point in BEHIND_THE_FRAME)


@killed_at([Failpoint.TAKE_AFTER_PLAN, Failpoint.SHOW_BEFORE_LINK])
def test_a_server_killed_at_the_second_table_of_a_batch_leaves_both_or_none(
    spares: Spares, made: Made, tmp_path: Path, point: Point
) -> None:
    here = made.at(tmp_path / "shop")
    killed(spares.take(), here, f"{point.label}=kill@2")
    check(here, is_there=point in BEHIND_THE_FRAME)
