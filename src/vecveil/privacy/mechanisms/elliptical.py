"""Elliptical noise, stretched by a shape Σ: Laplace, Mahalanobis, Gaussian, and Gaussian calibrated to (ε, δ).

- Laplace: density ∝ exp(−ε‖z‖_Σ), Z = Y Σ^{1/2} N/‖N‖ with Y ~ Gamma(n, 1/ε) (SPARSE, Algorithm 1).
- Projected Laplace: the same for Σ = I in k of the n dimensions, after a projection on them.
- Truncated Laplace: the same in k of the n dimensions, after a product with a mask.
- Gaussian: Z = σ Σ^{1/2} N.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.privacy.accounting import (
    Guarantee,
    analytic_gaussian_sigma,
    elliptical_laplace_guarantee,
    epsilon_meaning,
    gaussian_guarantee,
    gaussian_total_variation,
    laplace_total_variation,
)
from vecveil.privacy.accounting.advantage import weakness
from vecveil.privacy.accounting.guarantee import WEAK_EPSILON
from vecveil.privacy.mechanisms.base import BLOCK_VALUES, Arrays, Mechanism
from vecveil.privacy.mechanisms.steps import unit_rows
from vecveil.privacy.randomness import WordStream, kernel
from vecveil.privacy.randomness.elementary import Words, row_dots
from vecveil.privacy.randomness.kernel import GAMMA_BLOCKS
from vecveil.privacy.sensitivity.shapes import NoiseShape, is_orthonormal
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_numbers, check_positive, check_probability


class EllipticalMechanism(Mechanism):
    """x + Z, Z = R Σ^{1/2} N with a radius R that a subclass chooses.

    Attributes:
        shape: Σ, trace n.
        splits: independent variates per normal; see `WordStream.normals`.
    """

    shape: NoiseShape
    splits: int

    def __post_init__(self) -> None:
        check_count(self.splits, owner=type(self).__name__, param="splits", maximum=16)

    @property
    def _laplace_epsilon(self) -> float | None:
        """ε of Laplace noise; None for Gaussian noise."""
        return None

    @property
    @abstractmethod
    def _deviation(self) -> float:
        """Standard deviation of the noise per coordinate for Σ = I."""

    @cached_property
    def dimension(self) -> int:
        return self.shape.dimension

    @cached_property
    def least_deviation(self) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(self._deviation * np.sqrt(self.shape.smallest_eigenvalue))

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        shape, epsilon, step, n = self.shape, self._laplace_epsilon, self.step, self.dimension
        at = (n + 1) // 2 * self.splits  # first counter block after the normals

        def factors(part: WordStream, words: Words) -> Vector:
            if epsilon is None:
                # Gaussian noise has one factor σ; the Laplace radius is Gamma(n, 1/ε) per row.
                return np.full(part.rows, self._deviation)
            return part.gammas(float(n), at, words, at) / epsilon

        # The kernel draws, scales and adds in one pass; other shapes need a matrix product between.
        if shape.is_diagonal and self.splits == 1:
            kind = kernel.NoiseKind.ADD if epsilon is None else kernel.NoiseKind.ADD_DIRECTION
            root = None if shape.is_isotropic else np.ascontiguousarray(shape.root)
            more = 0 if epsilon is None else GAMMA_BLOCKS
            return stream.add_noise(kind, X, factors, root, step, out, more_blocks=more)
        finite = True
        rows = max(1, BLOCK_VALUES // n)
        for start in range(0, len(X), rows):
            part = stream.part(start, stop := min(start + rows, len(X)))
            noise = part.normals(n, splits=self.splits)
            if epsilon is None:
                scalars = np.full(part.rows, self._deviation)
            else:
                # Divide by ‖N‖ before Σ^{1/2} stretches: Algorithm 1 draws the direction on the sphere.
                scalars = part.gammas(float(n), at) / epsilon / np.sqrt(row_dots(noise, noise))
            stretched = noise if shape.is_isotropic else shape.correlate(noise)
            finite &= kernel.add_given(X[start:stop], stretched, scalars, step, out[start:stop])
        return finite

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return ‖x − x'‖_Σ of each pair of rows, or the norm of T(x − x') in (TΣTᵀ)⁺ after a map T = ``down``."""
        # float64: near rows differ only in the last digits of float32.
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        if down is None or len(down) == self.dimension:
            return self.shape.norm(differences)
        # Post-processing by T hides its kernel: the quotient distance is the norm in (TΣTᵀ)⁺.
        values, vectors = np.linalg.eigh(down @ self.shape.covariance() @ down.T)
        return np.asarray(np.linalg.norm(differences @ down.T @ (vectors / np.sqrt(values)), axis=1))

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {} if self.shape.is_isotropic else self.shape.to_arrays()


@dataclass(frozen=True, eq=False)
class Mahalanobis(EllipticalMechanism):
    """x + Z, Z with density ∝ exp(−ε‖z‖_Σ): ε·‖x − x'‖_Σ metric-LDP (SPARSE, Theorem 1).

    Guarantee:
        ε/√λ_min(Σ) against Euclidean neighbours. Directions where Σ is small are not protected.
    Cost:
        n normal draws and, for a full Σ, one n × n product per vector.

    Attributes:
        epsilon: ε > 0 per unit of Mahalanobis distance; the noise's mean norm is about n/ε.
    """

    shape: NoiseShape
    epsilon: float
    splits: int = 1

    name: ClassVar[str] = "mahalanobis"

    def __post_init__(self) -> None:
        epsilon = check_positive(self.epsilon, owner=type(self).__name__, param="epsilon")
        object.__setattr__(self, "epsilon", epsilon)
        super().__post_init__()

    @property
    def _laplace_epsilon(self) -> float:
        return self.epsilon

    @property
    def _deviation(self) -> float:
        # E‖Z‖² = n(n + 1)/ε² over n coordinates.
        return float(np.sqrt(self.dimension + 1.0) / self.epsilon)

    def noise_covariance(self) -> Matrix:
        """Return (n + 1)/ε² · Σ."""
        return (self.dimension + 1) / self.epsilon**2 * self.shape.covariance()

    def advantage(self, distances: Vector) -> Vector:
        """Return the total variation: an upper bound after a map with a kernel."""
        return laplace_total_variation(distances, dimension=self.dimension, epsilon=self.epsilon)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return elliptical_laplace_guarantee(
            epsilon=self.epsilon, covariance=self.shape.covariance(), down=down, fitted_on=fitted_on, step=self.step
        )

    def rescaled(self, factor: float) -> Mechanism:
        return Mahalanobis(self.shape, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        # A tenth of the norm, in the direction of least noise.
        worst, apart = self.guarantee().epsilon_euclidean_worst, 0.1 * rms_norm
        inside = 0.0 if worst is None else apart * worst / self.epsilon
        advantage = float(self.advantage(np.array([inside]))[0])
        return weakness(worst, apart, inside * self.epsilon, advantage, "in the least protected direction")

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return self.shape.to_arrays()

    def parameters(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        shape = NoiseShape.from_arrays(arrays, dimension)
        return cls(shape, _finite_epsilon(parameters, shape), parameters["splits"])


class Laplace(Mahalanobis):
    """Generalised Laplace (LapMech): isotropic noise with density ∝ exp(−ε‖z‖₂).

    Guarantee:
        ε·‖x − x'‖₂ metric-LDP in every direction.
    """

    name: ClassVar[str] = "laplace"

    def __init__(self, dimension: int, epsilon: float, splits: int = 1) -> None:
        super().__init__(NoiseShape.isotropic(dimension), epsilon, splits)

    def rescaled(self, factor: float) -> Mechanism:
        return Laplace(self.dimension, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        if abs(rms_norm - 1) < 0.05:
            return list(epsilon_meaning(self.dimension, self.epsilon))
        return super().weakness(rms_norm)

    to_arrays = EllipticalMechanism.to_arrays  # none: Σ = I follows from the dimension

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        epsilon = _finite_epsilon(parameters, NoiseShape.isotropic(dimension))
        return cls(dimension, epsilon, parameters["splits"])


class _KeptLaplace(Mechanism):
    """Laplace noise in k of the n dimensions, which a subclass chooses; the others contain no noise.

    Attributes:
        epsilon: ε > 0 per unit of distance in the kept dimensions; the noise's mean norm is k/ε.
        splits: as in `EllipticalMechanism`.
    """

    epsilon: float
    splits: int
    _kept: Laplace

    @property
    @abstractmethod
    def _projection(self) -> Matrix:
        """Matrix (n, k) by which rows are multiplied before the noise."""

    def _keep(self, k: int) -> None:
        """Make the Laplace mechanism of the k coordinates, which checks ``epsilon`` and ``splits``."""
        object.__setattr__(self, "_kept", Laplace(k, self.epsilon, self.splits))
        object.__setattr__(self, "epsilon", self._kept.epsilon)

    @cached_property
    def least_deviation(self) -> float:
        return self._kept.least_deviation  # the other dimensions release nothing

    def advantage(self, distances: Vector) -> Vector:
        """Return the total variation, exactly."""
        return self._kept.advantage(distances)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        projection = self._projection
        return elliptical_laplace_guarantee(
            epsilon=self.epsilon,
            covariance=np.eye(projection.shape[1]),
            projection=projection,
            fitted_on=fitted_on,
            step=self.step,
        )

    def parameters(self) -> dict[str, float]:
        return self._kept.parameters()


_FINER = 2.0**-4
"""Grid of the input over that of the release: fine against the noise, and coarse enough for exact products."""
_LONGEST = {4: 2.0**39, 8: 2.0**46}
"""Maximum coordinate by bytes of the dtype, in steps of the grid, beside which there is room for the noise."""


@dataclass(frozen=True, eq=False)
class ProjectedLaplace(_KeptLaplace):
    """Q(Qᵀx + W), W with density ∝ exp(−ε‖w‖₂) in k dimensions: ε·‖Qᵀ(x − x')‖₂ metric-LDP.

    Guarantee:
        Qᵀx + W is the Laplace mechanism in k dimensions, and multiplying by Q is post-processing. Qᵀ lengthens no
        difference, so ε holds against Euclidean distance; differences orthogonal to Q are hidden. The same noise power
        in these dimensions takes noise in all n an ε that is √((n + 1)/(k + 1)) times as large.
    Cost:
        k normal draws and two n × k products per vector.

    Attributes:
        basis: Q (n, k) with orthonormal columns, such as `LinearMap.row_space`.
    """

    basis: Matrix = field(repr=False)
    epsilon: float
    splits: int = 1

    name: ClassVar[str] = "projected-laplace"

    def __post_init__(self) -> None:
        basis = check_numbers(self.basis, owner=type(self).__name__, param="basis")
        if basis.ndim != 2 or not 1 <= basis.shape[1] <= basis.shape[0] or not is_orthonormal(basis):
            raise InvalidInputError("`basis` is (n, k) with orthonormal columns.", param="basis")
        object.__setattr__(self, "basis", np.ascontiguousarray(basis))
        self._keep(basis.shape[1])

    @property
    def _projection(self) -> Matrix:
        return self.basis

    @cached_property
    def dimension(self) -> int:
        return int(self.basis.shape[0])

    @cached_property
    def _products(self) -> tuple[Matrix, Matrix]:
        """Q in steps of the input's grid, and Qᵀ in steps of the release's."""
        # Steps are powers of two: the factors change no bit.
        return self.basis * (self.step * _FINER), np.ascontiguousarray(self.basis.T) / self.step

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        # On a grid, and with 22-bit entries of Q, products are exact: the same in any order of summation.
        rows = X.astype(np.float64)
        rows /= self.step * _FINER
        longest = _LONGEST[X.itemsize]
        if not _within(rows, longest / _FINER):
            return False
        into, back = self._products
        kept = np.rint(rows, out=rows) @ into
        if not self._kept._release(kept, stream, kept):
            return False
        # Post-processing of the noisy coordinates, rounding included: nothing else of X is in it.
        np.rint(np.matmul(kept, back, out=rows), out=rows)
        rows *= self.step
        out[:] = rows
        return _within(rows, longest * self.step)

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return ‖Qᵀ(x − x')‖₂ of each pair of rows; a map after the noise does not change it."""
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        return np.asarray(np.linalg.norm(differences @ self.basis, axis=1))

    def exact_behind(self, down: Matrix | None) -> bool:
        # A map with as many rows is invertible on the kept dimensions.
        return down is None or len(down) >= self.basis.shape[1]

    def noise_covariance(self) -> Matrix:
        """Return (k + 1)/ε² · QQᵀ."""
        return np.asarray(self.least_deviation**2 * self.basis @ self.basis.T)

    def noise_ratio(self, rms_norm: float) -> float:
        # As for noise of this deviation in all n dimensions, so that methods compare.
        return self.least_deviation * float(np.sqrt(self.dimension)) / rms_norm

    def rescaled(self, factor: float) -> Mechanism:
        return ProjectedLaplace(self.basis, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        apart = 0.1 * rms_norm
        advantage = float(self.advantage(np.array([apart]))[0])
        return weakness(self.epsilon, apart, apart * self.epsilon, advantage, "in the kept dimensions")

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"kept.basis": self.basis}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        basis = arrays["kept.basis"]
        if basis.ndim != 2 or len(basis) != dimension:
            raise ValueError("kept.basis")
        epsilon = _finite_epsilon(parameters, NoiseShape.isotropic(dimension))
        return cls(basis, epsilon, parameters["splits"])


@dataclass(frozen=True, eq=False, repr=False)
class TruncatedLaplace(_KeptLaplace):
    """(x ⊙ m) + Z on the k dimensions with m > 0, and zeros in all others.

    It is a reading of SPARSE, whose text adds noise to all n dimensions.

    Guarantee:
        ε·‖x − x'‖₂ metric-LDP: x ↦ x ⊙ m on k dimensions is 1-Lipschitz for m ≤ 1, and Laplace noise of k dimensions
        is ε metric-LDP there. Differences in dropped dimensions are absent from the release.
    Cost:
        k normal draws per vector.

    Attributes:
        mask: m (n,), from 0 to 1, not all 0.
    """

    mask: Vector
    epsilon: float
    splits: int = 1

    name: ClassVar[str] = "truncated-laplace"

    def __post_init__(self) -> None:
        mask = check_numbers(self.mask, owner=type(self).__name__, param="mask")
        if mask.ndim != 1 or not mask.any() or (mask < 0).any() or (mask > 1).any():
            raise InvalidInputError("`mask` has n numbers from 0 to 1, not all 0.", param="mask")
        object.__setattr__(self, "mask", mask)
        self._keep(int(np.count_nonzero(mask)))

    def __repr__(self) -> str:
        return f"TruncatedLaplace({len(self.kept)} of {self.dimension} dimensions, epsilon={self.epsilon:g})"

    @cached_property
    def kept(self) -> Any:
        """Positions of the k kept dimensions, ascending."""
        return np.flatnonzero(self.mask)

    @property
    def _projection(self) -> Matrix:
        return np.diag(self.mask)[:, self.kept]

    @property
    def dimension(self) -> int:
        return len(self.mask)

    def _masked(self, X: Embeddings) -> Embeddings:
        """Return the kept coordinates (N, k) of X ⊙ m."""
        return np.ascontiguousarray(X[:, self.kept] * self.mask[self.kept].astype(X.dtype))

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        x = self._masked(X)
        y = np.empty_like(x)
        finite = self._kept._release(x, stream, y)
        out[:] = 0
        out[:, self.kept] = y
        # A NaN in a dropped dimension does not reach the release.
        return finite and bool(np.isfinite(X).all())

    def without_noise(self, X: Embeddings) -> Embeddings:
        released = np.zeros_like(X)
        released[:, self.kept] = self._masked(X)
        return released

    def noise_covariance(self) -> Matrix:
        """Return (k + 1)/ε² on the diagonal of the kept dimensions."""
        return np.diag((self.mask > 0) * float(self._kept.noise_covariance()[0, 0]))

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return ‖(x − x') ⊙ m‖₂ of each pair of rows; a map ``down`` after the noise only lowers the advantage."""
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        return np.asarray(np.linalg.norm(differences * self.mask, axis=1))

    def rescaled(self, factor: float) -> Mechanism:
        return TruncatedLaplace(self.mask, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        return self._kept.weakness(rms_norm)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"mask": self.mask}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        mask = arrays["mask"]
        if mask.shape != (dimension,):
            raise ValueError("mask")
        epsilon = _finite_epsilon(parameters, NoiseShape.isotropic(dimension))
        return cls(mask, epsilon, parameters["splits"])


def _within(X: Embeddings, limit: float) -> bool:
    """Return whether all values are finite and between ±``limit``."""
    return bool(-limit < X.min(initial=0.0) and X.max(initial=0.0) < limit)


def _finite_epsilon(parameters: Mapping[str, Any], shape: NoiseShape) -> float:
    """Return ε; raise ValueError if the guarantee or the noise overflows."""
    epsilon = float(parameters["epsilon"])
    # A forged file may contain any ε: both the guarantee ε/√λ_min and the norm n/ε must be finite.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bounds = [epsilon / np.sqrt(shape.smallest_eigenvalue), shape.dimension / epsilon]
    if not np.isfinite(bounds).all():
        raise ValueError("epsilon")
    return epsilon


@dataclass(frozen=True, eq=False)
class Gaussian(EllipticalMechanism):
    """x + Z, Z ~ N(0, σ²Σ): μ-Gaussian DP with μ = ‖x − x'‖_Σ/σ (Dong, Roth & Su 2022).

    Guarantee:
        (ε, δ) at distance d for every pair that the analytic Gaussian mechanism allows (Balle & Wang 2018).
        No ε with δ = 0.

    Attributes:
        sigma: σ > 0, standard deviation per coordinate for Σ = I.
    """

    shape: NoiseShape
    sigma: float
    splits: int = 1

    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        sigma = check_positive(self.sigma, owner=type(self).__name__, param="sigma")
        object.__setattr__(self, "sigma", sigma)
        super().__post_init__()

    @property
    def _deviation(self) -> float:
        return self.sigma

    def noise_covariance(self) -> Matrix:
        """Return σ²Σ."""
        return self.sigma**2 * self.shape.covariance()

    def advantage(self, distances: Vector) -> Vector:
        """Return 2Φ(d/2σ) − 1."""
        return gaussian_total_variation(distances, sigma=self.sigma)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return gaussian_guarantee(
            sigma=self.sigma,
            covariance=self.shape.covariance(),
            down=down,
            fitted_on=fitted_on,
            step=self.step,
            local=self._local,
        )

    _local = None  # (ε, δ) of the calibration of σ, if there was one

    def rescaled(self, factor: float) -> Mechanism:
        return Gaussian(self.shape, self.sigma * factor, self.splits)

    def parameters(self) -> dict[str, float]:
        return {"sigma": self.sigma, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        stored = any(name.startswith("shape.") for name in arrays)
        shape = NoiseShape.from_arrays(arrays, dimension) if stored else NoiseShape.isotropic(dimension)
        made = cls(shape, float(parameters["sigma"]), parameters["splits"])
        # A forged file may contain a σ whose square overflows.
        if not 1e-300 < made.sigma < 1e300:
            raise ValueError("sigma")
        return made


class LdpGaussian(Gaussian):
    """(ε, δ)-local DP for any two inputs of norm at most 1, by Gaussian noise.

    Guarantee:
        (ε, δ)-LDP: the analytic Gaussian mechanism gives σ for the sensitivity 2 of the unit ball (Balle & Wang 2018,
        Algorithm 1).
    """

    name: ClassVar[str] = "ldp-gaussian"
    SENSITIVITY: ClassVar[float] = 2.0
    LARGEST_NORM: ClassVar[float] = 1.0 + 1e-5  # float32 rounding of a unit row

    epsilon: float
    delta: float

    def __init__(self, dimension: int, epsilon: float, delta: float, splits: int = 1) -> None:
        owner = type(self).__name__
        epsilon = check_positive(epsilon, owner=owner, param="epsilon")
        delta = check_probability(delta, owner=owner, param="delta", open_interval=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "_local", (epsilon, delta))
        # The sensitivity covers the tolerance, so accepted rows of norm 1 + 1e-5 keep (ε, δ).
        sensitivity = self.SENSITIVITY * self.LARGEST_NORM
        sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        super().__init__(NoiseShape.isotropic(dimension), sigma, splits)

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        if not np.isfinite(X).all():
            return False  # the caller raises and names the row
        self.check_rows(X)
        return super()._release(X, stream, out)

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        return np.asarray(unit_rows(X)[1] <= self.LARGEST_NORM, dtype=bool)

    def check_rows(self, X: Embeddings) -> None:
        outside = np.flatnonzero(~self.takes(X))
        if len(outside):
            raise InvalidInputError(
                f"{len(outside)} rows of `X` are longer than 1, and the guarantee covers the unit ball. Normalise or "
                "clip the rows first.",
                param="X",
            )

    def rescaled(self, factor: float) -> Mechanism:
        # σ grows a little slower than 1/ε.
        return LdpGaussian(self.dimension, self.epsilon / factor, self.delta, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        if self.epsilon <= WEAK_EPSILON:
            return []
        return [f"A factor of e^{self.epsilon:.3g} between any two inputs is no protection by itself."]

    def parameters(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta, "sigma": self.sigma, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        made = cls(dimension, parameters["epsilon"], parameters["delta"], parameters["splits"])
        # A forged file could state another σ than (ε, δ) give.
        stored = float(parameters["sigma"])
        if not abs(stored / made.sigma - 1) < 1e-9:
            raise ValueError("sigma")
        # Another SciPy may compute σ with other last bits; keyed noise must not change with it.
        object.__setattr__(made, "sigma", stored)
        return made


def rms_norm_of_epsilon(epsilon: float, dimension: int) -> float:
    """Return sqrt(E‖Z‖²) = sqrt(n(n+1))/ε of Laplace noise, the same for every Σ of trace n."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(dimension * (dimension + 1.0)) / epsilon)


def epsilon_of_rms_norm(rms_norm: float, dimension: int) -> float:
    """Return the ε at which the noise has root mean square norm ``rms_norm``."""
    return float(np.sqrt(dimension * (dimension + 1.0)) / rms_norm)
