"""Methods and the strength of their noise: scale, noise family, candidate, and the calibration to a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from vecveil.errors import CalibrationError, InvalidInputError, out_of_range, unknown_name
from vecveil.privacy.mechanisms import (
    NOTHING_BEFORE,
    OPEN_RANGE,
    Before,
    Laplace,
    Mahalanobis,
    Mechanism,
    ProjectedLaplace,
    Step,
    epsilon_of_rms_norm,
    rms_norm_of_epsilon,
)
from vecveil.privacy.mechanisms.textcrafter import check_radius
from vecveil.privacy.protector.data import Data
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.privacy.utility.sealed_search import SealedSearchTask
from vecveil.privacy.utility.tasks import UtilityTask
from vecveil.runtime import one_blas_thread
from vecveil.types import Embeddings
from vecveil.validation import check_positive, check_probability

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9
KINDS = ("epsilon", "sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage", "radius")


@dataclass(frozen=True)
class Scale:
    """Strength of the noise: one measure and its value.

    Attributes:
        kind: the keyword of `vecveil.fit` for this measure, such as ``epsilon`` or ``target_utility``.
        delta: δ of ``ldp-gaussian``, with ``epsilon``.
    """

    kind: str
    value: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.kind in ("epsilon", "sigma", "noise_to_signal"):
            check_positive(self.value, owner="fit", param=self.kind)
        elif self.kind == "radius":
            check_radius(self.value, owner="fit")
        elif self.kind in KINDS:
            check_probability(self.value, owner="fit", param=self.kind, open_interval=True)
        else:
            raise unknown_name("Scale", "kind", KINDS, self.kind)
        if self.delta is not None:
            check_probability(self.delta, owner="fit", param="delta", open_interval=True)

    @classmethod
    def of(
        cls, keywords: Mapping[str, Any], *, method: str, allowed: tuple[str, ...], takes_delta: bool
    ) -> Scale | None:
        """Return the one scale in ``keywords``, or None for a method without one; raise for any other number."""
        scales = [cls(kind, keywords[kind]) for kind in KINDS if keywords.get(kind) is not None]
        delta = keywords.get("delta")
        kinds = [each.kind for each in scales]
        if not allowed:
            if kinds or delta is not None:
                name = (kinds or ["delta"])[0]
                raise InvalidInputError(f"Method {method!r} adds no noise: leave out `{name}`.", param=name)
            return None
        if len(kinds) != 1:
            names = " or ".join(f"`{name}`" for name in allowed)
            start = ", for example target_utility=0.95" if "target_utility" in allowed else ""
            raise InvalidInputError(f"Method {method!r} needs exactly one of {names}{start}.", param=allowed[0])
        if kinds[0] not in allowed:
            names = " or ".join(allowed)
            raise InvalidInputError(f"Method {method!r} does not take `{kinds[0]}`; it takes {names}.", param=kinds[0])
        if takes_delta != (delta is not None):
            verb = "needs `delta` with `epsilon`" if takes_delta else "does not take `delta`"
            raise InvalidInputError(f"Method {method!r} {verb}.", param="delta")
        return cls(kinds[0], scales[0].value, delta)

    @property
    def utility_target(self) -> float | None:
        """Return the share of the clean utility to keep, or None for another measure."""
        return self.value if self.kind == "target_utility" else None

    def noise(self, rms_norm: float, dimension: int, family: NoiseFamily) -> float | None:
        """Return the noise-to-signal ratio, in [1e-9, 1e9], or None if a target needs a search."""
        if self.kind == "target_cosine":
            return family.cosine_ratio(self.value, dimension)
        if self.kind.startswith("target"):
            return None

        def ratio(value: float) -> float:
            return value if self.kind == "noise_to_signal" else family.ratio(value, rms_norm, dimension)

        value = float(self.value)
        with np.errstate(over="ignore"):  # an overflow is outside the range below
            noise = ratio(value)
        if not LEAST_RATIO <= noise <= MOST_RATIO:
            # The ratio is proportional to σ and r, and to 1/ε.
            unit = ratio(1.0)
            ends = sorted(unit / r if self.kind == "epsilon" else r / unit for r in (LEAST_RATIO, MOST_RATIO))
            if self.kind == "noise_to_signal":
                ends = [LEAST_RATIO, MOST_RATIO]
            raise out_of_range(
                "fit",
                self.kind,
                f"between {ends[0]:.3g} and {ends[1]:.3g} for these vectors",
                value,
                "Beyond that nothing is left of the vectors, or nothing of the noise.",
            )
        return noise

    def to_record(self) -> dict[str, float]:
        return {self.kind: self.value, **({} if self.delta is None else {"delta": self.delta})}


@dataclass(frozen=True, kw_only=True)
class NoiseFamily:
    """A noise law with one free scale, the noise-to-signal ratio.

    The ratio is the root mean square norm of the noise divided by the vectors'. (On the sphere it is that of Laplace
    noise at the same ε, the limit of the Purkayastha mechanism for large ε.)

    Attributes:
        mechanism: from a shape, a ratio, the root mean square norm of the vectors, and splits.
        ratio: from ε, σ or a radius, that norm, and n.
        cosine_ratio: from the mean cosine of clean and noisy vectors, and n. The default, √(1/c² − 1), is exact up to
            1/n for vectors of one norm and isotropic noise; a fit measures it.
        is_linear: noise at ratio r is r times the noise at ratio 1, so one draw serves every ratio.
        can_split: each normal variate of the noise can be a sum of several.
        of_epsilon: the mechanism from n, ε and splits, if the ratio does not determine ε.
    """

    mechanism: Callable[[NoiseShape, float, float, int], Mechanism]
    ratio: Callable[[float, float, int], float]
    cosine_ratio: Callable[[float, int], float] = lambda cosine, n: float(np.sqrt(1 / cosine**2 - 1))
    scales: tuple[str, ...] = ("epsilon", "noise_to_signal", "target_utility", "target_cosine", "target_advantage")
    is_linear: bool = True
    can_split: bool = False
    of_epsilon: Callable[[int, float, int], Mechanism] | None = None


def _elliptical_laplace(shape: NoiseShape, noise: float, rms_norm: float, splits: int) -> Mechanism:
    epsilon = epsilon_of_rms_norm(noise * rms_norm, shape.dimension)
    if shape.is_isotropic:
        return Laplace(shape.dimension, epsilon, splits)
    return Mahalanobis(shape, epsilon, splits)


ELLIPTICAL_LAPLACE = NoiseFamily(
    mechanism=_elliptical_laplace,
    ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, n) / rms_norm,
    can_split=True,
)
"""Density ∝ exp(−ε‖z‖_Σ): Laplace noise for Σ = I, else Mahalanobis noise."""


def projected_laplace(linear: LinearMap) -> NoiseFamily:
    """Return the family of Laplace noise in the dimensions that the map keeps.

    Its ratio is that of noise of the same deviation in all n dimensions: equal ratios are equal power behind the map.
    """
    basis = linear.row_space

    def ratio(epsilon: float, rms_norm: float, n: int) -> float:
        return float(np.sqrt(n * (basis.shape[1] + 1.0))) / (epsilon * rms_norm)

    return replace(
        ELLIPTICAL_LAPLACE,
        # The ratio is proportional to 1/ε, so it inverts itself.
        mechanism=lambda shape, noise, rms_norm, splits: ProjectedLaplace(
            basis, ratio(noise, rms_norm, shape.dimension), splits
        ),
        ratio=ratio,
    )


def no_map(noise: float) -> LinearMap | None:
    return None


@dataclass(frozen=True, eq=False)
class Candidate:
    """Family, shape and map of one parameter setting, before its noise is known.

    Attributes:
        map_of: the map T at a noise-to-signal ratio; only a Wiener filter depends on it.
        parameters: the method's options as chosen; `refit` uses them again.
        fixed_map: True if ``map_of`` ignores its argument.
        mechanism: of a method with a fixed scale; None takes the family's.
        findings: entries for the report of the fit; ``warnings`` is a list.
    """

    shape: NoiseShape
    map_of: Callable[[float], LinearMap | None] = no_map
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fixed_map: bool = True
    family: NoiseFamily = ELLIPTICAL_LAPLACE
    before: Before = NOTHING_BEFORE
    after: tuple[Step, ...] = ()
    mechanism: Mechanism | None = None
    findings: Mapping[str, Any] = field(default_factory=dict)

    def mechanism_at(self, noise: float, rms_norm: float, scale: Scale | None, splits: int = 1) -> Mechanism:
        """Return the mechanism at a noise-to-signal ratio, which ``scale`` determined."""
        if self.mechanism is not None:
            return self.mechanism
        if self.family.of_epsilon is not None:
            assert scale is not None
            return self.family.of_epsilon(self.shape.dimension, scale.value, splits)
        return self.family.mechanism(self.shape, noise, rms_norm, splits)


@dataclass(frozen=True, eq=False, repr=False)
class Aim:
    """Target of a method's search: the ``task`` of a utility target, and the step ``before`` the noise."""

    task: UtilityTask
    scale: Scale | None
    before: Before
    seed: int
    show_progress: bool | None

    @property
    def utility_target(self) -> float | None:
        return None if self.scale is None else self.scale.utility_target


@dataclass(frozen=True)
class NoOptions:
    """Options of a method that takes none."""


@dataclass(frozen=True)
class Method:
    """A method: its name, summary and builder.

    Attributes:
        build: makes a candidate from the data of a fit, the method's options, and the aim of the search.
        option_type: frozen dataclass that checks its options; `fit` takes its fields as keywords.
        kind: basis of its protection: ``formal`` (proof), ``empirical`` (measurements), ``obfuscation`` (neither).
        metric: distance of its guarantee.
        postprocess: its default post-processing of noisy vectors.
        without_map: the method that remains when another map replaces its ``own map``.
        family: its noise law, as a function of δ or None.
        delta: True if it takes δ with ε.
        revision: increased when the fit changes, so that experiments measure it again.
        before: its default preprocessing.
        labels: True if it can learn from labels without pairs.
        no_refit: why it cannot be fitted again on other words; empty if it can.
    """

    name: str
    summary: str
    build: Callable[[Data, Any, Aim], Candidate]
    option_type: type[Any] = NoOptions
    postprocess: Literal["none", "wiener", "own map"] = "none"
    without_map: str | None = None
    kind: Literal["formal", "empirical", "obfuscation"] = "formal"
    metric: str = "Euclidean"
    family: Callable[[float | None], NoiseFamily] = lambda _: ELLIPTICAL_LAPLACE
    delta: bool = False
    revision: int = 1
    before: str = "none"
    labels: bool = True
    no_refit: str = ""

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the names of its scales, exactly one of which a caller sets."""
        # Any δ: the names do not depend on it.
        return self.family(0.5).scales

    @property
    def options(self) -> tuple[str, ...]:
        return option_names(self.option_type)


def option_names(option_type: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(option_type) if each.init)


def options_of(method: Any, given: Mapping[str, Any]) -> Any:
    """Return the options object of a method from keywords; raise InvalidInputError for a name that it does not have."""
    known = method.options
    if unknown := sorted(set(given) - set(known)):
        listed = f"has the options {', '.join(known)}" if known else "has no options"
        raise InvalidInputError(f"Unknown option `{unknown[0]}`: method {method.name!r} {listed}.", param=unknown[0])
    return method.option_type(**given)


def isotropic(data: Data, options: Any, aim: Aim) -> Candidate:
    """Return the candidate of a method that learns nothing: Σ = I, no map."""
    return Candidate(NoiseShape.isotropic(data.dimension))


SMALLEST_NOISE = 0.02
"""Minimum noise-to-signal ratio of a calibration: less noise protects nothing."""
LARGEST_NOISE = 100.0
SMALL = 1024
"""Maximum dimension for which a search is faster on one BLAS thread."""
ADVANTAGE_QUANTILE = 0.95
COSINE_ROWS = 2000


class CommonDraws:
    """Releases of one candidate at any noise level from the same cached draws, so utility is smooth in the level."""

    def __init__(self, candidate: Candidate, rms_norm: float, seed: int, *, reduced: bool = True) -> None:
        self.candidate = candidate
        self.reduced = reduced and not candidate.after
        self.rms_norm = rms_norm
        self.seed = seed
        self._cache: dict[int, tuple[Embeddings, Embeddings, Embeddings | None, int]] = {}

    def at(self, noise: float) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
        candidate = self.candidate
        linear = candidate.map_of(noise)

        def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            _, x, z, place = self._parts(X, linear)
            if rng is None:
                y = x if candidate.family.is_linear else self._mechanism(noise).without_noise(x)
            elif z is not None:
                y = x + np.float32(noise) * z
            else:
                y = self._draw(x, noise, place)
            # T(x + rz) = Tx + rTz: a fixed map of linear noise is in x and z already.
            if linear is not None and not (candidate.fixed_map and candidate.family.is_linear):
                y = linear.apply(y, reduced=self.reduced)
            for step in candidate.after:
                if step.value == OPEN_RANGE:  # the fit sets the range once the noise is known
                    step = Step("int8", float(np.quantile(np.abs(y), 0.9999)) or 1.0)
                y = step.apply(y)
            return y

        return release

    def _parts(self, X: Embeddings, linear: LinearMap | None) -> tuple[Embeddings, Embeddings, Embeddings | None, int]:
        """Return ``X``, its rows and unit noise (both after a fixed map), and the number of its draw."""
        candidate, key = self.candidate, id(X)  # the entry contains X, so no other array gets its id
        if key not in self._cache:
            place = len(self._cache)
            rows = candidate.before.apply(np.asarray(X, dtype=np.float32), owner="fit")
            linear_family = candidate.family.is_linear
            z = self._draw(np.zeros_like(rows), 1.0, place) if linear_family else None
            if candidate.fixed_map and linear is not None and z is not None:
                rows = linear.apply(rows, reduced=self.reduced)
                z = linear.apply(z, reduced=self.reduced)
            self._cache[key] = (X, rows, z, place)
        return self._cache[key]

    def _mechanism(self, noise: float) -> Mechanism:
        return self.candidate.family.mechanism(self.candidate.shape, noise, self.rms_norm, 1)

    def _draw(self, X: Embeddings, noise: float, place: int) -> Embeddings:
        return self._mechanism(noise).protect(X, rng=np.random.default_rng([self.seed, place]))


def calibrate(
    candidate: Candidate, scale: Scale, data: Data, task: UtilityTask, own: Embeddings, *, seed: int, draws: int = 1
) -> float:
    """Return the noise-to-signal ratio of ``candidate`` that meets the target ``scale``.

    ``data`` has passed the step before the noise; ``own`` embeddings are for a target cosine. The mean utility of
    ``draws`` of the noise meets a target. An unreachable one raises `CalibrationError` with the best figure.
    """
    rms_norm = data.moments.rms_norm
    if scale.kind == "target_cosine":
        if candidate.family.cosine_ratio is NoiseFamily.cosine_ratio:
            return _noise_of_cosine(candidate, scale.value, rms_norm, own, seed)
        return candidate.family.cosine_ratio(scale.value, candidate.shape.dimension)
    if scale.kind == "target_advantage":
        return noise_of_advantage(candidate, scale.value, rms_norm, data.sides(scale.kind, scale.value))
    reduced = not task.same_space
    several = [CommonDraws(candidate, rms_norm, seed + i, reduced=reduced) for i in range(draws)]
    rng = np.random.default_rng(seed)

    def utility(noise: float) -> float:
        return float(np.mean([task.relative(each.at(noise), rng) for each in several]))

    with blas_threads(candidate.shape.dimension):
        noise = largest_noise(utility, scale.value)
    if noise is None and draws > 1:
        # A search tries settings on one draw; a setting that meets the target on it by a hair counts.
        return calibrate(candidate, scale, data, task, own, seed=seed)
    if noise is None:
        raise refuse_target(scale.value, utility(SMALLEST_NOISE), task)
    return noise


def _noise_of_cosine(candidate: Candidate, target: float, rms_norm: float, own: Embeddings, seed: int) -> float:
    """Return the noise at which vectors and noisy vectors, before any map, have this mean cosine.

    Noise in the kept dimensions alone counts as noise of the same deviation in all of them.
    """
    plain = replace(candidate, map_of=no_map, fixed_map=True, after=())
    if isinstance(candidate.mechanism_at(1.0, rms_norm, None), ProjectedLaplace):
        plain = replace(plain, family=ELLIPTICAL_LAPLACE)
    draws = CommonDraws(plain, rms_norm, seed)
    rows = own[:COSINE_ROWS]
    rng = np.random.default_rng(seed)

    def cosine(noise: float) -> float:
        x, y = draws.at(noise)(rows, None), draws.at(noise)(rows, rng)
        norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        return float(np.mean(np.einsum("ij,ij->i", x, y) / np.maximum(norms, 1e-30)))

    noise = bisect(lambda ratio: cosine(ratio) >= target)
    if noise is None:
        raise CalibrationError(
            f"`target_cosine` {target:g} is out of reach: at most {cosine(SMALLEST_NOISE):.4f} here, because less "
            "noise protects nothing. Lower the target.",
            param="target_cosine",
        )
    return noise


def noise_of_advantage(
    candidate: Candidate, target: float, rms_norm: float, pairs: tuple[Embeddings, Embeddings]
) -> float:
    """Return the least noise at which the largest advantage is at most ``target`` for 95 % of the pairs."""
    positive, negative = pairs

    def advantage(noise: float) -> float:
        mechanism = candidate.family.mechanism(candidate.shape, noise, rms_norm, 1)
        linear = candidate.map_of(noise)
        down = None if linear is None else linear.down
        distances = mechanism.distances(positive, negative, down=down)
        # The advantage grows with the distance, so the quantile of the distances gives its quantile: one evaluation.
        return float(mechanism.advantage(np.quantile(distances, [ADVANTAGE_QUANTILE]))[0])

    exceeded = bisect(lambda noise: advantage(noise) > target)
    if exceeded is None:
        return SMALLEST_NOISE  # the least noise meets the target
    if exceeded >= LARGEST_NOISE:
        raise CalibrationError(
            f"`target_advantage` {target:g} is out of reach: at least {advantage(LARGEST_NOISE):.3g} here, because "
            "more noise leaves nothing of the vectors. Raise the target.",
            param="target_advantage",
        )
    return exceeded * 1.002  # bisection stops up to 0.2 % below the root


def bisect(holds: Callable[[float], bool]) -> float | None:
    """Return the largest noise-to-signal ratio from `SMALLEST_NOISE` to `LARGEST_NOISE` at which ``holds``, or None.

    Calls of ``holds`` should share their draws, or bisection follows the sampling error.
    """
    low, high = SMALLEST_NOISE, LARGEST_NOISE
    if not holds(low):
        return None
    if holds(high):
        return high
    while high / low >= 1.002:
        # Geometric mean: the range spans almost four decades.
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def blas_threads(n: int) -> AbstractContextManager[Any]:
    # Small products take longer with several BLAS threads, several times so on a busy machine.
    return one_blas_thread() if n <= SMALL else nullcontext()


def largest_noise(utility: Callable[[float], float], target: float) -> float | None:
    """Return the largest noise-to-signal ratio whose utility is at least ``target``, or None."""
    return bisect(lambda noise: utility(noise) >= target)


def refuse_target(target: float, reachable: float, task: UtilityTask) -> CalibrationError:
    # Rounded down, so that a fit with the figure of the message succeeds.
    lower = math.floor(max(reachable, 0.0) * 1000) / 1000
    why = (
        f"`target_utility` {target:g} is out of reach: at most {lower:.3f} here, with the least noise that is tried "
        f"(noise-to-signal {SMALLEST_NOISE:g})."
    )
    fix = "Lower the target, erase fewer directions, or choose another method or utility."
    if task.key == SealedSearchTask.key:
        fix = "Lower the target, raise `candidates`, or choose another method."
    else:
        fix += (
            " For search, utility='sealed-search' (--utility sealed-search) ranks candidates exactly: it takes "
            "candidates=N (--candidates N) and collection_size=M (--collection-size M)."
        )
    return CalibrationError(f"{why} {fix}", param="target_utility")
