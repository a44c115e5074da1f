"""The kernel reader of a search: its scores against the normal equations."""

from __future__ import annotations

import numpy as np
import pytest

from harness.token_data import token_data
from vecveil.privacy.sensitivity.concept_subspace import (
    PENALTIES,
    kernel_ridge_left_out,
    kernel_ridge_path,
    labels_recovered,
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
    path = kernel_ridge_path([DATA.positive[TRAIN]], DATA.labels[TRAIN], DATA.positive[TEST])
    for scores, penalty in zip(path, PENALTIES, strict=True):
        fitted = np.linalg.solve(kernel + penalty * np.eye(200), L - L.mean(axis=0))
        np.testing.assert_allclose(scores, across @ fitted + L.mean(axis=0), atol=1e-3)


def test_several_releases_are_a_regression_on_all_of_them() -> None:
    rng = np.random.default_rng(0)
    L, B = DATA.labels[:60].astype(float), DATA.positive[200:].astype(float)
    learnt = [DATA.positive[:60].astype(float) + 0.2 * rng.standard_normal((60, 16)) for _ in range(2)]
    both = np.concatenate(learnt)
    width = np.median(((learnt[0][:, None] - learnt[0]) ** 2).sum(axis=2))
    kernel = np.exp(-((both[:, None] - both) ** 2).sum(axis=2) / width)
    across = np.exp(-((B[:, None] - both) ** 2).sum(axis=2) / width)
    targets = np.tile(L - L.mean(axis=0), (2, 1))
    for scores, penalty in zip(kernel_ridge_path(learnt, L, B), PENALTIES, strict=True):
        # Coefficients that are equal for the releases of a text, as infinitely many releases would have.
        share = np.concatenate([np.eye(60)] * 2) / 2
        fitted = np.linalg.solve(share.T @ kernel @ share + penalty * np.eye(60), targets[:60])
        np.testing.assert_allclose(scores, across @ share @ fitted + L.mean(axis=0), atol=1e-3)


def test_scores_of_left_out_groups_are_those_of_a_fit_without_them() -> None:
    rng = np.random.default_rng(0)
    A, L = DATA.positive[:60].astype(float), DATA.labels[:60].astype(float)
    judged = A + 0.1 * rng.standard_normal(A.shape)
    groups = np.array([i // 3 if i < 30 else i for i in range(60)])
    between = ((A[:, None] - A) ** 2).sum(axis=2)
    width = np.median(between)
    kernel, across = np.exp(-between / width), np.exp(-((judged[:, None] - A) ** 2).sum(axis=2) / width)
    targets = L - L.mean(axis=0)
    for scores, penalty in zip(kernel_ridge_left_out([A], L, judged, groups), PENALTIES, strict=True):
        for group in (0, 5, 40):
            out = groups == group
            fitted = np.linalg.solve(kernel[~out][:, ~out] + penalty * np.eye((~out).sum()), targets[~out])
            wanted = across[out][:, ~out] @ fitted + L.mean(axis=0)
            np.testing.assert_allclose(scores[out], wanted, atol=2e-3)


def test_the_rows_labels_add_up_to_the_share() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.standard_normal((200, 6)), rng.random((200, 6)) < 0.2
    rows = labels_recovered(scores, labels)
    assert (rows <= labels.sum(axis=1)).all()
    assert rows.sum() / labels.sum() == pytest.approx(share_recovered(scores, labels))
    assert share_recovered(scores, np.zeros((200, 6))) == 0.0
