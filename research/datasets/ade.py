"""ADE-Corpus-V2 as it is given out: DRUG-AE.rel, DRUG-DOSE.rel and ADE-NEG.txt.

A line of a .rel file is a relation: PubMed id, sentence, effect (or dose), its start and end, drug, its
start and end, separated by "|". The offsets count from the start of the abstract, which is not
given; so a mention is found by its words, and of several places for the two the pair is taken that lies as
far apart as in the abstract. A line of ADE-NEG.txt is a sentence without relation: PubMed id, NEG, sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from research.datasets.columns import as_number, field_error
from research.datasets.kinds import Span, TextSet, group_ids
from research.datasets.lines import existing, numbered_lines

__all__ = ["read_ade"]

_FILES = (("DRUG-AE.rel", "ADVERSE_EFFECT"), ("DRUG-DOSE.rel", "DOSE"))
_FIELDS = 8
_NEGATIVE = re.compile(r"(\d+) NEG (.*\S)")
_Key = tuple[str, str]


def read_ade(name: str, folder: Path) -> TextSet:
    """Return each sentence of an abstract once, with the spans of all its relations.

    Spans are DRUG, ADVERSE_EFFECT and DOSE; labels "adverse_event" (with an adverse effect of a
    drug) and "none"; groups are the abstracts. The files have no split.
    """
    spans: dict[_Key, set[tuple[int, int, str]]] = {}
    for file, label in _FILES:
        path = existing(folder, file)
        for number, line in () if path is None else numbered_lines(path):
            if line.strip():
                key, found = _relation(line, label, file, f"line {number}")
                spans.setdefault(key, set()).update(found)
    for key in _without(folder):
        spans.setdefault(key, set())
    keys = sorted(spans, key=lambda key: (int(key[0]), key[1]))
    ordered: list[tuple[Span, ...]] = [
        tuple(Span(start=a, end=b, label=label) for a, b, label in sorted(spans[key]))
        for key in keys
    ]
    return TextSet(
        name=name,
        texts=tuple(text for _, text in keys),
        groups=group_ids([pmid for pmid, _ in keys]),
        spans=tuple(ordered),
        labels=tuple(
            "adverse_event" if any(s["label"] == "ADVERSE_EFFECT" for s in found) else "none"
            for found in ordered
        ),
    )


def _relation(
    line: str, label: str, file: str, where: str
) -> tuple[_Key, list[tuple[int, int, str]]]:
    pmid, _, rest = line.partition("|")
    fields = rest.rsplit("|", _FIELDS - 2)
    if len(fields) != _FIELDS - 1 or not pmid.isdigit():
        wanted = f"{_FIELDS} fields, a PubMed id first"
        raise field_error(file, "fields", wanted, "something else", where)
    text = fields[0].strip()
    target, first, _, drug, second, _ = fields[1:]
    starts = [as_number(start, file, "offset", where, 0, 1e9) for start in (first, second)]
    places = [
        (a, b)
        for a in _occurrences(target, text, file, "mention", where)
        for b in _occurrences(drug, text, file, "drug", where)
    ]
    apart = starts[1] - starts[0]
    a, b = min(places, key=lambda pair: abs(pair[1] - pair[0] - apart))
    found = [(a, a + len(target), label), (b, b + len(drug), "DRUG")]
    return (pmid, text), found


def _occurrences(words: str, text: str, file: str, field: str, where: str) -> list[int]:
    places = [match.start() for match in re.finditer(f"(?={re.escape(words)})", text)]
    if not words or not places:
        raise field_error(file, field, "words of the sentence", "others", where)
    return places


def _without(folder: Path) -> Iterator[_Key]:
    path = existing(folder, "ADE-NEG.txt")
    for number, line in () if path is None else numbered_lines(path):
        found = _NEGATIVE.fullmatch(line.strip())
        if found is None and line.strip():
            wanted = "a PubMed id, NEG and a sentence"
            raise field_error("ADE-NEG.txt", "line", wanted, "something else", f"line {number}")
        if found is not None:
            yield found[1], found[2]
