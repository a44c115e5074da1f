"""The text sets, with where their files may lie: identifiers, entities, classes, notes, sentences."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from vecveil.experiments.datasets.annotated import joined, read_text_table
from vecveil.experiments.datasets.info import DatasetInfo, Place
from vecveil.experiments.datasets.kinds import TextSet
from vecveil.experiments.datasets.registry import register_dataset

__all__: list[str] = []

_AG = ("ag_news_train_subset.parquet", "ag_news_test.parquet")


def _table(folder: str, file: str, **options: Any) -> Place:
    return Place((folder,), (file,), partial(read_text_table, file=file, **options))


def _ag_news_tables(name: str, folder: Path) -> TextSet:
    parts = [read_text_table(name, folder, file=file, label="label_name") for file in _AG]
    return joined(name, parts)


def _texts(name: str, what: str, places: tuple[Place, ...], source: str, terms: str) -> None:
    register_dataset(DatasetInfo(name, "texts", what, places, source, terms))


_texts(
    "ade",
    "Sentences of case reports with drugs and their adverse effects.",
    (
        _table(
            "ade",
            "ade_corpus_v2.jsonl.gz",
            spans="spans",
            label="label",
            classes={"0": "none", "1": "adverse_event"},
            group="pmid",
        ),
    ),
    "The files DRUG-AE.rel, DRUG-DOSE.rel and ADE-NEG.txt of ADE-Corpus-V2.",
    "Terms not stated; cite Gurulingappa et al., 2012.",
)
_texts(
    "sst2",
    "Sentences of film reviews, positive or negative.",
    (
        _table(
            "classification",
            "sst2.parquet",
            label="label",
            classes={"0": "negative", "1": "positive"},
        ),
    ),
    "The folder SST-2 of GLUE (train.tsv, dev.tsv).",
    "Terms not stated.",
)
_texts(
    "phrasebank",
    "Sentences of financial news: negative, neutral or positive (Financial PhraseBank).",
    (_table("classification", "financial_phrasebank.parquet", label="label_name"),),
    "The files Sentences_50Agree.txt and on of FinancialPhraseBank-v1.0.",
    "Research with citation; commonly listed as CC BY-NC-SA 3.0.",
)
_texts(
    "agnews",
    "News in four topics (AG News).",
    (Place(("classification",), _AG, _ag_news_tables),),
    "train.csv and test.csv of ag_news_csv.",
    "Research and other non-commercial activity.",
)
for _name, _file, _what in (
    ("pii-synth", "presidio_synth_v2", "Made-up sentences with identifiers, 17 types"),
    (
        "pii-large",
        "presidio_generated_large",
        "Made-up sentences with identifiers, older templates",
    ),
):
    _texts(
        _name,
        f"{_what} (presidio-research).",
        (_table("pii", f"{_file}.jsonl.gz", spans="spans", group="template_id"),),
        "JSON lines of {text, split, spans, template_id}.",
        "MIT; the identities are of FakeNameGenerator.com, CC BY-SA 3.0 US.",
    )
_texts(
    "asq-phi",
    "Made-up clinical questions with HIPAA identifiers.",
    (_table("pii", "asq_phi.jsonl.gz", spans="spans"),),
    "JSON lines of {text, split, spans}.",
    "MIT.",
)
for _name, _file, _what, _terms in (
    ("ncbi-disease", "ncbi_disease", "Abstracts with diseases", "Terms not stated."),
    ("bc5cdr", "bc5cdr_sentences", "Sentences with chemicals and diseases", "CC BY 4.0."),
    ("wnut17", "wnut17", "Posts with rare and new entities (W-NUT 2017)", "CC BY 4.0."),
    ("broad-twitter", "broad_twitter", "Tweets with persons, places, organisations", "CC BY 4.0."),
    ("wikigold", "wikigold", "Sentences of Wikipedia with entities", "CC BY 4.0."),
    ("sec-filings", "sec_filings", "Sentences of credit agreements with entities", "CC BY 3.0."),
):
    _texts(
        _name,
        f"{_what}.",
        (_table("concepts", f"{_file}.jsonl.gz", spans="spans"),),
        "JSON lines of {text, split, spans}.",
        _terms,
    )
_texts(
    "wikitext2",
    "Paragraphs of Wikipedia articles, without headings (WikiText-2).",
    (
        _table(
            "lm",
            "wikitext2_valid_test.parquet",
            text="text_detok",
            values={"is_heading": (False,)},
        ),
    ),
    "The files wiki.train.tokens and on, or the raw ones.",
    "The texts: CC BY-SA 3.0.",
)
_texts(
    "sentences",
    "Sentences of many sources, to train attackers on; the label is the source.",
    (_table("lm", "sentences.parquet", split=None, label="source"),),
    "A Parquet table of source and text.",
    "Differ by source.",
)
for _name, _file, _what, _label, _classes, _terms in (
    ("aci-bench", "aci_bench", "Clinical notes of played visits", None, None, "CC BY 4.0."),
    ("mts-dialog", "mts_dialog", "Sections of clinical notes", "label", None, "CC BY 4.0."),
    (
        "mtsamples",
        "mtsamples_tenth",
        "Transcribed medical reports",
        "label",
        {"1": "surgery", "2": "medical records", "3": "internal medicine", "4": "other"},
        "Terms of mtsamples.com.",
    ),
):
    _texts(
        _name,
        f"{_what}.",
        (_table("clinical", f"{_file}.jsonl.gz", label=_label, classes=_classes),),
        "JSON lines of {text, split, label}.",
        _terms,
    )
