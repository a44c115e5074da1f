import threading

import numpy as np
import pytest
import torch

from harness.errors import raises
from vecveil.auditing.attacks.reconstruction.base import rows_by_length
from vecveil.privacy.training import (
    TrainingRecipe,
    TrainingRun,
    fit_model,
    forget_training,
    load_weights,
    mean_loss,
    seeded,
    weights_of,
)
from vecveil.runtime import DeviceMemoryWarning

RECIPE = TrainingRecipe(epochs=3, batch=8, learning_rate=0.02, save_seconds=0, device="cpu")


def _model(dropout=0.0, width=6):
    with seeded(3):
        return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Dropout(dropout), torch.nn.Linear(width, 1))


def _loss(model, part):
    loss = ((model(part["x"])[:, 0] - part["y"]) ** 2).sum()
    return loss, len(part["x"])


def _batches(epoch, rng):
    x = rng.standard_normal((40, 4)).astype(np.float32)
    y = x[:, 0] - 2 * x[:, 1]
    return [{"x": x[i : i + 8], "y": y[i : i + 8]} for i in range(0, 40, 8)]


HELD_OUT = _batches(0, np.random.default_rng(99))


def _validate(model):
    return mean_loss(model, HELD_OUT, _loss)


def _fit(model, folder=None, recipe=RECIPE, loss_of=_loss, validate=_validate, seed=1):
    run = TrainingRun(np.random.default_rng(seed), show_progress=False, folder=folder)
    return fit_model(model, _batches, loss_of, validate, recipe, run)


def _same(one, other):
    first, second = weights_of(one), weights_of(other)
    return all(torch.equal(first[key], second[key]) for key in first)


class _StopError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 5, 8, 14])
def test_an_interrupted_training_comes_to_the_same_model(tmp_path, after):
    dropout = 0.3
    whole = _model(dropout)
    expected = _fit(whole)
    calls = 0

    def interrupted(model, part):
        nonlocal calls
        calls += 1
        if model.training and calls > after:
            raise _StopError
        return _loss(model, part)

    with pytest.raises(_StopError):
        _fit(_model(dropout), tmp_path, loss_of=interrupted)
    steps = 0

    def counted(model, part):
        nonlocal steps
        steps += model.training
        return _loss(model, part)

    resumed = _model(dropout)
    found = _fit(resumed, tmp_path, loss_of=counted, seed=2)  # the seed in the folder counts
    assert _same(whole, resumed)
    assert steps == 15 - after
    assert (found.history, found.steps, found.tokens) == (expected.history, 15, 120)
    finished = _model(dropout)
    assert _fit(finished, tmp_path).history == expected.history  # nothing is trained again
    assert _same(whole, finished)
    forget_training(tmp_path, "model")
    assert not list(tmp_path.iterdir())


def test_an_epoch_without_a_finite_loss_is_never_the_best():
    losses = iter([float("nan"), 3.0, float("nan")])
    assert _fit(_model(), validate=lambda model: next(losses)).best_epoch == 2
    with raises("E-TRAINING"):
        _fit(_model(), validate=lambda model: float("nan"))


def test_control_another_seed_is_another_model():
    one, other = _model(), _model()
    _fit(one)
    _fit(other, seed=2)
    assert not _same(one, other)


def test_another_recipe_or_model_or_a_damaged_file_is_refused(tmp_path):
    _fit(_model(), tmp_path)
    with raises("E-CHECKPOINT", "checkpoint"):
        _fit(_model(), tmp_path, TrainingRecipe(epochs=4, batch=8, learning_rate=0.02, device="cpu"))
    with raises("E-CHECKPOINT", "checkpoint"):
        _fit(_model(width=7), tmp_path)
    path = tmp_path / "model-training.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with raises("E-CHECKPOINT", "checkpoint"):
        _fit(_model(), tmp_path)


def test_the_best_epoch_is_kept_and_training_stops_early():
    losses = iter([3.0, 1.0, 2.0, 2.0, 0.5])
    seen = []

    def validate(model):
        assert not model.training
        seen.append(weights_of(model))
        return next(losses)

    model = _model()
    recipe = TrainingRecipe(epochs=5, batch=8, learning_rate=0.02, patience=2, device="cpu")
    fit = _fit(model, recipe=recipe, validate=validate)
    assert (fit.best_epoch, fit.loss, len(fit.history)) == (2, 1.0, 4)
    assert all(torch.equal(seen[1][key], value) for key, value in weights_of(model).items())


def test_a_time_limit_ends_the_training():
    recipe = TrainingRecipe(epochs=10**6, batch=8, learning_rate=0.02, seconds=0.3, device="cpu")
    fit = _fit(_model(), recipe=TrainingRecipe(**{**_fields(recipe), "patience": 10**6}))
    assert 0 < fit.steps < 10**6


def _fields(recipe):
    return {name: getattr(recipe, name) for name in recipe.__slots__}


def test_a_device_that_is_full_gets_smaller_pieces_and_the_same_model():
    def greedy(model, part):
        if len(part["x"]) > 3:
            raise torch.OutOfMemoryError
        return _loss(model, part)

    whole, halved = _model(), _model()
    _fit(whole)
    with pytest.warns(DeviceMemoryWarning):
        _fit(halved, loss_of=greedy)
    first, second = weights_of(whole), weights_of(halved)
    assert all(torch.allclose(first[key], second[key], atol=1e-4) for key in first)


def test_global_randomness_is_left_alone_and_threads_do_not_disturb():
    alone = _model(0.3)
    _fit(alone)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    models = [_model(0.3) for _ in range(3)]
    threads = [threading.Thread(target=_fit, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(_same(alone, model) for model in models)


def test_bfloat16_trains():
    recipe = TrainingRecipe(**{**_fields(RECIPE), "precision": "bfloat16"})
    assert _fit(_model(), recipe=recipe).loss < 5


def test_rows_by_length_cover_every_row_with_like_lengths():
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    ids = [np.zeros(length) for length in lengths]
    batches = rows_by_length(ids, 10, np.random.default_rng(1))
    assert sorted(np.concatenate(batches)) == list(range(1000))
    assert np.mean([np.ptp(lengths[rows]) for rows in batches]) < 5
    firsts = [lengths[rows[0]] for rows in batches]
    assert firsts != sorted(firsts)


def test_the_rate_rises_and_falls():
    recipe = TrainingRecipe(epochs=1, batch=1, learning_rate=2.0, warmup_share=0.1)
    rates = [recipe.rate(done) for done in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert rates == pytest.approx([0, 1, 2, 1, 0])


def test_weights_of_another_model_are_refused():
    with pytest.raises(ValueError, match="different model"):
        load_weights(_model(), weights_of(_model(width=7)))
