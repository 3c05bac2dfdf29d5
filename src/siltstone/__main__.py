"""`python -m siltstone`: the command line, and what an owner starts beside itself."""

import sys

from siltstone.cli import main
from siltstone.maintenance.merge.lifeline import end_with_owner

if __name__ == "__main__":
    end_with_owner()
    sys.exit(main())
