"""Read texts with classes, notes and plain sentences."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from research.datasets.kinds import MarkedSpan, TextSet, group_ids
from research.datasets.reading import (
    Wrong,
    as_splits,
    existing,
    joined,
    labelled,
    lines_in,
    number_in,
    read_columns,
    read_text_table,
    records_of,
)
from vecveil.errors import DataFileError, out_of_range
from vecveil.texts.tables.columns import missing_column
from vecveil.validation import check_count

# A line of a .rel file is a relation: PubMed id, sentence, effect (or dose), its start and end, drug, its start and
# end, separated by "|". The offsets count from the start of the abstract, which is not given; so a mention is found by
# its words, and of several places for the two the pair is taken that lies as far apart as in the abstract. A line of
# ADE-NEG.txt is a sentence without relation: PubMed id, NEG, sentence.
_RELATIONS = {"DRUG-AE.rel": "ADVERSE_EFFECT", "DRUG-DOSE.rel": "DOSE"}
_ADE_FIELDS = 8
_NEGATIVE = re.compile(r"(\d+) NEG (.*\S)")
_Key = tuple[str, str]
_Mark = tuple[int, int, str]


def read_ade(name: str, folder: Path) -> TextSet:
    """Return each sentence of an abstract once, with the spans of all its relations. The files have no split.

    Spans are DRUG, ADVERSE_EFFECT and DOSE; labels "adverse_event" and "none"; groups are the abstracts.
    """
    marks: dict[_Key, set[_Mark]] = {}
    for file, label in _RELATIONS.items():
        for line, wrong in lines_in(folder, file):
            if line.strip():
                key, found = _relation(line, label, wrong)
                marks.setdefault(key, set()).update(found)
    for line, wrong in lines_in(folder, "ADE-NEG.txt"):
        match = _NEGATIVE.fullmatch(line.strip())
        if match is not None:
            marks.setdefault((match[1], match[2]), set())
        elif line.strip():
            raise wrong("line", "a PubMed id, NEG and a sentence")
    keys = sorted(marks, key=lambda key: (int(key[0]), key[1]))
    return TextSet(
        name,
        tuple(text for _, text in keys),
        group_ids([pmid for pmid, _ in keys]),
        spans=tuple(
            tuple(MarkedSpan(start=a, end=b, label=label) for a, b, label in sorted(marks[key])) for key in keys
        ),
        labels=tuple("adverse_event" if any(m[2] == "ADVERSE_EFFECT" for m in marks[key]) else "none" for key in keys),
    )


def _relation(line: str, label: str, wrong: Wrong) -> tuple[_Key, list[_Mark]]:
    pmid, _, rest = line.partition("|")
    fields = rest.rsplit("|", _ADE_FIELDS - 2)
    if len(fields) != _ADE_FIELDS - 1 or not pmid.isdigit():
        raise wrong("fields", f"{_ADE_FIELDS} fields, a PubMed id first")
    text = fields[0].strip()
    target, first, _, drug, second, _ = fields[1:]
    starts = [number_in(start, "offset", wrong, 0, 1e9) for start in (first, second)]
    places = [
        (a, b) for a in _occurrences(target, text, "mention", wrong) for b in _occurrences(drug, text, "drug", wrong)
    ]
    apart = starts[1] - starts[0]
    a, b = min(places, key=lambda pair: abs(pair[1] - pair[0] - apart))
    return (pmid, text), [(a, a + len(target), label), (b, b + len(drug), "DRUG")]


def _occurrences(words: str, text: str, field: str, wrong: Wrong) -> list[int]:
    places = [match.start() for match in re.finditer(f"(?={re.escape(words)})", text)]
    if not words or not places:
        raise wrong(field, "words of the sentence")
    return places


TOPICS = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
_AG_FIELDS = 3
_ENTITY = re.compile(r"&?(#\d{1,5}|quot|amp|lt|gt|nbsp);")
_TAG = re.compile(r"</?(?:br|p|b|i|a|strong|em|font|span|div|img)\b[^<>]{0,500}>", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?<=\w) '(?=(?:s|t|re|ve|ll|d|m)\b)")


def read_ag_news(name: str, folder: Path) -> TextSet:
    """Return title, ". " and description of each article, with entities and line breaks undone.

    train.csv and test.csv have class number, title and description, all quoted; some copies have a header.
    """
    rows = []
    for split in ("train", "test"):
        path = existing(folder, f"{split}.csv")
        for number, (fields, wrong) in enumerate(() if path is None else records_of(path)):
            if number == 0 and fields[0].strip().lower() == "class index":
                continue
            if len(fields) != _AG_FIELDS:
                raise wrong("fields", f"{_AG_FIELDS}", len(fields))
            if fields[0] not in TOPICS:
                raise wrong("class", f"one of {', '.join(TOPICS)}")
            parts = [part for part in map(_cleaned, fields[1:]) if part]
            rows.append((". ".join(parts), split, TOPICS[fields[0]]))
    return labelled(name, rows)


def _cleaned(text: str) -> str:
    """Return ``text`` with entities as characters; their ampersand is often lost."""
    text = _ENTITY.sub(r"&\1;", text)
    text = _TAG.sub(" ", html.unescape(text)).replace("\\", " ")
    return " ".join(_POSSESSIVE.sub("'", text).split())


CHARACTERS = 1 << 28
_COLUMNS = ("TEXT", "CATEGORY", "SUBJECT_ID")


def read_mimic_notes(
    name: str, folder: Path, *, categories: Sequence[str] | None = ("Discharge summary",), most: int = 5_000
) -> TextSet:
    """Return the first notes of ``categories`` in NOTEEVENTS.csv, labelled by category, without split and spans.

    The file (two million notes, 4 GB) is read record by record. Notes marked as errors and empty ones are skipped; the
    notes of a patient are one group.

    Args:
        categories: values of the column CATEGORY, case-insensitive; None: all.
        most: maximum number of notes; reading also stops at 268 million characters.
    """
    most = check_count(most, owner="read_mimic_notes", param="most")
    chosen = None if categories is None else {category.casefold() for category in categories}
    path = existing(folder, "NOTEEVENTS.csv", "noteevents.csv") or folder / "NOTEEVENTS.csv"
    found: list[tuple[str, str, str]] = []
    characters = 0
    rows = records_of(path)
    header = [column.strip().upper() for column in next(rows, ([""], None))[0]]
    for column in _COLUMNS:
        if column not in header:
            raise missing_column(path.name, "columns", column, header)
    text, category, patient = (header.index(column) for column in _COLUMNS)
    error = header.index("ISERROR") if "ISERROR" in header else None
    for fields, wrong in rows:
        if len(fields) != len(header):
            raise wrong("fields", f"{len(header)}", len(fields))
        label, note = fields[category].strip(), fields[text].strip()
        is_error = error is not None and fields[error].strip() in ("1", "1.0")
        if is_error or not note or (chosen is not None and label.casefold() not in chosen):
            continue
        found.append((note, label, fields[patient]))
        characters += len(note)
        if len(found) >= most or characters >= CHARACTERS:
            break
    if not found:
        which = "any category" if categories is None else " or ".join(categories)
        raise DataFileError(f"{path.name} has no notes of {which}.", param="path")
    texts, labels, patients = zip(*found, strict=True)
    return TextSet(name, texts, group_ids(patients), labels=labels)


SENTIMENTS = ("negative", "neutral", "positive")
AGREEMENT = {50: "50", 66: "66", 75: "75", 100: "All"}


def read_phrasebank(name: str, folder: Path, *, agreement: int = 50) -> TextSet:
    """Return the distinct sentences on whose label at least ``agreement`` % of the annotators agree, without a split.

    The files Sentences_50Agree.txt and on (Latin-1, ``sentence@label``) are nested. A sentence takes the label of the
    strictest file that holds it.

    Args:
        agreement: 50, 66, 75 or 100.
    """
    if agreement not in AGREEMENT:
        raise out_of_range("read_phrasebank", "agreement", "50, 66, 75 or 100", repr(agreement))
    label_of: dict[str, str] = {}
    for level, part in sorted(AGREEMENT.items()):
        if level < agreement:
            continue
        for line, wrong in lines_in(folder, f"Sentences_{part}Agree.txt", encoding="latin-1"):
            text, _, label = (one.strip() for one in line.rpartition("@"))
            if line.strip() and (label not in SENTIMENTS or not text):
                raise wrong("label", f"a sentence, @ and one of {', '.join(SENTIMENTS)}")
            if text:
                label_of[text] = label
    if not label_of:
        raise DataFileError(f"{folder.name} has no file of at least {agreement} % agreement.", param="path")
    return TextSet(name, tuple(label_of), np.arange(len(label_of)), labels=tuple(label_of.values()))


LABELS = {"0": "negative", "1": "positive"}


def read_glue_sst2(name: str, folder: Path) -> TextSet:
    """Return the labelled sentences of GLUE's train.tsv, dev.tsv and test.tsv: sentence and label, no quotes.

    GLUE's own test file has no labels and is skipped.
    """
    rows = []
    for split in ("train", "dev", "test"):
        lines = lines_in(folder, f"{split}.tsv")
        for first, wrong in itertools.islice(lines, 1):
            if split == "test" and "label" not in first.split("\t"):
                break
            if first.split("\t") != ["sentence", "label"]:
                raise wrong("header", "the names sentence and label")
            for line, wrong in lines:
                text, _, label = (one.strip() for one in line.rpartition("\t"))
                if not text or label not in LABELS:
                    raise wrong("label", "a sentence, a tab and 0 or 1")
                rows.append((text, split, LABELS[label]))
    return labelled(name, rows)


# WikiText-2 has one paragraph a line, headings between ``=``. Its words and marks are apart by spaces, with ``@-@`` for
# a hyphen inside a word; they are joined again by rule. ``<unk>`` stays where a rare word was.
_HEADING = re.compile(r"=(?: =)* .+ =(?: =)*")
_ARTICLE = re.compile(r"= [^=].* =")
_QUOTED = re.compile(r'" ([^"]*?) "')
_RULES = (
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" ([,.;:!?%)\]])"), r"\1"),
    (re.compile(r"([(\[$£€#]) "), r"\1"),
    (re.compile(r" ('(?:s|t|re|ve|ll|d|m)\b|n't\b)(?!\w)"), r"\1"),
)


def read_wikitext(name: str, folder: Path) -> TextSet:
    """Return the paragraphs in ``folder`` without headings; an article is a group."""
    lines = [
        (split, line.strip())
        for split, word in (("train", "train"), ("dev", "valid"), ("test", "test"))
        for line, _ in lines_in(folder, f"wiki.{word}.tokens", f"wiki.{word}.raw", f"{word}.txt")
    ]
    return _paragraphs(name, [(split, line, detokenised(line)) for split, line in lines])


def read_wikitext_table(name: str, folder: Path, *, file: str) -> TextSet:
    """Return the paragraphs of a table of lines: split, text (as in the source), text_detok."""
    rows = read_columns(folder / file, "text", ("split", "text_detok"))
    splits = as_splits(rows["split"], file)
    return _paragraphs(name, zip(splits, rows["text"], rows["text_detok"], strict=True))


def detokenised(text: str) -> str:
    """Return ``text`` with punctuation joined to its words."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _QUOTED.sub(r'"\1"', text)


def _paragraphs(name: str, lines: Iterable[tuple[str, str, str]]) -> TextSet:
    texts, splits, groups = [], [], []
    article = 0
    for split, line, text in lines:
        article += _ARTICLE.fullmatch(line) is not None
        if line and _HEADING.fullmatch(line) is None:
            texts.append(text)
            splits.append(split)
            groups.append(article)
    return TextSet(name, tuple(texts), np.array(groups, dtype=np.int64), tuple(splits))


_AG = ("ag_news_train_subset.parquet", "ag_news_test.parquet")


def read_ag_news_tables(name: str, folder: Path) -> TextSet:
    """Return the articles of both tables."""
    read = partial(read_text_table, name, folder, split="split", label="label_name")
    return joined(name, [read(file=file) for file in _AG])
