"""Every set of a data folder that VECVEIL_DATA names; skipped without one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from research.datasets import DATASETS, PairSet, RetrievalSet, TextSet, open_dataset
from vecveil.errors import DataFileError

DATA = os.environ.get("VECVEIL_DATA")


@pytest.mark.skipif(not DATA, reason="VECVEIL_DATA names no folder with data sets")
@pytest.mark.parametrize("name", DATASETS)
def test_the_set_is_read_whole(name):
    try:
        found = open_dataset(name, Path(str(DATA)))
    except DataFileError as error:
        if "it is not in the folder" in str(error):
            pytest.skip("this folder does not have it")
        raise
    if isinstance(found, PairSet):
        assert np.ptp(found.scores) > 0
        assert all(map(str.strip, (*found.left, *found.right)))
        assert set(found.split) <= {"train", "dev", "test"}
    elif isinstance(found, RetrievalSet):
        assert set(found.query_split) <= {"train", "dev", "test"}
        assert found.same_pool == (set(found.query_ids) <= set(found.document_ids) and name == "quora")
        if found.same_pool:
            text = dict(zip(found.document_ids, found.documents, strict=True))
            assert all(text[i] == q for i, q in zip(found.query_ids, found.queries, strict=True))
    else:
        assert isinstance(found, TextSet)
        assert found.groups.min() >= 0
        if found.spans is not None:
            assert any(found.spans)
        if found.split is not None and len(set(found.groups.tolist())) < len(found.texts):
            sides = set(zip(found.groups.tolist(), found.split, strict=True))
            assert len(sides) == len({group for group, _ in sides}), "a group is in two splits"
