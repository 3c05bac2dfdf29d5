"""Bench: siltstone beside its peers, on the same work, in one run.

    python -m bench ─▶ runner ─▶ workloads/* ─▶ peers/*
                          └────▶ results ─▶ report (table, JSON) ─▶ history/*.json
    python -m bench curves, python -m bench profile, python -m bench.spark ─▶ history/*.json
    python -m bench report:   history/*.json, reasons.toml ─▶ page, plots ─▶ docs/benchmarks.md

A workload prepares every peer, then measures them in turns, three rounds, each round in another
order: the machine's moods fall on all of them. Ratios are taken within a round, then their median.
"""
