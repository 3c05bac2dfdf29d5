"""Serving: `serve` owns a store and answers clients over HTTP; `token` makes an access token.

At the URL of a bucket it owns nothing: it reads the mirror there, and answers what reads.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from siltstone.cli.arguments import Db, LocalDb
from siltstone.cli.exits import UsageError, in_one_line
from siltstone.cli.sessions import is_in_bucket, note, opened, path_of, reading
from siltstone.errors import RequestError, SiltstoneError
from siltstone.telemetry.log_output import LogForm, LogLevel, log_to
from siltstone.telemetry.notices import NoticeLog

if TYPE_CHECKING:
    from siltstone.api.serving import Service
    from siltstone.store import Store

ANSWER_TIMEOUT_S = 10.0
"""How long the server may take to say that it is ready."""

Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free one.")
]
Tokens = Annotated[
    Path | None,
    typer.Option(
        help="The access tokens: a file (mode 0600) with `name read|write|admin sha256:...` lines."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Without access tokens: accept this Host in requests, too; repeatable."),
]
Cert = Annotated[Path | None, typer.Option(help="TLS: the certificate chain, PEM.")]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where other machines reach this server, if not at this machine's name."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Own a store on a network file system: trust its locks.")
]
LogFormat = Annotated[LogForm, typer.Option(help="The log on stderr: lines of text, or of JSON.")]
Level = Annotated[LogLevel, typer.Option("--log-level", help="The least that the log has.")]
AccessLog = Annotated[
    bool, typer.Option("--access-log", help="Log each request: route, status, time, client.")
]
Key = Annotated[Path | None, typer.Option(help="TLS: the private key, PEM.")]
_STDERR = 2
_log = NoticeLog("siltstone.serve")


def serve(
    db: LocalDb,
    host: Host = "127.0.0.1",
    port: Port = 2333,
    tokens: Tokens = None,
    allow_host: AllowHost = None,
    cert: Cert = None,
    key: Key = None,
    advertise: Advertise = None,
    force: Force = False,
    log_format: LogFormat = "text",
    log_level: Level = "info",
    access_log: AccessLog = False,
) -> None:
    """Own the store and serve it over HTTP, until SIGTERM or Ctrl-C.

    The mirror of a store, at the URL of a bucket, is read and served: its server answers what
    reads, and refuses what writes.

    The server reads access tokens from the file and from $SILTSTONE_SERVER_TOKENS. Without access
    tokens it listens only on loopback addresses, and every user of this machine may do everything.

    At SIGHUP it reads the file of access tokens and the certificate again; if they are not as they
    should be, it says so and goes on with the old ones.

    As a service of systemd (Type=notify, or notify-reload) it says when it answers, reloads and
    ends, and that it lives, while the store answers.
    """
    from siltstone.cli.signals import Signals
    from siltstone.cli.systemd import Systemd
    from siltstone.server.rest.tokens import tokens_from

    is_far = is_in_bucket(db)
    if not is_far:
        path_of(db, "serve")
    say = _log.info
    found = tokens_from(tokens, os.environ)
    systemd = Systemd(os.environ, say)
    options = {"force": True} if force and not is_far else {}  # else as siltstone.toml says
    log = log_to(_STDERR, form=log_format, level=log_level)
    with contextlib.closing(Signals()) as signals, log, _opened(db, **options) as store:
        service = _served(
            store,
            is_far=is_far,
            host=host,
            port=port,
            tokens=found,
            allowed_hosts=allow_host or (),
            certificate=cert,
            key=key,
            advertise=advertise,
            access_log=access_log,
        )
        print(service.url, flush=True)
        count = len(found) or "no"
        say(f"serving {store.path} with {count} access tokens; stop with Ctrl-C or SIGTERM")
        status = f"serving {store.path} at {service.url}"
        systemd.ready(status)
        with contextlib.closing(service):  # before the store: running requests are still answered
            with systemd.watching(lambda: answers(store, service)):
                for _ in signals.reloads():
                    systemd.reloading()
                    systemd.ready(status + _reload(service, tokens))
            systemd.stopping()
            say("finishing running requests, rolling back open transactions")
        store.close(upkeep=False)  # who stops a service does not wait for what is not urgent


def _opened(db: Db, **options: object) -> contextlib.AbstractContextManager[Store]:
    """Open a store to own it; at a URL, to read it."""
    return reading(db) if is_in_bucket(db) else opened(db, **options)


def _served(store: Store, *, is_far: bool, **options: Any) -> Service:
    """Serve a store over HTTP; one that this process owns also to processes that join it."""
    if is_far:
        from siltstone.local.store import LocalStore
        from siltstone.server.rest.server import serve_reader

        assert isinstance(store, LocalStore)
        return serve_reader(store, **options)
    store.serve_local()  # first: processes that join see that it will serve
    return store.serve(**options)


def _reload(service: Service, tokens: Path | None) -> str:
    """Read again what may change while a server runs; return what its status has to add."""
    from siltstone.server.rest.tokens import tokens_from

    try:
        found = tokens_from(tokens, os.environ)
        service.reload(found)
    except SiltstoneError as error:
        _log.warning("reload refused, access tokens and certificate stay: %s", in_one_line(error))
        return "; the last reload was refused"
    _log.info("reloaded: %s access tokens, and the certificate if there is one", len(found) or "no")
    return ""


def answers(store: Store, service: Service) -> bool:
    """Say whether the store can be read, and its server answers that it takes writes.

    A server with too many connections (429) lives, too.
    """
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPSHandler, ProxyHandler, build_opener

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is our own
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with store.snapshot() as now:
            now.tables()
        with opener.open(f"{service.url}/readyz", timeout=ANSWER_TIMEOUT_S):
            return True
    except HTTPError as refused:
        with refused:
            return refused.code == 429
    except (OSError, HTTPException, SiltstoneError):
        return False


def token(
    role: Annotated[
        Literal["read", "write", "admin"],
        typer.Argument(metavar="ROLE", case_sensitive=False, show_default=False),
    ],
    name: Annotated[
        str, typer.Argument(help="The name of the client, for messages and the log.")
    ] = "client",
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            help="Write the client's secret to this new file (mode 0600), not to stderr.",
        ),
    ] = None,
) -> None:
    """Make an access token for a client of a server.

    The server's line goes to stdout, the client's secret to stderr.

    `siltstone token write alice >> tokens` adds a client to the file that `serve --tokens` reads,
    and closes the file to other users.
    """
    from siltstone.server.rest.tokens import digest_of, new_token, tokens_of

    secret = new_token()
    line = f"{name} {role.lower()} sha256:{digest_of(secret).hex()}"
    if len(name.split()) != 1 or ";" in name or name.startswith("#"):
        raise UsageError(f"the name of a client is one word, without ';' and '#'; got {name!r}")
    tokens_of(line, "the token")
    if secret_file is not None:
        _write_secret(secret_file, secret)
    _close_output_to_others()
    print(line, flush=True)
    if secret_file is None:
        note(f"the client's secret, shown only now: {secret}")


def _write_secret(path: Path, secret: str) -> None:
    """Write a secret to a new file that no other user may read.

    Raises:
        RequestError: The file exists already, or cannot be written.
    """
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w") as file:
            file.write(f"{secret}\n")
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error


def _close_output_to_others() -> None:
    """Give the file that output is redirected to mode 0600, which `serve` asks of a token file."""
    with contextlib.suppress(OSError):  # another user's file: `serve` says what is wrong
        output = sys.stdout.fileno()
        if stat.S_ISREG(os.fstat(output).st_mode):
            os.fchmod(output, 0o600)
