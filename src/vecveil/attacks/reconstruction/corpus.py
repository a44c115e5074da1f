"""Further texts that an attacker brings along: checked, and kept apart from the test texts."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.attacks.evidence import TextVectors
from vecveil.attacks.reconstruction.base import EncodeTexts
from vecveil.attacks.splits import normalise_text
from vecveil.errors import InvalidInputError
from vecveil.validation import check_texts

__all__ = ["check_corpus", "refuse_test_texts"]


def check_corpus(corpus: Sequence[str] | None, encode: EncodeTexts | None, *, owner: str) -> int:
    """Return how many texts there are; a corpus needs something to encode it with."""
    if corpus is None:
        return 0
    if encode is None:
        raise InvalidInputError.of(owner, "encode", "a function from texts to vectors", "None",
                                   "The corpus must be encoded like the training texts.")  # fmt: skip
    return len(check_texts(corpus, owner=owner, param="corpus"))


def refuse_test_texts(corpus: Sequence[str] | None, test: TextVectors, *, owner: str) -> None:
    """Refuse a corpus that holds a test text: what was learnt by heart would look like a leak."""
    if corpus is None:
        return
    tested = {normalise_text(text) or text for text in test.texts}
    shared = sum((normalise_text(text) or text) in tested for text in corpus)
    if shared:
        raise InvalidInputError.of(owner, "corpus", "without texts that are also in `test`",
                                   f"{shared} such texts", "They would be learnt by heart.",
                                   "Take them out of the corpus.")  # fmt: skip
