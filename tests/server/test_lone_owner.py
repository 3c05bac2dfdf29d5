"""An owner that lets others join, but cannot, says so once, and tells those who come why."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import siltstone as st
from siltstone.local import store as local_store
from siltstone.process.extras import missing
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import read_holder
from tests.children import without

NEEDS = "serve_local() needs {}: pip install 'siltstone[server]'"
OWNER = """
import sys
import siltstone as st

def opened(name):
    return st.connect(f"{sys.argv[1]}/{name}", join=True)

with opened("shop") as db, opened("shop"), opened("other"):
    db.create_table("t", {"id": "int64"}, "id")
    db["t"].insert({"id": 1})
    print("open", flush=True)
    sys.stdin.read()
"""
WARNED = """
import sys
import siltstone as st

try:
    st.connect(sys.argv[1], join=True)
except RuntimeWarning as warning:
    print(warning)
with st.connect(sys.argv[1], background=False):
    print("was closed")
"""
OF_SPARK = """
import sys
import siltstone as st
from siltstone.spark.context.stores import owner

st.connect(sys.argv[1]).close()
with owner(sys.argv[1]) as db:
    db.create_table("t", {"id": "int64"}, "id")
"""


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_who_cannot_join_is_told_which_package_the_owner_lacks(tmp_path: Path, module: str) -> None:
    shop = tmp_path / "shop"
    (tmp_path / "hidden").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        env=without(module, tmp_path / "hidden"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        said = (
            f"{shop} is owned by process {owner.pid} on {platform.node()}, which no other process"
            f" can join: {NEEDS.format(module)}; put that right and start it again, or open the"
            " store with read_only=True"
        )
        for join in (True, False):
            with pytest.raises(st.OwnedError, match=f"^{re.escape(said)}$") as caught:
                st.connect(shop, join=join)
            assert caught.value.cannot_serve == NEEDS.format(module)
        with st.connect(shop, read_only=True) as reader:
            assert reader["t"].count() == 1
        _, warned = owner.communicate()
    assert owner.returncode == 0
    assert warned.count("RuntimeWarning") == 1  # of three handles on two stores
    assert f"<string>:6: RuntimeWarning: {_alone(NEEDS.format(module))}" in warned
    with st.connect(shop, join=True) as db:
        assert db["t"].count() == 1


def _alone(why: str) -> str:
    return f"no other process can join the stores that this one opens with join=True: {why}"


def test_a_package_of_another_version_is_named_with_what_is_wrong() -> None:
    gone = ModuleNotFoundError("No module named 'uvicorn.x'", name="uvicorn.x")
    assert missing(gone) == "another version of uvicorn (No module named 'uvicorn.x')"
    other = ImportError("cannot import name 'A' from 'httptools'", name="httptools")
    said = "another version of httptools (cannot import name 'A' from 'httptools')"
    assert missing(other) == said
    assert missing(ImportError("odd")) == "another version of a package (odd)"


def test_where_warnings_are_errors_the_store_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", WARNED, str(tmp_path / "shop")],
        env=without("uvicorn", tmp_path / "hidden"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{_alone(NEEDS.format('uvicorn'))}\nwas closed\n"


def test_a_commit_of_spark_which_nobody_meant_to_join_warns_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", OF_SPARK, str(tmp_path / "shop")],
        env=without("uvicorn", tmp_path / "hidden"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_owner_that_finds_no_place_for_its_socket_says_so_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "no place for the socket: '/run/x' is not ours" + '\x00\udc80"\\é' * 200

    def nowhere(_: object) -> Path:
        raise st.UnavailableError(why)

    monkeypatch.setattr(local_store, "address_of", nowhere)
    with pytest.warns(RuntimeWarning, match="can join .* no place for the socket"):
        db = st.connect(tmp_path / "shop", join=True)
    with db:
        holder = read_holder(RealFiles(), tmp_path / "shop")
        assert (holder.serves, holder.endpoint) == (False, None)
        assert holder.cannot_serve is not None
        assert holder.cannot_serve.startswith("no place for the socket: '/run/x' is not ours??\"")
