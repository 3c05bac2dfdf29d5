"""What `/metrics` says is in one table, and Prometheus has nothing to find fault with."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

import siltstone as st
from siltstone.admin import vacuum_store
from siltstone.maintenance.schedule.mirror_status import MirrorStatus
from siltstone.process.latency import Latency
from siltstone.server.metrics import sources
from siltstone.server.metrics.exposition import ALLOWANCE_S, SHARE_MAX, Exposition
from siltstone.server.metrics.families import BUILD, FAMILIES
from siltstone.server.metrics.sources import OTHERS, TABLES_MAX, Value
from siltstone.server.rest.server import RestServer
from tests.server.rest import Rest, rest_of

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Debian's package prometheus has it")
Served = tuple[st.Store, RestServer, Rest]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with rest_of(tmp_path_factory.mktemp("metrics") / "shop") as found:
        found[0].create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        found[2].post("/v1/table/t/count_rows", {})
        yield found


def text_of(rest: Rest) -> str:
    answer = rest.get("/metrics")
    assert answer.status == 200, answer.body
    return answer.body.decode()


def test_a_mirror_has_its_series(served: Served) -> None:
    mirror = MirrorStatus("s3://shop/x", seq=7, nbytes=9, behind=2, age_s=1.5, left_bytes=3)
    found = sources._of_mirrors(SimpleNamespace(mirrors=(mirror,), unshipped=4))
    url = ("s3://shop/x",)
    assert found["mirror_behind"] == {url: 2.0}
    assert found["mirror_age_seconds"] == {url: 1.5}
    assert (found["mirror_seq"], found["mirror_bytes"]) == ({url: 7.0}, {url: 9.0})
    assert (found["mirror_left_bytes"], found["unshipped_commits"]) == ({url: 3.0}, 4)
    assert "siltstone_unshipped_commits 0" in text_of(served[2])


@needs_promtool
def test_promtool_finds_nothing_to_say(served: Served) -> None:
    found = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=text_of(served[2]).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_every_family_of_the_table_is_there_with_its_kind_and_its_help(served: Served) -> None:
    families = {found.name: found for found in text_string_to_metric_families(text_of(served[2]))}
    for family in FAMILIES:
        found = families[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.help), family.name
    ours = {name for name in families if name.startswith("siltstone_")}
    assert ours == {family.name.removesuffix("_total") for family in FAMILIES}


LABELS = {family.name: family.labels for family in FAMILIES}


def samples(rest: Rest) -> dict[str, float]:
    """Return the values by their names, or by names and labels."""
    found = text_string_to_metric_families(text_of(rest))
    return {
        ",".join(
            [
                one.name.removeprefix("siltstone_"),
                *(one.labels[n] for n in LABELS.get(one.name, ())),
            ]
        ): one.value
        for family in found
        for one in family.samples
        if "le" not in one.labels
    }


def test_each_kind_of_work_is_counted_and_its_last_end_has_a_time(tmp_path: Path) -> None:
    begun_s = time.time()
    with rest_of(tmp_path / "shop") as (db, _, rest):
        before = samples(rest)
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        db.checkpoint()
        db.merge()
        db.optimize()
        db.vacuum(dry_run=False)
        db.backup(tmp_path / "copy")
        assert db.sql("select id from t").fetchall() == [(1,)]
        db.sql("insert into t values (2)")
        with db.transaction() as tx:
            tx.sql("update t set id = id where id = 2")
            tx.sql("select count(*) from t")
        rest.post("/v1/table/t/count_rows", {})
        after = samples(rest)
    kinds = ("checkpoint", "merge", "optimize", "vacuum", "backup", "sql", "commit", "read")
    assert {before[f"{kind}_seconds_count"] for kind in kinds} == {0}
    counts = {kind: after[f"{kind}_seconds_count"] for kind in kinds}
    assert counts == {
        **dict.fromkeys(kinds, 1),
        "sql": 4,
        "commit": 4,
    }
    for kind in kinds:
        assert begun_s - 1 < after[f"last_timestamp_seconds,{kind}"] < time.time() + 1, kind
    assert after["process_resident_memory_bytes"] > 1 << 20
    known = {"version": "siltstone", "pylance": "pylance", "pyarrow": "pyarrow"}
    versions = {name: importlib.metadata.version(package) for name, package in known.items()}
    versions["python"] = platform.python_version()
    assert after[",".join(["build_info", *(versions[name] for name in BUILD)])] == 1


def test_of_each_table_the_first_get_after_a_scrape_is_a_sample(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        tables = [db.create_table(name, {"id": "int64"}, primary_key="id") for name in "ab"]
        for table in tables:
            table.upsert({"id": 1})
            assert table.get(1) == {"id": 1}  # from here on its reader is kept
        assert samples(rest)["get_seconds_count"] == 0
        for _ in range(3):
            assert tables[0].get(1) == {"id": 1}
            assert tables[0].get(2) is None
        assert samples(rest)["get_seconds_count"] == 1
        for table in tables:
            assert table.get(1) == {"id": 1}
        db.drop_table("a")
        with pytest.raises(st.TableNotFoundError):
            tables[0].get(1)
        after = samples(rest)
        assert after["get_seconds_count"] == 3
        assert 0 < after["get_seconds_sum"] < 3600


def test_a_vacuum_of_another_process_is_seen_and_one_that_only_looks_is_not(
    tmp_path: Path,
) -> None:
    begun_s = time.time()
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
        db.checkpoint()
        db.merge()
        vacuum_store(tmp_path / "shop")
        assert "last_timestamp_seconds,vacuum" not in samples(rest)
        vacuum_store(tmp_path / "shop", dry_run=False)
        after = samples(rest)
        assert begun_s - 1 < after["last_timestamp_seconds,vacuum"] < time.time() + 1
        assert after["vacuum_seconds_count"] == 0
        assert [job.kind for job in db.jobs()] == ["merge", "vacuum"]


def test_a_table_has_its_rows_bytes_and_unmerged_rows(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("keyed", {"id": "int64"}, primary_key="id")
        db["keyed"].upsert([{"id": number} for number in range(5)])
        db.create_table("plain", {"id": "int64"}).append([{"id": 1}, {"id": 2}])
        db.merge()
        db.checkpoint()
        db.merge()
        db["keyed"].upsert([{"id": 9}, {"id": 10}])
        found, status = samples(rest), db.status()
    assert found["tables"] == 2
    assert (found["table_base_rows,keyed"], found["table_unmerged_rows,keyed"]) == (5, 2)
    assert (found["table_base_rows,plain"], found["table_unmerged_rows,plain"]) == (2, 0)
    for table in status.tables:
        stored = db_bytes(tmp_path / "shop", table.name)
        assert 0 < found[f"table_bytes,{table.name}"] == table.nbytes <= stored


def db_bytes(root: Path, table: str) -> int:
    (folder,) = (root / "tables").glob(f"{table}-*")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_tables_above_the_bound_are_one_series_together(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        names = [f"t{number}" for number in range(TABLES_MAX + 2, 0, -1)]
        with db.transaction() as tx:
            for name in names:
                tx.create_table(name, {"id": "int64"}, primary_key="id").insert({"id": 1})
        with pytest.raises(st.RequestError):
            db.create_table(OTHERS, {"id": "int64"})
        found = samples(rest)
    series = [name for name in found if name.startswith("table_unmerged_rows,")]
    assert len(series) == TABLES_MAX + 1
    assert found[f"table_unmerged_rows,{OTHERS}"] == 2
    assert found["table_unmerged_rows," + names[0]] == 1  # the first that was made
    assert "table_unmerged_rows," + names[-1] not in found


def test_paths_that_clients_make_up_are_no_series(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (_, _, rest):
        for number in range(3):
            rest.get(f"/v1/nowhere{number}")
            rest.post(f"/v1/table/secret{number}/describe", {})
        found = samples(rest)
    routes = {name for name in found if name.startswith("requests_total,")}
    assert "requests_total,/v1/table/{id}/describe,404" in routes
    assert not [name for name in routes if "secret" in name or "nowhere" in name]


def test_a_client_that_scrapes_all_the_time_takes_a_bounded_share() -> None:
    now_s, used_s = 0.0, 0.0
    value = Latency()

    def values() -> dict[str, Value]:
        nonlocal used_s
        used_s += 0.1
        return {family.name.removeprefix("siltstone_"): value for family in FAMILIES}

    made = Exposition(values, clock_s=lambda: now_s, processor_s=lambda: used_s)
    for _ in range(6_000):  # ten minutes, ten times a second
        assert made.text()
        now_s += 0.1
    assert 0.9 * SHARE_MAX * now_s <= used_s <= SHARE_MAX * now_s + ALLOWANCE_S + 0.1


def test_clients_that_scrape_seldom_get_numbers_of_now() -> None:
    now_s, used_s, value = 0.0, 0.0, Latency()

    def values() -> dict[str, Value]:
        nonlocal used_s
        used_s += 0.1
        return {family.name.removeprefix("siltstone_"): value for family in FAMILIES}

    made = Exposition(values, clock_s=lambda: now_s, processor_s=lambda: used_s)
    for asked in range(20):
        value.add(0.1)
        assert f"siltstone_commit_seconds_count {asked + 1}.0\n".encode() in made.text()
        now_s += 5
