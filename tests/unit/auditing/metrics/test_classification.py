import numpy as np
import pytest

from harness.errors import raises
from vecveil.privacy.utility.estimates import clopper_pearson
from vecveil.privacy.utility.tasks import classification, macro_f1


def _blobs(seed, rows=90):
    rng = np.random.default_rng(seed)
    classes = np.arange(rows) % 3
    return 4 * np.eye(3)[classes] + rng.standard_normal((rows, 3)), classes


def test_development_learns_a_rotation_that_deployment_does_not():
    train, train_classes = _blobs(0)
    test, test_classes = _blobs(1)
    turn = np.eye(3)[[1, 2, 0]]
    deployed = classification(train, train_classes, test @ turn, test_classes)
    developed = classification(
        train, train_classes, test @ turn, test_classes, scenario="development", protected_train=train @ turn
    )
    assert deployed.accuracy.value < 0.2
    assert developed.accuracy.value > 0.9
    assert developed.macro_f1.value > 0.9
    assert developed.accuracy.chance == pytest.approx(1 / 3)
    assert developed.to_record()["scenario"] == "development"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"scenario": "other"}, "scenario"),
        ({"scenario": "development"}, "protected_train"),
        ({"train_classes": np.zeros(90)}, "train_classes"),
        ({"test_classes": np.zeros(3)}, "test_classes"),
        ({"test": np.ones((90, 5))}, "test"),
    ],
)
def test_bad_input_is_refused(change, param):
    X, classes = _blobs(0)
    given = {"train": X, "train_classes": classes, "test": X, "test_classes": classes} | change
    with raises("E-INPUT", param):
        classification(**given)


def test_a_macro_f1_that_no_draw_changes_takes_the_exact_interval():
    truth = np.tile([0, 1], 10)
    right = macro_f1(truth, truth)
    assert (right.low, right.high) == pytest.approx(clopper_pearson(20, 20))
    assert macro_f1(truth, truth, groups=np.zeros(20)).low == 0.0
