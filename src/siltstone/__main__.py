"""`python -m siltstone`: the command line."""

import sys

from siltstone.cli import main

if __name__ == "__main__":
    sys.exit(main())
