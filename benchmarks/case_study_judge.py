"""A second judge of the reconstructions in the case study: an SBERT beside the judge of the record.

    python benchmarks/case_study_judge.py FOLDER    # of benchmarks/paraphrase_minilm.py

Reads the texts that are in the records of ``results/experiments/case-study`` with their reconstructions; writes
``results/case_study_judge.json``. Chance is the cosine of a text and the reconstructions of the others.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # `research` is not installed

import numpy as np

import vecveil
from research.running import commit
from vecveil.io import write_text
from vecveil.privacy.utility.tasks import pair_cosines

HERE = Path(__file__).parent
RECORDS = HERE / "results" / "experiments" / "case-study" / "records.jsonl"


def main(folder: str) -> None:
    judge = vecveil.load_encoder(folder)
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in RECORDS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        shown = [text for text in record["found"]["shown"] if "original" in text]
        cells[record["cell"]["scale"], record["cell"]["method"]].append(
            {
                "texts": [text["original"] for text in shown],
                "written": [text["reconstruction"] for text in shown],
                "semantic": [text["semantic"] for text in shown],
            }
        )
    rows = []
    for (scale, method), runs in cells.items():
        means, chance = [], []
        for run in runs:
            before, after = judge.encode(run["texts"]), judge.encode(run["written"])
            means.append(float(pair_cosines(before, after).mean()))
            turned = [pair_cosines(before, np.roll(after, n, axis=0)).mean() for n in range(1, len(before))]
            chance.append(float(statistics.fmean(turned)))
        rows.append(
            {
                "scale": scale,
                "method": method,
                "seeds": len(runs),
                "texts": len(runs[0]["texts"]),
                "first": round(statistics.fmean(one for run in runs for one in run["semantic"]), 4),
                "second": round(statistics.fmean(means), 4),
                "spread": round(statistics.stdev(means), 4) if len(means) > 1 else None,
                "chance": round(statistics.fmean(chance), 4),
            }
        )
    record = {"judge": "paraphrase-MiniLM-L3-v2", "fingerprint": judge.fingerprint, "commit": commit(), "rows": rows}
    write_text(HERE / "results" / "case_study_judge.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
