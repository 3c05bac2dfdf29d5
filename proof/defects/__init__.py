"""Defects: small wrong changes of the source, each planted in a copy, each to be caught.

    <name>.patch   Title, Breaks (guarantees), Guarded-by (tests), a reason; then a unified diff

A suite that never failed may be one that cannot. So the suite that claims to guard a guarantee
runs twice: on a copy of the source, where it must pass, and on the same copy with the defect in it,
where it must not. `python -m proof.defects --help` runs them.
"""
