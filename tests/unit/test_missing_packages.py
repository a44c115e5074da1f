"""Without an optional package, what needs it names the extra that brings it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unit.auditing.attacks.planted import planted
from vecveil.auditing.attacks import MLCAttack, MLPAttack
from vecveil.auditing.metrics.text_similarity import corpus_bleu, rouge_l, sentence_bleu
from vecveil.errors import MissingDependencyError
from vecveil.privacy.concepts import HuggingFaceDetector, PresidioDetector, SpacyDetector, TermDetector
from vecveil.privacy.sensitivity import fit_hard_concrete_mask
from vecveil.privacy.textcrafter.pii_classifier import contains_pii, fit_pii_classifier
from vecveil.privacy.textcrafter.reward import plain_centroids
from vecveil.privacy.utility.tasks import classification

X = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
CLASSES = np.arange(60) % 2


def attacked(attack: Any) -> Callable[[], object]:
    return lambda: attack.run(planted(40), planted(40, seed=1), show_progress=False)


NEEDS: list[tuple[str, str, Callable[[], object]]] = [
    ("transformers", "huggingface", lambda: HuggingFaceDetector(["A"], model="x")),
    ("presidio_analyzer", "presidio", lambda: PresidioDetector(["EMAIL_ADDRESS"])),
    ("presidio_analyzer", "presidio", lambda: contains_pii(["p"])),
    ("spacy", "spacy", lambda: SpacyDetector(["A"], model="x")),
    ("ahocorasick_rs", "concepts", lambda: TermDetector(["x"])),
    ("torch", "attacks", attacked(MLPAttack(epochs=1))),
    ("torch", "attacks", attacked(MLCAttack())),
    ("torch", "attacks", lambda: fit_hard_concrete_mask(X, X + 1)),
    ("sklearn.linear_model", "attacks", lambda: classification(X, CLASSES, X, CLASSES)),
    ("sklearn.linear_model", "textcrafter", lambda: fit_pii_classifier(X, X + 1)),
    ("sklearn.cluster", "textcrafter", lambda: plain_centroids(X)),
    ("sacrebleu.metrics.bleu", "attacks", lambda: corpus_bleu(["a"], ["a"])),
    ("sacrebleu.metrics.bleu", "attacks", lambda: sentence_bleu(["a"], ["a"])),
    ("rouge_score.rouge_scorer", "attacks", lambda: rouge_l(["a"], ["a"])),
]


@pytest.mark.parametrize(("package", "extra", "use"), NEEDS, ids=range(len(NEEDS)))
def test_the_extra_is_named(
    package: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"vecveil\[{extra}\]") as error:
        use()
    assert error.value.extra == extra
