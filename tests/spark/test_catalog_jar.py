"""The jar of the catalog: in the wheel, or compiled once for the sources that are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from siltstone.cli import main
from siltstone.errors import UnavailableError
from siltstone.spark.catalog import identity, jars

ROOT = Path(__file__).parents[2]
CLASS = "org/apache/spark/sql/siltstone/SiltstoneCatalog.class"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jars.compile_into(tmp_path_factory.mktemp("jars"))


@pytest.fixture
def nothing_packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jars, "PACKAGED", tmp_path / "packaged")
    return tmp_path


def _cache(path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(path)}


@pytest.fixture
def quick_compiler(monkeypatch: pytest.MonkeyPatch, compiled: Path) -> Iterator[list[list[str]]]:
    """Compile at once: the classes that were compiled before."""
    runs: list[list[str]] = []

    def run(command: list[str]) -> None:
        runs.append(command)
        with zipfile.ZipFile(compiled) as made:
            classes = [name for name in made.namelist() if name.endswith(".class")]
            made.extractall(command[command.index("-d") + 1], classes)

    monkeypatch.setattr(jars, "_run", run)
    return runs


def test_a_jar_is_named_by_the_minor_and_names_its_sources(compiled: Path) -> None:
    assert compiled.name == f"siltstone-{jars.MINORS[0]}.jar"
    assert jars.identity_in(compiled) == identity.here()
    with zipfile.ZipFile(compiled) as made:
        assert CLASS in made.namelist()


def test_classes_run_on_java_17(compiled: Path) -> None:
    with zipfile.ZipFile(compiled) as made:
        head = made.read(CLASS)[:8]
    assert int.from_bytes(head[6:8]) <= 61


def test_each_spark_that_the_package_admits_has_a_jar() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (wanted,) = (
        each
        for each in settings["project"]["optional-dependencies"]["spark"]
        if each.startswith("pyspark")
    )
    low, high = re.findall(r"4\.(\d+)", wanted)
    assert tuple(f"4.{minor}" for minor in range(int(low), int(high))) == jars.MINORS


def test_a_spark_without_a_jar_is_refused(
    nothing_packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = nothing_packaged / "spark"
    (fake / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(fake))
    with pytest.raises(UnavailableError, match="there is no Spark at"):
        jars.jar()
    (fake / "jars" / "spark-catalyst_2.13-4.9.1.jar").touch()
    with pytest.raises(UnavailableError, match=r"no jar for Spark 4\.9\.1, only for 4\.3"):
        jars.jar()


def test_a_jar_is_compiled_once_and_says_so(
    nothing_packaged: Path,
    quick_compiler: list[list[str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = jars.jar(_cache(nothing_packaged / "cache"))
    assert jars.jar(_cache(nothing_packaged / "cache")) == found
    assert len(quick_compiler) == 1
    assert identity.here().sources in found.name
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "compiling its catalog for Spark" in said


def test_processes_that_need_it_at_once_compile_it_once(
    nothing_packaged: Path, quick_compiler: list[list[str]]
) -> None:
    found: list[Path] = []
    environment = _cache(nothing_packaged / "cache")
    threads = [
        threading.Thread(target=lambda: found.append(jars.jar(environment))) for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 1
    assert len(quick_compiler) == 1


def test_a_jar_in_the_package_is_taken_if_it_is_of_these_sources(
    nothing_packaged: Path, compiled: Path, quick_compiler: list[list[str]]
) -> None:
    jars.PACKAGED.mkdir()
    mine = jars.PACKAGED / compiled.name
    shutil.copy(compiled, mine)
    assert jars.jar(_cache(nothing_packaged / "cache")) == mine
    with zipfile.ZipFile(mine, "w") as other:
        other.writestr(identity.ENTRY, msgspec.json.encode(identity.Identity("0.0.9", "abc")))
    assert jars.jar(_cache(nothing_packaged / "cache")) != mine
    mine.write_bytes(b"no jar")
    assert jars.identity_in(mine) is None


def test_sources_that_do_not_compile_are_an_error_and_leave_nothing(
    nothing_packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = nothing_packaged / "scala"
    broken.mkdir()
    (broken / "A.scala").write_text("object A { val x: Int = }\n")
    monkeypatch.setattr(identity, "SOURCES", broken)
    cache = nothing_packaged / "cache"
    with pytest.raises(UnavailableError, match=r"does not compile: (?s:.*)A.scala:1"):
        jars.jar(_cache(cache))
    assert list(cache.rglob("*.jar")) == []
    assert list(cache.rglob(".jar-*")) == []


def test_a_cache_that_cannot_be_written_is_named(nothing_packaged: Path) -> None:
    (nothing_packaged / "cache").touch()
    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME moves it"):
        jars.jar(_cache(nothing_packaged / "cache"))


def test_the_command_prints_the_path_and_nothing_else(
    nothing_packaged: Path,
    quick_compiler: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(nothing_packaged / "cache"))
    assert main(["spark", "jar"]) == 0
    assert Path(capsys.readouterr().out.strip()) == jars.jar()
    assert main(["spark", "jar", "--into", str(nothing_packaged / "into")]) == 0
    assert Path(capsys.readouterr().out.strip()).parent == nothing_packaged / "into"


def _uv() -> str:
    """Return the uv that runs the tests, or that bin/uv once fetched; a test fetches none."""
    known = (os.environ.get("UV"), shutil.which("uv"), shutil.which(ROOT / ".uv-bootstrap/bin/uv"))
    found = next((each for each in known if each), None)
    if found is None:
        pytest.skip("there is no uv: run the tests by bin/uv")
    return found


def test_the_wheel_has_the_jar_and_the_sources(compiled: Path, tmp_path: Path) -> None:
    """A copy of the tree is built: `make dist` builds the tree itself."""
    tree = tmp_path / "tree"
    skipped = shutil.ignore_patterns("__pycache__", "jars")
    for name in ("src", "docs", "examples"):
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree / path.name)
    (tree / "src/siltstone/spark/jars").mkdir()
    shutil.copy(compiled, tree / "src/siltstone/spark/jars")
    command = [_uv(), "build", "--offline", "--no-config", "--out-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        packed = opened.read(f"siltstone/spark/jars/{compiled.name}")
    assert packed == compiled.read_bytes()
    assert {f"siltstone/spark/scala/{name}" for name in identity.sources()} <= names
