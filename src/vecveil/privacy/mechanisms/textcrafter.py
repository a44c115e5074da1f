"""TextCrafter's perturbation: learnt, of fixed norm, orthogonal to a reference direction; and its policy without torch.

The policy has two branches of one transformer block each (TextCrafter, Eq. 10 to 16). A vector is cut into T chunks;
for T = 1 the softmax over one token is 1, so queries and keys are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.privacy.accounting import Guarantee, distortion_guarantee
from vecveil.privacy.mechanisms.base import Arrays, Mechanism
from vecveil.privacy.mechanisms.steps import unit_rows
from vecveil.privacy.randomness import WordStream, kernel
from vecveil.runtime import in_chunks
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_positive

UNIT_TOLERANCE = 1e-2
"""Maximum deviation of a norm from 1: half precision and token averages round norms."""

REDRAWS = 3
"""Redraws of a perturbation without a part orthogonal to v, before a fixed direction replaces it."""

RADII = (1e-4, 1e4)

_BLOCK = 2048  # rows per pass through the policy


def degenerate_below(epsilon: float) -> float:
    """Return √ε, ε the dtype's: the ratio ‖d⊥‖/‖d‖ up to which rounding leaves a draw no reliable direction."""
    return math.sqrt(epsilon)


def check_unit_rows(X: Embeddings, *, owner: str, param: str = "X") -> None:
    """Raise InvalidInputError if a row of ``X`` (N, n), finite, does not have norm 1."""
    norms = unit_rows(X)[1]
    wrong = np.flatnonzero(np.abs(norms - 1) > UNIT_TOLERANCE)
    if len(wrong):
        raise InvalidInputError(
            f"{owner}: {len(wrong)} rows of `{param}` do not have norm 1, the first in row {wrong[0]} with norm "
            f"{norms[wrong[0]]:.4g}. The policy is learnt on the unit sphere: normalise the rows, or fit with "
            "before='normalise'.",
            param=param,
        )


def check_radius(value: Any, *, owner: str) -> float:
    """Return ``value`` if float32 can add a step of that norm to a unit vector."""
    radius = check_positive(value, owner=owner, param="radius")
    least, most = RADII
    if not least <= radius <= most:
        raise InvalidInputError(
            f"`radius` {radius:g} is not between {least:g} and {most:g}. Vectors have norm 1: beyond that float32 "
            "loses the step or the vector.",
            param="radius",
        )
    return radius


def orthogonal_step(d: Embeddings, v: Embeddings, radius: float) -> tuple[Embeddings, Vector]:
    """Return r d⊥/‖d⊥‖, d⊥ = d − (d·v) v (Eq. 17), (N, n) float64, and the rows where d⊥ is too short."""
    across = d - np.einsum("ij,ij->i", d, v)[:, None] * v
    # Rounding leaves about 2⁻⁵³·(d·v) along v: a second Gram-Schmidt pass removes it.
    across -= np.einsum("ij,ij->i", across, v)[:, None] * v
    norms = np.linalg.norm(across, axis=1)
    # NaN compares false: it must reach the check of the release and not be redrawn.
    lost = norms <= degenerate_below(float(np.finfo(np.float64).eps)) * np.linalg.norm(d, axis=1)
    across *= (radius / np.where(lost, 1.0, norms))[:, None]
    return across, lost


@dataclass(frozen=True, eq=False, repr=False)
class TextCrafter(Mechanism):
    """e' = e + r d⊥/‖d⊥‖, d ~ N(μ(e), diag σ²), d⊥ its part orthogonal to v(e) (TextCrafter, Eq. 15 to 18).

    Guarantee:
        None of privacy. Exact bounds on distortion: ‖e' − e‖ = r and (e' − e)ᵀ v(e) = 0. Both help an attacker: among
            candidate texts the true one is at distance r. Releases of two inputs lie on two different spheres, so the
            largest advantage is 1.
    Cost:
        Two transformer blocks per vector: with T = 1, 2 (2 + 2 · expansion) n² multiply-adds.

    Attributes:
        policy: μ, σ and v.
        radius: r > 0.
        spread: (n, n) covariance of the perturbation given the vector, averaged over the vectors of the fit.
        classifier: (n + 1,) weights and intercept of the PII classifier in the training reward.
        centroids: (k, n) centres of texts without the concept in the training reward.
    """

    policy: PolicyWeights
    radius: float
    spread: Matrix
    classifier: Vector
    centroids: Matrix

    name: ClassVar[str] = "textcrafter"
    checks_norms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        radius = check_radius(self.radius, owner="TextCrafter")
        object.__setattr__(self, "radius", radius)
        n = self.policy.dimension
        for name, shape in (("spread", (n, n)), ("classifier", (n + 1,)), ("centroids", (None, n))):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            fits = array.ndim == len(shape) and array.shape[-1] == shape[-1] and len(array)
            if not fits or (shape[0] and len(array) != shape[0]) or not np.isfinite(array).all():
                raise ValueError(name)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"TextCrafter(n={self.dimension}, radius={self.radius:g})"

    @property
    def dimension(self) -> int:
        return self.policy.dimension

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        if not np.isfinite(X).all():
            return False  # the caller raises and names the row
        self.check_rows(X)
        for start in range(0, len(X), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(X)))
            self._perturb(X[part], stream.part(part.start, part.stop), out[part])
        return bool(np.isfinite(out).all())

    def _perturb(self, X: Embeddings, stream: WordStream, out: Embeddings) -> None:
        n, sigma = X.shape[1], self.policy.sigma
        # The policy runs on the whole block: BLAS parallelises its products.
        means, directions = self.policy.mean(X), self.policy.direction(X)

        def work(start: int, stop: int) -> None:
            given, mu, v = stream.part(start, stop), means[start:stop], directions[start:stop]
            step, lost = orthogonal_step(mu + sigma * _normals(given, n, 0), v, self.radius)
            # The words of a keyed stream are fixed: each attempt reads its own counter blocks.
            for attempt in range(1, REDRAWS + 1):
                if not lost.any():
                    break
                rows = np.flatnonzero(lost)
                d = mu[rows] + sigma * _normals(given.take(rows), n, attempt)
                step[rows], lost[rows] = orthogonal_step(d, v[rows], self.radius)
            if lost.any():
                # A policy with σ ≈ 0 and μ along v fails every draw: a fixed axis keeps the norm r.
                step[lost] = orthogonal_step(_other_axes(v[lost]), v[lost], self.radius)[0]
            out[start:stop] = X[start:stop] + step

        in_chunks(len(X), _ROWS, work)

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        return np.asarray(np.abs(unit_rows(X)[1] - 1) <= UNIT_TOLERANCE, dtype=bool)

    def check_rows(self, X: Embeddings) -> None:
        check_unit_rows(X, owner="TextCrafter.protect")

    def direction(self, X: Embeddings) -> Embeddings:
        """Return v(e) for the rows of ``X`` (N, n), of norm 1, in the same dtype (Eq. 16)."""
        directions = np.empty_like(X)
        for start in range(0, len(X), _BLOCK):
            directions[start : start + _BLOCK] = self.policy.direction(X[start : start + _BLOCK])
        return directions

    def noise_ratio(self, rms_norm: float) -> float:
        return self.radius / rms_norm

    def describe(self) -> str:
        return super().describe() + " empirical,"

    def noise_covariance(self) -> Matrix:
        """Return the covariance of the perturbation given the vector, as the fit measured it."""
        return self.spread

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return distortion_guarantee(
            dimension=self.dimension, radius=self.radius, fitted_on=fitted_on, behind_map=down is not None
        )

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {
            **self.policy.to_arrays(),
            "spread": self.spread,
            "classifier": self.classifier,
            "centroids": self.centroids,
        }

    def parameters(self) -> dict[str, float]:
        return {"radius": self.radius, "tokens": self.policy.tokens, "heads": self.policy.heads}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        policy = PolicyWeights.from_arrays(arrays, dimension, parameters["tokens"], parameters["heads"])
        radius = float(parameters["radius"])
        spread = arrays["spread"]
        if spread.shape != (dimension, dimension) or not np.array_equal(spread, spread.T):
            raise ValueError("spread")
        # A forged file may contain any matrix; a perturbation of norm r has a covariance of trace at most r².
        values = np.linalg.eigvalsh(spread)
        if values[0] < -1e-9 * radius**2 or values.sum() > 1.01 * radius**2:
            raise ValueError("spread")
        return cls(policy, radius, arrays["spread"], arrays["classifier"], arrays["centroids"])


def _normals(stream: WordStream, dimension: int, attempt: int) -> Embeddings:
    """Return (rows, n) standard normals from the counter blocks of ``attempt``."""
    pairs = (dimension + 1) // 2
    words = stream.words(pairs, attempt * pairs)
    normals: Embeddings = kernel.normals(np.ascontiguousarray(words), pairs)[:, :dimension]
    return normals


def _other_axes(v: Embeddings) -> Embeddings:
    """Return for each row the axis of the least |v_i|, which has a part orthogonal to ``v``."""
    axes = np.zeros_like(v)
    axes[np.arange(len(v)), np.abs(v).argmin(axis=1)] = 1.0
    return axes


# -- the policy in NumPy

Array = npt.NDArray[Any]

BRANCHES = ("mean", "direction")
_EPSILON = 1e-5  # of LayerNorm, as in torch
_ROWS = 256  # rows per task of a thread
_CACHED = 32  # rows of hidden units that stay in a core's cache
_MULTIPLE = 16
"""Row counts are padded to this multiple: a product then gives a row the same bits at every position."""


def branch_shapes(dimension: int, tokens: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the arrays of one branch; c = n/T is the width of one of the T tokens."""
    n, c = dimension, dimension // tokens
    return {
        "position": (tokens, c),
        "attention.qkv.weight": (3 * c, c),
        "attention.qkv.bias": (3 * c,),
        "attention.out.weight": (c, c),
        "attention.out.bias": (c,),
        "norm1.weight": (c,),
        "norm1.bias": (c,),
        "expand.weight": (hidden, c),
        "expand.bias": (hidden,),
        "contract.weight": (c, hidden),
        "contract.bias": (c,),
        "norm2.weight": (c,),
        "norm2.bias": (c,),
        "head.weight": (n, n),
        "head.bias": (n,),
    }


@dataclass(frozen=True, eq=False, repr=False)
class PolicyWeights:
    """The policy π(d | e) = N(μ(e), diag σ²) and its reference direction v(e).

    Without arrays of the branch ``direction``, v is the vector itself.

    Attributes:
        tokens: T.
        heads: attention heads.
        arrays: float32 ``log_sigma`` (n,) and, for each of `BRANCHES`, arrays such as ``mean.position`` with the shapes
            of `branch_shapes`.
    """

    dimension: int
    tokens: int
    heads: int
    arrays: Mapping[str, Array]
    _cast: dict[tuple[str, str], Mapping[str, Array]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        n, T, heads = self.dimension, self.tokens, self.heads
        if not all(type(k) is int and k >= 1 for k in (n, T, heads)) or n % T or n // T % heads:
            raise ValueError("tokens")
        # The file stores no width of the hidden layer: its bias gives it.
        expand = self.arrays.get("mean.expand.bias", np.empty(0))
        shapes: dict[str, tuple[int, ...]] = {"log_sigma": (n,)}
        drawn = any(name.startswith("direction.") for name in self.arrays)
        for branch in BRANCHES if drawn else BRANCHES[:1]:
            for name, shape in branch_shapes(n, T, len(expand)).items():
                shapes[f"{branch}.{name}"] = shape
        if set(self.arrays) != set(shapes) or not len(expand):
            raise ValueError("policy")
        checked = {}
        for name, shape in shapes.items():
            array = np.ascontiguousarray(self.arrays[name], dtype=np.float32)
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"policy.{name}")
            checked[name] = array
        object.__setattr__(self, "arrays", checked)

    def mean(self, X: Embeddings) -> Embeddings:
        """Return μ(e) for each row of ``X`` (N, n), in the same dtype."""
        return self._branch("mean", X)

    def direction(self, X: Embeddings) -> Embeddings:
        """Return v(e), (N, n) float64 of norm 1 (Eq. 16); the first axis where the branch returns zeros."""
        drawn = "direction.position" in self.arrays
        raw = (self._branch("direction", X) if drawn else X).astype(np.float64)
        norms = np.linalg.norm(raw, axis=1)
        # v must have norm 1 for every input, or the perturbation would not be orthogonal to it.
        lost = norms < 1e-12
        raw[lost, 0], norms[lost] = 1.0, 1.0
        raw[lost, 1:] = 0.0
        raw /= norms[:, None]
        return raw

    @property
    def sigma(self) -> Vector:
        return np.exp(self.arrays["log_sigma"].astype(np.float64))

    def _branch(self, branch: str, X: Embeddings) -> Embeddings:
        """Return the output (N, n) of a branch, computed in the dtype of ``X``."""
        rows, n = X.shape
        # BLAS may round the rows of an incomplete tile differently; keyed releases must not depend on N.
        padded = -(-max(rows, 1) // _MULTIPLE) * _MULTIPLE
        inputs = np.zeros((padded, n), dtype=X.dtype)
        inputs[:rows] = X
        w = self._weights(branch, X.dtype)
        x = (inputs.reshape(padded, self.tokens, -1) + w["position"]).reshape(-1, n // self.tokens)
        y = self._attention(x, w)
        hidden = np.empty((len(x), len(w["expand.bias"])), dtype=X.dtype)

        # BLAS parallelises the products; the elementwise steps between run on our threads, in cache.
        def first(i: int, j: int) -> None:
            # Residual, then LayerNorm (Eq. 12): the post-norm order of the paper.
            y[i:j] += x[i:j]
            _layer_norm_inplace(y[i:j], w, "norm1")

        def middle(i: int, j: int) -> None:
            # GELU makes several passes over its input, so its rows should stay in the cache.
            for k in range(i, j, _CACHED):
                part = hidden[k : min(k + _CACHED, j)]
                part += w["expand.bias"]
                _gelu_inplace(part)

        def last(i: int, j: int) -> None:
            y[i:j] += contracted[i:j]
            y[i:j] += w["contract.bias"]
            _layer_norm_inplace(y[i:j], w, "norm2")

        in_chunks(len(y), _ROWS, first)
        np.matmul(y, w["expand.weight"].T, out=hidden)
        in_chunks(len(hidden), _ROWS, middle)
        contracted = hidden @ w["contract.weight"].T
        in_chunks(len(y), _ROWS, last)
        out: Embeddings = y.reshape(padded, n) @ w["head.weight"].T
        out += w["head.bias"]
        return out[:rows]

    def _attention(self, x: Array, w: Mapping[str, Array]) -> Array:
        """Return multi-head attention over the T tokens of each vector; ``x`` is (N·T, c) (Eq. 10, 11)."""
        T, heads, c = self.tokens, self.heads, x.shape[1]
        if T == 1:
            alone: Array = x @ w["alone.weight"].T + w["alone.bias"]
            return alone
        qkv = (x @ w["attention.qkv.weight"].T + w["attention.qkv.bias"]).reshape(-1, T, 3, heads, c // heads)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(c // heads, dtype=x.dtype)
        # Softmax with the maximum subtracted, so that exp cannot overflow.
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(-1, c)
        projected: Array = mixed @ w["attention.out.weight"].T + w["attention.out.bias"]
        return projected

    def _weights(self, branch: str, dtype: Any) -> Mapping[str, Array]:
        """Return the arrays of a branch in ``dtype``; for T = 1 value and output merge into one map."""
        key = (branch, np.dtype(dtype).char)
        if key not in self._cast:
            start = branch + "."
            own = {name.removeprefix(start): array for name, array in self.arrays.items() if name.startswith(start)}
            if self.tokens == 1:
                n = self.dimension
                # qkv stacks query, key and value; rows from 2n on are the value. float64: one rounding, at the cast.
                out = own["attention.out.weight"].astype(np.float64)
                own["alone.weight"] = out @ own["attention.qkv.weight"][2 * n :]
                own["alone.bias"] = out @ own["attention.qkv.bias"][2 * n :] + own["attention.out.bias"]
            # Threads that race here store equal arrays.
            self._cast[key] = {name: array.astype(dtype, copy=False) for name, array in own.items()}
        return self._cast[key]

    def to_arrays(self) -> dict[str, Array]:
        return {f"policy.{name}": array for name, array in self.arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], dimension: int, tokens: Any, heads: Any) -> Self:
        """Return the policy of a protector file; the ValueError names an invalid part."""
        start = "policy."
        own = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        return cls(dimension, tokens, heads, own)


def _layer_norm_inplace(x: Array, w: Mapping[str, Array], name: str) -> None:
    """Normalise ``x`` over the last axis, times weight, plus bias (Eq. 12, 14)."""
    x -= x.mean(axis=-1, keepdims=True)
    # einsum sums the squares without an array of them.
    variance = np.einsum("ij,ij->i", x, x)[:, None] / x.dtype.type(x.shape[-1])
    x /= np.sqrt(variance + x.dtype.type(_EPSILON))
    x *= w[f"{name}.weight"]
    x += w[f"{name}.bias"]


def _gelu_inplace(x: Array) -> None:
    """Replace ``x`` by x Φ(x), Φ the standard normal distribution (Hendrycks & Gimpel 2016)."""
    if x.dtype == np.float32:
        phi = _erf32(x)
    else:
        from scipy.special import erf

        phi = erf(x * 0.5**0.5)
    phi += 1
    phi *= x.dtype.type(0.5)
    x *= phi


# Coefficients p and a5 to a1 of Abramowitz & Stegun 7.1.26, in Horner order.
_P = np.float32(0.3275911)
_A = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32)


def _erf32(x: Array) -> Array:
    """Return erf(x/√2) in float32 to 5·10⁻⁷ by Abramowitz & Stegun 7.1.26, several times faster than SciPy."""
    size = np.abs(x)
    size *= np.float32(0.5**0.5)
    t = size * _P
    t += np.float32(1)
    np.reciprocal(t, out=t)
    series: Array = t * _A[0]
    for a in _A[1:]:
        series += a
        series *= t
    np.square(size, out=size)
    np.negative(size, out=size)
    np.exp(size, out=size)
    series *= size
    np.subtract(np.float32(1), series, out=series)
    np.copysign(series, x, out=series)
    return series
