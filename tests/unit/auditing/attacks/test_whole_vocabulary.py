"""The attack over the whole vocabulary recovers words that no list holds, and nothing where vectors say nothing."""

import numpy as np
import pytest
from scipy.stats import binom

from harness.errors import raises
from vecveil.auditing.attacks import TextVectors, WholeVocabularyAttack

WORDS = [f"w{i}" for i in range(150)]
FALSE_FAILURE = 1e-6


def written(rows: int, seed: int, *, mixed: bool = False) -> TextVectors:
    """Return texts of three words, and the sums of the words' vectors; ``mixed`` gives each text another's."""
    directions = np.random.default_rng(99).standard_normal((len(WORDS), 24))
    rng = np.random.default_rng(seed)
    chosen = np.stack([rng.choice(len(WORDS), 3, replace=False) for _ in range(rows)])
    X = directions[chosen].sum(axis=1)
    texts = ["the " + " ".join(WORDS[j] for j in row) for row in chosen]
    return TextVectors(X[rng.permutation(rows)] if mixed else X, texts)


def test_words_of_no_list_are_recovered_and_of_permuted_vectors_at_chance() -> None:
    """Null: vectors belong to other texts, so that the k of a text's words among all are hit with at most k/V each.

    False failure: at most 1e-6, by the binomial law of independent hits at the highest rate of a word. Power and
    control: with the texts' own vectors a third of the words are recovered at least.
    """
    found = WholeVocabularyAttack().run(written(600, 1), written(200, 2))
    assert found.value > 0.33 > 4 * found.main.chance
    assert found.estimates["every"].n == 800  # with "the", which is in all texts
    lost = WholeVocabularyAttack().run(written(600, 1), written(200, 2, mixed=True))
    limit = binom.isf(FALSE_FAILURE, lost.main.n, 2 * 3 / found.details["rare"]) / lost.main.n
    assert lost.value <= limit < found.value


def test_listed_words_are_left_out_of_the_main_figure() -> None:
    train, test = written(600, 1), written(200, 2)
    few, every = (WholeVocabularyAttack(16, listed=listed).run(train, test) for listed in (WORDS[:100], ()))
    assert few.details["rank"] == 16
    assert few.main.n < every.main.n
    assert few.estimates["every"].n == every.estimates["every"].n == 800


def test_it_learns_from_fresh_releases_which_directions_are_noise() -> None:
    def noisy(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return X + 10 * (np.arange(24) < 12) * rng.standard_normal(X.shape)

    train, test = written(600, 1), written(200, 2)
    shown = TextVectors(noisy(test.X, np.random.default_rng(3)), test.texts)
    fresh = WholeVocabularyAttack().run(train, shown, release=noisy)
    assert fresh.adaptive
    assert fresh.value >= WholeVocabularyAttack().run(train, shown).value + 0.2


def test_texts_that_share_no_rare_word_are_refused() -> None:
    train = TextVectors(np.eye(4), ["one", "two", "three", "four"])
    with raises("E-INPUT-CLASSES", "test"):
        WholeVocabularyAttack().run(train, TextVectors(np.eye(4)[:1], ["five"]))
    assert not WholeVocabularyAttack().scorable(train.texts, ["one"])


@pytest.mark.parametrize("words", [("Naïve café", "naïve café")])
def test_case_does_not_tell_words_apart(words: tuple[str, str]) -> None:
    assert WholeVocabularyAttack().scorable([words[0], words[1]], [words[0].upper()])
