"""Further texts of an audit: exchanged words and corpus sentences, labelled right, and no test text among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import vecveil
from harness.errors import raises
from vecveil.auditing import families
from vecveil.auditing.attacks.attack import normalise_text
from vecveil.auditing.case import Case, Options, Side, make_case

DRUGS = ["Aspirin", "codeine", "heparin", "insulin", "lithium"]
CONCEPT = vecveil.Concept.from_terms("drug", DRUGS)
RNG = np.random.default_rng(0)


def _notes(rows: int, start: int) -> list[str]:
    return [
        f"note {start + i} takes {' and '.join(RNG.choice(DRUGS, size=1 + i % 2, replace=False))} today"
        for i in range(rows)
    ]


class Encoder:
    """A vector for each text at random, equal for texts that agree in letters and digits; it keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.seen = list(texts)
        seeds = [sum(ord(c) * (i + 7) ** 2 for i, c in enumerate(normalise_text(t))) for t in texts]
        return np.array([np.random.default_rng(s).standard_normal(40) for s in seeds], np.float32)


TEXTS = _notes(150, 0)


def _case(encode: Encoder | None, corpus: Sequence[str] = (), **changed: object) -> Case:
    matches = CONCEPT.find(TEXTS)
    case = make_case(
        matches,
        Options(attacker_texts=tuple(corpus), min_token_count=5),
        embeddings=None if encode is None else encode(TEXTS),
        encode=encode,
        detect=CONCEPT.detect,
    )
    return replace(case, **changed)


def _labels(case: Case, texts: Sequence[str]) -> np.ndarray:
    matches = CONCEPT.find(texts, min_texts=1)
    return matches.token_labels(case.vocabulary)[0]


def test_exchanged_texts_are_training_texts_with_other_words() -> None:
    encode = Encoder()
    case = _case(encode)
    found = case.further
    assert found is not None
    assert len(found) == len(encode.seen) == 2 * len(case.train)
    np.testing.assert_array_equal(found.L, _labels(case, encode.seen))
    assert (found.weight == 0.5).all()
    assert found.groups is not None
    rest = {text.split()[1]: row for row, text in enumerate(TEXTS)}
    rows = [rest[text.split()[1]] for text in encode.seen]
    assert set(rows) <= set(case.train)
    np.testing.assert_array_equal(found.groups, case.groups[rows])
    assert all(text != TEXTS[row] for text, row in zip(encode.seen, rows, strict=True))


def test_corpus_sentences_hold_an_attacked_word_and_are_no_test_text() -> None:
    encode = Encoder()
    plain = _case(encode)
    tested = [TEXTS[row] for row in plain.test]
    far = ["They gave Heparin.", "no such thing here", "Lithium and codeine again"]
    case = _case(encode, [*far, *(text.upper() + "!" for text in tested)])
    found = case.further
    assert found is not None
    corpus = encode.seen[2 * len(case.train) :]
    assert set(corpus) == {far[0], far[2]}
    assert not {normalise_text(t) for t in encode.seen} & {normalise_text(t) for t in tested}
    np.testing.assert_array_equal(found.L[-2:], _labels(case, corpus))
    np.testing.assert_allclose(found.weight[-2:], 0.3, rtol=1e-6)
    assert found.groups is not None
    assert (found.groups[-2:] == -1).all()


def test_sentences_close_to_a_test_text_are_left_out() -> None:
    encode = Encoder()
    case = _case(encode, ["They gave heparin.", "Lithium again"])
    assert case.embeddings is not None
    embeddings = case.embeddings.copy()
    near = encode(["They gave heparin."])[0]
    embeddings[case.test[3]] = 2 * near + 0.1
    found = replace(case, embeddings=embeddings).further
    assert found is not None
    assert len(found) == 2 * len(case.train) + 1
    assert not np.equal(found.X, near).all(axis=1).any()


def test_without_an_encoder_or_clean_vectors_the_attack_is_left_out() -> None:
    case = _case(None)
    assert case.further is None
    encode = Encoder()
    full = _case(encode, ["Lithium again"], detect=None)
    assert full.further is not None
    assert len(full.further) == 2 * len(full.train)
    X = encode(TEXTS)
    for each, side in ((full, Side("protected", X, X)), (case, Side("protected", X, X, lambda Y, g: Y))):
        jobs, skipped = families.token_inference_jobs(each, side)
        # One has no oracle, the other no encoder.
        without = {"network"} if side.release is None else set()
        assert {entry.attack for entry in skipped} == {"kernel-further", "transplant"} | without
        assert "ensemble" in {job.name for job in jobs}
    # A text-level method has no oracle for vectors, but its attacker rewrites further texts.
    for side in (Side("protected", X, X, lambda Y, g: Y), Side("protected", X, X, seen=full)):
        jobs, skipped = families.token_inference_jobs(full, side)
        assert not skipped
        assert {"kernel-further", "transplant", "network", "ensemble"} <= {job.name for job in jobs}


def test_labels_of_positions_find_nothing_in_a_corpus() -> None:
    def detect(texts: Sequence[str]) -> list[list[vecveil.privacy.concepts.Span]]:
        raise vecveil.errors.InvalidInputError("spans belong to the audited texts")

    case = _case(Encoder(), ["Lithium again"], detect=detect)
    assert case.further is not None
    assert len(case.further) == 2 * len(case.train)


def test_the_error_of_rare_words_names_a_count_that_works() -> None:
    rare = [f"drug{i:02}" for i in range(40)]
    texts = [f"note {i} names {rare[i % 40]} {'again ' * (i % 7)}" for i in range(160)]  # each word in four texts
    matches = vecveil.Concept.from_terms("drug", rare).find(texts, show_progress=False)

    def case(count: int | None) -> Case:
        return make_case(matches, Options(min_token_count=count), embeddings=None, encode=None)

    with raises("E-CONCEPT", "texts") as refused:
        case(None)
    named = int(str(refused.value).rstrip(".").rsplit(" ", 1)[1])
    assert named < 5
    assert len(case(named).test) >= 20
    with raises("E-CONCEPT", "texts"):
        case(named + 1)
