"""Failpoints: one catalog, each place crossed in the sources, and orders that are done once."""

from __future__ import annotations

import ast
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone import failpoints
from siltstone.failpoints import CATALOG, Failpoint, cross

SOURCES = Path(failpoints.__file__).parent
PASSES = (
    "from siltstone.failpoints import Failpoint, cross;"
    "cross(Failpoint.MERGE_AFTER_PLAN); print('passed')"
)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@functools.cache
def source_trees() -> list[tuple[Path, ast.Module]]:
    return [*parsed()]  # once: it takes seconds


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for path in SOURCES.rglob("*.py"):
        if path.name != "failpoints.py":
            yield path, ast.parse(path.read_text())


def crossed(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call of `cross` with the name of its point; "" for anything but one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cross":
            (point,) = node.args
            is_named = isinstance(point, ast.Attribute) and getattr(point.value, "id", "") == (
                "Failpoint"
            )
            yield node, point.attr if is_named else ""


def test_sources_name_failpoints_by_the_catalog_alone() -> None:
    labels = {point.label for point in CATALOG}
    names = {name for name in vars(Failpoint) if name.isupper()}
    for path, tree in source_trees():
        strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        assert not strings & labels, path
        assert {name for _, name in crossed(tree)} <= names, path


def test_every_failpoint_is_crossed_somewhere() -> None:
    found = {name for _, tree in source_trees() for _, name in crossed(tree)}
    assert found == {name for name in vars(Failpoint) if name.isupper()}


def test_every_failpoint_is_labelled_by_its_name_and_says_what_is_durable() -> None:
    for name, point in vars(Failpoint).items():
        if name.isupper():
            assert point.label == name.lower().replace("_", ".", 1)
            assert point.durable
    assert len({point.label for point in CATALOG}) == len(CATALOG)


def test_an_order_is_done_once_at_its_crossing() -> None:
    failpoints.arm("merge.after_plan=raise@2")
    cross(Failpoint.MERGE_AFTER_PLAN)
    cross(Failpoint.MERGE_BEFORE_PLAN)
    with pytest.raises(failpoints.FailpointError) as raised:
        cross(Failpoint.MERGE_AFTER_PLAN)
    assert raised.value.point is Failpoint.MERGE_AFTER_PLAN
    cross(Failpoint.MERGE_AFTER_PLAN)
    assert failpoints.crossings() == {"merge.after_plan": 3}


@pytest.mark.parametrize(
    "order", ["merge.after_lunch=kill", "merge.after_plan=sleep", "kill", "merge.after_plan=kill@0"]
)
def test_an_order_that_means_nothing_is_refused(order: str) -> None:
    with pytest.raises(st.RequestError, match="an order must be like"):
        failpoints.arm(order)


def test_a_child_process_is_armed_by_its_environment() -> None:
    orders = {"SILTSTONE_FAILPOINTS": "merge.before_plan=raise, merge.after_plan=kill"}
    done = subprocess.run(
        [sys.executable, "-c", PASSES], env=os.environ | orders, check=False, capture_output=True
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_a_pause_tells_where_it_stands_and_ends_when_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(60)
        listener.bind(str(tmp_path / "go"))
        listener.listen()
        orders = {
            "SILTSTONE_FAILPOINTS": "merge.after_plan=pause",
            "SILTSTONE_FAILPOINTS_SOCKET": str(tmp_path / "go"),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PASSES], env=os.environ | orders, stdout=subprocess.PIPE
        )
        held, _ = listener.accept()
        assert held.recv(100) == f"merge.after_plan {process.pid}\n".encode()
        assert process.poll() is None
        held.close()
    assert process.communicate(timeout=60)[0] == b"passed\n"


def test_a_pause_without_anybody_to_meet_fails() -> None:
    failpoints.arm("merge.after_plan=pause", socket="/nowhere")
    with pytest.raises(failpoints.FailpointError, match="no byte came"):
        cross(Failpoint.MERGE_AFTER_PLAN)
