"""Makes a release in `dist/`, tries it, and prints a table; exits with 1 if something is wrong."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from release import archives, environments
from release.archives import ROOT, VERSION

BUILD = ROOT / "build" / "release"
WHOLE = BUILD / "all"
"""The environment of the wheel with all extras, which the bill of materials lists."""
BOM = f"{archives.STEM}.cdx.json"


def main() -> int:
    """Run all steps; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="where the archives go")
    parser.add_argument("--extras", help="try these alone, with commas; `none` is no extra")
    parser.add_argument("--draft", action="store_true", help="with changes that are not committed")
    given = parser.parse_args()
    extras = given.extras.split(",") if given.extras else ["none", *environments.EXTRAS]
    begun = time.monotonic()
    wrong = [] if given.draft else _unready()
    if wrong:
        return _ended(wrong, [], begun)
    wheel, source = _built(given.into)
    wrong += _looked_at(wheel, source, given.into)
    tries = [*_trials(wheel, source, extras)]
    wrong += [f"{each.archive}[{each.extra}]: {each.said}" for each in tries if each.said]
    if "all" in extras:
        wrong += _bill(given.into / BOM)
    _sums(given.into)
    shutil.rmtree(BUILD, ignore_errors=True)
    return _ended(wrong, tries, begun)


def _unready() -> list[str]:
    changed = ["git", "status", "--porcelain"]
    told = subprocess.run(changed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wrong = [f"not committed: {line}" for line in told.splitlines()]
    if archives.dated((ROOT / "CHANGELOG.md").read_text(), VERSION) is None:
        wrong.append(f"CHANGELOG.md has no line `## [{VERSION}] - <day>`")
    return wrong


@contextmanager
def _step(name: str) -> Generator[None]:
    print(f"{name} ...", flush=True)
    begun = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def _built(into: Path) -> tuple[Path, Path]:
    shutil.rmtree(into, ignore_errors=True)
    with _step("jar, wheel and source archive"):
        subprocess.run(["make", "--no-print-directory", "jar"], cwd=ROOT, check=True)
        return archives.build(into)


def _looked_at(wheel: Path, source: Path, into: Path) -> list[str]:
    wrong = archives.differences(wheel) + archives.differences(source)
    with _step("the same, once more"):
        subprocess.run(["make", "--no-print-directory", "jar"], cwd=ROOT, check=True)
        for one, two in zip((wheel, source), archives.build(BUILD / "again"), strict=True):
            if archives.digest(one) != archives.digest(two):
                wrong.append(f"{one.name} is another one when it is built again")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)]
    with _step("twine check"):
        done = subprocess.run(check, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        wrong.append(done.stdout + done.stderr)
    (into / ".gitignore").unlink(missing_ok=True)  # uv's; the folder is to be sent as it is
    return wrong


def _trials(wheel: Path, source: Path, extras: list[str]) -> Iterator[environments.Tried]:
    here = environments.here()
    plan = [(archive, extra, here) for archive in (wheel, source) for extra in extras]
    others = [python for python in environments.pythons() if python != here]
    plan += [(wheel, "sql", python) for python in others]
    for at, (archive, extra, python) in enumerate(plan, start=1):
        with _step(f"{at} of {len(plan)}: {archive.name}, {extra}, Python {python}"):
            home = WHOLE if (archive, extra) == (wheel, "all") else BUILD / "tried"
            named = "" if extra == "none" else extra
            found = environments.tried(home, archive, named, python)
        print(found.said or f"  {found.packages} packages", flush=True)
        yield found


def _bill(into: Path) -> list[str]:
    """Write what an installation with all extras is made of."""
    command = [Path(sys.executable).with_name("cyclonedx-py"), "environment"]
    command += ["--output-reproducible", "--pyproject", ROOT / "pyproject.toml"]
    command += ["--of", "JSON", "-o", into, environments.python_in(WHOLE)]
    with _step("bill of materials"):
        texts = [*map(str, command)]
        done = subprocess.run(texts, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def _sums(into: Path) -> None:
    files = sorted(path for path in into.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{archives.digest(path)}  {path.name}\n" for path in files]
    (into / "SHA256SUMS").write_text("".join(lines))
    sys.stdout.writelines(lines)


def _ended(wrong: list[str], tries: list[environments.Tried], begun: float) -> int:
    print(f"\n{'archive':<34}{'extra':<9}{'Python':<8}{'packages':>8}{'install':>10}{'run':>8}")
    for each in tries:
        told = f"{each.packages:>8}{each.installed_s:>8.1f} s{each.ran_s:>6.1f} s"
        extra = each.extra or "none"
        mark = "  failed" if each.said else ""
        print(f"{each.archive:<34}{extra:<9}{each.python:<8}{told}{mark}")
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    print(f"{'not ' if wrong else ''}ready for {VERSION}, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
