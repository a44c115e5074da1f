"""A scale beyond all reason is refused by name, before arithmetic overflows."""

import numpy as np
import pytest

import vecveil
from vecveil.errors import InvalidInputError


def _pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    negative = rng.standard_normal((60, 12))
    return negative + 0.5 * rng.standard_normal((60, 12)), negative


@pytest.mark.parametrize("epsilon", [1e300, 1e-300, 1e-160, 1e15, 5e-324])
@pytest.mark.parametrize("method", ["laplace", "subspace"])
def test_an_epsilon_without_meaning_is_refused(epsilon: float, method: str) -> None:
    with pytest.raises(InvalidInputError, match="`epsilon` must be between"):
        vecveil.fit_pairs(*_pairs(), method=method, epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e6])
def test_nine_decades_of_epsilon_are_not(epsilon: float) -> None:
    protector = vecveil.fit_pairs(*_pairs(), method="laplace", epsilon=epsilon)
    assert np.isfinite(protector.protect(_pairs()[0], 0)).all()
    assert protector.report["epsilon"] == pytest.approx(epsilon)


def test_a_noise_ratio_without_meaning_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="`noise_to_signal` must be between"):
        vecveil.fit_pairs(*_pairs(), method="laplace", noise_to_signal=1e20)
