"""The Purkayastha mechanism on the unit sphere, with an exact sampler of its angle.

Density of y ∝ exp(−ε·arccos(xᵀy)) (Du et al. 2023): the angle θ between x and y has density
∝ exp(−εθ) sin^{n−2}θ on [0, π], and the direction of y at that angle is uniform.

Sampler for n ≥ 3 and every ε > 0, in log space: log(sin θ/θ) is concave, so it lies under its tangent at the
mode θ* = atan2(n − 2, ε). The tangent gives the proposal Gamma(n − 1, rate (n − 2)/θ*), which is accepted with
log probability (n − 2)·[log(sin θ/θ) − log(sin θ*/θ*) − (cot θ* − 1/θ*)(θ − θ*)]. The acceptance rate is about
sin θ*/θ* ≥ 2/π (at least .46, at n = 3). For n = 2 the angle is a truncated exponential, inverted in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.privacy.accounting import Guarantee, purkayastha_guarantee, purkayastha_total_variation
from vecveil.privacy.accounting.advantage import weakness
from vecveil.privacy.mechanisms.base import Arrays, Mechanism
from vecveil.privacy.mechanisms.steps import unit_rows
from vecveil.privacy.randomness import WordStream, kernel
from vecveil.privacy.randomness.elementary import Words
from vecveil.privacy.randomness.kernel import GAMMA_BLOCKS, TRIES
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_positive


def _log_sinc(theta: Vector) -> Vector:
    # sin θ/θ rounds to 1 for small θ: take its Taylor series there.
    small = theta < 1e-4
    safe = np.where(small, 1.0, theta)
    square = theta * theta
    exact: Vector = np.where(small, -square / 6 - square * square / 180, np.log(np.sin(safe) / safe))
    return exact


def _slope_of_log_sinc(theta: float) -> float:
    """Return cot θ − 1/θ."""
    if theta < 1e-3:  # cot θ and 1/θ cancel: take the Taylor series
        return -theta / 3 - theta**3 / 45
    return float(1 / np.tan(theta) - 1 / theta)


ROUND_BLOCKS = GAMMA_BLOCKS + 1
"""Counter blocks per round of rejection: the proposal's and one for the acceptance test."""


def draw_angles(
    stream: WordStream, dimension: int, epsilon: float, first_block: int, words: Words | None = None, at: int = 0
) -> Vector:
    """Return one angle in [0, π] per row, with density ∝ exp(−εθ) sin^{n−2}θ, from ``first_block`` of the stream on.

    ``words`` are its words with `ROUND_BLOCKS` blocks of that at position ``at``, or None. No later block may be in
    use.
    """
    if words is None:
        words = stream.words(ROUND_BLOCKS, first_block)
    if dimension == 2:
        e = kernel.exponentials(words[:, 2 * at])
        # e = −log U, so θ = −log(1 − U(1 − e^{−επ}))/ε; log1p and expm1 keep small angles exact.
        angles = -np.log1p(np.exp(-e) * np.expm1(-epsilon * np.pi)) / epsilon
        capped: Vector = np.minimum(angles, np.pi)
        return capped
    power = dimension - 2.0
    mode = float(np.arctan2(power, epsilon))
    height, slope = float(_log_sinc(np.array([mode]))[0]), _slope_of_log_sinc(mode)
    angles, open_rows = np.empty(stream.rows), np.arange(stream.rows)
    # Each round reads new words, for the rejected rows only, so a row never depends on other rows.
    while len(open_rows):
        theta = kernel.gammas(words, 2 * at, TRIES, dimension - 1.0) * (mode / power)
        decides = kernel.exponentials(words[:, 2 * (at + GAMMA_BLOCKS)])
        inside = (theta > 0) & (theta < np.pi)  # 0: the gamma sampler made no proposal
        safe = np.where(inside, theta, 1.0)
        lost = power * (_log_sinc(safe) - height - slope * (safe - mode))
        # log U = −decides: the acceptance test stays in log space.
        accepted = inside & (-decides < lost)
        angles[open_rows[accepted]] = theta[accepted]
        open_rows = open_rows[~accepted]
        first_block, at = first_block + ROUND_BLOCKS, 0
        if len(open_rows):
            words = stream.take(open_rows).words(ROUND_BLOCKS, first_block)
    return angles


def angle_moments(dimension: int, epsilon: float) -> tuple[float, float]:
    """Return E cos θ and E sin²θ, by quadrature."""
    if dimension == 2:  # a truncated exponential: both integrals are elementary
        cosine = epsilon**2 / (epsilon**2 + 1) / np.tanh(epsilon * np.pi / 2)
        return min(float(cosine), 1.0), float(2 / (epsilon**2 + 4))
    power = dimension - 2.0
    mode = float(np.arctan2(power, epsilon))
    # Laplace width of the density at its mode; 40 widths leave out less than rounding.
    width = np.sin(mode) / np.sqrt(power)
    reach = 40 * max(width, 1 / (epsilon + dimension))
    theta = np.linspace(max(mode - reach, 0.0), min(mode + reach, np.pi), 20_001)[1:-1]
    # Without the end points, where sin θ = 0; the maximum is subtracted before exp.
    log_density = power * np.log(np.sin(theta)) - epsilon * theta
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    return min(float(weights @ np.cos(theta)), 1.0), float(weights @ np.sin(theta) ** 2)


def angles(first: Embeddings, second: Embeddings) -> Vector:
    """Return the angle in radians between each pair of rows, accurate for small ones."""
    A, B = (np.asarray(X, dtype=np.float64) for X in (first, second))
    A = A / np.linalg.norm(A, axis=1, keepdims=True)
    B = B / np.linalg.norm(B, axis=1, keepdims=True)
    # arccos of the cosine would lose half the digits of a small angle.
    return np.asarray(2 * np.arctan2(np.linalg.norm(A - B, axis=1), np.linalg.norm(A + B, axis=1)))


@dataclass(frozen=True, eq=False)
class Purkayastha(Mechanism):
    """A random point y of the unit sphere with density ∝ exp(−ε·angle(x, y)); rows are normalised first.

    Guarantee:
        ε·angle(x, x') metric-LDP, angles in radians (Weggenmann & Kerschbaum 2021). The norms of the rows do not
        influence a release.
    Cost:
        n normal draws and about 1.5 gamma draws per vector.

    Attributes:
        epsilon: ε > 0 per radian; the angle concentrates near atan(n/ε).
    """

    n: int
    epsilon: float

    name: ClassVar[str] = "purkayastha"

    def __post_init__(self) -> None:
        check_count(self.n, owner="Purkayastha", param="n", minimum=2)
        object.__setattr__(self, "epsilon", check_positive(self.epsilon, owner="Purkayastha", param="epsilon"))

    @property
    def dimension(self) -> int:
        return self.n

    @cached_property
    def least_deviation(self) -> float:
        # sin²θ is spread over the directions orthogonal to x, about n of them.
        return float(np.sqrt(angle_moments(self.n, self.epsilon)[1] / self.n))

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        largest = np.abs(X).max(axis=1, initial=0.0)
        # A row of zeros has no direction: check_rows raises.
        if (largest == 0).any():
            self.check_rows(X)
        # Squares in the kernel would overflow or vanish; rows that contain NaN go on to fail the release.
        if ((largest > 1e100) | (largest < 1e-100)).any():
            X = unit_rows(X)[0].astype(X.dtype) if np.isfinite(largest).all() else X
        behind = (self.n + 1) // 2  # first counter block after the normals

        def factors(part: WordStream, words: Words) -> Embeddings:
            turned = draw_angles(part, self.n, self.epsilon, behind, words, behind)
            return np.stack([np.cos(turned), np.sin(turned)], axis=1)

        return stream.add_noise(kernel.NoiseKind.TURN, X, factors, None, self.step, out, more_blocks=ROUND_BLOCKS)

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        return np.asarray(X.any(axis=1), dtype=bool)

    def check_rows(self, X: Embeddings) -> None:
        if not self.takes(X).all():
            raise InvalidInputError(
                "`X` contains a row of zeros, which has no direction to turn. Leave such rows out.", param="X"
            )

    def noise_covariance(self) -> Matrix:
        """Return E sin²θ/(n − 1)·I, the covariance orthogonal to x, for every x."""
        return angle_moments(self.n, self.epsilon)[1] / (self.n - 1) * np.eye(self.n)

    def noise_ratio(self, rms_norm: float) -> float:
        # On the unit sphere ‖y − x‖² = 2 − 2 cos θ; the norm of the vectors is not released.
        return float(np.sqrt(2 - 2 * angle_moments(self.n, self.epsilon)[0]))

    def rescaled(self, factor: float) -> Mechanism:
        return Purkayastha(self.n, self.epsilon / factor)

    def weakness(self, rms_norm: float) -> list[str]:
        advantage = float(self.advantage(np.array([0.1]))[0])
        return weakness(self.epsilon, 0.1, 0.1 * self.epsilon, advantage, "radian")

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return the angle of each pair of rows in radians, ignoring ``down``."""
        return angles(first, second)

    def advantage(self, distances: Vector) -> Vector:
        return purkayastha_total_variation(distances, n=self.n, epsilon=self.epsilon)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return the metric-DP guarantee in the angle; a map after the noise keeps it."""
        return purkayastha_guarantee(
            epsilon=self.epsilon, dimension=self.n, down=down, fitted_on=fitted_on, step=self.step
        )

    def parameters(self) -> dict[str, float]:
        return {"epsilon": self.epsilon}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        made = cls(dimension, float(parameters["epsilon"]))
        # A forged file may contain any ε, infinity included.
        if not 1e-9 < made.epsilon < 1e12:
            raise ValueError("epsilon")
        return made
