"""`python -m siltstone`: the command line, and the processes that an owner starts."""

import sys

from siltstone.cli import main
from siltstone.maintenance.merge.lifeline import end_with_owner

if __name__ == "__main__":
    end_with_owner()
    sys.exit(main())
