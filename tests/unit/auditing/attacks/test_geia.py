import json
import math
from itertools import product

import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.attacks.attack import Knowledge, Session, TextVectors
from vecveil.auditing.attacks.reconstruction.base import Tokeniser
from vecveil.auditing.attacks.reconstruction.decoder import PRESETS, Decoder, GEIAAttack

WORDS = ["red", "blue", "cat", "dog", "runs", "sleeps", "here", "there"]
DIMENSION = 10
TINY = {
    "layers": 1,
    "width": 32,
    "heads": 2,
    "prefix": 2,
    "hidden": 32,
    "max_tokens": 8,
    "vocabulary": 300,
    "epochs": 12,
    "batch": 16,
    "learning_rate": 5e-3,
    "device": "cpu",
}
FALSE_FAILURE = 1e-6 / 2  # two worlds


def tiny(**options):
    return GEIAAttack(**{**TINY, **options})


def language(rows, seed):
    """Texts of a colour, an animal, a verb and a place; the vectors are a linear map of the four choices."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(2, size=(rows, 4))
    texts = [" ".join(WORDS[2 * i + c] for i, c in enumerate(row)) for row in choices]
    mixing = np.random.default_rng(99).standard_normal((4, DIMENSION))
    return TextVectors((2.0 * choices - 1) @ mixing, texts)


def _noisy(X, rng):
    return X + 0.2 * rng.standard_normal(X.shape).astype(X.dtype)


def threshold(rows, false_failure):
    """Return the token F1 that an attack without information passes with ``false_failure`` at most.

    The test texts are uniform over the 16 and independent of everything the attack sees. The best set of words for
    a text that is not known has the mean F1 `best`; Hoeffding's bound for values in [0, 1] does the rest.
    """
    texts = [{WORDS[2 * i + c] for i, c in enumerate(row)} for row in product((0, 1), repeat=4)]
    best = 0.0
    for held in product((0, 1), repeat=len(WORDS)):
        guess = {word for word, there in zip(WORDS, held, strict=True) if there}
        f1 = [2 * len(guess & text) / (len(guess) + len(text)) for text in texts]
        best = max(best, float(np.mean(f1)))
    return best + math.sqrt(math.log(1 / false_failure) / (2 * rows))


def test_a_planted_leak_is_found_and_nothing_where_nothing_is(tmp_path):
    """Null: test texts are independent of the vectors (noise alone; texts handed to other vectors).

    False failure: at most 1e-6 over the worlds, see `threshold`. Power and control: with the texts in place
    the same attack gives most of them back, far over the threshold.
    """
    train, test = language(300, 0), language(400, 10)
    rng = np.random.default_rng(0)
    limit = threshold(400, FALSE_FAILURE)
    released = TextVectors(_noisy(test.X, rng), test.texts)
    found = tiny().run(train, released, release=_noisy, rng=0, show_progress=False)
    assert found.adaptive
    assert found.value > max(0.95, limit)
    assert found.estimates["exact_match"].value > 0.8
    assert list(found.estimates)[:4] == ["token_f1", "bleu", "rouge_l", "exact_match"]
    assert len(found.examples) == 20
    noise = TextVectors(rng.standard_normal(test.X.shape), test.texts)
    permuted = TextVectors(test.X, [test.texts[i] for i in rng.permutation(400)])
    for lost in (noise, permuted):  # both worlds judge one decoder: it has seen neither
        null = tiny().run(train, lost, rng=0, show_progress=False, checkpoint=tmp_path)
        assert null.value <= limit


def _run(attack, train, test, **options):
    return attack.run(train, test, release=_noisy, show_progress=False, **options)


def test_a_checkpoint_is_used_again_and_refuses_what_it_does_not_fit(tmp_path, monkeypatch):
    train, test = language(80, 0), language(40, 1)
    first = _run(tiny(epochs=2), train, test, checkpoint=tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"attack.json", "begun.json", "decoder.json", "decoder.safetensors", "tokenizer.json"}
    record = (tmp_path / "decoder.json").read_text()
    assert not any(text in record for text in train.texts)
    monkeypatch.setattr(GEIAAttack, "_fit", None)  # whoever learns again fails
    again = _run(tiny(epochs=2), train, test, checkpoint=tmp_path)
    assert first.examples == again.examples
    beams = _run(tiny(epochs=2, beams=3), train, test, checkpoint=tmp_path)
    assert beams.details["beams"] == 3
    narrow = TextVectors(test.X[:, :5], test.texts)
    with raises("E-CHECKPOINT", "checkpoint"):
        tiny(epochs=2).run(train, narrow, release=lambda X, rng: X[:, :5], checkpoint=tmp_path)
    with raises("E-CHECKPOINT", "checkpoint"):
        _run(tiny(epochs=3), train, test, checkpoint=tmp_path)
    (tmp_path / "decoder.safetensors").write_bytes(b"damaged")
    with raises("E-CHECKPOINT", "checkpoint"):
        _run(tiny(epochs=2), train, test, checkpoint=tmp_path)


def test_an_interrupted_run_goes_on_to_the_same_result(tmp_path, monkeypatch):
    train, test = language(80, 0), language(40, 1)
    attack = tiny(epochs=3, save_seconds=0.0)
    whole = _run(attack, train, test, checkpoint=tmp_path / "whole")

    from vecveil.auditing.attacks.reconstruction import decoder as plans

    calls, loss_of = 0, plans.decoder_loss

    def interrupted(module, part):
        nonlocal calls
        calls += 1
        if calls > 8:
            raise KeyboardInterrupt
        return loss_of(module, part)

    monkeypatch.setattr(plans, "decoder_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _run(attack, train, test, checkpoint=tmp_path / "half")
    monkeypatch.setattr(plans, "decoder_loss", loss_of)
    resumed = _run(attack, train, test, checkpoint=tmp_path / "half")
    assert resumed.examples == whole.examples
    assert resumed.details["loss"] == whole.details["loss"]


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_published_recipe_takes_a_pretrained_model_from_a_folder(tmp_path, architecture):
    """A tiny GPT-2 stands in for the published one, a tiny Llama for SmolLM2: nothing is downloaded."""
    import transformers

    train, test = language(60, 0), language(30, 1)
    base = tiny(epochs=1)._fit(train, test, _session())
    folder = tmp_path / architecture
    model = base.module["lm"]
    if architecture == "llama":
        config = transformers.LlamaConfig(
            vocab_size=base.tokeniser.size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            bos_token_id=base.tokeniser.end,
            eos_token_id=base.tokeniser.end,
        )
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    base.tokeniser.save(folder)
    wrapped = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(wrapped), encoding="utf-8")
    options = {"model": str(folder), "epochs": 1, "max_tokens": 6, "device": "cpu"}
    attack = GEIAAttack("paper", **options)
    result = attack.run(train, test, show_progress=False, checkpoint=tmp_path / "kept")
    again = attack.run(train, test, show_progress=False, checkpoint=tmp_path / "kept")
    assert again.examples == result.examples  # read back from its file
    assert result.name == "geia-paper"
    assert result.details["vocabulary"] == base.tokeniser.size
    with raises("E-DATA-FILE", "model"):
        GEIAAttack("paper", model=str(tmp_path / "none"), device="cpu").run(train, test)
    assert (PRESETS["paper"].recipe.epochs, PRESETS["paper"].recipe.batch) == (30, 16)
    assert PRESETS["paper"].recipe.learning_rate == 3e-5


def _session():
    return Session(Knowledge(DIMENSION), np.random.default_rng(0), False)


def test_beams_write_too_and_batches_make_no_difference():
    decoder = tiny()._fit(language(200, 0), language(20, 1), _session())
    test = language(20, 2)
    assert sum(map(str.__eq__, decoder.write(test.X, beams=3), test.texts)) >= 18
    assert decoder.write(test.X, batch=7) == decoder.write(test.X)


def test_a_checkpoint_is_of_one_corpus(tmp_path):
    train, test = language(60, 0), language(20, 1)
    corpora = [[f"{word} number {i}" for i in range(20)] for word in ("cat", "dog")]

    def run(corpus):
        attack = tiny(epochs=1, corpus=corpus, encode=lambda texts: np.ones((20, DIMENSION)))
        return attack.run(train, test, show_progress=False, checkpoint=tmp_path)

    first = run(corpora[0])
    assert run(list(corpora[0])).examples == first.examples
    with raises("E-CHECKPOINT", "checkpoint"):
        run(corpora[1])


def test_a_corpus_is_learnt_from_too():
    train, test, more = language(60, 0), language(40, 1), language(200, 2)
    known = set(test.texts)
    pairs = [(x, t + " now") for x, t in zip(more.X, more.texts, strict=True) if t in known]
    corpus = [text for _, text in pairs]
    attack = tiny(epochs=1, corpus=corpus, encode=lambda texts: np.array([x for x, _ in pairs]))
    result = _run(attack, train, test)
    assert result.details["texts"] == 54 + len(corpus)
    with raises("E-INPUT", "corpus"):
        _run(tiny(corpus=[test.texts[0].upper()], encode=len), train, test)


def test_the_start_from_words_reads_words_before_any_training():
    """Control: the same decoder without that start knows nothing yet."""
    from vecveil.auditing.attacks.reconstruction.decoder import plan, start_from_words
    from vecveil.auditing.attacks.release_model import fit_input_map

    data = language(300, 0)
    inputs = fit_input_map(data.X)
    tokeniser = Tokeniser.train(data.texts, 300)
    decoder = Decoder.build(tokeniser, inputs, plan("small", {"width": 32}, owner="test").shape, seed=0)

    def share():
        import torch

        words = [tokeniser.encode([f"x {word}"], 9)[0][-2] for word in WORDS[2:]]
        with torch.no_grad():
            x = torch.from_numpy(inputs(data.X))
            scores = decoder.module["lm"].lm_head(decoder.module["hint"](x))[:, words].numpy()
        held = np.array([[word in text.split() for word in WORDS[2:]] for text in data.texts])
        return np.mean((scores[:, 0::2] > scores[:, 1::2]) == held[:, 0::2])

    assert share() == pytest.approx(0.5, abs=0.1)
    start_from_words(decoder, inputs(data.X), tokeniser.encode(data.texts, 20))
    assert share() > 0.95


def test_a_decoder_of_clean_vectors_is_trained_on_with_released_ones(tmp_path):
    """Few texts and one epoch: from scratch that is too little. The release mixes, shifts and shortens."""
    tiny().run(language(250, 7), language(20, 8), show_progress=False, checkpoint=tmp_path)
    train, test = language(40, 0), language(60, 1)
    down = np.random.default_rng(3).standard_normal((DIMENSION, 7))

    def release(X, rng):
        return 5 + X @ down + 0.1 * rng.standard_normal((len(X), 7))

    released = TextVectors(release(test.X, np.random.default_rng(4)), test.texts)
    options = {"epochs": 1, "learning_rate": 1e-3}
    scratch, onward = (
        tiny(**options, **more).run(train, released, release=release, show_progress=False)
        for more in ({}, {"start_from": tmp_path})
    )
    assert scratch.value < 0.5
    assert onward.value > 0.9
    with raises("E-DATA-FILE", "decoder"):
        tiny(start_from=tmp_path / "none").run(train, test, show_progress=False)
    narrow = TextVectors(test.X[:, :5], test.texts)
    with raises("E-DATA-FILE", "decoder"):
        tiny(start_from=tmp_path).run(narrow, narrow, show_progress=False)


def test_the_tokeniser_gives_every_text_back_and_comes_out_equal_twice(tmp_path):
    texts = ["Straße № 5, naïve 🙂", "  two  spaces\n", *language(50, 0).texts]
    one, other = (Tokeniser.train(texts, 400) for _ in range(2))
    assert one._backend.to_str() == other._backend.to_str()
    ids = one.encode(texts, 1000)
    assert one.decode(ids) == texts
    assert all(row[-1] == one.end for row in ids)
    assert len(one.encode(texts, 3)[0]) == 3
    one.save(tmp_path)
    assert (tmp_path / "tokenizer.json").stat().st_mode & 0o077 == 0  # it holds words of the texts
    assert Tokeniser.load(tmp_path, one.end).decode(ids) == texts
