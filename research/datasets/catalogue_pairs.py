"""The STS sets and the retrieval sets, with where their files may lie."""

from __future__ import annotations

from functools import partial

from research.datasets.beir import read_beir
from research.datasets.info import DatasetInfo, Place
from research.datasets.registry import register_dataset
from research.datasets.sts import read_pair_table, read_semeval
from research.datasets.stsbenchmark import read_sts_benchmark

__all__: list[str] = []

_STS_TERMS = (
    "Terms differ by part: MSRpar and MSRvid are under licences of Microsoft Research, texts of "
    "Stack Exchange under CC BY-SA 3.0 with attribution."
)
_YEARS = {
    "12": "five parts, with a train split of three",
    "13": "FNWN, OnWN and headlines; the SMT part is not public",
    "14": "six parts, among them forum posts, news and image captions",
    "15": "five parts, among them answers of students and of forums",
    "16": "five parts, among them questions, answers and plagiarism",
}
_SPLIT_TSV = ("corpus.jsonl*", "queries.jsonl*", "qrels.tsv*")
_BEIR = ("corpus.jsonl*", "queries.jsonl*", "qrels/*.tsv*")


def _table(file: str) -> Place:
    return Place(("sts",), (file,), partial(read_pair_table, file=file))


def _sts(year: str, what: str) -> DatasetInfo:
    folders = (f"STS{year}-en-test", f"STS20{year}-en-test", f"sts{year}", f"STS{year}", "STS")
    folders = (*folders[:-1], f"STS/STS{year}-en-test")
    return DatasetInfo(
        name=f"sts{year}",
        kind="pairs",
        what=f"Semantic textual similarity of SemEval 20{year}: {what}.",
        places=(
            _table(f"sts{year}.parquet"),
            Place(folders, ("**/STS*.input.*.txt*", "**/STS*.gs.*.txt*"), read_semeval),
        ),
        source=f"The task's files (STS.input.X.txt and STS.gs.X.txt) of SemEval 20{year}.",
        terms=_STS_TERMS,
    )


def _retrieval(
    name: str, what: str, source: str, terms: str, own: str | None = None, same_pool: bool = False
) -> DatasetInfo:
    """Return a set in the layout of BEIR: the full one first, then ``own``, part of one."""
    read = partial(read_beir, same_pool=same_pool)
    folders = (name, f"beir/{name}", f"retrieval/{name}")
    own_folders = (*folders, f"retrieval/{own}") if own else folders
    places = (Place(folders, _BEIR, read), Place(own_folders, _SPLIT_TSV, read))
    return DatasetInfo(name, "retrieval", what, places, source, terms)


for _year, _what in _YEARS.items():
    register_dataset(_sts(_year, _what))
register_dataset(
    DatasetInfo(
        name="stsb",
        kind="pairs",
        what="The STS benchmark: pairs of SemEval 2012 to 2017, with train, dev and test.",
        places=(
            _table("stsb.parquet"),
            Place(
                ("stsbenchmark", "STSBenchmark", "STS/STSBenchmark", "stsb"),
                ("sts-*.csv*",),
                read_sts_benchmark,
            ),
        ),
        source="The archive Stsbenchmark.tar.gz of the STS wiki (sts-train.csv and so on).",
        terms=f"Scores CC BY-SA 4.0. {_STS_TERMS}",
    )
)

_BEIR_SOURCE = "The archive {}.zip of the BEIR benchmark, unpacked."
_CLASSIC = "Terms not stated (classic public test collection)."
for _info in (
    _retrieval(
        "fiqa",
        "Financial questions and the answers to them.",
        _BEIR_SOURCE.format("fiqa"),
        "Terms not stated.",
        own="fiqa_subset",
    ),
    _retrieval(
        "nfcorpus",
        "Questions on nutrition and medical abstracts, with two grades.",
        _BEIR_SOURCE.format("nfcorpus"),
        "Free for academic purposes; other uses: the terms of NutritionFacts.org.",
        own="nfcorpus_devtest",
    ),
    _retrieval(
        "quora",
        "Questions and their duplicates; each query is itself a document.",
        _BEIR_SOURCE.format("quora"),
        "Quora's terms of service (non-commercial).",
        own="quora_pairs",
        same_pool=True,
    ),
    _retrieval("cranfield", "Abstracts on aerodynamics.", "The Cranfield collection.", _CLASSIC),
    _retrieval("cisi", "Abstracts on library science.", "The CISI collection.", _CLASSIC),
    _retrieval("med", "Abstracts of MEDLINE.", "The MED collection.", _CLASSIC),
    _retrieval("npl", "Titles and abstracts on electronics.", "The NPL collection.", _CLASSIC),
):
    register_dataset(_info)
