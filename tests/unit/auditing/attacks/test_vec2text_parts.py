"""The parts of Vec2Text by themselves: the beam, the space, the networks."""

import numpy as np
import pytest
import torch

from harness.errors import raises
from vecveil.auditing.attacks.attack import Knowledge
from vecveil.auditing.attacks.reconstruction.t5 import T5Shape, build, logits_of, sequence_loss, t5_config, write_ids
from vecveil.auditing.attacks.reconstruction.vec2text import Space, correct, encode_checked, fit_ridge, same_space

LETTERS = "abcdef"


def place(texts):
    """Return letter counts by place: a text's vector says all of it."""
    found = np.zeros((len(texts), 3, len(LETTERS)))
    for i, text in enumerate(texts):
        for j, letter in enumerate(text[:3]):
            found[i, j, LETTERS.index(letter)] = 1
    return found.reshape(len(texts), -1).astype(np.float32)


def neighbours(targets, texts, vectors):
    """Return two texts that differ in one letter: one letter right as often as not."""
    found = []
    for text in texts:
        i = sum(map(ord, text)) % 3
        found.append([text[:i] + letter + text[i + 1 :] for letter in LETTERS])
    return found


def cosine(target, text):
    vector = place([text])[0]
    return vector @ target / np.linalg.norm(vector) / np.linalg.norm(target)


def test_correction_never_hurts_and_mostly_helps():
    rng = np.random.default_rng(0)
    truth = ["".join(rng.choice(list(LETTERS), 3)) for _ in range(40)]
    first = ["".join(rng.choice(list(LETTERS), 3)) for _ in range(40)]
    targets = place(truth) + 0.05 * rng.standard_normal((40, 18)).astype(np.float32)
    last = None
    for beam in (1, 4):
        found, rounds = correct(targets, [[t] for t in first], neighbours, place, rounds=9, beam=beam)
        scores = np.array([cosine(t, text) for t, text in zip(targets, found, strict=True)])
        before = np.array([cosine(t, text) for t, text in zip(targets, first, strict=True)])
        assert (scores >= before).all()
        assert scores.mean() > before.mean() + 0.2
        assert last is None or scores.mean() >= last
        last = scores.mean()
        assert 1 <= rounds <= 9


def test_the_last_round_is_the_one_that_changes_nothing():
    calls = []

    def stuck(targets, texts, vectors):
        calls.append(list(texts))
        return [[text, "fff"] for text in texts]

    targets = place(["abc", "abd"])
    found, rounds = correct(targets, [["abc"], ["aba"]], stuck, place, rounds=50, beam=1)
    assert found == ["abc", "aba"]
    assert rounds == 1
    assert calls == [["abc", "aba"]]  # no text is corrected twice


def test_a_text_is_encoded_once_and_no_round_is_no_correction():
    placed = []

    def spy(texts):
        placed.extend(texts)
        return place(texts)

    targets = place(["abc", "abd"])
    found, rounds = correct(targets, [["abf", "abc"], ["abf"]], neighbours, spy, rounds=0, beam=2)
    assert (found, rounds) == (["abc", "abf"], 0)
    assert sorted(placed) == ["abc", "abf"]


def test_ridge_finds_the_linear_map_between_clean_and_released():
    rng = np.random.default_rng(1)
    X, A = rng.standard_normal((300, 7)), rng.standard_normal((7, 5))
    Y = X @ A + 3 + 0.01 * rng.standard_normal((300, 5))
    found = fit_ridge(X[:200], Y[:200], X[200:], Y[200:])
    assert np.abs(found(X) - (X @ A + 3)).max() < 0.05
    noise = rng.standard_normal((300, 5))
    flat = fit_ridge(X[:200], noise[:200], X[200:], noise[200:])
    assert np.abs(flat.weights).max() < 0.2  # nothing to find: the penalty takes over


def test_same_space():
    X = np.random.default_rng(2).standard_normal((9, 5)).astype(np.float32)
    assert same_space(X, X + 1e-4)
    assert not same_space(X, X[:, ::-1])
    assert not same_space(X, X[:, :4])


def test_space_releases_and_averages():
    def release(X, rng):
        return (X[:, :4] * 2 + rng.standard_normal((len(X), 4))).astype(np.float32)

    X = np.ones((2000, 6), dtype=np.float32)
    spreads = []
    for draws in (1, 16):
        space = Space(lambda texts: X[: len(texts)], Knowledge(4, release), None, draws, 6)
        found = space.release(X, np.random.default_rng(3))
        assert found.shape == (2000, 4)
        assert abs(found.mean() - 2) < 0.1
        spreads.append(found.std())
    assert 3 < spreads[0] / spreads[1] < 5
    assert np.array_equal(Space(None, Knowledge(6), None, 3, 6).release(X, None), X)


@pytest.mark.parametrize(
    "encode",
    [
        lambda texts: np.zeros((len(texts), 4)),
        lambda texts: np.zeros((len(texts) + 1, 5)),
        lambda texts: np.zeros(len(texts)),
        lambda texts: np.full((len(texts), 5), np.nan),
    ],
    ids=["dimension", "rows", "one-dimensional", "not finite"],
)
def test_an_encoder_that_does_not_fit_is_refused(encode):
    with raises("E-INPUT", "encode") as caught:
        encode_checked(encode, ["a secret", "b"], 5)
    assert "secret" not in str(caught.value)


def test_blank_texts_reach_the_encoder_as_something():
    given = []
    encode_checked(lambda texts: given.extend(texts) or np.zeros((len(texts), 2)), ["", " ", "a"])
    assert given == [".", ".", "a"]


def _network(kind, seed=0):
    config = t5_config(300, width=32, layers=2, heads=2, end=0, pad=299)
    return build(T5Shape(kind, 17, 3, 20), seed=seed, config=config).eval()


def _batch(rows=5):
    rng = np.random.default_rng(4)
    return {
        "target": rng.standard_normal((rows, 17)).astype(np.float32),
        "guess": rng.standard_normal((rows, 17)).astype(np.float32),
        "guess_ids": np.array([[299, 5, 6, 0]] * rows),
        "ids": np.array([[5, 6, 7, 0]] * rows),
        "lengths": np.full(rows, 4),
    }


def _tensors(batch):
    return {key: torch.as_tensor(value) for key, value in batch.items()}


@pytest.mark.parametrize("kind", ["hypothesiser", "corrector"])
def test_what_is_filled_up_changes_nothing(kind):
    module, batch = _network(kind), _batch()
    loss, tokens = sequence_loss(module, _tensors(batch))
    wider = {
        **batch,
        "ids": np.pad(batch["ids"], ((0, 0), (0, 3))),
        "guess_ids": np.pad(batch["guess_ids"], ((0, 0), (0, 2)), constant_values=299),
    }
    padded_loss, same = sequence_loss(module, _tensors(wider))
    assert (int(tokens), int(same)) == (20, 20)
    torch.testing.assert_close(loss, padded_loss)
    logits = logits_of(module, _tensors(batch))
    assert logits.shape == (5, 4, 300)
    by_hand = -torch.log_softmax(logits, -1)[:, torch.arange(4), torch.tensor([5, 6, 7, 0])].sum()
    torch.testing.assert_close(loss, by_hand)


@pytest.mark.parametrize("kind", ["hypothesiser", "corrector"])
def test_greedy_writing_follows_the_logits(kind):
    module, batch = _network(kind), _batch()
    found = write_ids(module, batch, beam=1, max_tokens=6)
    assert len(found) == 5
    ids = np.array([some[0] for some in found])
    stopped = {**batch, "ids": ids, "lengths": np.full(5, ids.shape[1])}
    best = logits_of(module, _tensors(stopped)).argmax(-1).numpy()
    for row, expected in zip(ids, best, strict=True):
        ends = np.flatnonzero(row == 0)
        upto = ends[0] + 1 if len(ends) else len(row)
        assert np.array_equal(row[:upto], expected[:upto])
    several = write_ids(module, batch, beam=3, max_tokens=6)
    assert [len(some) for some in several] == [3] * 5
