"""RPC: the Python API for other processes, in the words of `joined.protocol`."""
