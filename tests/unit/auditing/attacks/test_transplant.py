"""The transplant attack finds what a word does in contexts that the training texts do not have."""

from __future__ import annotations

import numpy as np

from harness.errors import raises
from vecveil.auditing.attacks import KernelAttack, LabelledVectors, LinearAttack, TransplantAttack
from vecveil.auditing.attacks.attack import Knowledge

N_DIM, TOKENS = 24, 6
RNG = np.random.default_rng(0)
WORDS = RNG.standard_normal((TOKENS, N_DIM))


def texts(rows: int, seed: int) -> LabelledVectors:
    """Topics are wide and words small beside them, so that few texts show a word in few contexts."""
    rng = np.random.default_rng(seed)
    topics = 3 * rng.standard_normal((rows, N_DIM))
    labels = np.eye(TOKENS, dtype=int)[rng.integers(0, TOKENS, rows)]
    full = topics + labels @ WORDS
    X, rest = ((A / 15).astype(np.float32) for A in (full, topics))
    return LabelledVectors(X, labels, None, rest)


def release(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (X + 0.02 * rng.standard_normal(X.shape)).astype(X.dtype)


def test_it_beats_the_same_attack_on_real_texts_alone() -> None:
    train, test = texts(150, 1), texts(400, 2)
    released = LabelledVectors(release(test.X, np.random.default_rng(9)), test.L)
    found = {
        attack.name: attack.run(train, released, release=release, rng=0, show_progress=False).value
        for attack in (KernelAttack(rows=2000), TransplantAttack(rows=2000))
    }
    assert found["transplant"] > found["kernel"] + 0.05


def test_permuted_differences_are_no_help() -> None:
    """Control: with the differences of other texts the labels of made-up texts are wrong."""
    train, test = texts(150, 1), texts(400, 2)
    released = LabelledVectors(release(test.X, np.random.default_rng(9)), test.L)
    assert train.without is not None
    order = np.random.default_rng(3).permutation(150)
    wrong = LabelledVectors(train.X, train.L[order], None, train.without)
    value = TransplantAttack(rows=2000).run(wrong, released, release=release, rng=0).value
    assert value < 0.35  # six words: chance is a sixth


def test_made_up_rows_are_what_the_page_says() -> None:
    train, validation = texts(30, 1), texts(10, 2)
    attack = TransplantAttack(rows=500)
    knowledge = Knowledge(N_DIM, release)
    made = attack._material([train, validation], knowledge, np.random.default_rng(0))
    X, L = made.X, made.L
    assert (made.weight == 1).all()
    assert len(X) == len(L) == 500
    real = np.concatenate([train.X, validation.X])
    rest = np.concatenate([part.without for part in (train, validation) if part.without is not None])
    assert {row.tobytes() for row in X[:120]} == {row.tobytes() for row in real}
    labels = np.concatenate([train.L, validation.L])
    for x, label in zip(X[120:150], L[120:150], strict=True):
        sources = np.flatnonzero((labels == label).all(axis=1))
        moved = rest[None, :, :] + (real - rest)[sources][:, None, :]
        moved *= (np.linalg.norm(real[sources], axis=1)[:, None] / np.linalg.norm(moved, axis=2))[:, :, None]
        assert np.abs(moved - x).max(axis=2).min() < 1e-6


def test_without_fits_its_vectors() -> None:
    train = texts(30, 1)
    with raises("E-INPUT", "without"):
        LabelledVectors(train.X, train.L, None, train.X[:5])
    part = train.take(np.array([3, 4]))
    assert part.without is not None
    np.testing.assert_array_equal(part.without, train.without[[3, 4]])  # type: ignore[index]
    assert LinearAttack().run(train, texts(40, 5), rng=0).value > 0


def test_evidence_without_the_texts_without_the_concept_is_refused() -> None:
    train = texts(30, 1)
    bare = LabelledVectors(train.X, train.L)
    with raises("E-INPUT", "train"):
        TransplantAttack(rows=100).run(bare, texts(40, 5), rng=0)
