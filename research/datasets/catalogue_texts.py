"""The sets of classes, notes and plain sentences, with where their files may lie."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from research.datasets.ade import read_ade
from research.datasets.agnews import read_ag_news
from research.datasets.annotated import joined, read_split_tables, read_text_table
from research.datasets.info import DatasetInfo, Place
from research.datasets.kinds import TextSet
from research.datasets.mimic import read_mimic_notes
from research.datasets.phrasebank import read_phrasebank
from research.datasets.registry import register_dataset
from research.datasets.sst2 import LABELS, read_glue_sst2
from research.datasets.wikitext import read_wikitext, read_wikitext_table

__all__: list[str] = []

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
    parts = [
        read_text_table(name, folder, file=file, split="split", label="label_name") for file in _AG
    ]
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
        Place(("ADE-Corpus-V2", "ade"), ("DRUG-AE.rel*", "ADE-NEG.txt*"), read_ade),
    ),
    "The files DRUG-AE.rel, DRUG-DOSE.rel and ADE-NEG.txt of ADE-Corpus-V2.",
    "Terms not stated; cite Gurulingappa et al., 2012.",
)
_texts(
    "sst2",
    "Sentences of film reviews, positive or negative.",
    (
        _table("classification", "sst2.parquet", label="label", classes=LABELS),
        Place(("SST-2", "glue/SST-2", "sst2"), ("train.tsv*",), read_glue_sst2),
    ),
    "The folder SST-2 of GLUE (train.tsv, dev.tsv).",
    "Terms not stated.",
)
_texts(
    "phrasebank",
    "Sentences of financial news: negative, neutral or positive (Financial PhraseBank).",
    (
        _table("classification", "financial_phrasebank.parquet", label="label_name"),
        Place(
            ("FinancialPhraseBank-v1.0", "phrasebank"), ("Sentences_*Agree.txt*",), read_phrasebank
        ),
    ),
    "The files Sentences_50Agree.txt and on of FinancialPhraseBank-v1.0.",
    "Research with citation; commonly listed as CC BY-NC-SA 3.0.",
)
_texts(
    "agnews",
    "News in four topics (AG News).",
    (
        Place(("classification",), _AG, _ag_news_tables),
        Place(("ag_news_csv", "ag_news", "agnews"), ("train.csv*", "test.csv*"), read_ag_news),
    ),
    "train.csv and test.csv of ag_news_csv.",
    "Research and other non-commercial activity.",
)
_texts(
    "wikitext2",
    "Paragraphs of Wikipedia articles, without headings (WikiText-2).",
    (
        Place(("lm",), (_WIKI,), partial(read_wikitext_table, file=_WIKI)),
        Place(("wikitext-2", "wikitext2"), ("wiki.*.tokens*",), read_wikitext),
        Place(("wikitext-2-raw", "wikitext-2", "wikitext2"), ("wiki.*.raw*",), read_wikitext),
        Place(("wikitext-2", "wikitext2"), ("test.txt*",), read_wikitext),
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
_texts(
    "mimic3",
    "Discharge summaries of an intensive care unit (MIMIC-III), access-restricted.",
    (
        Place(_MIMIC, ("NOTEEVENTS.csv*",), read_mimic_notes),
        Place(_MIMIC, ("noteevents.csv*",), read_mimic_notes),
    ),
    "NOTEEVENTS.csv (or .csv.gz) of MIMIC-III 1.4, physionet.org/content/mimiciii.",
    "It needs PhysioNet access: training in research with human subjects and a signed data use "
    "agreement; it may not be passed on.",
)
_texts(
    "aci-bench",
    "Clinical notes of played visits.",
    (
        _table("clinical", "aci_bench.jsonl.gz"),
        Place(
            ("aci-bench/data/challenge_data", "aci-bench"),
            (_ACI["train"],),
            partial(read_split_tables, files=_ACI, text="note"),
        ),
    ),
    "The folder data/challenge_data of the repository aci-bench.",
    "CC BY 4.0.",
)
_texts(
    "mts-dialog",
    "Sections of clinical notes; the label is the section.",
    (
        _table("clinical", "mts_dialog.jsonl.gz", label="label"),
        Place(
            ("MTS-Dialog/Main-Dataset", "MTS-Dialog", "mts-dialog"),
            (_MTS["train"],),
            partial(read_split_tables, files=_MTS, text="section_text", label="section_header"),
        ),
    ),
    "The folder Main-Dataset of the repository MTS-Dialog.",
    "CC BY 4.0.",
)
_texts(
    "mtsamples",
    "Transcribed medical reports in four groups.",
    (_table("clinical", "mtsamples_tenth.jsonl.gz", label="label", classes=_MTSAMPLES),),
    "JSON lines of {text, split, label}; label 1 to 4.",
    "Terms of mtsamples.com.",
)
