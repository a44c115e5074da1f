"""Finds the noise of a candidate: as given, or from a target of utility or of the largest advantage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.metrics import UtilityTask
from vecveil.protector.candidate import Candidate, CommonDraws
from vecveil.protector.scale import (
    LARGEST_NOISE,
    SMALLEST_NOISE,
    Scale,
    bisect,
    largest_noise,
    refuse_target,
)
from vecveil.sensitivity.moments import Moments
from vecveil.types import Embeddings

__all__ = ["candidate_noise", "noise_of_advantage"]

QUANTILE = 0.95
_COSINE_ROWS = 2000


def candidate_noise(
    candidate: Candidate,
    scale: Scale,
    moments: Moments,
    task: UtilityTask,
    pairs: tuple[Embeddings, Embeddings] | None,
    own: Embeddings,
    *,
    seed: int,
    method: str,
) -> float:
    """Return the noise-to-signal ratio of ``candidate``.

    Args:
        pairs: embeddings with and without the concept, as they are before the noise; None where there are none.
        own: the user's embeddings, for a target cosine.

    Raises:
        CalibrationError: a target is out of reach; says what is within it.
    """
    n = moments.K.shape[0]
    if not candidate.family.scales:
        return 0.0
    if scale.target_cosine is not None and candidate.family.is_linear:
        return _noise_of_cosine(candidate, scale.target_cosine, moments.rms_norm, own, seed)
    fixed = scale.noise(moments.rms_norm, n, candidate.family)
    if fixed is not None:
        return fixed
    if scale.target_advantage is not None:
        assert pairs is not None  # refused where there are none
        return noise_of_advantage(candidate, scale.target_advantage, moments.rms_norm, pairs)
    assert scale.target_utility is not None
    draws = CommonDraws(candidate, moments.rms_norm, seed, reduced=not task.same_space)
    rng = np.random.default_rng(seed)

    def utility(noise: float) -> float:
        return task.relative(draws.at(noise), rng)

    noise = largest_noise(utility, scale.target_utility)
    if noise is None:
        raise refuse_target(scale.target_utility, utility(SMALLEST_NOISE), f"Method {method!r}")
    return noise


def _noise_of_cosine(
    candidate: Candidate, target: float, rms_norm: float, own: Embeddings, seed: int
) -> float:
    """Return the noise at which these vectors and their noisy selves, before any map, have that mean cosine."""
    plain = replace(candidate, map_of=lambda _: None, fixed_map=True, after=())
    draws = CommonDraws(plain, rms_norm, seed)
    rows = own[:_COSINE_ROWS]
    rng = np.random.default_rng(seed)

    def cosine(noise: float) -> float:
        x, y = draws.at(noise)(rows, None), draws.at(noise)(rows, rng)
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        return float(np.mean(np.einsum("ij,ij->i", x, y) / np.maximum(lengths, 1e-30)))

    noise = bisect(lambda ratio: cosine(ratio) >= target)
    if noise is None:
        raise CalibrationError.of("fit", "target_cosine", f"at most {cosine(SMALLEST_NOISE):.4f} here", target,
                                  "Less noise than that protects nothing.", "Lower the target.")  # fmt: skip
    return noise


def noise_of_advantage(
    candidate: Candidate, target: float, rms_norm: float, pairs: tuple[Embeddings, Embeddings]
) -> float:
    """Return the least noise at which the largest advantage is at most ``target`` for 95 % of the pairs."""
    positive, negative = pairs

    def advantage(noise: float) -> float:
        mechanism = candidate.family.mechanism(candidate.shape, noise, rms_norm)
        linear = candidate.map_of(noise)
        down = None if linear is None else linear.down
        distances = mechanism.distances(positive, negative, down=down)
        return float(mechanism.advantage(np.quantile(distances, [QUANTILE]))[0])

    exceeded = bisect(lambda noise: advantage(noise) > target)
    if exceeded is None:
        return SMALLEST_NOISE  # even the least noise that is tried keeps it
    if exceeded >= LARGEST_NOISE:
        raise CalibrationError.of("fit", "target_advantage", f"at least {advantage(LARGEST_NOISE):.3g} here",
                                  target, "No noise that leaves anything of the vectors goes below.",
                                  "Raise the target.")  # fmt: skip
    return exceeded * 1.002  # bisection stops within .2 % below
