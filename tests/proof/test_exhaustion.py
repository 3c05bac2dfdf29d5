"""What runs out costs errors of ours, nothing else: the short `python -m proof.exhaustion`."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from proof.exhaustion import cycles, trial
from proof.exhaustion.causes import CAUSES, SLOW_SYNC_S
from proof.exhaustion.faulty_files import Faults, FaultyFiles
from proof.exhaustion.ledger import BrokenPromiseError, Ledger
from siltstone.maintenance.merge import merge
from siltstone.open.environment import Env

IN_CHILDREN = {"disk-full": 12, "file-size": 12, "descriptors": 12, "memory": 3}


@pytest.mark.parametrize("cause", IN_CHILDREN)
def test_a_store_outlives_what_the_system_refuses(cause: str) -> None:
    outcome = trial.run(cause, IN_CHILDREN[cause], seed=1)
    if outcome.is_skipped:
        pytest.skip(outcome.line())
    assert not outcome.problems, outcome.line()
    assert outcome.errors or outcome.deaths or cause == "memory", outcome.line()


@pytest.mark.parametrize("cause", sorted(set(CAUSES) - set(IN_CHILDREN) - {"slow-disk"}))
def test_a_store_outlives_what_its_surroundings_refuse(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "COMPACT_BELOW_ROWS", 0)
    said = cycles.run(cause, 8, 1, tmp_path)
    assert said["errors"] or cause == "clock"


def test_a_store_outlives_syncs_that_take_half_a_second(tmp_path: Path) -> None:
    said = cycles.run("slow-disk", 1, 2, tmp_path)
    assert not said["errors"]
    assert float(str(said["seconds"])) >= 2 * SLOW_SYNC_S


def test_an_acknowledged_row_that_is_gone_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Env(), random.Random(1))
    ledger.cycle(lambda: None, lambda: None)
    assert ledger.db is not None
    ledger.db["keyed"].delete(sorted(ledger.rows)[:1])
    with pytest.raises(BrokenPromiseError):
        ledger.check()
    ledger.close()


def test_an_error_that_is_not_ours_is_noticed(tmp_path: Path) -> None:
    faults = Faults()
    ledger = Ledger(tmp_path, Env(files=FaultyFiles(faults)), random.Random(1))
    ledger.typed = (ValueError,)
    faults.order(1, errno.EIO, is_sticky=True)
    with pytest.raises(Exception, match="Input/output error"):
        ledger._open()
    faults.clear()


def test_damage_that_is_none_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Env(), random.Random(1))

    def wrong() -> None:
        raise st.CorruptionError(tmp_path, None, "there was no memory")

    with pytest.raises(st.CorruptionError):
        ledger._try(wrong)
    ledger.close()


def test_what_grows_is_told() -> None:
    small = trial.Footprint(("a",), 1, 9, 0, 200 << 20)
    for grown in (
        trial.Footprint(("a", "b"), 1, 9, 0, 200 << 20),
        trial.Footprint(("a",), 2, 9, 0, 200 << 20),
        trial.Footprint(("a",), 1, 90, 0, 200 << 20),
        trial.Footprint(("a",), 1, 9, 1, 200 << 20),
        trial.Footprint(("a",), 1, 9, 0, 300 << 20),
    ):
        assert trial._grown([small] * 9 + [grown])
    assert not trial._grown([small] * 10)


def ended(code: int, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "", words)


def test_an_exit_that_glibc_did_not_explain_is_no_death() -> None:
    assert trial._is_death(ended(-6, ""))
    assert trial._is_death(ended(127, "Fatal glibc error: failed to register: out of memory"))
    assert not trial._is_death(ended(127, "unshare: not found"))
    assert not trial._is_death(ended(1, "out of memory"))


LOSE_A_THREAD = """
import faulthandler, sys, threading

class Thread(threading.Thread):
    def _bootstrap(self):
        raise MemoryError

def wait():
    threading.Event().wait()

faulthandler.dump_traceback_later(0.5, exit=True)
Thread().start() if sys.argv[1] == "start" else wait()
"""


@pytest.mark.parametrize("where", ["start", "elsewhere"])
def test_a_hang_is_a_death_only_where_cpython_lost_a_thread(where: str) -> None:
    command = [sys.executable, "-c", LOSE_A_THREAD, where]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert trial._is_death(ran) == (where == "start"), ran.stderr
