"""AG News as it is given out: train.csv and test.csv of class number, title, description, all quoted."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np

from research.datasets.columns import field_error
from research.datasets.kinds import TextSet
from research.datasets.lines import existing, records

__all__ = ["read_ag_news"]

CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
_FIELDS = 3
_ENTITY = re.compile(r"&?(#\d{1,5}|quot|amp|lt|gt|nbsp);")
_TAG = re.compile(r"</?(?:br|p|b|i|a|strong|em|font|span|div|img)\b[^<>]{0,500}>", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?<=\w) '(?=(?:s|t|re|ve|ll|d|m)\b)")


def read_ag_news(name: str, folder: Path) -> TextSet:
    """Return title, ". " and description of each article, with entities and line breaks undone."""
    texts, labels, splits = [], [], []
    for split in ("train", "test"):
        path = existing(folder, f"{split}.csv")
        for number, fields in () if path is None else records(path):
            assert path is not None
            if number == 1 and fields[0].strip().lower() == "class index":
                continue  # some copies have a header
            where = f"record {number}"
            if len(fields) != _FIELDS:
                raise field_error(path.name, "fields", f"{_FIELDS}", len(fields), where)
            if fields[0] not in CLASSES:
                wanted = f"one of {', '.join(CLASSES)}"
                raise field_error(path.name, "class", wanted, "something else", where)
            title, description = _cleaned(fields[1]), _cleaned(fields[2])
            texts.append(
                f"{title}. {description}" if title and description else title or description
            )
            labels.append(CLASSES[fields[0]])
            splits.append(split)
    return TextSet(name, tuple(texts), np.arange(len(texts)), tuple(splits), None, tuple(labels))


def _cleaned(text: str) -> str:
    """Return ``text`` with entities, of which the ampersand is often lost, as characters."""
    text = _ENTITY.sub(r"&\1;", text)
    text = _TAG.sub(" ", html.unescape(text)).replace("\\", " ")
    return " ".join(_POSSESSIVE.sub("'", text).split())
