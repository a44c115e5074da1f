"""The noise shape Σ of elliptical noise and the linear map T after the noise.

Every shape has trace(Σ) = n, so shapes are compared at the same noise norm, and Σ = I is isotropic noise (SPARSE §3.2,
"trace(Σ) = trace(I)"). A map erases, truncates, flattens, or is a Wiener filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, out_of_range, wrong_shape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_numbers, check_positive

_SMALLEST_FLOOR = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class NoiseShape:
    """Σ of trace n, stored as its diagonal (n,), as a full matrix (n, n), or as low rank + floor.

    Build one with a class method; the constructor does not check its input.

    Attributes:
        diagonal: the diagonal of Σ, or None.
        matrix: Σ, or None.
        basis: U (n, r) with orthonormal columns of Σ = floor·I + U diag(weights) Uᵀ, or None.
        weights: (r,) non-negative, the noise above the floor along each column.
        floor: λ_min(Σ) of the low-rank form if r < n.
    """

    diagonal: Vector | None = None
    matrix: Matrix | None = None
    basis: Matrix | None = None
    weights: Vector | None = None
    floor: float | None = None

    def __repr__(self) -> str:
        if self.diagonal is not None:
            kind = "isotropic" if self.is_isotropic else "diagonal"
        else:
            kind = "full" if self.basis is None else f"rank {self.basis.shape[1]} + floor"
        return f"NoiseShape({kind}, n={self.dimension})"

    @classmethod
    def isotropic(cls, dimension: int) -> NoiseShape:
        n = check_count(dimension, owner="NoiseShape.isotropic", param="dimension", minimum=1)
        return cls(diagonal=np.ones(n))

    @classmethod
    def from_diagonal(cls, sensitivity: Vector, *, floor: float = 1e-6) -> NoiseShape:
        """Return Σ = diag(sensitivity + floor), scaled to trace n (SPARSE, Algorithm 1).

        Args:
            sensitivity: (n,) non-negative weights, for example a learnt mask.
            floor: added to every weight. It is a privacy parameter: against Euclidean neighbours the guarantee is
                ε/√λ_min(Σ), so a small floor leaves the low-weight dimensions almost bare.
        """
        owner = "NoiseShape.from_diagonal"
        floor = check_positive(floor, owner=owner, param="floor")
        values = check_numbers(sensitivity, owner=owner, param="sensitivity")
        if values.ndim != 1 or values.size == 0 or (values < 0).any():
            got = f"shape {values.shape}" + (" with negative values" if values.ndim == 1 else "")
            raise InvalidInputError(f"`sensitivity` has {got}; it needs (n,) without negatives.", param="sensitivity")
        values = values + floor
        return cls(diagonal=values * (values.size / values.sum()))

    @classmethod
    def from_matrix(cls, matrix: Matrix, *, floor: float = 1e-2) -> NoiseShape:
        """Return an (n, n) matrix as a shape; ``floor`` is the least eigenvalue, as a share in (0, 1] of the mean."""
        owner = "NoiseShape.from_matrix"
        floor = check_positive(floor, owner=owner, param="floor")
        values = check_numbers(matrix, owner=owner, param="matrix")
        if values.ndim != 2 or values.size == 0 or values.shape[0] != values.shape[1]:
            raise wrong_shape(owner, "matrix", "(n, n)", values.shape)
        if floor > 1:
            raise out_of_range(owner, "floor", "a number above 0 and at most 1", floor)
        eigenvalues, vectors = np.linalg.eigh((values + values.T) / 2)
        if eigenvalues[-1] <= 0:
            raise InvalidInputError(
                f"`matrix` is positive semi-definite and not zero; its largest eigenvalue is {eigenvalues[-1]:.3g}.",
                param="matrix",
            )
        eigenvalues = np.maximum(eigenvalues, floor * eigenvalues.clip(min=0).mean())
        # Scale after the floor, so that the floored shape has trace n.
        eigenvalues *= eigenvalues.size / eigenvalues.sum()
        return cls(matrix=(vectors * eigenvalues) @ vectors.T)

    @classmethod
    def from_low_rank(cls, basis: Matrix, weights: Vector, *, floor: float) -> NoiseShape:
        """Return Σ = floor·I + U diag(w) Uᵀ, the weights scaled so that trace(Σ) = n.

        Stretching a vector costs 2 n r operations instead of n².

        Args:
            basis: U (n, r), r ≤ n, with orthonormal columns.
            weights: (r,) non-negative, not all zero; only their proportions count.
            floor: λ_min(Σ), in (0, 1]; the mean eigenvalue is 1. Against Euclidean neighbours the guarantee is
                ε/√floor: a smaller floor moves noise to the columns of U; 1 is isotropic noise.
        """
        owner = "NoiseShape.from_low_rank"
        floor = check_positive(floor, owner=owner, param="floor")
        if floor > 1:
            raise out_of_range(owner, "floor", "a number above 0 and at most 1", floor)
        U = check_numbers(basis, owner=owner, param="basis")
        if U.ndim != 2 or not 1 <= U.shape[1] <= U.shape[0]:
            raise wrong_shape(owner, "basis", "(n, r) with r from 1 to n", U.shape)
        if not is_orthonormal(U):
            raise InvalidInputError(
                "The columns of `basis` are not orthonormal. Take the Q of numpy.linalg.qr, or eigenvectors.",
                param="basis",
            )
        w = check_numbers(weights, owner=owner, param="weights")
        if w.shape != (U.shape[1],) or (w < 0).any() or not w.any():
            raise InvalidInputError(f"`weights` are {U.shape[1]} numbers of at least 0, not all 0.", param="weights")
        w = w / w.max()  # first, so that the sum of huge weights is finite
        n = U.shape[0]
        # The floor contributes n · floor to the trace, the weights the rest.
        return cls(basis=U.copy(), weights=w * (n * (1 - floor) / w.sum()), floor=floor)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], n: int) -> NoiseShape:
        """Return the shape of dimension ``n`` of `to_arrays`.

        Raises:
            ValueError: the message names the invalid array, ``shape`` for none or several shapes, or ``trace``.
        """

        def require(valid: Any, name: str) -> None:
            if not valid:
                raise ValueError(name)

        def stored(name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
            array = arrays.get(name, np.empty(0))
            require(array.shape == shape and array.dtype == np.float64, name)
            require(np.isfinite(array).all(), name)
            return array

        kinds = [name for name in ("shape.diagonal", "shape.matrix", "shape.basis") if name in arrays]
        require(len(kinds) == 1, "shape")
        fields: dict[str, Any]
        if kinds == ["shape.diagonal"]:
            diagonal = stored("shape.diagonal", (n,))
            require((diagonal > 0).all(), "shape.diagonal")
            # Divided first: the sum of a forged diagonal could overflow.
            fields, mean = {"diagonal": diagonal}, (diagonal / n).sum()
        elif kinds == ["shape.matrix"]:
            matrix = stored("shape.matrix", (n, n))
            # A trace of n bounds every entry: no overflow below.
            require(np.abs(matrix).max() <= 10 * n and np.allclose(matrix, matrix.T), "shape.matrix")
            require(np.linalg.eigvalsh(matrix)[0] > 0, "shape.matrix")
            fields, mean = {"matrix": matrix}, np.diag(matrix).mean()
        else:
            basis = arrays["shape.basis"]
            require(basis.ndim == 2 and 1 <= basis.shape[1] <= n, "shape.basis")
            basis = stored("shape.basis", (n, basis.shape[1]))
            require(is_orthonormal(basis), "shape.basis")
            weights = stored("shape.weights", (basis.shape[1],))
            require((weights >= 0).all(), "shape.weights")
            floor = float(stored("shape.floor", (1,))[0])
            require(floor > 0, "shape.floor")
            fields = {"basis": basis, "weights": weights, "floor": floor}
            mean = floor + (weights / n).sum()
        require(abs(float(mean) - 1) <= 1e-6, "trace")
        return cls(**fields)

    @cached_property
    def dimension(self) -> int:
        for array in (self.diagonal, self.matrix, self.basis):
            if array is not None:
                return int(array.shape[0])
        raise AssertionError  # guaranteed by the constructors

    @property
    def is_diagonal(self) -> bool:
        """Return whether Σ is stored as its diagonal; then `root` is (n,)."""
        return self.diagonal is not None

    @cached_property
    def is_isotropic(self) -> bool:
        d = self.diagonal
        return d is not None and bool(np.all(d == d[0])) and abs(float(d[0]) - 1) < 1e-9

    @cached_property
    def _spectrum(self) -> tuple[Vector, Matrix | None]:
        """Eigenvalues, and eigenvectors: None for a diagonal shape, r of a low-rank one."""
        if self.diagonal is not None:
            return self.diagonal, None
        if self.basis is not None:
            assert self.weights is not None
            assert self.floor is not None
            return self.floor + self.weights, self.basis
        assert self.matrix is not None
        eigenvalues, vectors = np.linalg.eigh(self.matrix)
        # `norm` divides by eigenvalues, which rounding may leave at 0 or below.
        return np.maximum(eigenvalues, _SMALLEST_FLOOR), vectors

    @property
    def smallest_eigenvalue(self) -> float:
        eigenvalues = self._spectrum[0]
        if self.floor is not None and eigenvalues.size < self.dimension:
            return self.floor  # no eigenvalue of a low-rank shape is below it
        return float(eigenvalues.min())

    @cached_property
    def root(self) -> Vector | Matrix:
        """Σ^{1/2} in float64: (n,) for a diagonal shape, else the symmetric root (n, n)."""
        eigenvalues, vectors = self._spectrum
        root: Vector | Matrix = np.sqrt(eigenvalues)
        if vectors is None:
            return root
        if self.floor is None:
            return np.asarray((vectors * root) @ vectors.T)
        low = np.sqrt(self.floor)
        # √floor·I outside U, and √(floor + w) along its columns.
        return np.asarray((vectors * (root - low)) @ vectors.T + low * np.eye(self.dimension))

    def stretch(self, directions: Embeddings) -> Embeddings:
        """Return ``directions`` (N, n) times Σ^{1/2}, in the same dtype.

        Cost: n operations per row for a diagonal shape, 2 n r for a low-rank one, n² for a full one.
        """
        if self.basis is not None and self.floor is not None:
            U = self.basis.astype(directions.dtype, copy=False)
            low = np.sqrt(self.floor)
            more = (np.sqrt(self._spectrum[0]) - low).astype(directions.dtype)
            stretched = ((directions @ U) * more) @ U.T
            stretched += directions * directions.dtype.type(low)
            return np.asarray(stretched)
        root = self.root.astype(directions.dtype, copy=False)  # a float64 root would promote float32 directions
        return np.asarray(directions * root if root.ndim == 1 else directions @ root)

    @cached_property
    def _cholesky(self) -> Matrix:
        assert self.matrix is not None
        return np.asfortranarray(np.linalg.cholesky(self.matrix))

    def correlate(self, normals: Embeddings) -> Embeddings:
        """Map float64 standard normals (N, n) to covariance Σ; may overwrite ``normals``."""
        if self.matrix is None:
            return np.ascontiguousarray(self.stretch(normals))
        from scipy.linalg.blas import dtrmm

        # Any factor LLᵀ = Σ gives the same law as the symmetric root; a triangular product costs half.
        # The transpose of a C-ordered array is the Fortran order that BLAS overwrites in place.
        return np.asarray(dtrmm(1.0, self._cholesky, normals.T, lower=1, overwrite_b=1).T)

    def covariance(self) -> Matrix:
        """Return Σ as (n, n) float64."""
        if self.diagonal is not None:
            return np.diag(self.diagonal)
        if self.basis is not None:
            assert self.floor is not None
            more: Matrix = (self.basis * self.weights) @ self.basis.T
            return more + self.floor * np.eye(self.dimension)
        return np.array(self.matrix, dtype=np.float64)

    def norm(self, differences: Embeddings) -> Vector:
        """Return the Mahalanobis norm ‖v‖_Σ = sqrt(vᵀ Σ⁻¹ v) of each row of ``differences`` (N, n)."""
        eigenvalues, vectors = self._spectrum
        rows = np.asarray(differences, dtype=np.float64)
        rotated = rows if vectors is None else rows @ vectors
        squares = (rotated**2 / eigenvalues).sum(axis=1)
        if self.basis is not None and self.floor is not None:
            # The part outside U by subtracting vectors: ‖v‖² − ‖Uᵀv‖² would cancel.
            squares += ((rows - rotated @ self.basis.T) ** 2).sum(axis=1) / self.floor
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        if self.diagonal is not None:
            return {"shape.diagonal": self.diagonal}
        if self.basis is not None:
            assert self.weights is not None
            floor = np.array([self.floor], dtype=np.float64)
            return {"shape.basis": self.basis, "shape.weights": self.weights, "shape.floor": floor}
        assert self.matrix is not None
        return {"shape.matrix": self.matrix}


def is_orthonormal(basis: Matrix) -> bool:
    """Return whether QᵀQ = I up to entries rounded to 22 bits, which change it by 2√n · 2⁻²³ (Cauchy-Schwarz)."""
    rounding = np.sqrt(len(basis)) * 2.0**-_ENTRY_BITS
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0, atol=max(1e-6, rounding)))


_ENTRY_BITS = 22
_STEP_BITS = 20


def _power_of_two(value: float) -> float:
    return float(2.0 ** np.ceil(np.log2(value))) if value > 0 else 1.0


def _rounded(matrix: Matrix) -> Matrix:
    # A power of two: entries are integers of 22 bits times it, and products with the grid are exact.
    unit = _power_of_two(float(np.abs(matrix).max())) * 2.0**-_ENTRY_BITS
    return np.asarray(np.rint(matrix / unit) * unit)


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    """T = up @ down, or T = down if ``up`` is None.

    A quantised map gives the same result on every machine: its entries have 22 bits and releases lie on a grid, so
    every partial sum is exact in float64, in any order of summation.

    Attributes:
        down: (m, n), from the encoder's space to the m kept coordinates.
        up: (n, m) with orthonormal columns, back into n dimensions; None for a square map.
        step: grid of the kept coordinates before ``up``; 0 for none.
    """

    down: Matrix
    up: Matrix | None = None
    step: float = 0.0

    @classmethod
    def quantised(cls, down: Matrix, up: Matrix | None, *, norm: float) -> LinearMap:
        """Return the map with 22-bit entries and a grid 2⁻²⁰ of the largest kept coordinate of inputs of ``norm``."""
        # Cauchy-Schwarz: no kept coordinate exceeds the longest row of T times the norm.
        longest = float(np.sqrt((down**2).sum(axis=1).max())) * norm
        step = _power_of_two(longest) * 2.0**-_STEP_BITS
        return cls(_rounded(down), None if up is None else _rounded(up), step)

    def coarser_than(self, step: float) -> LinearMap:
        """Return the map with a grid of the kept coordinates 16 times coarser than inputs on ``step`` need.

        The coarser grid hides rounding errors of the inputs, which differ between inputs in a hidden direction.
        """
        if not self.step:
            return self
        longest = float(np.sqrt((self.down**2).sum(axis=1).max()))
        return replace(self, step=max(self.step, 16 * step * _power_of_two(longest)))

    def __repr__(self) -> str:
        return f"LinearMap(n={self.dimension}, rank={self.rank})"

    @property
    def dimension(self) -> int:
        return int(self.down.shape[1])

    @property
    def rank(self) -> int:
        """Return m, the number of kept coordinates."""
        return int(self.down.shape[0])

    @cached_property
    def row_space(self) -> Matrix:
        """Q (n, m) with 22-bit entries and orthonormal columns that span the rows of T."""
        # At unit scale: flattened rows of very different lengths would lose digits.
        lengths = np.linalg.norm(self.down, axis=1)
        Q = np.linalg.qr((self.down / lengths[:, None]).T)[0]
        # The unit is fixed: `_rounded` would take a coarser unit for an entry that rounding left above 1.
        return np.asarray(np.rint(Q * 2.0**_ENTRY_BITS) * 2.0**-_ENTRY_BITS)

    @cached_property
    def matrix(self) -> Matrix:
        """T as (n, n) float64."""
        return self.down if self.up is None else self.up @ self.down

    def apply(self, X: Embeddings, *, reduced: bool = False) -> Embeddings:
        """Return rows (N, n) through T: (N, n), or the (N, m) kept coordinates, with equal inner products."""
        # float64 also for float32 rows: products of 22-bit entries and grid values fit its 53 bits.
        # Always in two steps: one product with T leaves rounding errors outside the kept directions,
        # and a linear attacker recovers the erased part from them.
        reduced_rows = X.astype(np.float64, copy=False) @ self.down.T
        if self.step:
            reduced_rows = np.rint(reduced_rows / self.step) * self.step
        full: Embeddings = reduced_rows if reduced or self.up is None else reduced_rows @ self.up.T
        return full.astype(X.dtype, copy=False)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays: dict[str, np.ndarray[Any, Any]] = {"map.down": self.down}
        if self.up is not None:
            arrays["map.up"] = self.up
        arrays["map.step"] = np.array([self.step])
        return arrays
