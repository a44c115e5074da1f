import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.test_geia import DIMENSION, TINY, _noisy, language, threshold
from vecveil.auditing.attacks.attack import TextVectors
from vecveil.auditing.attacks.reconstruction.decoder import ALGENAttack, GEIAAttack, align

FALSE_FAILURE = 1e-6 / 2
MIX = np.random.default_rng(5).standard_normal((DIMENSION, DIMENSION))


def _rotated(X, rng):
    return 3.0 * X @ MIX + 0.05 * rng.standard_normal(X.shape)


def tiny(decoder=None, **options):
    return ALGENAttack(decoder, **{**TINY, "pairs": (1, 4, 100), **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A decoder of clean vectors, learnt on texts that are neither leaked nor tested."""
    path = tmp_path_factory.mktemp("decoder")
    GEIAAttack(**TINY).run(language(250, 7), language(20, 8), show_progress=False, checkpoint=path)
    return path


def test_more_pairs_find_more_and_permuted_pairs_and_noise_nothing(folder):
    """Null: test texts are independent of the vectors (noise; texts handed to other vectors).

    False failure: at most 1e-6 over both worlds, see `threshold`. Power and control: in their place the texts are
    found with 100 leaked pairs, and no better than chance allows with one.
    """
    train, test = language(150, 0), language(400, 1)
    rng = np.random.default_rng(0)
    limit = threshold(400, FALSE_FAILURE)
    released = TextVectors(_rotated(test.X, rng), test.texts)
    found = tiny(folder).run(train, released, release=_rotated, show_progress=False)
    keys = [key for key in found.estimates if key.startswith("token_f1")]
    assert keys == ["token_f1", "token_f1_of_1", "token_f1_of_4"]
    assert found.value > max(0.9, limit)
    assert found.estimates["token_f1_of_1"].value <= limit
    assert found.details["pairs"] == 100
    for lost in (
        TextVectors(rng.standard_normal(test.X.shape), test.texts),
        TextVectors(released.X, [test.texts[i] for i in rng.permutation(400)]),
    ):
        assert tiny(folder, pairs=(100,)).run(train, lost, release=_rotated, show_progress=False).value <= limit


def test_an_own_encoder_of_another_dimension_needs_no_oracle():
    """Released vectors of one encoder, an attacker with another one and a corpus of its own."""
    corpus, train, test = language(250, 7), language(120, 0), language(60, 1)
    own = np.random.default_rng(6).standard_normal((DIMENSION, 6))
    vectors = {t: x @ own for d in (corpus, train, test) for t, x in zip(d.texts, d.X, strict=True)}

    def encode(texts):
        return np.array([vectors[text.removesuffix(" now")] for text in texts])

    attack = tiny(pairs=(80, 9999), corpus=[t + " now" for t in corpus.texts], encode=encode)
    released = TextVectors(test.X @ MIX, test.texts)
    result = attack.run(TextVectors(train.X @ MIX, train.texts), released, show_progress=False)
    assert result.details["pairs"] == 108  # nine tenths of the training texts
    assert not result.adaptive
    assert result.estimates["token_f1_of_80"].value > 0.8  # all but "now"
    with raises("E-INPUT", "encode"):
        tiny().run(train, test)


def test_without_a_corpus_the_decoder_learns_on_the_clean_training_vectors(tmp_path, monkeypatch):
    train, test = language(200, 0), language(60, 1)
    given = {"release": _noisy, "rng": 3, "show_progress": False}
    first = tiny(epochs=2).run(train, test, **given, checkpoint=tmp_path)
    again = tiny(epochs=2).run(train, test, **given)
    assert {k: v.value for k, v in first.estimates.items()} == {k: v.value for k, v in again.estimates.items()}
    monkeypatch.setattr(ALGENAttack, "_fit", None)
    kept = tiny(epochs=2).run(train, test, **given, checkpoint=tmp_path)
    assert kept.examples == first.examples
    narrow = TextVectors(test.X[:, :5], test.texts)
    with raises("E-CHECKPOINT", "checkpoint"):
        tiny(epochs=2).run(train, narrow, release=lambda X, rng: X[:, :5], checkpoint=tmp_path)


def test_align_leaves_one_out_as_if_it_were_refitted():
    """The closed form's choice is the one of refitting without each pair."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((12, 5))
    A = Y @ rng.standard_normal((5, 4)) + 0.3 * rng.standard_normal((12, 4))
    scale = (Y**2).sum() / 12

    def fitted(Y, A, penalty):
        return np.linalg.solve(Y.T @ Y + penalty * scale * np.eye(5), Y.T @ A)

    def left_out(penalty):
        rows = [np.arange(12) != i for i in range(12)]
        return sum(((A[~some] - Y[~some] @ fitted(Y[some], A[some], penalty)) ** 2).sum() for some in rows)

    best = min((1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0), key=left_out)
    assert align(Y, A) == pytest.approx(fitted(Y, A, best), abs=1e-8)


def test_align_finds_the_map_keeps_the_identity_and_takes_one_pair():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((300, 20))
    assert align(Y, Y @ np.roll(np.eye(20), 1, axis=0)) == pytest.approx(np.roll(np.eye(20), 1, axis=0), abs=0.01)
    few, noise = Y[:5], 0.1 * rng.standard_normal((5, 20))
    assert np.abs(align(few, few + noise) - np.eye(20)).max() < 0.5
    assert align(Y[:1], Y[:1]).shape == (20, 20)
    assert np.isfinite(align(np.zeros((3, 4)), rng.standard_normal((3, 4)))).all()


def test_a_decoder_of_other_vectors_is_refused(tmp_path, folder):
    train, test = language(40, 0), language(20, 1)
    with raises("E-DATA-FILE", "decoder"):
        tiny(tmp_path).run(train, test, release=_noisy)
    narrow = TextVectors(train.X[:, :5], train.texts)
    with raises("E-DATA-FILE", "decoder"):
        tiny(folder).run(narrow, test, release=lambda X, rng: np.hstack([X, X]))
