"""The defences of the table: methods, options and training data, as ``defences.yaml`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from research.records import only_one
from research.specification import load_beside
from research.textcrafter.data import Array, PairedTexts
from vecveil.errors import VecveilError
from vecveil.privacy.protector import fit_pairs
from vecveil.privacy.protector import load as load_protector
from vecveil.privacy.textcrafter import nearest, plain_centroids

Protect = Callable[[Array, np.random.Generator], Array]


@dataclass(frozen=True)
class Defence:
    """One row of the table.

    Attributes:
        method: of `vecveil.fit_pairs`, or one of `MADE_HERE`.
        options: of the method; the strings ``"radius"``, ``"radius/√n"``, its half and its double represent numbers.
        learns: ``set`` fits on the training rows of the set and its concept; ``pii`` on the PII corpus and WikiText-2,
            once for each seed.
        main: the defence is in the paper's table, or its readings are judged against it; it has all seeds.
    """

    title: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    learns: str = "set"
    main: bool = False

    def options_at(self, radius: float, dimension: int) -> dict[str, Any]:
        """Return the options with the numbers for r and n."""
        share = radius / float(np.sqrt(dimension))
        values = {"radius": radius, "0.5 radius/√n": share / 2, "radius/√n": share, "2 radius/√n": 2 * share}
        return {
            name: values.get(value, value) if isinstance(value, str) else value for name, value in self.options.items()
        }


_FIXED = (1 << 20) + 5  # of the stream for a fixed direction
DEFENCES = {name: Defence(**about) for name, about in load_beside(__file__, "defences.yaml").items()}
MADE_HERE = ("none", "orthogonal", "orthogonal-fixed", "pull")
PULL = 0.6  # the share of the step that goes to the centre


@dataclass(frozen=True, eq=False, repr=False)
class Applied:
    """A defence ready for use.

    Attributes:
        protect: ``protect(X, rng)`` returns released vectors, with fresh noise.
        covariance: of the released noise, where the method declares one.
        adaptive: whether an attacker gains by drawing releases.
        details: scales and fitting times for the record.
        classifier: (n + 1,) weights and intercept of the PII classifier of a policy's reward, or None.
    """

    protect: Protect
    covariance: Array | None
    adaptive: bool
    details: dict[str, Any]
    protector: Any = None
    classifier: Array | None = None

    def oracle(self) -> dict[str, Any]:
        """Return the attackers' knowledge: the release oracle, and the noise covariance."""
        if not self.adaptive:
            return {"release": None, "noise_covariance": None}
        return {"release": self.protect, "noise_covariance": self.covariance}


def make(defence: Defence, material: PairedTexts, radius: float, seed: int) -> Applied:
    n = material.positive.shape[1]
    if defence.method == "none":
        return Applied(lambda X, rng: X, None, False, {})
    if defence.method in MADE_HERE:
        radius = float(defence.options.get("radius", radius))
        details = {"noise_norm": radius, "radius": radius}
        if defence.method == "pull":
            centres = plain_centroids(np.concatenate([material.negative, material.background]), seed=seed)
            return Applied(lambda X, rng: _pull(X, centres, radius, rng), None, True, details)
        fixed: Array | None = None
        if defence.method == "orthogonal-fixed":
            fixed = np.random.default_rng([_FIXED, seed]).standard_normal((n,))
        return Applied(lambda X, rng: _orthogonal(X, fixed, radius, rng), None, True, details)
    options = defence.options_at(radius, n)
    if material.further is not None and defence.method.startswith("textcrafter"):
        options["further_positive"] = material.further
    protector = fit_pairs(
        material.positive,
        material.negative,
        material.labels,
        material.background,
        method=defence.method,
        groups=material.groups,
        seed=seed,
        show_progress=False,
        **options,
    )
    return applied(protector)


def applied(protector: Any) -> Applied:
    """Return a fitted or loaded protector as a defence."""
    try:
        covariance = protector.released_noise_covariance()
    except (VecveilError, NotImplementedError, AttributeError):
        covariance = None  # a perturbation whose law depends on the vector declares none
    report = protector.report
    details = {
        key: report[key]
        for key in ("epsilon", "delta", "sigma", "radius", "noise_to_signal", "seconds")
        if isinstance(report.get(key), int | float)
    }
    classifier = getattr(protector.mechanism, "classifier", None)
    return Applied(protector.protect, covariance, True, details, protector, classifier)


def load(path: Path) -> Applied:
    return applied(load_protector(path))


def noise_norm(defence: Applied, X: Array, rng: np.random.Generator) -> float:
    """Return the root mean square distance of a release from its vector, on ``X`` (N, n)."""
    difference = defence.protect(X, rng).astype(np.float64) - X
    return float(np.sqrt((difference**2).sum(axis=1).mean()))


def _pull(X: Array, centres: Array, radius: float, rng: np.random.Generator) -> Array:
    """Return e + r (a u + √(1 − a²) z), u to the nearest centre and z random, both of norm 1, at norm r."""
    towards, noise = centres[nearest(X, centres)] - X, rng.standard_normal(X.shape)
    u, z = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (towards, noise))
    step = PULL * u + np.sqrt(1 - PULL**2) * z
    step *= radius / np.linalg.norm(step, axis=1, keepdims=True)
    released: Array = (X + step).astype(X.dtype)
    return released


def _orthogonal(X: Array, fixed: Array | None, radius: float, rng: np.random.Generator) -> Array:
    """Return e + r u, u uniform on the unit vectors orthogonal to ``fixed`` (n,), or to e itself."""
    drawn = rng.standard_normal(X.shape)
    axes = X if fixed is None else fixed[None]
    units = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    drawn -= (drawn * units).sum(axis=1, keepdims=True) * units
    drawn *= radius / np.linalg.norm(drawn, axis=1, keepdims=True)
    released: Array = (X + drawn).astype(X.dtype)
    return released


def kept_policy(path: Path, train: Callable[[], Applied]) -> Applied:
    """Return the policy in a file, after training and saving it if needed; one process trains, others wait."""
    with only_one(path):
        if not path.exists():
            train().protector.save(path)
    return load(path)
