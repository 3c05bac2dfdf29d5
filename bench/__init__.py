"""Bench: siltstone beside its peers, on the same work, in one run.

    python -m bench ─▶ runner ─▶ workloads/* ─▶ peers/*
                          └────▶ results ─▶ report (tables on a terminal), kept ─▶ results.json
    python -m bench curves, python -m bench.spark ─▶ kept ─▶ results.json
    python -m bench report:   results.json, reasons.toml ─▶ page ─▶ docs/benchmarks*

A workload prepares every peer, then measures them in turns, three rounds, each round in another
order: the machine's moods fall on all of them. Ratios are taken within a round, then their median.

Eight programs measure one subject each, and print what they find: `python -m bench.NAME --help`.

    alternate   this checkout against another one      load     a load, and a streamed one
    cpu         the processor's time of a commit       memory   what is kept of freed memory
    fold        what merges write and cost readers     search   nearest vectors, and words
    ingest      upserts at full speed                  start    how long commands take
"""
