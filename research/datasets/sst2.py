"""SST-2 as GLUE gives it out: train.tsv, dev.tsv and test.tsv, sentence and label, no quotes.

The test file of GLUE has no labels (index, sentence) and is left out; one with labels is read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.datasets.columns import field_error
from research.datasets.kinds import TextSet
from research.datasets.lines import existing, numbered_lines

__all__ = ["LABELS", "read_glue_sst2"]

LABELS = {"0": "negative", "1": "positive"}


def read_glue_sst2(name: str, folder: Path) -> TextSet:
    """Return the labelled sentences of ``folder``."""
    texts, labels, splits = [], [], []
    for split in ("train", "dev", "test"):
        path = existing(folder, f"{split}.tsv")
        lines = iter(()) if path is None else numbered_lines(path)
        header = next(lines, (1, ""))[1].split("\t")
        if path is None or (split == "test" and "label" not in header):
            continue
        if header != ["sentence", "label"]:
            wanted = "the names sentence and label"
            raise field_error(path.name, "header", wanted, "something else", "line 1")
        for number, line in lines:
            text, _, label = line.rpartition("\t")
            if not text.strip() or label.strip() not in LABELS:
                wanted = "a sentence, a tab and 0 or 1"
                where = f"line {number}"
                raise field_error(path.name, "label", wanted, "something else", where)
            texts.append(text.strip())
            labels.append(LABELS[label.strip()])
            splits.append(split)
    return TextSet(name, tuple(texts), np.arange(len(texts)), tuple(splits), None, tuple(labels))
