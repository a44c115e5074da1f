"""Calibration: search the noise-to-signal ratio that meets a target of utility, cosine or advantage."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.mechanisms import OPEN_RANGE, Step
from vecveil.metrics import SealedSearchTask, UtilityTask
from vecveil.protector.data import Data
from vecveil.protector.method import Candidate
from vecveil.protector.scale import Scale
from vecveil.runtime import one_blas_thread
from vecveil.sensitivity.shapes import LinearMap
from vecveil.types import Embeddings

SMALLEST_NOISE = 0.02
"""Least noise-to-signal ratio of a calibration: noise below it protects nothing."""
LARGEST_NOISE = 100.0
SMALL = 1024
"""Largest dimension for which a search is quicker on one BLAS thread."""
ADVANTAGE_QUANTILE = 0.95
COSINE_ROWS = 2000


class CommonDraws:
    """Releases of one candidate at any noise level from the same draws, so utility is smooth in the level.

    For a linear family T x and T z are cached per array: a further level costs one addition.
    """

    def __init__(self, candidate: Candidate, rms_norm: float, seed: int, *, reduced: bool = True) -> None:
        self.candidate = candidate
        self.reduced = reduced and not candidate.after
        self.rms_norm = rms_norm
        self.seed = seed
        self._cache: dict[int, tuple[Embeddings, Embeddings, Embeddings | None, int]] = {}

    def at(self, noise: float) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
        """Return the release at a noise-to-signal ratio."""
        candidate = self.candidate
        linear = candidate.map_of(noise)

        def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            _, x, z, place = self._parts(X, linear)
            if rng is None:
                y = x
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
        candidate, key = self.candidate, id(X)  # the entry holds X, so no other array gets its id
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

    def _draw(self, X: Embeddings, noise: float, place: int) -> Embeddings:
        mechanism = self.candidate.family.mechanism(self.candidate.shape, noise, self.rms_norm, 1)
        return mechanism.protect(X, rng=np.random.default_rng([self.seed, place]))


def calibrate(
    candidate: Candidate, scale: Scale, data: Data, task: UtilityTask, own: Embeddings, *, seed: int, draws: int = 1
) -> float:
    """Return the noise-to-signal ratio of ``candidate`` that meets the target ``scale``.

    Args:
        data: of the fit, after the step before the noise.
        own: the user's embeddings, for a target cosine.
        draws: number of draws of the noise; their mean utility meets a target.

    Raises:
        CalibrationError: no noise reaches the target; the message names the best figure.
    """
    rms_norm = data.moments.rms_norm
    if scale.kind == "target_cosine":
        if candidate.family.is_linear:
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
        # A search tries settings on one draw: where that draw meets the target by a hair, it counts.
        return calibrate(candidate, scale, data, task, own, seed=seed)
    if noise is None:
        raise refuse_target(scale.value, utility(SMALLEST_NOISE), task)
    return noise


def _noise_of_cosine(candidate: Candidate, target: float, rms_norm: float, own: Embeddings, seed: int) -> float:
    """Return the noise at which vectors and noisy vectors, before any map, have this mean cosine."""
    plain = replace(candidate, map_of=lambda _: None, fixed_map=True, after=())
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
        # The advantage grows with the distance, so its quantile is that of the distances: one evaluation.
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

    Args:
        holds: true up to some ratio and false above it. Calls should share their draws, or bisection follows
            the sampling error.
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
    """Return the context of a search on vectors of dimension ``n``."""
    # Small products take longer with several BLAS threads, several times so on a busy machine.
    return one_blas_thread() if n <= SMALL else nullcontext()


def largest_noise(utility: Callable[[float], float], target: float) -> float | None:
    """Return the largest noise-to-signal ratio whose utility is at least ``target``, or None."""
    return bisect(lambda noise: utility(noise) >= target)


def refuse_target(target: float, reachable: float, task: UtilityTask) -> CalibrationError:
    """Return the error for a target utility out of reach."""
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
