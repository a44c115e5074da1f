"""The sets with spans of identifiers and entities, with where their files may lie."""

from __future__ import annotations

from functools import partial
from typing import Any

from research.datasets.annotated import read_text_table
from research.datasets.conll import read_conll
from research.datasets.info import DatasetInfo, Place
from research.datasets.pii_masking import read_pii_masking
from research.datasets.presidio import read_presidio
from research.datasets.pubtator import read_pubtator
from research.datasets.registry import register_dataset

__all__: list[str] = []

_BROAD = {
    **{f"{section}.conll": "train" for section in "abeg"},
    "h.conll": "dev",
    "f.conll": "test",
}
_SEC = {"**/FIN5.txt": "train", "**/FIN3.txt": "test"}
_WNUT = {
    "wnut17train.conll": "train",
    "emerging.dev.conll": "dev",
    "emerging.test.annotated": "test",
}


def _table(folder: str, file: str, **options: Any) -> Place:
    read = partial(read_text_table, file=file, split="split", spans="spans", **options)
    return Place((folder,), (file,), read)


def _columns(folders: tuple[str, ...], files: dict[str, str], **options: Any) -> Place:
    return Place(folders, tuple(files), partial(read_conll, files=files, **options))


def _documents(folders: tuple[str, ...], files: str) -> Place:
    return Place(folders, (files,), partial(read_pubtator, files=files))


def _texts(name: str, what: str, places: tuple[Place, ...], source: str, terms: str) -> None:
    register_dataset(DatasetInfo(name, "texts", what, places, source, terms))


for _name, _file, _given, _what in (
    (
        "pii-synth",
        "presidio_synth_v2",
        "synth_dataset_v2.json",
        "Made-up sentences with identifiers, 17 types",
    ),
    (
        "pii-large",
        "presidio_generated_large",
        "generated_large.json",
        "Made-up sentences with identifiers, older templates",
    ),
):
    _texts(
        _name,
        f"{_what} (presidio-research).",
        (
            _table("pii", f"{_file}.jsonl.gz", group="masked"),
            Place(
                ("presidio-research/data", "presidio-research/tests/data", "presidio-research"),
                (_given,),
                partial(read_presidio, file=_given),
            ),
        ),
        f"The file {_given} of the repository presidio-research.",
        "MIT; the identities are of FakeNameGenerator.com, CC BY-SA 3.0 US.",
    )
_texts(
    "asq-phi",
    "Made-up clinical questions with HIPAA identifiers.",
    (_table("pii", "asq_phi.jsonl.gz"),),
    "JSON lines of {text, split, spans}.",
    "MIT.",
)
_texts(
    "pii-masking-300k",
    "Made-up texts with identifiers, 27 types, the English ones (ai4privacy).",
    tuple(
        Place(
            ("pii-masking-300k", "pii/pii-masking-300k", "ai4privacy/pii-masking-300k"),
            (f"**/*.{suffix}",),
            read_pii_masking,
        )
        for suffix in ("jsonl*", "parquet")
    ),
    "The files of the Hugging Face data set ai4privacy/pii-masking-300k.",
    "A licence of its own (commercial use apart): agree to it first.",
)
for _name, _file, _what, _original, _source, _terms in (
    (
        "ncbi-disease",
        "ncbi_disease",
        "Abstracts with diseases.",
        _documents(("ncbi-disease", "NCBI-disease"), "**/NCBI*set_corpus.txt*"),
        "NCBItrainset_corpus.txt and on of the NCBI disease corpus.",
        "Terms not stated.",
    ),
    (
        "bc5cdr",
        "bc5cdr_sentences",
        "Chemicals and diseases: sentences in the table, abstracts in the original.",
        _documents(("CDR_Data", "BC5CDR", "bc5cdr"), "**/CDR_*Set.PubTator.txt*"),
        "CDR_TrainingSet.PubTator.txt and on of BioCreative V.",
        "CC BY 4.0.",
    ),
    (
        "wnut17",
        "wnut17",
        "Posts with rare and new entities (W-NUT 2017).",
        _columns(("emerging_entities_17", "wnut17"), _WNUT),
        "The repository emerging_entities_17.",
        "CC BY 4.0.",
    ),
    (
        "broad-twitter",
        "broad_twitter",
        "Tweets with persons, places and organisations.",
        _columns(("broad_twitter_corpus", "broad-twitter"), _BROAD),
        "The repository broad_twitter_corpus (a.conll and on).",
        "CC BY 4.0.",
    ),
    (
        "wikigold",
        "wikigold",
        "Sentences of Wikipedia with entities.",
        _columns(("wikigold",), {"**/wikigold.conll.txt": ""}),
        "The file wikigold.conll.txt.",
        "CC BY 4.0.",
    ),
    (
        "sec-filings",
        "sec_filings",
        "Sentences of credit agreements with entities.",
        _columns(("SEC-filings", "sec-filings"), _SEC, encoding="latin-1"),  # some lone quotes
        "The files FIN5.txt and FIN3.txt.",
        "CC BY 3.0.",
    ),
):
    _texts(_name, _what, (_table("concepts", f"{_file}.jsonl.gz"), _original), _source, _terms)
