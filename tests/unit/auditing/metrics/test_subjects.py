"""Figures per subject: by hand, and at chance for an attacker who reads nothing."""

import numpy as np
import pytest

from vecveil.auditing.metrics.leakage import pooled_labels, subjects_found, subjects_read

# Subject 0 has the texts 0 and 1, subject 1 text 2, text 3 is of nobody. Subject 0 holds tokens 0 and 1.
SUBJECTS = np.array([0, 0, 1, -1])
LABELS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
EVIDENCE = np.array([[0.9, 0.1, 0.5], [0.2, 0.3, 0.6], [0.9, 0.3, 0.2], [9.0, 9.0, 9.0]])
RATES = np.array([0.9, 0.1, 0.5])


def test_by_hand() -> None:
    """Pooled, subject 0 gets 1.1, 0.4, 1.1: tokens 0 and 2 are its best, so one of two is read. Subject 1: none."""
    found = subjects_read(EVIDENCE, LABELS, SUBJECTS, base_rates=RATES)
    assert {name: each.value for name, each in found.items()} == pytest.approx(
        {"subjects": 1 / 2, "subject_mean": 1 / 4, "subject_share": 1 / 3}
    )
    # By base rates the order is 0, 2, 1 for both: the same.
    assert {name: each.chance for name, each in found.items()} == pytest.approx(
        {"subjects": 1 / 2, "subject_mean": 1 / 4, "subject_share": 1 / 3}
    )
    assert {name: each.n for name, each in found.items()} == {"subjects": 2, "subject_mean": 2, "subject_share": 3}
    assert pooled_labels(LABELS, SUBJECTS).tolist() == [[True, True, False], [False, False, True]]
    assert subjects_read(EVIDENCE, LABELS * 0, SUBJECTS, base_rates=RATES) == {}


def test_one_matched_row_finds_a_subject() -> None:
    found = subjects_found(np.array([0.0, 1.0, 0.0, 1.0]), SUBJECTS, candidates=4)["subjects"]
    assert found.value == 1 / 2
    assert found.chance == pytest.approx((1 - (3 / 4) ** 2 + 1 / 4) / 2)
    assert subjects_found(np.ones(1), np.array([-1]), candidates=4) == {}


@pytest.mark.slow
def test_evidence_of_nothing_is_at_chance_and_of_the_labels_above() -> None:
    """Null: evidence is independent of the labels, tokens are equally frequent, so that no order is better.

    False failure: below 1e-6: the share of 4,000 subjects is compared at five standard errors. Power: the control,
    labels with noise of three standard deviations, is more than ten standard errors above.
    """
    rng = np.random.default_rng(3)
    subjects = np.repeat(np.arange(4000), 3)
    labels = np.zeros((12_000, 8), dtype=int)
    labels[np.arange(12_000), rng.integers(8, size=12_000)] = 1
    noise = rng.normal(size=labels.shape)
    for evidence, above in ((noise, False), (labels + 3 * noise, True)):
        share = subjects_read(evidence, labels, subjects, base_rates=np.full(8, 1 / 8))["subjects"]
        assert share.chance is not None
        error = np.sqrt(share.chance * (1 - share.chance) / 4000)
        assert (abs(share.value - share.chance) < 5 * error) is not above
        assert share.value > share.chance + 10 * error or not above
