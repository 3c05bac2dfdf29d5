"""At SIGHUP `siltstone serve` reads tokens and certificate again; bad ones change nothing."""

from __future__ import annotations

import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import siltstone as st
from siltstone.errors import AccessError, RequestError, UnavailableError
from siltstone.server.rest.tokens import digest_of, tokens_of
from tests.cli.test_systemd import ended, lines_of, listening, url_of
from tests.server.stores import opened

ALICE, BOB = "slt_alice_" + "a" * 40, "slt_bob_" + "b" * 40


def line(name: str, secret: str, role: str = "write") -> str:
    return f"{name} {role} sha256:{digest_of(secret).hex()}\n"


def write(path: Path, text: str) -> None:
    """Put a file in the place of another, as one should."""
    made = path.with_suffix(".new")
    made.write_text(text)
    made.chmod(0o600)
    made.rename(path)


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}-key.pem", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return certificate, key


class Served:
    """A server, and the socket on which it says how it is."""

    def __init__(self, child: subprocess.Popen[str], heard: socket.socket) -> None:
        self.child, self.heard = child, heard
        self.url = url_of(child)
        self.status = lines_of(heard)["STATUS"]

    def reload(self) -> str:
        """Send SIGHUP; return the status that it says when it is done."""
        before = time.monotonic_ns() // 1000
        self.child.send_signal(signal.SIGHUP)
        begun, done = lines_of(self.heard), lines_of(self.heard)
        assert begun["RELOADING"] == done["READY"] == "1"
        assert before <= int(begun["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        return done["STATUS"]

    def asked(self, secret: str) -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return httpx.get(f"{self.url}/v1/jobs", headers=headers, timeout=60).status_code


@contextmanager
def serving(folder: Path, *options: str) -> Generator[Served]:
    """Serve a store with the token of alice in `tokens`."""
    write(folder / "tokens", line("alice", ALICE))
    with st.connect(folder / "shop", background=False) as db:
        db.create_table("t", {"id": "int64"}, "id")
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(folder / "shop")]
    given = ["--port", "0", "--tokens", str(folder / "tokens"), *options]
    environ = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}
    pipe = subprocess.PIPE
    with ExitStack() as held:
        heard = held.enter_context(listening(environ["NOTIFY_SOCKET"]))
        child = held.enter_context(
            subprocess.Popen([*command, *given], env=environ, stdout=pipe, stderr=pipe, text=True)
        )
        held.callback(child.kill)
        yield Served(child, heard)


def test_tokens_come_and_go_while_a_transaction_goes_on(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as served,
        st.connect(served.url, token=ALICE) as db,
        db.transaction() as tx,
    ):
        tx["t"].insert({"id": 1})
        assert (served.asked(ALICE), served.asked(BOB)) == (200, 401)
        write(tmp_path / "tokens", line("alice", ALICE) + line("bob", BOB))
        assert served.reload() == served.status
        assert (served.asked(ALICE), served.asked(BOB)) == (200, 200)
        tx["t"].insert({"id": 2})
        tx.commit()
        write(tmp_path / "tokens", line("bob", BOB))
        assert served.reload() == served.status
        assert (served.asked(ALICE), served.asked(BOB)) == (401, 200)
        with pytest.raises(AccessError):
            db["t"].count()
        said = ended(served.child)
    assert "reloaded: 1 access tokens" in said
    with st.connect(tmp_path / "shop", read_only=True) as db:
        assert db["t"].count() == 2


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, "cannot be read"),
        (lambda path: path.chmod(0o644), "open to others"),
        (lambda path: write(path, "# nobody\n"), "has no token"),
        (lambda path: write(path, line("bob", BOB) + "carol owner x\n"), "line 2"),
        (lambda path: write(path, line("bob", BOB) + line("bob", ALICE)), "same name"),
    ],
    ids=["gone", "open", "empty", "no role", "twice"],
)
def test_a_bad_file_is_refused_in_one_line_and_the_old_tokens_stay(
    tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    with serving(tmp_path) as served:
        spoil(tmp_path / "tokens")
        assert served.reload() == f"{served.status}; the last reload was refused"
        assert (served.asked(ALICE), served.asked(BOB)) == (200, 401)
        write(tmp_path / "tokens", line("bob", BOB))
        assert served.reload() == served.status
        assert (served.asked(ALICE), served.asked(BOB)) == (401, 200)
        said = ended(served.child).splitlines()
    (refused,) = [each for each in said if "reload refused" in each]
    assert told in refused
    assert "WARNING siltstone.serve" in refused
    assert not any("Traceback" in each or BOB in each for each in said)


def shown(url: str, context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a new connection is shown."""
    host, _, port = url.removeprefix("https://").partition(":")
    raw = socket.create_connection((host, int(port)), timeout=60)
    with context.wrap_socket(raw) as wire:
        return wire.getpeercert(binary_form=True)


def test_new_connections_see_the_new_certificate_and_open_ones_go_on(tmp_path: Path) -> None:
    (one, one_key), (other, other_key) = certify(tmp_path, "one"), certify(tmp_path, "other")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    write(files[0], one.read_text())
    write(files[1], one_key.read_text())
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    der = {path: ssl.PEM_cert_to_DER_cert(path.read_text()) for path in (one, other)}
    with (
        serving(tmp_path, "--cert", str(files[0]), "--key", str(files[1])) as served,
        st.connect(served.url, token=ALICE, cafile=str(one)) as db,
        db.transaction() as tx,
    ):
        tx["t"].insert({"id": 1})
        assert shown(served.url, trusting) == der[one]
        write(files[0], other.read_text())  # the new key is not there yet
        assert "refused" in served.reload()
        assert shown(served.url, trusting) == der[one]
        write(files[1], other_key.read_text())
        assert served.reload() == served.status
        assert shown(served.url, trusting) == der[other]
        tx.commit()
        with st.connect(served.url, token=ALICE, cafile=str(other)) as new:
            assert new["t"].count() == 1
        said = ended(served.child)
    assert said.count("reload refused") == 1
    assert "Traceback" not in said


def test_reloads_beside_requests_lose_none(tmp_path: Path) -> None:
    with serving(tmp_path) as served, st.connect(served.url, token=ALICE) as db:
        for number in range(50):
            served.child.send_signal(signal.SIGHUP)
            db["t"].insert({"id": number})
        assert db["t"].count() == 50
        ended(served.child)


def test_a_signal_before_it_serves_is_a_reload_when_it_does() -> None:
    """It may have read the old file already, and open for minutes."""
    text = (
        "import os, signal, sys\n"
        "from siltstone.cli.signals import Signals\n"
        "signals = Signals()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "for each in signals.reloads():\n"
        "    print('reload')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    command = [sys.executable, "-c", text]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert found.stdout == "reload\n"


def test_the_end_is_heard_behind_more_signals_than_a_pipe_holds() -> None:
    text = """if True:
        import os, signal
        from siltstone.cli.signals import Signals
        signals, mine = Signals(), os.getpid()
        os.kill(mine, signal.SIGHUP)
        most = 1 << 16
        for _ in signals.reloads():
            for _ in range(most):
                os.kill(mine, signal.SIGHUP)
            if most:
                os.kill(mine, signal.SIGTERM)
                signal.alarm(20)
            most = 0
        print("ended")
    """
    command = [sys.executable, "-c", text]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, start_new_session=True
    )
    assert found.stdout == "ended\n"


@pytest.mark.parametrize("is_detached", [False, True], ids=["shell", "nohup"])
def test_a_server_ends_with_its_terminal_unless_it_was_detached(
    tmp_path: Path, is_detached: bool
) -> None:
    with st.connect(tmp_path / "shop", background=False) as db:
        db.create_table("t", {"id": "int64"}, "id")
    environ = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    command = [sys.executable, "-m", "siltstone", "serve", "--db", str(tmp_path / "shop")]
    with listening(environ["NOTIFY_SOCKET"]) as heard:
        child, terminal = pty.fork()
        if child == 0:
            # As a shell or `nohup` begins it, whatever began the tests.
            signal.signal(signal.SIGHUP, signal.SIG_IGN if is_detached else signal.SIG_DFL)
            os.execve(command[0], [*command, "--port", "0"], environ)
        assert "READY" in lines_of(heard)
        os.close(terminal)
        said = lines_of(heard)
        if is_detached:
            assert "RELOADING" in said
            os.kill(child, signal.SIGTERM)
        else:
            assert "STOPPING" in said
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_server_that_asks_for_tokens_goes_on_to(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        service = db.serve(port=0, tokens=tokens_of(line("alice", ALICE), "test"))
        with pytest.raises(RequestError, match="one at least"):
            service.reload(())
        assert httpx.get(f"{service.url}/v1/jobs").status_code == 401
        service.reload(tokens_of(line("bob", BOB), "test"))
        headers = {"authorization": f"Bearer {BOB}"}
        assert httpx.get(f"{service.url}/v1/jobs", headers=headers).status_code == 200


def test_what_a_client_has_open_ends_with_its_token(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64"}, "id")
        both = line("alice", ALICE) + line("bob", BOB)
        service = db.serve(port=0, tokens=tokens_of(both, "test"))
        begun: dict[str, str] = {}
        for secret in (ALICE, BOB):
            headers = {"authorization": f"Bearer {secret}"}
            answer = httpx.post(f"{service.url}/v1/transaction/begin", headers=headers, json={})
            begun[secret] = answer.json()["id"]
        service.reload(tokens_of(line("bob", BOB), "test"))
        service.reload(tokens_of(both, "test"))
        path = "/v1/transaction/{}/commit"
        codes = {
            secret: httpx.post(
                f"{service.url}{path.format(key)}",
                headers={"authorization": f"Bearer {secret}"},
                json={},
            ).status_code
            for secret, key in begun.items()
        }
        service.close()
    assert codes == {ALICE: 404, BOB: 200}


def test_what_is_no_token_changes_nothing(tmp_path: Path) -> None:
    junk: Any = ["bob"]
    headers = {"authorization": f"Bearer {ALICE}"}
    with opened(tmp_path / "shop") as db:
        with pytest.raises(RequestError, match="no access token"):
            db.serve(port=0, tokens=junk)
        service = db.serve(port=0, tokens=tokens_of(line("alice", ALICE), "test"))
        with pytest.raises(RequestError, match="no access token"):
            service.reload(junk)
        assert httpx.get(f"{service.url}/v1/jobs", headers=headers).status_code == 200


def test_a_client_that_comes_back_finds_nothing_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even before its transactions are rolled back, which takes a thread."""
    headers = {"authorization": f"Bearer {ALICE}"}
    alice, bob = (tokens_of(line(*each), "test") for each in (("alice", ALICE), ("bob", BOB)))
    with opened(tmp_path / "shop") as db:
        service: Any = db.serve(port=0, tokens=alice)
        at = f"{service.url}/v1/transaction"
        key = httpx.post(f"{at}/begin", headers=headers, json={}).json()["id"]
        submit, late = service._executor.submit, []

        def held(*work: Any) -> Any:
            is_ours = threading.current_thread() is threading.main_thread()
            return late.append(work) if is_ours else submit(*work)

        monkeypatch.setattr(service._executor, "submit", held)
        service.reload(bob)
        service.reload(alice)
        again = httpx.post(f"{at}/begin", headers=headers, json={}).json()["id"]
        for work in late:
            submit(*work).result()
        codes = [
            httpx.post(f"{at}/{each}/commit", headers=headers, json={}).status_code
            for each in (key, again)
        ]
        assert db.status().open_transactions == 0
        service.close()
    assert codes == [404, 200]


def test_a_joined_client_holds_no_snapshot_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may live on, and what a snapshot holds is not deleted."""
    alice, bob = (tokens_of(line(*each), "test") for each in (("alice", ALICE), ("bob", BOB)))
    with opened(tmp_path / "shop") as db:
        db.create_table("t", {"id": "int64"}, "id")
        service: Any = db.serve(port=0, tokens=(*alice, *bob))
        with (
            st.connect(service.url, token=ALICE) as far,
            st.connect(service.url, token=BOB) as other,
        ):
            past, kept = far.snapshot(), other.snapshot()
            assert service.joined_sessions.count == 2
            submit = service._executor.submit

            def at_once(work: Any, *given: Any) -> Any:
                is_ours = threading.current_thread() is threading.main_thread()
                return work(*given) if is_ours else submit(work, *given)

            monkeypatch.setattr(service._executor, "submit", at_once)
            service.reload(bob)
            assert service.joined_sessions.count == 1
            del past, kept


def test_a_key_with_a_passphrase_is_refused_and_asks_nobody(tmp_path: Path) -> None:
    certificate, key = certify(tmp_path, "one")
    locked = ["openssl", "rsa", "-aes256", "-passout", "pass:word", "-in", str(key)]
    subprocess.run([*locked, "-out", str(tmp_path / "locked")], check=True, capture_output=True)
    with (
        opened(tmp_path / "shop") as db,
        pytest.raises(UnavailableError, match="without a passphrase"),
    ):
        db.serve(port=0, certificate=certificate, key=tmp_path / "locked")
