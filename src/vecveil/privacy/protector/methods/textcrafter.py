"""The ``textcrafter`` methods: train a policy against a PII classifier and build its mechanism."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.privacy.mechanisms.textcrafter import TextCrafter, check_unit_rows
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import Aim, Candidate, Method, NoiseFamily, Scale
from vecveil.privacy.protector.methods.subspace import directions_of
from vecveil.privacy.sensitivity.concept_subspace import subspace_map
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.privacy.textcrafter import PolicySettings, fit_pii_classifier, plain_centroids
from vecveil.types import Embeddings, Groups, Matrix
from vecveil.validation import check_count, check_embeddings

SETTINGS = sorted(PolicySettings.__dataclass_fields__.keys() - {"radius"})  # the radius is a scale
TRAINING_ROWS = 20_000
SPREAD_ROWS = 4000


def _refuse(*arguments: object) -> NoReturn:
    raise TypeError("textcrafter is trained at one radius")


_FAMILY = NoiseFamily(
    mechanism=_refuse,  # the candidate has it
    ratio=lambda radius, rms_norm, n: radius / rms_norm,
    scales=("radius",),
    is_linear=False,
)


@dataclass(frozen=True, eq=False)
class TextCrafterOptions(PolicySettings):
    """Options of ``textcrafter``: the fields of `PolicySettings` except the radius, which is the scale, and these.

    Attributes:
        checkpoint: folder for resuming training.
        further_positive: (K, n) more embeddings with the concept.
        relabel: of `vecveil.fit`: ``"presidio"`` or any object with ``detect(texts)``. Ordinary texts with detected PII
            count as texts with the concept.
    """

    radius: float = field(init=False, default=1.0)
    checkpoint: Any = None
    further_positive: Any = None
    relabel: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        relabel = None if self.relabel is False else "presidio" if self.relabel is True else self.relabel
        object.__setattr__(self, "relabel", relabel)
        if relabel not in (None, "presidio") and not callable(getattr(relabel, "detect", None)):
            raise InvalidInputError("`relabel` is 'presidio' or an object with `detect(texts)`.", param="relabel")

    def settings(self, scale: Scale | None) -> PolicySettings:
        assert scale is not None
        return PolicySettings(radius=scale.value, **{name: getattr(self, name) for name in SETTINGS})


@dataclass(frozen=True, eq=False)
class TextCrafterSubspaceOptions(TextCrafterOptions):
    """Options of ``textcrafter-subspace``: options of ``textcrafter``, and the number of erased directions."""

    rank: int | None = None


def textcrafter_candidate(data: Data, options: TextCrafterOptions, aim: Aim) -> Candidate:
    """Return the mechanism of a policy trained on texts with the concept (PII side) against all others (plain side)."""
    if options.relabel is not None:
        raise InvalidInputError(
            "`relabel` needs texts: use vecveil.fit, or pass such rows as `further_positive`.", param="relabel"
        )
    further = options.further_positive
    if further is not None:
        checked = check_embeddings(further, owner="fit", param="further_positive", min_rows=0)
        further = aim.before.apply(checked, owner="fit")
    settings = options.settings(aim.scale)
    settings.heads_for(data.dimension)
    positive, plain, of_positive, of_plain = _sides(data, further)
    classifier = fit_pii_classifier(positive, plain, groups_positive=of_positive, groups_plain=of_plain, seed=aim.seed)
    centroids = plain_centroids(plain, clusters=settings.clusters, seed=aim.seed)
    X = np.concatenate([positive, plain])
    rng = np.random.default_rng(aim.seed)
    X = np.ascontiguousarray(X[np.sort(rng.permutation(len(X))[:TRAINING_ROWS])])
    from vecveil.privacy.textcrafter.policy_training import train_policy  # needs msgspec and torch

    trained = train_policy(
        X,
        classifier,
        centroids,
        settings,
        seed=aim.seed,
        checkpoint=options.checkpoint,
        show_progress=aim.show_progress,
    )
    training = trained.curves.to_record() | {
        "settings": settings.to_record(),
        "seed": aim.seed,
        "rows": len(X),
        "seconds": trained.seconds,
        "classifier": classifier.to_record(),
    }
    held_out = classifier.held_out
    warnings = [] if held_out is None else list(held_out.warnings)
    # Kerckhoffs's principle: security must not depend on secrecy of the classifier and targets, so the file has them.
    known = np.append(classifier.weights, classifier.intercept)
    n = data.dimension
    # The perturbation's covariance has no closed form: measure it on a draft without it.
    draft = TextCrafter(trained.weights, settings.radius, np.zeros((n, n)), known, centroids)
    spread = _spread(draft, X[rng.permutation(len(X))[:SPREAD_ROWS]], aim.seed)
    return Candidate(
        NoiseShape.isotropic(n),
        parameters={k: v for k, v in settings.to_record().items() if k != "device"},
        mechanism=TextCrafter(trained.weights, settings.radius, spread, known, centroids),
        findings={"training": training, "warnings": warnings},
    )


def textcrafter_subspace_candidate(data: Data, options: TextCrafterSubspaceOptions, aim: Aim) -> Candidate:
    """Return textcrafter followed by oblique erasure of the concept's directions, by default a sixth of all."""
    n = data.dimension
    rank = max(1, n // 6) if options.rank is None else options.rank
    check_count(rank, owner="fit", param="rank", maximum=n - 1)
    crafted = textcrafter_candidate(data, options, aim)
    directions = directions_of(data.moments, pairs=True)
    exact = subspace_map(directions, erased=rank, kept=n - rank, flattening=0.0)
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    findings = {**crafted.findings, "residual_after_erasure": directions.residual(rank)}
    parameters = {**crafted.parameters, "rank": rank}
    return replace(crafted, map_of=lambda _: linear, parameters=parameters, findings=findings)


def _sides(data: Data, further: Embeddings | None) -> tuple[Embeddings, Embeddings, Groups, Groups]:
    """Return the PII side and the plain side, with group ids of their rows."""
    positive, plain = data.sides("method", "textcrafter")
    rows = len(positive)
    pairs = np.arange(rows)
    if data.groups is not None:
        pairs = np.unique(data.groups, return_inverse=True)[1].reshape(-1)
    # Both rows of a pair share a fold of the classifier's validation, or one would leak the other.
    of_positive, of_plain = pairs, pairs
    check_unit_rows(positive, owner="fit", param="positive")
    check_unit_rows(plain, owner="fit", param="negative")
    for name, extra in (("further_positive", further), ("background", data.background)):
        if extra is None:
            continue
        extra = check_embeddings(extra, owner="fit", param=name, dimension=data.dimension)
        check_unit_rows(extra, owner="fit", param=name)
        groups = rows + np.arange(len(extra))
        rows += len(extra)
        if name == "background":
            plain, of_plain = np.concatenate([plain, extra]), np.append(of_plain, groups)
        else:
            positive, of_positive = np.concatenate([positive, extra]), np.append(of_positive, groups)
    return positive, plain, of_positive, of_plain


def _spread(draft: TextCrafter, X: Embeddings, seed: int) -> Matrix:
    """Return the mean covariance of the perturbation given the vector: half the covariance of two draws' difference."""
    first, second = (draft.protect(X, rng=np.random.default_rng([seed, k])).astype(np.float64) for k in (1, 2))
    difference = first - second
    covariance: Matrix = difference.T @ difference / (2 * len(X))
    return covariance


TEXTCRAFTER = Method(
    "textcrafter",
    "TextCrafter: a learnt perturbation of fixed norm, guided by a PII classifier",
    textcrafter_candidate,
    option_type=TextCrafterOptions,
    no_refit="Its policy is learnt from whole texts, not from a list of words, and takes minutes to train.",
    kind="empirical",
    metric="none",
    family=lambda _: _FAMILY,
    labels=False,
)
TEXTCRAFTER_SUBSPACE = replace(
    TEXTCRAFTER,
    name="textcrafter-subspace",
    summary="TextCrafter, then the concept's directions erased: a variant of ours",
    build=textcrafter_subspace_candidate,
    option_type=TextCrafterSubspaceOptions,
    postprocess="own map",
    without_map="textcrafter",
)
