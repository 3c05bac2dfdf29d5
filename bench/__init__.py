"""Bench: siltstone beside its peers, on the same work, in one run.

    python -m bench ─▶ runner ─▶ workloads/* ─▶ peers/*
                          └────▶ results ─▶ report (tables on a terminal), kept ─▶ results.json
    python -m bench curves, python -m bench.spark ─▶ kept ─▶ results.json
    python -m bench report:   results.json, reasons.toml ─▶ page ─▶ docs/benchmarks.md

A workload prepares every peer, then measures them in turns, three rounds, each round in another
order: the machine's moods fall on all of them. Ratios are taken within a round, then their median.
"""
