"""Vec2Text on made-up sentences: what it finds, what it does not, and how it goes on and is kept."""

import math
import re
import shutil
from itertools import product

import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.attacks.attack import TextVectors
from vecveil.auditing.attacks.reconstruction import vec2text
from vecveil.auditing.attacks.reconstruction.vec2text import PRESETS, Preset, Vec2TextAttack, Vec2TextState
from vecveil.privacy.training import TrainingRecipe

pytest.importorskip("transformers")

SLOTS = (
    ("Anna", "Boris", "Carla", "David", "Elena", "Farid"),
    ("takes", "needs", "refuses", "sells", "hides"),
    ("aspirin", "insulin", "codeine", "iron", "zinc", "morphine"),
    ("daily", "weekly", "rarely", "tonight"),
)
SENTENCES = [" ".join(words) for words in product(*SLOTS)]
DIMENSION = 17
TRAIN, TEST = 240, 80
RECIPE = TrainingRecipe(epochs=15, batch=32, learning_rate=4e-3, max_tokens=14, patience=15, device="cpu")
TINY = Preset(RECIPE, repeat=4, width=48, layers=1, vocabulary=320, rounds=2, beam=3)
SHORT = Preset(
    TrainingRecipe(epochs=2, batch=32, learning_rate=4e-3, max_tokens=10, save_seconds=0, device="cpu"),
    repeat=2,
    width=16,
    layers=1,
    vocabulary=270,
    rounds=1,
    beam=2,
)


def encode(texts):
    """Return unit sums of a random vector for each word and its place."""
    found = np.zeros((len(texts), DIMENSION))
    for i, text in enumerate(texts):
        for j, word in enumerate(text.split()):
            found[i] += (1 + 0.1 * j) * np.random.default_rng(list(word.encode())).standard_normal(DIMENSION)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    return (found / np.maximum(norms, 1e-9)).astype(np.float32)


def sentences(count, seed=0):
    """Return different sentences in random order."""
    return [str(s) for s in np.random.default_rng(seed).permutation(SENTENCES)[:count]]


def data(train=TRAIN, test=TEST):
    texts = sentences(train + test)
    X = encode(texts)
    return TextVectors(X[:train], texts[:train]), TextVectors(X[train:], texts[train:])


def attack(preset=TINY, **options):
    return Vec2TextAttack(encode, preset, **{"judge_encoder": encode, **options})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return the folder of an attack that has learnt from the true pairs, and what it found."""
    folder = tmp_path_factory.mktemp("vec2text")
    return folder, attack().run(*data(), checkpoint=folder, show_progress=False)


def chance(guesses, share):
    """Return the token F1 that guesses pass with probability ``share`` at most, the texts being random.

    Test texts are drawn uniformly from all sentences, apart from everything the attack sees. The expectation for
    each guess is summed over all sentences; Hoeffding's inequality for N independent texts gives the rest.
    """
    counted = {g: np.mean([_f1(s, g) for s in SENTENCES]) for g in set(guesses)}
    expected = np.mean([counted[g] for g in guesses])
    return expected + math.sqrt(math.log(1 / share) / (2 * len(guesses)))


def _f1(text, guess):
    words, guessed = (set(re.findall(r"\w+", one.lower())) for one in (text, guess))
    both = len(words & guessed)
    return 2 * both / (len(words) + len(guessed)) if both else 0.0


class Spy(Vec2TextAttack):
    """Keeps what it has written."""

    def _settings(self):
        return {k: v for k, v in super()._settings().items() if k != "written"}

    def _reconstruct(self, state, X, knowledge):
        self.written = super()._reconstruct(state, X, knowledge)
        return self.written


def random_texts(count, seed):
    return [str(s) for s in np.random.default_rng(seed).choice(SENTENCES, count)]


@pytest.mark.parametrize("world", ["pure noise", "permuted pairs", "permuted test"])
def test_nothing_is_found_where_nothing_is(fitted, world):
    """Null: test texts are uniform and carry no information on the vectors.

    The vectors are noise; or the attack has learnt from permuted pairs, and without the encoder, which would
    find the text of a true vector whatever was learnt; or the test texts are other ones than the vectors'.

    False failure: at most 1e-6 over the worlds, by Hoeffding (`chance`). Power: a token F1 of 0.55 is over the
    threshold. Control: the true pairs, in the next test, with the same threshold.
    """
    train, test = data()
    texts = random_texts(TEST, seed=11)
    if world == "permuted pairs":
        shuffled = np.random.default_rng(12).permutation(len(train))
        train = TextVectors(train.X, [train.texts[i] for i in shuffled])
        X, preset, rounds = encode(texts), SHORT, 0
    else:
        X = test.X
        if world == "pure noise":
            X = np.random.default_rng(13).standard_normal(X.shape).astype(np.float32)
        preset, rounds = TINY, None
    spy = Spy(encode if rounds is None else None, preset, rounds=rounds)
    if rounds is None:  # what was learnt is the same: only the search is judged
        state = Vec2TextState.load(fitted[0])
        spy._fit = lambda *given: state
    value = spy.run(train, TextVectors(X, texts), show_progress=False).value
    assert value <= chance(spy.written, 1e-6 / 3)


def test_a_planted_leak_is_found_and_correction_helps(fitted):
    _, result = fitted
    guesses = random_texts(TEST, seed=3)
    assert result.value > chance(guesses, 1e-6 / 3)
    assert result.value > result.main.chance + 0.3
    assert result.estimates["exact_match"].value > 0.2
    assert result.value >= result.estimates["token_f1_of_hypothesis"].value
    assert result.estimates["cosine"].value > 0.8
    assert result.name == "vec2text"
    assert result.family == "reconstruction"
    assert not result.adaptive
    assert result.details["aligned"] is False
    assert 1 <= result.details["rounds"] <= 2


def test_no_text_is_further_from_its_target_than_its_first_guess(fitted):
    state = Vec2TextState.load(fitted[0])
    _, test = data()
    spy = Spy(encode, TINY)
    spy._fit = lambda *given: state
    spy.run(*data(), show_progress=False)
    first = [some[0] for some in state.hypothesiser.guess(test.X, beam=TINY.beam)]
    before = (encode([t or "." for t in first]) * test.X).sum(axis=1)
    after = (encode([t or "." for t in spy.written]) * test.X).sum(axis=1)
    assert (after >= before - 1e-6).all()
    assert after.mean() > before.mean()


def test_a_checkpoint_gives_the_same_texts_and_can_search_longer(fitted):
    folder, result = fitted
    again = attack().run(*data(), checkpoint=folder, show_progress=False)
    assert again.examples == result.examples
    assert again.value == result.value
    attack(rounds=3, beam=2).run(*data(test=9), checkpoint=folder, show_progress=False)
    assert sorted(path.name for path in folder.iterdir()) == [
        "attack.json",
        "begun.json",
        "corrector.safetensors",
        "hypothesiser.safetensors",
        "maps.safetensors",
        "tokenizer.json",
        "vec2text.json",
    ]
    assert not folder.stat().st_mode & 0o077


def test_a_checkpoint_for_other_vectors_settings_or_a_damaged_one_is_refused(fitted, tmp_path):
    folder, _ = fitted
    train, test = data(test=9)
    narrow = TextVectors(train.X[:, :9], train.texts), TextVectors(test.X[:, :9], test.texts)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack(align="ridge").run(*narrow, checkpoint=folder, show_progress=False)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack(rounds=0).run(train, test, checkpoint=folder, show_progress=False)
    with raises("E-DATA-FILE", "start_from"):
        attack(rounds=0, start_from=folder).run(*narrow, show_progress=False)
    with raises("E-CHECKPOINT", "checkpoint"):
        attack(start_from=tmp_path).run(train, test, show_progress=False)
    shutil.copytree(folder, tmp_path / "cut")
    weights = tmp_path / "cut" / "corrector.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with raises("E-CHECKPOINT", "checkpoint"):
        attack().run(train, test, checkpoint=tmp_path / "cut", show_progress=False)


def test_training_goes_on_from_a_finished_attack_on_released_vectors(fitted):
    """The oracle rotates and adds noise: what was learnt on clean vectors reads nothing before."""
    turn = np.linalg.qr(np.random.default_rng(8).standard_normal((DIMENSION, DIMENSION)))[0]

    def release(X, rng):
        return (X @ turn + 0.02 * rng.standard_normal(X.shape)).astype(np.float32)

    train, test = data(test=40)
    released = TextVectors(release(test.X, np.random.default_rng(2)), test.texts)
    known = fitted[0]
    few = Preset(TrainingRecipe(epochs=10, batch=32, learning_rate=3e-3, max_tokens=99, device="cpu"), rounds=1, beam=2)
    as_it_is = attack(few, start_from=known, fine_tune=False)
    before = as_it_is.run(train, released, release=release, show_progress=False)
    tuned = attack(few, start_from=known, draws=2)
    after = tuned.run(train, released, release=release, show_progress=False)
    assert after.adaptive
    assert "hypothesiser_epoch" not in before.details
    assert after.value > before.value + 0.2
    assert after.value > chance(random_texts(40, seed=4), 1e-6)


def test_without_an_oracle_a_ridge_stands_for_the_release():
    """Released vectors have other dimensions than the encoder's: only aligned guesses can be compared."""
    rng = np.random.default_rng(6)
    A = rng.standard_normal((DIMENSION, 11)) / 4
    train, test = data(test=20)
    train, test = (TextVectors((one.X @ A + 1).astype(np.float32), one.texts) for one in (train, test))
    recipe = TrainingRecipe(epochs=8, batch=32, learning_rate=4e-3, max_tokens=14, device="cpu")
    preset = Preset(recipe, repeat=4, width=32, layers=1, vocabulary=320, rounds=1, beam=3)
    result = attack(preset).run(train, test, show_progress=False)
    assert result.details["aligned"] is True
    assert result.value > result.estimates["token_f1_of_hypothesis"].value
    with raises("E-INPUT-SHAPE", "encode"):
        attack(preset, align="none").run(train, test, show_progress=False)


class _StopError(Exception):
    pass


def _interrupted_after(monkeypatch, steps, kind):
    calls = 0

    def loss(module, part):
        nonlocal calls
        if module.training and ("guess" in part) == (kind == "corrector"):
            calls += 1
            if calls > steps:
                raise _StopError
        return training_loss(module, part)

    training_loss = vec2text.sequence_loss
    monkeypatch.setattr(vec2text, "sequence_loss", loss)


def run_short(folder, seed=0):
    def release(X, rng):
        return (X + 0.1 * rng.standard_normal(X.shape)).astype(np.float32)

    return attack(SHORT).run(
        *data(train=100, test=8), release=release, rng=seed, checkpoint=folder, show_progress=False
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the folder of a short training that nothing interrupts, and what it found."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, run_short(folder)


@pytest.mark.parametrize(("kind", "steps"), [("hypothesiser", 2), ("corrector", 3)])
def test_an_interrupted_training_goes_on_and_comes_to_the_same_model(undisturbed, tmp_path, monkeypatch, kind, steps):
    folder, whole = undisturbed
    with monkeypatch.context() as patch:
        _interrupted_after(patch, steps, kind)
        with pytest.raises(_StopError):
            run_short(tmp_path / "parts")
    with raises("E-CHECKPOINT", "checkpoint"):
        run_short(tmp_path / "parts", seed=1)
    if kind == "corrector":  # the first network is not trained again
        with monkeypatch.context() as patch:
            _interrupted_after(patch, 0, "hypothesiser")
            resumed = run_short(tmp_path / "parts")
    else:
        resumed = run_short(tmp_path / "parts")
    assert resumed.examples == whole.examples
    for name in ("hypothesiser.safetensors", "corrector.safetensors", "maps.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert not list((tmp_path / "parts").glob("*training*"))


def test_the_hypothesiser_alone_needs_no_encoder(tmp_path):
    few = data(train=60, test=8)
    alone = Vec2TextAttack(None, SHORT, rounds=0)
    result = alone.run(*few, checkpoint=tmp_path / "kept", show_progress=False)
    assert result.name == "vec2text-hypothesiser"
    assert "token_f1_of_hypothesis" not in result.estimates
    assert not (tmp_path / "kept" / "corrector.safetensors").exists()
    assert alone.run(*few, checkpoint=tmp_path / "kept", show_progress=False).examples == result.examples


def test_an_encoder_of_another_dimension_is_refused_before_training():
    few = data(train=60, test=8)
    started = []
    other = Vec2TextAttack(lambda texts: np.zeros((len(texts), DIMENSION + 1)), SHORT, align="none")
    other._fit = lambda *given: started.append(1)
    with raises("E-INPUT-SHAPE", "encode"):
        other.run(*few, show_progress=False)
    adaptive = Vec2TextAttack(lambda texts: np.zeros((len(texts), DIMENSION + 1)), SHORT)
    adaptive._fit = other._fit
    with raises("E-INPUT-SHAPE", "encode"):
        adaptive.run(*few, release=lambda X, rng: X, show_progress=False)
    assert not started


def test_presets_are_what_the_documents_say():
    small, paper = PRESETS["small"], PRESETS["paper"]
    assert small.model is None
    assert (paper.model, paper.repeat) == ("t5-base", 16)
    assert (paper.recipe.epochs, paper.recipe.batch, paper.recipe.learning_rate) == (50, 32, 5e-5)
    assert Vec2TextAttack(encode, "paper", beam=2).preset.rounds == 20
