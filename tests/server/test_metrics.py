"""What `/metrics` says is in one table, and Prometheus has nothing to find fault with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import siltstone as st
from siltstone.server.metrics.families import FAMILIES
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
