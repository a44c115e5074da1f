"""Financial PhraseBank as it is given out: Sentences_50Agree.txt and on, Latin-1, ``sentence@label``.

The files are nested: a sentence on whose label all annotators agree is in each of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.datasets.columns import field_error
from research.datasets.kinds import TextSet
from research.datasets.lines import existing, numbered_lines
from vecveil.data.files import not_usable
from vecveil.errors import InvalidInputError

__all__ = ["read_phrasebank"]

LABELS = ("negative", "neutral", "positive")
AGREEMENT = {50: "50", 66: "66", 75: "75", 100: "All"}


def read_phrasebank(name: str, folder: Path, *, agreement: int = 50) -> TextSet:
    """Return the distinct sentences on whose label enough annotators agree. There is no split.

    Args:
        agreement: per cent of the annotators, 50, 66, 75 or 100; higher keeps fewer sentences. The
            label of a sentence is that of the strictest file it is in.
    """
    if agreement not in AGREEMENT:
        raise InvalidInputError.of(
            "read_phrasebank", "agreement", "50, 66, 75 or 100", repr(agreement)
        )
    label_of: dict[str, str] = {}
    for level, part in sorted(AGREEMENT.items()):
        path = existing(folder, f"Sentences_{part}Agree.txt")
        if path is None or level < agreement:
            continue
        for number, line in numbered_lines(path, "latin-1"):
            text, _, label = line.rpartition("@")
            text, label = text.strip(), label.strip()
            if line.strip() and (label not in LABELS or not text):
                wanted = f"a sentence, @ and one of {', '.join(LABELS)}"
                where = f"line {number}"
                raise field_error(path.name, "label", wanted, "something else", where)
            if text:
                label_of[text] = label
    if not label_of:
        wanted = f"a folder with a file of at least {agreement} % agreement"
        raise not_usable(folder.name, wanted, "one without")
    texts = tuple(label_of)
    return TextSet(name, texts, np.arange(len(texts)), labels=tuple(label_of.values()))
