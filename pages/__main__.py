"""The command: see the package."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

from pages import built
from pages.place import place
from pages.tree import ROOT


def address() -> str:
    """Return the public address: the home page that pyproject.toml names, and nothing else does."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]


def main() -> int:
    """Place the pages, build them and look at them; return 0 if all is well."""
    place()
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    env = {**os.environ, "SITE_URL": address(), "NO_MKDOCS_2_WARNING": "1"}
    if subprocess.run(build, cwd=ROOT, env=env, check=False).returncode:
        return 1
    wrong = built.wrong()
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
