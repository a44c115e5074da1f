"""Texts with classes, notes and plain sentences: their readers and where they may lie."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from research.datasets.kinds import DatasetInfo, Place, Span, TextSet, group_ids
from research.datasets.reading import (
    as_number,
    as_splits,
    existing,
    field_error,
    joined,
    numbered_lines,
    read_columns,
    read_split_tables,
    read_text_table,
    records,
)
from vecveil.data.columns import missing_column
from vecveil.data.files import not_usable
from vecveil.errors import InvalidInputError
from vecveil.validation import check_count

_FILES = (("DRUG-AE.rel", "ADVERSE_EFFECT"), ("DRUG-DOSE.rel", "DOSE"))
_ADE_FIELDS = 8
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
    fields = rest.rsplit("|", _ADE_FIELDS - 2)
    if len(fields) != _ADE_FIELDS - 1 or not pmid.isdigit():
        wanted = f"{_ADE_FIELDS} fields, a PubMed id first"
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


CLASSES = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
_AG_FIELDS = 3
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
            if len(fields) != _AG_FIELDS:
                raise field_error(path.name, "fields", f"{_AG_FIELDS}", len(fields), where)
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


CHARACTERS = 1 << 28
_COLUMNS = ("TEXT", "CATEGORY", "SUBJECT_ID")


def read_mimic_notes(
    name: str,
    folder: Path,
    *,
    categories: Sequence[str] | None = ("Discharge summary",),
    most: int = 5_000,
) -> TextSet:
    """Return the first notes of ``categories``: no split, no spans, the category as the label.

    Notes marked as errors and empty ones are passed over. The notes of a patient are one group.

    Args:
        categories: as the column CATEGORY has them; upper and lower case are the same; None: all.
        most: notes to return; reading stops there, or at 268 million characters.
    """
    most = check_count(most, owner="read_mimic_notes", param="most")
    wanted = None if categories is None else {category.casefold() for category in categories}
    path = existing(folder, "NOTEEVENTS.csv", "noteevents.csv") or folder / "NOTEEVENTS.csv"
    texts: list[str] = []
    labels: list[str] = []
    patients: list[str] = []
    characters = 0
    rows = records(path)
    header = [column.strip().upper() for column in next(rows, (0, [""]))[1]]
    for column in _COLUMNS:
        if column not in header:
            raise missing_column(path.name, "columns", column, header)
    text, category, patient = (header.index(column) for column in _COLUMNS)
    error = header.index("ISERROR") if "ISERROR" in header else None
    for number, fields in rows:
        if len(fields) != len(header):
            where = f"record {number}"
            raise field_error(path.name, "fields", f"{len(header)}", len(fields), where)
        label, note = fields[category].strip(), fields[text].strip()
        is_error = error is not None and fields[error].strip() in ("1", "1.0")
        if is_error or not note or (wanted is not None and label.casefold() not in wanted):
            continue
        texts.append(note)
        labels.append(label)
        patients.append(fields[patient])
        characters += len(note)
        if len(texts) >= most or characters >= CHARACTERS:
            break
    if not texts:
        which = "any category" if categories is None else " or ".join(categories)
        raise not_usable(path.name, f"a file with notes of {which}", "one without")
    return TextSet(name, tuple(texts), group_ids(patients), labels=tuple(labels))


SENTIMENTS = ("negative", "neutral", "positive")
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
            if line.strip() and (label not in SENTIMENTS or not text):
                wanted = f"a sentence, @ and one of {', '.join(SENTIMENTS)}"
                where = f"line {number}"
                raise field_error(path.name, "label", wanted, "something else", where)
            if text:
                label_of[text] = label
    if not label_of:
        wanted = f"a folder with a file of at least {agreement} % agreement"
        raise not_usable(folder.name, wanted, "one without")
    texts = tuple(label_of)
    return TextSet(name, texts, np.arange(len(texts)), labels=tuple(label_of.values()))


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
    """Return the paragraphs of ``folder`` without headings; an article is a group."""
    lines: list[tuple[str, str]] = []
    for split, word in (("train", "train"), ("dev", "valid"), ("test", "test")):
        path = existing(folder, f"wiki.{word}.tokens", f"wiki.{word}.raw", f"{word}.txt")
        if path is not None:
            lines += [(split, line.strip()) for _, line in numbered_lines(path)]
    return _paragraphs(name, [(split, line, detokenised(line)) for split, line in lines])


def read_wikitext_table(name: str, folder: Path, *, file: str) -> TextSet:
    """Return the same from a table of lines: split, text (as in the source), text_detok."""
    path = folder / file
    rows = read_columns(path, "text", ("split", "text_detok"))
    splits = as_splits(rows["split"], path.name)
    return _paragraphs(name, zip(splits, rows["text"], rows["text_detok"], strict=True))


def detokenised(text: str) -> str:
    """Return ``text`` with marks joined to their words."""
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
_ACI = {
    "train": "train.csv",
    "dev": "valid.csv",
    "test1": "clinicalnlp_taskB_test1.csv",
    "test2": "clinicalnlp_taskC_test2.csv",
    "test3": "clef_taskC_test3.csv",
}
_MTS = {
    "train": "MTS-Dialog-TrainingSet.csv",
    "dev": "MTS-Dialog-ValidationSet.csv",
    "test1": "MTS-Dialog-TestSet-1-MEDIQA-Chat-2023.csv",
    "test2": "MTS-Dialog-TestSet-2-MEDIQA-Sum-2023.csv",
}
_MTSAMPLES = {"1": "surgery", "2": "medical records", "3": "internal medicine", "4": "other"}
_MIMIC = ("mimic3", "mimiciii", "mimic-iii", "physionet.org/files/mimiciii/1.4")
_WIKI = "wikitext2_valid_test.parquet"


def _table(folder: str, file: str, **options: Any) -> Place:
    options = {"split": "split", **options}
    return Place((folder,), (file,), partial(read_text_table, file=file, **options))


def _ag_news_tables(name: str, folder: Path) -> TextSet:
    read = partial(read_text_table, name, folder, split="split", label="label_name")
    return joined(name, [read(file=file) for file in _AG])


TEXT_SETS: tuple[DatasetInfo, ...] = (
    DatasetInfo(
        "ade", "texts", "Sentences of case reports with drugs and their adverse effects.",
        (
            _table(
                "ade", "ade_corpus_v2.jsonl.gz", spans="spans", label="label",
                classes={"0": "none", "1": "adverse_event"}, group="pmid",
            ),
            Place(("ADE-Corpus-V2", "ade"), ("DRUG-AE.rel*", "ADE-NEG.txt*"), read_ade),
        ),
        "The files DRUG-AE.rel, DRUG-DOSE.rel and ADE-NEG.txt of ADE-Corpus-V2.",
        "Terms not stated; cite Gurulingappa et al., 2012.",
    ),
    DatasetInfo(
        "sst2", "texts", "Sentences of film reviews, positive or negative.",
        (
            _table("classification", "sst2.parquet", label="label", classes=LABELS),
            Place(("SST-2", "glue/SST-2", "sst2"), ("train.tsv*",), read_glue_sst2),
        ),
        "The folder SST-2 of GLUE (train.tsv, dev.tsv).", "Terms not stated.",
    ),
    DatasetInfo(
        "phrasebank", "texts",
        "Sentences of financial news: negative, neutral or positive (Financial PhraseBank).",
        (
            _table("classification", "financial_phrasebank.parquet", label="label_name"),
            Place(("FinancialPhraseBank-v1.0", "phrasebank"), ("Sentences_*Agree.txt*",), read_phrasebank),
        ),
        "The files Sentences_50Agree.txt and on of FinancialPhraseBank-v1.0.",
        "Research with citation; commonly listed as CC BY-NC-SA 3.0.",
    ),
    DatasetInfo(
        "agnews", "texts", "News in four topics (AG News).",
        (
            Place(("classification",), _AG, _ag_news_tables),
            Place(("ag_news_csv", "ag_news", "agnews"), ("train.csv*", "test.csv*"), read_ag_news),
        ),
        "train.csv and test.csv of ag_news_csv.", "Research and other non-commercial activity.",
    ),
    DatasetInfo(
        "wikitext2", "texts", "Paragraphs of Wikipedia articles, without headings (WikiText-2).",
        (
            Place(("lm",), (_WIKI,), partial(read_wikitext_table, file=_WIKI)),
            Place(("wikitext-2", "wikitext2"), ("wiki.*.tokens*",), read_wikitext),
            Place(("wikitext-2-raw", "wikitext-2", "wikitext2"), ("wiki.*.raw*",), read_wikitext),
            Place(("wikitext-2", "wikitext2"), ("test.txt*",), read_wikitext),
        ),
        "The files wiki.train.tokens and on, or the raw ones.", "The texts: CC BY-SA 3.0.",
    ),
    DatasetInfo(
        "sentences", "texts", "Sentences of many sources, to train attackers on; the label is the source.",
        (_table("lm", "sentences.parquet", split=None, label="source"),),
        "A Parquet table of source and text.", "Differ by source.",
    ),
    DatasetInfo(
        "mimic3", "texts", "Discharge summaries of an intensive care unit (MIMIC-III), access-restricted.",
        tuple(Place(_MIMIC, (file,), read_mimic_notes) for file in ("NOTEEVENTS.csv*", "noteevents.csv*")),
        "NOTEEVENTS.csv (or .csv.gz) of MIMIC-III 1.4, physionet.org/content/mimiciii.",
        "It needs PhysioNet access: training in research with human subjects and a signed data use "
        "agreement; it may not be passed on.",
    ),
    DatasetInfo(
        "aci-bench", "texts", "Clinical notes of played visits.",
        (
            _table("clinical", "aci_bench.jsonl.gz"),
            Place(
                ("aci-bench/data/challenge_data", "aci-bench"), (_ACI["train"],),
                partial(read_split_tables, files=_ACI, text="note"),
            ),
        ),
        "The folder data/challenge_data of the repository aci-bench.", "CC BY 4.0.",
    ),
    DatasetInfo(
        "mts-dialog", "texts", "Sections of clinical notes; the label is the section.",
        (
            _table("clinical", "mts_dialog.jsonl.gz", label="label"),
            Place(
                ("MTS-Dialog/Main-Dataset", "MTS-Dialog", "mts-dialog"), (_MTS["train"],),
                partial(read_split_tables, files=_MTS, text="section_text", label="section_header"),
            ),
        ),
        "The folder Main-Dataset of the repository MTS-Dialog.", "CC BY 4.0.",
    ),
    DatasetInfo(
        "mtsamples", "texts", "Transcribed medical reports in four groups.",
        (_table("clinical", "mtsamples_tenth.jsonl.gz", label="label", classes=_MTSAMPLES),),
        "JSON lines of {text, split, label}; label 1 to 4.", "Terms of mtsamples.com.",
    ),
)  # fmt: skip
"""The sets of classes, notes and plain sentences, with where their files may lie."""
