"""The privacy loss of one pair of inputs, with three equivalent views of it.

P and Q are the distributions of the output for the two inputs, L = log(dP/dQ) under P their privacy
loss. All pairs here are symmetric: a reflection of the space swaps the inputs and keeps the noise, so
P and Q are interchangeable.

- The privacy profile is δ(ε) = P(S) − e^ε Q(S) at the worst event S = E[(1 − e^(ε − L))₊]
  (Balle & Wang 2018, Theorem 5); δ(0) is the total variation, the largest advantage of any attacker.
- The trade-off function β(α) is the smallest type II error of a test whose type I error is at most α
  (Dong, Roth & Su 2022, Definition 2.1).
- μ of Gaussian differential privacy (ibid., Definition 2.6): the pair is at least as hard to tell
  apart as N(0, 1) and N(μ, 1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, overload

import numpy as np

from vecveil.accounting.quadrature import Array
from vecveil.errors import InvalidInputError
from vecveil.types import Vector
from vecveil.validation import check_numbers, check_probability

_SECTIONS = np.linspace(0.0, 1.0, 34)


class PrivacyLoss(ABC):
    """The privacy loss of one pair of inputs, or a proved bound on it (`exact` says which)."""

    exact: bool = True
    """True: the loss itself, up to rounding. False: a proved upper bound."""
    _PARAMETERS: ClassVar[tuple[str, ...]]
    """Names of the parameters in records; each is an attribute with a leading underscore."""

    @property
    @abstractmethod
    def worst_case(self) -> float:
        """The largest possible loss, pure ε-DP of this pair; infinite for Gaussian noise."""

    @property
    @abstractmethod
    def gaussian_mu(self) -> float:
        """The smallest known μ for which this pair is μ-GDP: never below the true μ."""

    @property
    def total_variation(self) -> float:
        """δ(0), the largest advantage of any attacker: 0 is indistinguishable, 1 is certainty."""
        return self.delta(epsilon=0.0)

    @overload
    def delta(self, *, epsilon: float) -> float: ...
    @overload
    def delta(self, *, epsilon: Vector) -> Vector: ...
    def delta(self, *, epsilon: float | Vector) -> float | Vector:
        """Return δ(ε), with full relative accuracy for small δ; δ(−ε) = 1 − e^(−ε) + e^(−ε) δ(ε) by symmetry."""
        eps = _numbers(epsilon, type(self).__name__, "epsilon", "finite numbers", -math.inf)
        size = np.abs(eps)
        value = np.exp(self._log_delta(size.ravel())).reshape(size.shape)
        # expm1 keeps the digits of 1 − e^(−ε) for ε near 0.
        with np.errstate(under="ignore"):
            value = np.where(eps < 0, -np.expm1(-size) + np.exp(-size) * value, value)
        return _like(np.clip(value, 0.0, 1.0), epsilon)

    def epsilon(self, *, delta: float) -> float:
        """Return the smallest ε ≥ 0 with δ(ε) ≤ delta: 0 if delta is at least the total variation.

        Rounded up, by at most 1e-15 of the largest candidate, so the guarantee stays true.
        """
        target = check_probability(delta, owner=type(self).__name__, param="delta")
        # δ = 0 is pure DP: no search could find the point where a positive δ vanishes.
        if target == 0:
            return self.worst_case
        level = math.log(target)
        if self._log_delta(np.zeros(1))[0] <= level:
            return 0.0
        low, high = 0.0, min(self._largest_epsilon(target), self.worst_case)
        # Section search: evaluating 32 candidates costs little more than one.
        while high - low > 1e-15 * high:
            candidates = low + (high - low) * _SECTIONS
            inner = candidates[1:-1]
            passed = np.flatnonzero(self._log_delta(inner) <= level)
            first = int(passed[0]) + 1 if passed.size else inner.size + 1
            narrowed = float(candidates[first - 1]), float(candidates[first])
            if narrowed == (low, high):  # no float64 number lies between the ends
                break
            low, high = narrowed
        return high  # the upper end satisfies δ(high) ≤ delta; the lower one may not

    @overload
    def trade_off(self, alpha: float) -> float: ...
    @overload
    def trade_off(self, alpha: Vector) -> Vector: ...
    def trade_off(self, alpha: float | Vector) -> float | Vector:
        """Return β(α), the smallest type II error at type I error α in [0, 1]."""
        a = _numbers(alpha, type(self).__name__, "alpha", "numbers between 0 and 1", 0.0, 1.0)
        return _like(np.clip(self._trade_off(a.ravel()), 0.0, 1.0).reshape(a.shape), alpha)

    def to_record(self) -> dict[str, Any]:
        """Return parameters and headline figures as JSON-ready values (infinity as None)."""
        worst = self.worst_case
        return {
            "loss": type(self).__name__,
            **self._parameters(),
            "exact": self.exact,
            "total_variation": self.total_variation,
            "gaussian_mu": self.gaussian_mu,
            "worst_case": worst if math.isfinite(worst) else None,
        }

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}={value!r}" for key, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, f"_{name}") for name in self._PARAMETERS}

    @abstractmethod
    def _log_delta(self, epsilon: Array) -> Array:
        """Return log δ(ε) for ε ≥ 0, shape (N,); −∞ where δ is 0."""

    @abstractmethod
    def _trade_off(self, alpha: Array) -> Array:
        """Return β(α), shape (N,)."""

    def _largest_epsilon(self, delta: float) -> float:
        """Return an ε with δ(ε) ≤ ``delta``, for ``delta`` > 0; the search in `epsilon` starts here."""
        return self.worst_case


def _numbers(value: Any, owner: str, param: str, allowed: str, low: float, high: float = math.inf) -> Array:
    array = check_numbers(value, owner=owner, param=param)
    bad = (array < low) | (array > high)
    if bad.any():
        text = f"{owner}: `{param}` has {int(bad.sum())} values out of range; it takes {allowed}."
        raise InvalidInputError(text, code="E-INPUT-RANGE", param=param)
    return array


def _like(result: Array, given: float | Vector) -> float | Vector:
    return float(result) if np.ndim(given) == 0 else result
