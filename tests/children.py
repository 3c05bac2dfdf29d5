"""Children: what the processes that tests start find on their path, and what they do not."""

import os
from pathlib import Path

_FRAMELESS = str(Path(__file__).parent / "frameless")


def hide_pandas() -> None:
    """Let children start without pandas, as siltstone alone is installed.

    The data of the demo brings pandas, Arrow imports it with its first array, and that took a
    second longer; there are hundreds of children. The tests themselves have it.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join([_FRAMELESS, *paths_with_pandas()])


def paths_with_pandas() -> list[str]:
    """Return the path of a child that drives Spark, which asks for pandas."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and path != _FRAMELESS]


def with_pandas() -> dict[str, str]:
    """Return the environment of such a child."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths_with_pandas())}


def without(module: str, folder: Path) -> dict[str, str]:
    """Return the environment of a child for which a package is not installed.

    Args:
        module: The name by which it is imported.
        folder: An empty directory, for what stands before the package on the child's path.
    """
    error = f"ModuleNotFoundError('No module named {module}', name='{module}')"
    (folder / f"{module}.py").write_text(f"raise {error}\n")
    paths = [str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
