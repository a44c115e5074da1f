from functools import partial

import numpy as np
import pytest

from unit.auditing.attacks.planted import parity, planted
from vecveil.auditing.attacks import FurtherVectors, LabelledVectors, MLCAttack, MLPAttack, NetworkAttack
from vecveil.auditing.attacks.release_model import fit_input_map
from vecveil.privacy.networks import PUBLISHED


def test_parity_is_found():
    attack = MLPAttack((32,), epochs=15, batch=32)
    assert attack.run(parity(seed=0), parity(seed=1), show_progress=False).value > 0.95


def test_the_network_learns_from_collected_texts_and_says_whether_it_has_converged(tmp_path):
    """Of twelve own texts little can be learnt; texts made from own ones are left to the kernel attacks."""
    own, more, test = planted(12, seed=1), planted(600, seed=2), planted(100, seed=3)
    draws = []

    def release(X, rng):
        draws.append(len(X))
        return X + 0.1 * rng.standard_normal(X.shape).astype(X.dtype)

    values = {}
    for origin in (0, -1):
        groups = np.full(len(more), origin)
        further = FurtherVectors(more.X, more.L, np.full(len(more), 0.5), groups)
        train = LabelledVectors(own.X, own.L, np.arange(12), further=further)
        attack = NetworkAttack(64, effort=2)
        result = attack.run(train, test, release=release, show_progress=False, checkpoint=tmp_path / str(origin))
        again = attack.run(train, test, release=release, show_progress=False, checkpoint=tmp_path / str(origin))
        assert result.value == again.value  # the state is loaded, block and normalisation too
        values[origin] = result.value
        assert result.details["converged"] is (result.details["gain"] <= 0.01)
    assert values[-1] > values[0] + 0.1
    assert max(draws) == 2 * 10  # half of each batch


def test_every_epoch_asks_for_a_fresh_release():
    calls = []

    def release(X, rng):
        calls.append(len(X))
        return X + rng.standard_normal(X.shape).astype(X.dtype)

    MLPAttack((8,), epochs=6).run(planted(50), planted(20, seed=1), release=release)
    assert calls.count(45) == 7  # one to fit the input map, one per epoch
    assert calls.count(5) == 1


def test_an_overfitted_network_is_not_kept():
    """Labels are noise: validation R-precision falls from base rates on, an early epoch stays."""
    rng = np.random.default_rng(0)
    L = np.eye(20)[np.minimum(rng.geometric(0.5, size=2400) - 1, 19)]
    data = LabelledVectors(rng.standard_normal((2400, 30)), L)
    settings = {"dropout": 0.0, "input_noise": 0.0, "weight_decay": 0.0}
    attack = MLPAttack((256,), epochs=25, learning_rate=1e-2, **settings)
    result = attack.run(data, data, show_progress=False)
    assert result.details["epoch"] < 25


def test_name_tells_the_shape():
    assert MLPAttack((1024, 512)).name == "mlp-1024-512"


def test_mlc_is_the_published_one():
    assert MLCAttack(device=PUBLISHED.device).schedule == PUBLISHED
    assert PUBLISHED.hidden == (512, 256, 128)
    assert (PUBLISHED.epochs, PUBLISHED.batch, PUBLISHED.learning_rate) == (20, 64, 1e-4)
    assert (PUBLISHED.dropout, PUBLISHED.decay, PUBLISHED.weight_decay) == (0.0, "none", 0.0)


@pytest.mark.parametrize("make", [partial(MLPAttack, (8,), epochs=1), MLCAttack])
def test_a_checkpoint_is_of_no_device(make, tmp_path, monkeypatch):
    train, test = planted(100), planted(50, seed=1)
    first = make(device="cpu").run(train, test, show_progress=False, checkpoint=tmp_path)
    monkeypatch.setattr(type(make(device="cpu")), "_fit", None)  # an attack that trains again fails
    again = make(device="auto").run(train, test, show_progress=False, checkpoint=tmp_path)
    assert first.value == again.value


def test_inputs_are_standardised_and_dead_coordinates_dropped():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((500, 5)) * np.array([1, 10, 0, 0.1, 1]) + 3
    inputs = fit_input_map(Y)(Y)
    assert inputs.dtype == np.float32
    assert inputs.shape == (500, 4)
    assert inputs.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-5)
    assert inputs.std(axis=0) == pytest.approx(np.ones(4), abs=1e-5)


def test_known_noise_is_filtered_out_of_the_inputs():
    """Two coordinates carry one signal, one under heavy noise: Wiener reads it from the other."""
    rng = np.random.default_rng(1)
    signal = rng.standard_normal((4000, 1))
    noise = np.array([0.3, 3.0]) * rng.standard_normal((4000, 2))
    Y = signal + noise
    plain, filtered = fit_input_map(Y), fit_input_map(Y, np.diag([0.09, 9.0]))
    before, after = (abs(np.corrcoef(m(Y)[:, 1], signal[:, 0])[0, 1]) for m in (plain, filtered))
    assert before < 0.4
    assert after > 0.9
