"""Environments: empty ones, in which an archive is installed with an extra, and tried.

They lie below `build/`, on the disk of uv's cache: installing is then linking.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from release.archives import PROJECT, ROOT

UV = ROOT / "bin" / "uv"
TRIAL = Path(__file__).with_name("trial.py")
SECONDS_MAX = 1800
EXTRAS = tuple(PROJECT["project"]["optional-dependencies"])


@dataclass(frozen=True, slots=True)
class Tried:
    """How an archive did in one environment; `said` is empty if all went well."""

    archive: str
    extra: str
    python: str
    packages: int
    installed_s: float
    ran_s: float
    said: str


def python_in(environment: Path) -> Path:
    """Return the Python of an environment."""
    return environment / "bin" / "python"


def made(environment: Path, archive: Path, extra: str, python: str) -> None:
    """Make an environment with an archive and an extra ("": none), and nothing else.

    Raises:
        subprocess.CalledProcessError: It cannot be installed; its output names no index.
    """
    shutil.rmtree(environment, ignore_errors=True)
    what = f"{archive}[{extra}]" if extra else str(archive)
    _run([UV, "venv", "--quiet", "--no-python-downloads", "--python", python, environment])
    # A build of another commit may have the same version: nothing of a cache is ours.
    named = ["--reinstall-package", "siltstone", "--python", python_in(environment), what]
    _run([UV, "pip", "install", "--quiet", *named])


def tried(environment: Path, archive: Path, extra: str, python: str) -> Tried:
    """Make an environment, run the trial of its extra in it, and return how that went."""
    begun = time.monotonic()
    said, packages, installed = "", 0, begun
    try:
        made(environment, archive, extra, python)
        installed = time.monotonic()
        packages = len([*environment.glob("lib/*/site-packages/*.dist-info")])
        work = environment / "work"
        work.mkdir()
        code = [python_in(environment), "-I", "-W", "error::ResourceWarning", TRIAL]
        _run([*code, ROOT / "README.md", extra or "none"], cwd=work)
    except subprocess.CalledProcessError as error:
        said = error.output
    except subprocess.TimeoutExpired as error:
        said = str(error)
    ended = time.monotonic()
    return Tried(archive.name, extra, python, packages, installed - begun, ended - installed, said)


def pythons() -> list[str]:
    """Return the Pythons of the classifiers that this machine has, the lowest first."""
    named = [each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"]]
    return [each for each in named if re.fullmatch(r"3\.\d+", each) and _has(each)]


def _has(python: str) -> bool:
    command = [UV, "python", "find", "--quiet", "--no-python-downloads", python]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def _run(command: list[object], cwd: Path = ROOT) -> None:
    texts = [*map(str, command)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        texts, cwd=cwd, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as begun:
        try:
            said, _ = begun.communicate(timeout=SECONDS_MAX)
        except BaseException:
            os.killpg(begun.pid, signal.SIGKILL)  # Spark's Java outlives its Python
            raise
    if begun.returncode != 0:
        # Logs are public, and where a machine fetches is not.
        told = re.sub(r"[a-z+]+://(?!127\.)\S+", "(address)", said)
        raise subprocess.CalledProcessError(begun.returncode, texts, told.strip())


def here() -> str:
    """Return the version of the Python that runs this, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
