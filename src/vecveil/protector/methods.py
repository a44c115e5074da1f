"""The methods by name: how each turns pairs, labels and ordinary texts into a noise shape and a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.mechanisms import NOTHING_BEFORE, Before
from vecveil.metrics import UtilityTask
from vecveil.protector.candidate import Candidate
from vecveil.protector.closed_shapes import covariance_candidate
from vecveil.protector.families import (
    EllipticalLaplace,
    Family,
    GaussianNoise,
    LdpNoise,
    LearntPerturbation,
    NoNoise,
    Sphere,
)
from vecveil.protector.scale import Scale
from vecveil.protector.sparse_method import SPARSE_OPTIONS, sparse_candidate
from vecveil.protector.subspace_method import subspace_candidate
from vecveil.protector.text_methods import TEXT_METHODS
from vecveil.protector.textcrafter_method import (
    TEXTCRAFTER_OPTIONS,
    textcrafter_candidate,
    textcrafter_subspace_candidate,
)
from vecveil.protector.whitebox import whitebox_candidate
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.sensitivity.transplant import transplanted_moments
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = ["METHODS", "FitData", "Method", "method_named", "register_method"]

Postprocess = Literal["none", "wiener", "own map"]


@dataclass(frozen=True, eq=False, repr=False)
class FitData:
    """Everything that a method may learn from; without negatives the labels say what is to be hidden."""

    positive: Embeddings
    negative: Embeddings | None
    token_labels: TokenLabels | None
    background: Embeddings | None
    groups: Groups | None
    moments: Moments
    task: UtilityTask
    scale: Scale
    seed: int
    show_progress: bool | None
    before: Before = NOTHING_BEFORE
    findings: dict[str, Any] = field(default_factory=dict)  # what the fit has to report

    @property
    def dimension(self) -> int:
        """Return n."""
        return int(self.positive.shape[1])

    def pairs(self, param: str, asked: object) -> tuple[Embeddings, Embeddings]:
        """Return positives and negatives.

        Args:
            param, asked: the option that needs them, for the message.

        Raises:
            InvalidInputError: there are labels in their place.
        """
        if self.negative is None:
            raise InvalidInputError.of("fit", param, "one that labels without pairs are enough for",
                                       repr(asked)[:40],
                                       "It compares texts with the same texts without the concept.")  # fmt: skip
        return self.positive, self.negative

    @cached_property
    def transplanted(self) -> Moments:
        """Moments of the pairs and of made-up ones (`vecveil.sensitivity.transplant`)."""
        return transplanted_moments(
            *self.pairs("transplants", True), self.token_labels, self.background, seed=self.seed
        )


@dataclass(frozen=True)
class Method:
    """A method's name, what it is, and its builder.

    Attributes:
        kind: what it rests on: ``formal`` (a proof), ``empirical`` (measurements), ``obfuscation`` (neither).
        metric: what the guarantee counts distance in.
        options: option names that `fit` accepts for it.
        postprocess: its default post-processing of noisy vectors, free of privacy cost.
        without_map: the method that is left of one with its ``own map`` when another is asked for.
        family: the law of its noise; takes δ where the method does.
        delta: whether δ is given beside ε.
        revision: raised when what it fits changes, so that experiments measure it again.
        before: what happens to vectors before the noise, unless the caller says more.
        labels: whether labels without pairs are enough to learn from.
    """

    name: str
    summary: str
    build: Callable[[FitData, dict[str, Any]], Candidate]
    options: tuple[str, ...] = ()
    postprocess: Postprocess = "none"
    without_map: str | None = None
    kind: Literal["formal", "empirical", "obfuscation"] = "formal"
    metric: str = "Euclidean"
    family: Callable[[float | None], Family] = lambda _: EllipticalLaplace()
    delta: bool = False
    revision: int = 1
    before: str = "none"
    labels: bool = True

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the names of its scales, one of which must be given."""
        return self.family(0.5).scales


def _isotropic(data: FitData, options: dict[str, Any]) -> Candidate:
    return Candidate(shape=NoiseShape.isotropic(data.dimension), map_of=lambda _: None)


def with_wiener(candidate: Candidate, moments: Moments) -> Candidate:
    """Return the candidate followed by the Wiener filter T = K(K + S)⁻¹, S the noise covariance."""
    n = candidate.shape.dimension
    covariance = candidate.shape.covariance()

    def map_of(noise: float) -> LinearMap:
        S = (noise * moments.rms_norm) ** 2 / n * covariance
        wiener = np.linalg.solve(moments.K + S, moments.K).T
        return LinearMap.quantised(wiener, None, norm=moments.rms_norm)

    return replace(candidate, map_of=map_of, fixed_map=False)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "subspace",
            "erase the concept's directions, keep the leading ones of the rest, isotropic Laplace noise",
            subspace_candidate,
            options=("rank", "kept", "flattening", "pairs", "gradients", "transplants"),
            postprocess="own map",
            without_map="laplace",
        ),
        Method(
            "covariance",
            "full-matrix Mahalanobis noise shaped by the concept covariance, then the Wiener filter",
            covariance_candidate,
            options=("floor", "shape", "rank"),
            postprocess="wiener",
            metric="Mahalanobis",
        ),
        Method(
            "sparse",
            "SPARSE as published: a learnt mask shapes diagonal Mahalanobis noise",
            sparse_candidate,
            options=SPARSE_OPTIONS,
            metric="Mahalanobis",
        ),
        Method(
            "sparse-whitebox",
            "SPARSE-WB: integrated gradients of a token classifier shape diagonal Mahalanobis noise",
            whitebox_candidate,
            options=("floor", "steps", "epochs"),
            metric="Mahalanobis",
        ),
        Method("laplace", "isotropic Laplace noise", _isotropic),
        Method(
            "purkayastha",
            "a random direction near the vector's, on the unit sphere",
            _isotropic,
            metric="angle",
            family=lambda _: Sphere(),
        ),
        Method(
            "gaussian",
            "isotropic Gaussian noise",
            _isotropic,
            family=lambda _: GaussianNoise(),
        ),
        Method(
            "ldp-gaussian",
            "normalise, then Gaussian noise calibrated to (ε, δ) on the unit sphere",
            _isotropic,
            metric="none",
            family=lambda delta: LdpNoise(0.5 if delta is None else delta),
            delta=True,
            before="normalise",
        ),
        Method(
            "textcrafter",
            "TextCrafter: a learnt perturbation of fixed norm, guided by a PII classifier",
            textcrafter_candidate,
            options=TEXTCRAFTER_OPTIONS,
            kind="empirical",
            metric="none",
            family=lambda _: LearntPerturbation(),
            labels=False,
        ),
        Method(
            "textcrafter-subspace",
            "TextCrafter, then the concept's directions erased: a variant of ours",
            textcrafter_subspace_candidate,
            options=(*TEXTCRAFTER_OPTIONS, "rank"),
            postprocess="own map",
            without_map="textcrafter",
            kind="empirical",
            metric="none",
            family=lambda _: LearntPerturbation(),
            labels=False,
        ),
        Method(
            "shuffle",
            "one secret permutation of the coordinates",
            _isotropic,
            kind="obfuscation",
            metric="none",
            family=lambda _: NoNoise(),
        ),
    )
}


def register_method(method: Method) -> None:
    """Let `vecveil.fit`, `fit_pairs` and experiments find a method of one's own by its name.

    It holds for this process; a saved protector has the mechanism and the map, and loads without it.

    Raises:
        InvalidInputError: no `Method`, or one of a name that is taken.
    """
    if not isinstance(method, Method):
        raise InvalidInputError.of("register_method", "method", "a Method", type(method).__name__)
    if method.name in METHODS or method.name in TEXT_METHODS:
        raise InvalidInputError.of(
            "register_method", "method", "of a name that no method has", repr(method.name)[:60]
        )
    METHODS[method.name] = method


def method_named(name: str) -> Method:
    """Return the method; raises with the list of names if there is none, or if it takes texts alone."""
    if isinstance(name, str) and name in TEXT_METHODS:
        raise InvalidInputError.of("fit", "method", "one that protects vectors", repr(name),
                                   "It rewrites texts before they are encoded, and vectors hold the concept already.",
                                   "Call vecveil.fit with texts and a concept that is found in them.")  # fmt: skip
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInputError.of(
            "fit", "method", "one of " + ", ".join(sorted(METHODS)), repr(name)[:60]
        )
    return METHODS[name]
