"""CPU: what a commit, a read and a request cost; `python -m bench.cpu --help`."""
