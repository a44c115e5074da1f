"""A protector with more or less noise of the same kind behind the same map: for queries, and for curves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Mechanism, Purkayastha
from vecveil.validation import check_positive

if TYPE_CHECKING:
    from vecveil.protector.protector import Protector

__all__ = ["rescaled"]

_OWNER = "Protector.rescaled"


def rescaled(protector: Protector, factor: float) -> Protector:
    """Return ``protector`` with ``factor`` times the noise; see `Protector.rescaled`."""
    factor = check_positive(factor, owner=_OWNER, param="factor")
    mechanism = _mechanism(protector.mechanism, factor)
    if mechanism is None:
        raise InvalidInputError.of(_OWNER, "method", "one whose noise has a scale of its own",
                                   repr(protector.method), fix="Fit another protector.")  # fmt: skip
    linear = protector.map
    return replace(
        protector,
        mechanism=mechanism,
        map=None if linear is None else linear.coarser_than(mechanism.step),
        # What the fit measured holds for its own noise.
        report={"rescaled_by": factor, "fitted_as": protector.fingerprint},
    )


def _mechanism(old: Mechanism, factor: float) -> Mechanism | None:
    if type(old) is Laplace:
        return Laplace(old.dimension, old.epsilon / factor, old.splits)
    if type(old) is Mahalanobis:
        return Mahalanobis(old.shape, old.epsilon / factor, old.splits)
    if type(old) is LdpGaussian:  # σ grows a little slower than 1/ε
        return LdpGaussian(old.dimension, old.epsilon / factor, old.delta, old.splits)
    if type(old) is Gaussian:
        return Gaussian(old.shape, old.sigma * factor, old.splits)
    if type(old) is Purkayastha:
        return Purkayastha(old.dimension, old.epsilon / factor)
    return None
