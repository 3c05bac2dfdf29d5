"""Certificate: what TLS clients are shown, and how a new one takes the place of an old one.

A listener has one context for its life. OpenSSL asks it about each handshake, whether the client
names a server or not, and it passes the handshake on to the newest context that was read whole. So
files that are half written, or do not belong together, are refused, and the old ones stay.
Connections that are open keep what they began with.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from siltstone.errors import UnavailableError


class Certificate:
    """See the module. Any thread: a new context is one assignment."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            UnavailableError: As `read` does.
        """
        self._certificate, self._key = certificate, key
        self.listening = self._newest = self.read()
        """The context of the listener."""
        self.listening.sni_callback = self._pass_on

    def read(self) -> ssl.SSLContext:
        """Return a context of what the files have now; `show` takes it.

        Raises:
            UnavailableError: They cannot be read, do not belong together, or the key has a
                passphrase, which nobody is asked for.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            key = f" and {self._key}" if self._key else ""
            raise UnavailableError(
                f"TLS needs a certificate and its key as PEM, without a passphrase; of"
                f" {self._certificate}{key}: {error}"
            ) from error
        return context

    def show(self, context: ssl.SSLContext) -> None:
        """Show new connections what was read."""
        self._newest = context

    def _pass_on(self, handshake: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        handshake.context = self._newest
