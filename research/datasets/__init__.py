"""The experiments' data sets, opened by name from any of their layouts in the data folder.

There are three kinds: :class:`PairSet` (scored sentence pairs), :class:`RetrievalSet` (documents, queries,
judgements) and :class:`TextSet` (texts with spans, labels, splits). Parquet needs the extra ``files``.
"""

from research.datasets.entities import read_pii_masking
from research.datasets.kinds import DataSet, DatasetInfo, MarkedSpan, PairSet, Place, RetrievalSet, TextSet, group_ids
from research.datasets.pairs import read_beir, read_pair_table
from research.datasets.reading import read_text_table
from research.datasets.registry import DATASETS, open_dataset, register_dataset
from research.datasets.texts import read_mimic_notes, read_phrasebank

__all__ = [
    "DATASETS",
    "DataSet",
    "DatasetInfo",
    "MarkedSpan",
    "PairSet",
    "Place",
    "RetrievalSet",
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
