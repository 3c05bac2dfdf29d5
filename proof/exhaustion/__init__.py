"""Exhaustion: what a store does when something runs out, over thousands of cycles.

    cause comes ─▶ work until it hurts ─▶ cause goes ─▶ the same work again, at most after a reopen

In each cycle every error is one of ours (or, of memory, Python's), what was acknowledged is there,
what was refused is not. After all cycles there are no more descriptors, threads, locks or bytes in
memory than after the first ones. `python -m proof.exhaustion --help` runs them; `causes` lists
what runs out, `ledger` is the work, `footprint` what may not grow.
"""
