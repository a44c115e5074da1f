"""Zero-shot reconstruction writes texts that it has no pair of, and nothing about vectors without a text."""

import json

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.test_geia import WORDS, language, threshold
from vecveil.auditing.attacks import TextVectors
from vecveil.auditing.attacks.reconstruction.zero_shot import CausalLanguageModel, NgramLanguageModel, ZeroShotAttack

N = 24
FALSE_FAILURE = 1e-6 / 2
PLACES = np.random.default_rng(7).standard_normal((len(WORDS), N))
MIX = np.random.default_rng(5).standard_normal((N, 18))


class Encoder:
    """Sums the words' vectors, with a little of their order, and counts the texts."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        rows = [[WORDS.index(word) for word in text.split() if word in WORDS] for text in texts]
        return np.array(
            [sum((np.roll(PLACES[i], j) * 0.2 + PLACES[i] for j, i in enumerate(row)), np.zeros(N)) for row in rows]
        )


def letters(texts):
    """Count each letter, so that the pieces of words have vectors."""
    return np.array([[text.count(letter) for letter in "abcdefghijklmnoprstuw"] for text in texts], dtype=float)


def release(X, rng):
    return X @ MIX + 0.3 * rng.standard_normal((len(X), 18))


def _run(vectors, texts, encoder=None, model=None, oracle=None, **options):
    model = model or NgramLanguageModel(language(300, 5).texts)
    options = {"queries": 24, "beam": 2, "max_tokens": 4, "judged": 400, **options}
    encoder = encoder or Encoder()
    attack = ZeroShotAttack(encoder, model, **options)
    # Nothing is learnt from these; with an oracle they are clean, without one released.
    train = TextVectors(vectors[:4] if oracle is None else np.ones((4, N)), texts[:4])
    return attack.run(train, TextVectors(vectors, texts), release=oracle, show_progress=False)


def test_texts_are_written_without_a_pair_and_nothing_of_other_vectors():
    """Null: the texts are independent of the vectors: noise, and texts handed to other vectors.

    False failure: at most 1e-6 over both worlds, see `threshold`. Power and control: with the texts in place most
    are written, behind a map to fewer dimensions and noise, of which the attacker has the oracle.
    """
    texts = language(400, 1).texts
    rng = np.random.default_rng(0)
    released = release(Encoder()(list(texts)), rng)
    found = _run(released, texts, oracle=release)
    limit = threshold(400, FALSE_FAILURE)
    assert found.value > max(0.9, limit)
    assert found.details["language_model"] == "trigram model of 300 texts, 8 words"
    permuted = [texts[i] for i in rng.permutation(400)]
    for lost, of in ((rng.standard_normal(released.shape), texts), (released, permuted)):
        assert _run(lost, of, oracle=release).value <= limit


def test_the_number_of_queries_is_kept_and_recorded_and_more_of_them_read_more():
    texts = language(100, 1).texts
    X = Encoder()(list(texts))
    values = []
    for queries in (3, 24):
        encoder = Encoder()
        found = _run(X, texts, encoder, queries=queries, proposals=8)
        values.append(found.value)
        # One text is asked to learn the dimension.
        single = found.details["encoder_queries_of_single_tokens"]
        assert single <= len(WORDS)
        assert len(set(encoder.texts)) <= 100 * queries + single + 1
        assert found.details["queries"] == queries
        assert "trigram model" in found.description
        assert f"of {queries} texts" in found.description
    assert values[1] > values[0] + 0.2
    assert _run(X, texts).examples == _run(X, texts).examples


def test_a_causal_model_of_a_local_folder_proposes(tmp_path):
    """A tiny GPT-2 without training stands in: the vectors alone choose among its proposals."""
    import transformers

    from vecveil.auditing.attacks.reconstruction.base import Tokeniser

    tokeniser = Tokeniser.train(language(60, 0).texts, 300)
    config = transformers.GPT2Config(
        vocab_size=300,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=tokeniser.end,
        eos_token_id=tokeniser.end,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "tiny")
    tokeniser.save(tmp_path / "tiny")
    wrapped = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (tmp_path / "tiny" / "tokenizer_config.json").write_text(json.dumps(wrapped), encoding="utf-8")
    model = CausalLanguageModel(tmp_path / "tiny", device="cpu")
    assert model.name.startswith("tiny (gpt2, 0.0 million parameters")
    ids, scores = model.propose([(), (5, 6, 7), (9,)], 12)
    assert ids.shape == scores.shape == (3, 12)
    # Padding changes nothing: each prefix by itself gets the same proposals.
    for row, prefix in enumerate([(), (5, 6, 7), (9,)]):
        alone = model.propose([prefix], 12)
        assert (alone[0][0] == ids[row]).all()
        assert alone[1][0] == pytest.approx(scores[row], abs=1e-4)
    texts = language(6, 1).texts
    options = {"proposals": 300, "max_tokens": 8, "judge_encoder": letters}
    found = _run(letters(texts), texts, letters, model, queries=120, **options)
    assert found.details["language_model"] == model.name
    # Letters have no order: the same ones may be written in other words.
    assert found.estimates["cosine"].value > 0.95
    assert found.estimates["cosine"].value > found.estimates["cosine"].chance + 0.1
    with raises("E-DATA-FILE", "folder"):
        CausalLanguageModel(tmp_path / "none")


def test_the_trigram_model_knows_what_follows():
    model = NgramLanguageModel(["The cat sat on the mat.", "The cat ran off!", "A dog sat on the cat."])
    word = {model.text((i,)): i for i in range(6)}
    ids, scores = model.propose([(), (word["sat"], word["on"])], 6)
    assert [model.text((int(row[0]),)) for row in ids] == ["The", "the"]
    assert np.exp(scores).sum(axis=1) == pytest.approx([1, 1], abs=0.35)  # rare words have no token
    assert model.text((word["The"], word["cat"], word["sat"], word["."])) == "The cat sat."


def test_vectors_of_another_dimension_need_the_oracle():
    texts = language(10, 1).texts
    with raises("E-INPUT-SHAPE", "test"):
        attack = ZeroShotAttack(Encoder(), NgramLanguageModel(texts))
        attack.run(TextVectors(np.eye(10, 18), texts), TextVectors(np.eye(10, 18), texts))
    with raises("E-INPUT", "texts"):
        NgramLanguageModel(["once", "only"])
