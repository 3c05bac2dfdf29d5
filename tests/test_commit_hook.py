"""The hook of `make hooks` refuses a commit whose subject has more than 72 characters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOOKS = ROOT / "bin" / "hooks"
LONGEST = "Refuse " + "x" * 65


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a new repository whose hooks are those of the project."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "core.hooksPath", str(HOOKS))
    return tmp_path


def alone() -> dict[str, str]:
    """Return an environment without the user's git, and without one that runs this as a hook."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
    who |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    return {**outside, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env=alone(),
        capture_output=True,
        text=True,
        check=False,
    )


def commit(repository: Path, message: str) -> subprocess.CompletedProcess[str]:
    return git(repository, "commit", "--quiet", "--allow-empty", "--message", message)


def subjects(repository: Path) -> list[str]:
    return git(repository, "log", "--format=%s").stdout.splitlines()


@pytest.mark.parametrize(
    "message",
    [
        "Refuse a tag without a name",
        LONGEST,
        f"{LONGEST}\n\n{'A long body is no subject. ' * 9}",
        "Weigh " + "ü" * 66,
        f"fixup! {LONGEST}",
    ],
)
def test_a_subject_of_at_most_72_characters_is_committed(repository: Path, message: str) -> None:
    assert len(LONGEST) == 72
    done = commit(repository, message)
    assert done.returncode == 0, done.stderr
    assert subjects(repository) == [message.partition("\n")[0]]


@pytest.mark.parametrize(
    "message",
    [f"{LONGEST}x", f"{LONGEST}\nand a second line of the subject", "Weigh " + "ü" * 67],
)
def test_a_longer_subject_is_refused_with_its_length(repository: Path, message: str) -> None:
    done = commit(repository, message)
    assert done.returncode != 0
    length = len(" ".join(message.split("\n")))
    assert f"the subject has {length} characters; shorten it to 72" in done.stderr
    assert subjects(repository) == []


def test_lines_that_git_drops_do_not_count(tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"# {'a comment ' * 20}\n\nRefuse a tag without a name\n# On branch main\n")
    hook = subprocess.run([HOOKS / "commit-msg", message], check=False, capture_output=True)
    assert (hook.returncode, hook.stderr) == (0, b"")


def test_make_hooks_makes_git_call_the_hook(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    subprocess.run(["make", "--silent", "hooks"], cwd=tmp_path, env=alone(), check=True)
    assert git(tmp_path, "config", "core.hooksPath").stdout == "bin/hooks\n"
