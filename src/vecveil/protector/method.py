"""Building blocks of methods: what a method is, what it is given, and the candidate that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import NOTHING_BEFORE, Before, Mechanism, Step
from vecveil.metrics import UtilityTask
from vecveil.protector.data import Data
from vecveil.protector.scale import ELLIPTICAL_LAPLACE, NoiseFamily, Scale
from vecveil.sensitivity.shapes import LinearMap, NoiseShape


def no_map(noise: float) -> LinearMap | None:
    return None


@dataclass(frozen=True, eq=False)
class Candidate:
    """Family, shape and map of one parameter setting, before its noise is known.

    Attributes:
        map_of: the map T at a noise-to-signal ratio; only a Wiener filter depends on it.
        parameters: the method's options as they were chosen; `vecveil.protector.fitting.refit` fits with them again.
        fixed_map: True if ``map_of`` ignores its argument.
        before, after: steps around noise and map.
        mechanism: of a method with a fixed scale; None takes that of the family.
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
        """Return the mechanism at a noise-to-signal ratio, which ``scale`` gave."""
        if self.mechanism is not None:
            return self.mechanism
        if self.family.of_epsilon is not None:
            assert scale is not None
            return self.family.of_epsilon(self.shape.dimension, scale.value, splits)
        return self.family.mechanism(self.shape, noise, rms_norm, splits)


@dataclass(frozen=True, eq=False, repr=False)
class Aim:
    """Target of a method's search.

    Attributes:
        task: the utility that a target of utility means.
        before: the step before the noise, which the data has passed.
    """

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
        option_type: frozen dataclass of its options, which checks them; `fit` takes its fields as keywords.
        kind: basis of its protection: ``formal`` (proof), ``empirical`` (measurements), ``obfuscation`` (neither).
        metric: distance of its guarantee.
        postprocess: its default post-processing of noisy vectors.
        without_map: the method that remains when another map replaces its ``own map``.
        family: law of its noise, as a function of δ or None.
        delta: True if it takes δ with ε.
        revision: raised when the fit changes, so that experiments measure it again.
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
        """Return the names of its options."""
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
