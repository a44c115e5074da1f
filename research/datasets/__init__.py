"""The data sets of the experiments: read by name, from whichever layout lies in the data folder.

Three kinds come out: :class:`PairSet` (sentence pairs with scores), :class:`RetrievalSet` (documents,
queries, judgements) and :class:`TextSet` (texts with spans, labels, splits). Importing this loads
nothing beyond NumPy; Parquet needs the extra ``files``.
"""

from research.datasets import (  # they register
    catalogue_entities,
    catalogue_pairs,
    catalogue_texts,
)
from research.datasets.annotated import read_text_table
from research.datasets.beir import read_beir
from research.datasets.info import DatasetInfo, Place
from research.datasets.kinds import (
    DataSet,
    PairSet,
    RetrievalSet,
    Span,
    TextSet,
    group_ids,
)
from research.datasets.mimic import read_mimic_notes
from research.datasets.phrasebank import read_phrasebank
from research.datasets.pii_masking import read_pii_masking
from research.datasets.registry import DATASETS, open_dataset, register_dataset
from research.datasets.sts import read_pair_table

__all__ = [
    "DATASETS",
    "DataSet",
    "DatasetInfo",
    "PairSet",
    "Place",
    "RetrievalSet",
    "Span",
    "TextSet",
    "group_ids",
    "open_dataset",
    "read_beir",
    "read_mimic_notes",
    "read_pair_table",
    "read_phrasebank",
    "read_pii_masking",
    "read_text_table",
    "register_dataset",
]

del catalogue_entities, catalogue_pairs, catalogue_texts
