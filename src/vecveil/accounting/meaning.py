"""Where a stated ε means little: nothing of the vector is left, or the promise excludes nothing."""

from __future__ import annotations

import math

from vecveil.accounting.laplace_loss import LaplacePrivacyLoss
from vecveil.accounting.remaining_cosine import expected_cosine
from vecveil.validation import check_count, check_positive

__all__ = ["epsilon_meaning", "expected_cosine"]

FAINT_COSINE = 0.2
"""Below this mean cosine of released and clean vector a release is noise for most purposes."""

IDLE_EPSILON = 10.0
"""Above this, a worst-case factor of e^ε (22,000) is no protection by itself."""

_NEAR = 0.1  # the distance at which the exact advantage is shown beside the worst case

_TELLING = 0.995  # shown as 1: no bound on anything


def epsilon_meaning(n: int, epsilon: float) -> tuple[str, ...]:
    """Return plain sentences where a stated ε means little, each with the number that shows it.

    Both can hold at once: in n dimensions utility needs an ε near n, where e^ε is astronomical. Empty if
    neither does. Meant for unit vectors and noise with density ∝ exp(−ε‖z‖); for the Purkayastha
    mechanism, with ε per radian, the cosine is nearly the same.

    Args:
        n: dimension of the vectors, ≥ 1.
        epsilon: ε > 0, per unit of the norm.
    """
    owner = "epsilon_meaning"
    count = check_count(n, owner=owner, param="n")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    sentences = []
    cosine = expected_cosine(count, eps)
    if cosine < FAINT_COSINE:
        sentences.append(
            f"At ε = {eps:.4g} in {count} dimensions almost nothing of a unit vector is left: the noise is "
            f"{count / eps:.3g} times as long as the vector, and the mean cosine of the released with the "
            f"clean vector is {cosine:.2g}."
        )
    if eps > IDLE_EPSILON:
        near = LaplacePrivacyLoss(count, eps, _NEAR).total_variation
        exact = (
            f"at distance {_NEAR} no attacker has an advantage above {near:.3g}."
            if near < _TELLING
            else f"at distance {_NEAR} an attacker can tell from one release which of the two vectors it was, with an "
            f"advantage of {near:.3g} (0 is guessing, 1 is certainty). Only an audit says what attackers find."
        )
        sentences.append(
            f"At ε = {eps:.4g} the worst-case promise excludes nothing between vectors at distance 1: a "
            f"factor of e^{eps:.4g}, about 10^{eps / math.log(10):.0f}. What is true besides it is exact: {exact}"
        )
    return tuple(sentences)
