"""Role: one process of the soak; it works until its standard input ends.

python -m proof.soak.role POST
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable

from proof.soak import care, guest, mirrored, players, stock
from proof.soak.post import Post
from siltstone.maintenance.merge import merge

Work = Callable[[threading.Event], None]


def work_of(post: Post) -> Work:
    """Return what a role does until it is told to stop."""
    made: dict[str, Callable[[], Work]] = {
        "owner": lambda: players.Owner(post).run,
        "joined": lambda: players.Joined(post).run,
        "remote": lambda: players.Joined(post).run,
        "reader": lambda: players.Reader(post).run,
        "watcher": lambda: players.Reader(post).run,
        "stock": lambda: stock.Client(post).run,
        "guest": lambda: guest.Guest(post).run,
        "optimizer": lambda: care.again_and_again(post, lambda: care.optimize(post), 0.5),
        "merger": lambda: care.again_and_again(post, lambda: care.merge(post), 0.5),
        "vacuum": lambda: care.again_and_again(post, lambda: care.vacuum(post), 0.5),
        "indexer": lambda: care.again_and_again(post, care.Indexer(post).work, 1.5),
        "mirror": lambda: care.again_and_again(post, mirrored.Restorer(post).work, 2.0),
        "backup": lambda: care.again_and_again(post, care.Keeper(post).work, 2.0),
    }
    return made[post.role]()


def main() -> None:
    """Begin, say so, and work; merges hide rows, of parts as small as these.

    An owner's own merges do not: they run in a child, which rewrites small parts as anybody's does.
    """
    merge.COMPACT_BELOW_ROWS = 0
    faulthandler.register(signal.SIGUSR1)  # the crew asks where we hang
    post = Post.of(sys.argv[1])
    stop = threading.Event()
    work = work_of(post)
    sys.stdout.write("begun\n")
    sys.stdout.flush()

    def listen() -> None:
        os.read(sys.stdin.fileno(), 1)  # ends with our parent, too
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    work(stop)


if __name__ == "__main__":
    main()
