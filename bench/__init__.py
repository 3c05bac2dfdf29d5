"""Bench: siltstone beside its peers, on the same work, in one run.

    python -m bench ─▶ runner ─▶ workloads/* ─▶ peers/*
                          └────▶ results ─▶ report (table, JSON, docs/benchmarks.md)

A workload prepares every peer, then measures them in turns, three rounds, each round in another
order: the machine's moods fall on all of them. Ratios are taken within a round, then their median.
"""
