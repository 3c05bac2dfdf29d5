"""Jars: the catalog's classes for one minor version of Spark: from the package, or compiled.

    siltstone/spark/jars/siltstone-4.3.jar    in a wheel: `make jar` compiled it
    ~/.cache/siltstone/siltstone-<version>-spark-<version>-<hash>.jar    else: at the first use

Spark's connector API is stable only within a minor version, so each has a jar of its own. The Scala
compiler is among PySpark's own jars and needs a Java, no JDK. A jar names the sources that it is
made of; one in the package that is made of others than those beside it (a working copy) is passed
over.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.find_spark_home import _find_spark_home  # pyright: ignore[reportPrivateUsage] - nothing public says it

from siltstone.errors import UnavailableError
from siltstone.paths import cache_of
from siltstone.spark.catalog import identity
from siltstone.spark.context.java import java_home

MINORS = ("4.3",)
"""The minor versions of Spark that there are jars for: those of `pyproject.toml`."""
PACKAGED = Path(__file__).parents[1] / "jars"
COMPILE_S_MAX = 900
_JAVA = ("-Xss8m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""It ends before an optimizing compiler would have been worth its time."""
_OPTIONS = ("-usejavacp", "-Xlint", "-Werror", "-deprecation")
_CATALYST = re.compile(r"spark-catalyst_2\.13-(\d+\.\d+)(\.[^/]*)\.jar")
_DAY = (1980, 1, 1, 0, 0, 0)  # equal sources make equal jars


def jar(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the jar for the installed Spark; compile it if there is none.

    Args:
        environment: The variables `JAVA_HOME`, `PATH`, `XDG_CACHE_HOME`, `HOME`; None: this
            process's.

    Raises:
        UnavailableError: Siltstone has no jar for this Spark; there is no Java; the cache cannot be
            written.
    """
    found = spark_version()
    minor = minor_of(found)
    packaged = PACKAGED / f"siltstone-{minor}.jar"
    if packaged.exists() and identity_in(packaged) == identity.here():
        return packaged
    given = os.environ if environment is None else environment
    here = identity.here()
    name = f"siltstone-{here.siltstone}-spark-{found}-{here.sources}.jar"
    return _compiled_once(cache_of(given) / name, found, given)


def compile_into(folder: Path) -> Path:
    """Compile the jar for the installed Spark into a folder, as a wheel has it; return its path.

    Raises:
        UnavailableError: As `jar`.
    """
    minor = minor_of(spark_version())
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"siltstone-{minor}.jar"
    _compile(target, os.environ)
    return target


def spark_jars() -> Path:
    """Return the folder of Spark's own jars."""
    return Path(_find_spark_home()) / "jars"


def spark_version() -> str:
    """Return the version of the installed Spark, such as 4.3.0.

    Raises:
        UnavailableError: There is no Spark where PySpark, or SPARK_HOME, says.
    """
    for path in sorted(spark_jars().glob("spark-catalyst_*.jar")):
        found = _CATALYST.fullmatch(path.name)
        if found is not None:
            return found[1] + found[2]
    raise UnavailableError(f"there is no Spark at {spark_jars().parent}; see SPARK_HOME")


def minor_of(version: str) -> str:
    """Return the minor version of a Spark that siltstone has a jar for.

    Raises:
        UnavailableError: It has none.
    """
    minor = ".".join(version.split(".")[:2])
    if minor not in MINORS:
        raise UnavailableError(
            f"siltstone has no jar for Spark {version}, only for {', '.join(MINORS)}; without one"
            ' use format("siltstone")'
        )
    return minor


def identity_in(path: Path) -> identity.Identity | None:
    """Return what a jar says that it is made of; None: it says nothing."""
    try:
        with zipfile.ZipFile(path) as opened:
            return msgspec.json.decode(opened.read(identity.ENTRY), type=identity.Identity)
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.DecodeError):
        return None


def _compiled_once(target: Path, found: str, environment: Mapping[str, str]) -> Path:
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock")):
            if not target.exists():
                print(  # noqa: T201 - it takes a while, and nobody asked for it
                    f"siltstone: compiling its catalog for Spark {found}, once, to {target}",
                    file=sys.stderr,
                    flush=True,
                )
                _compile(target, environment)
    except OSError as error:
        raise UnavailableError(
            f"the jar for Spark cannot be written to {target.parent}: {error}; XDG_CACHE_HOME"
            " moves it"
        ) from error
    return target


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold a lock file; it stays, as another process may wait for it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(target: Path, environment: Mapping[str, str]) -> None:
    """Write the jar in one step.

    Raises:
        UnavailableError: There is no Java, or it does not compile.
        OSError: It cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".jar-") as draft:
        classes = Path(draft, "classes")
        classes.mkdir()
        java = java_home(environment) / "bin" / "java"
        # The path of classes is Java's to expand: as a list it may be longer than a command.
        command = [java, *_JAVA, "-cp", f"{spark_jars()}/*", "scala.tools.nsc.Main", *_OPTIONS]
        texts = [str(identity.SOURCES / name) for name in identity.sources()]
        _run([*map(str, command), "-d", str(classes), *texts])
        made = Path(draft, "made.jar")
        _zip(made, classes)
        made.replace(target)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"the jar was not compiled within {COMPILE_S_MAX} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        raise UnavailableError(f"the jar does not compile: {said}")


def _zip(target: Path, classes: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(each for each in classes.rglob("*") if each.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix(), _DAY)
            made.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        entry = zipfile.ZipInfo(identity.ENTRY, _DAY)
        made.writestr(entry, msgspec.json.encode(identity.here()), zipfile.ZIP_DEFLATED)
