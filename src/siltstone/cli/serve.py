"""Serving: `serve` owns a store and answers clients over HTTP; `token` makes what they show."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli.arguments import Db
from siltstone.cli.sessions import note, opened

Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")]
Tokens = Annotated[
    Path | None,
    typer.Option(help="A file of tokens (mode 0600): `name read|write|admin sha256:...` a line."),
]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="Without tokens: a Host that requests may have, too.")
]
Cert = Annotated[Path | None, typer.Option(help="TLS: the certificate chain, PEM.")]
Key = Annotated[Path | None, typer.Option(help="TLS: the private key, PEM.")]


def serve(
    db: Db,
    host: Host = "127.0.0.1",
    port: Port = 2333,
    tokens: Tokens = None,
    allow_host: AllowHost = None,
    cert: Cert = None,
    key: Key = None,
) -> None:
    """Own the store and answer clients over HTTP, until SIGTERM or Ctrl-C.

    Tokens come from the file, and from $SILTSTONE_SERVER_TOKENS. Without any, only a loopback
    address is taken, and whoever is on this machine may do everything.
    """
    from siltstone.server.rest.access import tokens_from

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    found = tokens_from(tokens, os.environ)
    with opened(db) as store:
        store.serve_local()  # first: it tells who wants to join that it will
        service = store.serve(
            host, port, tokens=found, allowed_hosts=allow_host or (), certificate=cert, key=key
        )
        print(service.url, flush=True)
        note(f"serving {store.path} with {len(found) or 'no'} tokens; SIGTERM or Ctrl-C ends it")
        with contextlib.closing(service):  # before the store: what is inside is still answered
            stop.wait()
            note("answering what is inside, rolling back what is open")


def token(
    role: Annotated[str, typer.Argument(help="read, write or admin.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Who has it; stands in messages.")] = "client",
) -> None:
    """Make a token: the secret on stdout, the line for the server's file on stderr."""
    from siltstone.server.rest.access import digest_of, new_token, tokens_of

    secret = new_token()
    line = f"{name} {role.lower()} sha256:{digest_of(secret).hex()}"
    tokens_of(line, "the token")
    print(secret)
    note(f"for the file of tokens: {line}")
