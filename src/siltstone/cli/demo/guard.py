"""Guard: runs a command until its own standard input ends; then its directory goes, too.

    python guard.py DIRECTORY COMMAND...

Who started it holds the other end of that pipe, and never writes: the kernel closes it when that
process ends, however it does. If the command ends before, its last words are said on stderr. The
file is run by its path: it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

LAST_BYTES = 4096


def main() -> int:
    """Return 0 if the command was ended, 1 if it ended by itself."""
    folder, *command = sys.argv[1:]
    log = Path(folder) / "log"
    try:
        with (
            log.open("wb") as said,
            subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            ) as process,
        ):
            threading.Thread(target=_end_with_stdin, args=(process,), daemon=True).start()
        if process.returncode == -signal.SIGKILL:
            return 0
        sys.stderr.write(log.read_text(errors="replace")[-LAST_BYTES:])
    except OSError as error:
        sys.stderr.write(str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1


def _end_with_stdin(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.read(0, 1)
    process.kill()


if __name__ == "__main__":
    sys.exit(main())
