"""The kernel reader of a search: its scores against the normal equations."""

from __future__ import annotations

import numpy as np
import pytest

from harness.token_data import token_data
from vecveil.sensitivity.kernel_reader import (
    PENALTIES,
    kernel_ridge_path,
    share_recovered,
)

DATA = token_data(300, 16)
TRAIN, TEST = slice(0, 200), slice(200, 300)


def test_scores_solve_the_regularised_normal_equations() -> None:
    A, B = (DATA.positive[part].astype(float) for part in (TRAIN, TEST))
    L = DATA.labels[TRAIN].astype(float)
    A, B = A - A.mean(axis=0), B - A.mean(axis=0)
    between = ((A[:, None] - A) ** 2).sum(axis=2)
    width = np.median(between)
    kernel, across = np.exp(-between / width), np.exp(-((B[:, None] - A) ** 2).sum(axis=2) / width)
    path = kernel_ridge_path(DATA.positive[TRAIN], DATA.labels[TRAIN], DATA.positive[TEST])
    for scores, penalty in zip(path, PENALTIES, strict=True):
        fitted = np.linalg.solve(kernel + penalty * np.eye(200), L - L.mean(axis=0))
        np.testing.assert_allclose(scores, across @ fitted + L.mean(axis=0), atol=1e-3)


def test_it_reads_clean_vectors_and_not_permuted_labels() -> None:
    scores = next(kernel_ridge_path(DATA.positive[TRAIN], DATA.labels[TRAIN], DATA.positive[TEST]))
    assert share_recovered(scores, DATA.labels[TEST]) > 0.7
    shuffled = np.random.default_rng(0).permutation(DATA.labels[TRAIN])
    blind = next(kernel_ridge_path(DATA.positive[TRAIN], shuffled, DATA.positive[TEST]))
    assert share_recovered(blind, DATA.labels[TEST]) == pytest.approx(
        DATA.labels.mean() + 0.1, abs=0.15
    )
