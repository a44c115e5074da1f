"""The probes: what they find, what they refuse, and that thresholds come from texts nothing is fitted on."""

import numpy as np
import pytest

from harness.errors import raises
from unit.auditing.attacks.planted import noisy, released
from vecveil.auditing.attacks import LabelledVectors
from vecveil.auditing.attacks.probes import KernelProbe, LinearProbe, MLPProbe

PROBES = [LinearProbe(), KernelProbe(rows=1500), MLPProbe((32,), epochs=8, batch=32, learning_rate=5e-3)]
every_probe = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)


def _texts(rows=700, *, seed=0, strength=2.0, share=0.4, dimension=10, groups=None):
    rng = np.random.default_rng(seed)
    holds = rng.random(rows) < share
    X = rng.standard_normal((rows, dimension))
    X[:, 0] += strength * holds
    return LabelledVectors(X.astype(np.float32), holds[:, None], groups)


@every_probe
@pytest.mark.parametrize("release", [None, noisy], ids=["arrays", "oracle"])
def test_a_planted_concept_is_found(probe, release):
    train = _texts(1200) if release else released(_texts(1200), 8)
    result = probe.run(train, released(_texts(seed=1)), release=release, show_progress=False)
    assert list(result.estimates) == ["auc", "advantage", "tpr_at_1_percent"]
    metrics = [estimate.metric for estimate in result.estimates.values()]
    assert metrics == ["AUC", "advantage", "TPR at 1 % FPR"]
    assert result.family == "probe"
    assert result.value > 0.85
    assert result.estimates["advantage"].low > 0.3
    assert result.estimates["tpr_at_1_percent"].low > 0.03


def test_rates_appear_once_the_negatives_suffice():
    few = LinearProbe().run(_texts(300), _texts(seed=1), show_progress=False)
    many = LinearProbe().run(_texts(9000), _texts(seed=1), show_progress=False)
    assert list(few.estimates) == ["auc", "advantage"]
    assert "tpr_at_01_percent" in many.estimates


def test_an_erased_direction_is_not_seen_and_a_bent_one_only_by_the_others():
    rng = np.random.default_rng(0)

    def bent(seed):
        data = _texts(1500, seed=seed, strength=0.0)
        X = data.X.copy()
        X[:, 0] = np.where(data.L[:, 0], np.sign(X[:, 0]) * 2.5, 0.3 * X[:, 0])
        return LabelledVectors(X, data.L)

    linear, kernel, network = (
        probe.run(bent(0), bent(1), release=lambda X, g: X, rng=rng, show_progress=False) for probe in PROBES
    )
    assert linear.value < 0.6
    assert kernel.value > 0.9
    assert network.value > 0.9


def test_the_kernel_probe_caps_its_rows_and_is_not_blinded_by_a_wrong_covariance():
    train, test = _texts(700), released(_texts(seed=1))
    given = {"release": noisy, "show_progress": False}
    assert KernelProbe(rows=300).run(train, test, **given).details["rows"] == 300
    told = KernelProbe(rows=900).run(train, test, noise_covariance=1e9 * np.eye(10), **given)
    assert told.value > 0.85
    with raises("E-INPUT-RANGE", "rows"):
        KernelProbe(rows=1)


@pytest.mark.parametrize("seed", range(4))
def test_a_rare_class_is_on_both_sides_of_the_split(seed):
    train = _texts(60, share=0.0)
    L = np.zeros((60, 1))
    L[[3, 30]] = 1
    result = LinearProbe().run(LabelledVectors(train.X, L), _texts(seed=1), rng=seed)
    assert 0 <= result.value <= 1


@every_probe
def test_vectors_that_do_not_vary_give_chance(probe):
    train, test = (LabelledVectors(np.ones((80, 4)), _texts(80, seed=s).L) for s in (0, 1))
    assert probe.run(train, test, show_progress=False).value == 0.5


ONE = LabelledVectors(np.ones((9, 10)), np.ones((9, 1)))


@pytest.mark.parametrize(
    ("train", "test", "code", "param"),
    [
        (ONE, _texts(9), "E-INPUT-CLASSES", "train"),
        (_texts(9), LabelledVectors(np.ones((9, 10)), np.zeros((9, 1))), "E-INPUT-CLASSES", "test"),
        (LabelledVectors(np.ones((9, 10)), np.eye(9)[:, :2]), _texts(9), "E-INPUT-SHAPE", "train"),
        (LabelledVectors(np.ones((9, 10)), np.eye(9)[:, :1]), _texts(9), "E-INPUT-GROUPS", "train"),
    ],
)
def test_evidence_that_cannot_be_probed_is_refused(train, test, code, param):
    with raises(code, param):
        LinearProbe().run(train, test, show_progress=False)


def test_a_group_stays_on_one_side_also_when_the_split_is_made_again():
    seen = {}

    class Spy(LinearProbe):
        def _learn(self, train, validation, session):
            seen["both"] = set(train.groups) & set(validation.groups)
            seen["classes"] = [part.L.mean() for part in (train, validation)]
            return super()._learn(train, validation, session)

    groups = np.arange(120) // 2
    L = np.zeros((120, 1))
    L[[0, 1, 60, 61]] = 1
    for seed in range(10):
        Spy().run(LabelledVectors(_texts(120).X, L, groups), _texts(seed=1), rng=seed)
        assert not seen["both"]
        assert all(0 < share < 1 for share in seen["classes"])
