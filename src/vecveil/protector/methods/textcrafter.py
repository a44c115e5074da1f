"""The ``textcrafter`` methods: train a policy against a PII classifier and build its mechanism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.mechanisms.textcrafter import TextCrafter, check_unit_rows
from vecveil.protector.method import Candidate, FitData, Method, NoiseFamily
from vecveil.protector.methods.subspace import directions_of
from vecveil.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.sensitivity.subspace import subspace_map
from vecveil.textcrafter import PolicySettings, fit_pii_classifier, plain_centroids, train_policy
from vecveil.types import Embeddings, Groups, Matrix
from vecveil.validation import check_count, check_embeddings

SETTINGS = sorted(PolicySettings.__dataclass_fields__.keys() - {"radius"})  # the radius is a scale
OPTIONS = (*SETTINGS, "checkpoint", "further_positive", "relabel")
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


def textcrafter_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return the mechanism of a policy trained on these embeddings.

    The PII side is the texts with the concept, the plain side the same texts without it and the ordinary ones.
    """
    if options.pop("relabel", None) is not None:
        raise InvalidInputError.of(
            "fit_pairs",
            "relabel",
            "left out",
            "a value",
            "Relabelling reads texts.",
            "Use vecveil.fit, or pass such rows as further_positive.",
        )
    checkpoint = options.pop("checkpoint", None)
    further = options.pop("further_positive", None)
    if further is not None:
        checked = check_embeddings(further, owner="fit", param="further_positive", min_rows=0)
        further = data.before.apply(checked, owner="fit")
    assert data.scale.radius is not None
    settings = PolicySettings(radius=data.scale.radius, **options)
    settings.heads_for(data.dimension)
    positive, plain, of_positive, of_plain = _sides(data, further)
    classifier = fit_pii_classifier(positive, plain, groups_positive=of_positive, groups_plain=of_plain, seed=data.seed)
    centroids = plain_centroids(plain, clusters=settings.clusters, seed=data.seed)
    X = np.concatenate([positive, plain])
    rng = np.random.default_rng(data.seed)
    X = np.ascontiguousarray(X[np.sort(rng.permutation(len(X))[:TRAINING_ROWS])])
    trained = train_policy(
        X, classifier, centroids, settings, seed=data.seed, checkpoint=checkpoint, show_progress=data.show_progress
    )
    data.findings["training"] = trained.curves.to_record() | {
        "settings": settings.to_record(),
        "seed": data.seed,
        "rows": len(X),
        "seconds": trained.seconds,
        "classifier": classifier.to_record(),
    }
    held_out = classifier.held_out
    data.findings["warnings"] = [] if held_out is None else list(held_out.warnings)
    # Kerckhoffs: security must not rest on the classifier and targets, so the file holds them.
    known = np.append(classifier.weights, classifier.intercept)
    n = data.dimension
    # The perturbation's covariance has no closed form: measure it on a draft without it.
    draft = TextCrafter(trained.weights, settings.radius, np.zeros((n, n)), known, centroids)
    spread = _spread(draft, X[rng.permutation(len(X))[:SPREAD_ROWS]], data.seed)
    return Candidate(
        NoiseShape.isotropic(n),
        parameters={k: v for k, v in settings.to_record().items() if k != "device"},
        mechanism=TextCrafter(trained.weights, settings.radius, spread, known, centroids),
    )


def textcrafter_subspace_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return textcrafter followed by oblique erasure of the concept's directions, by default a sixth of all."""
    n = data.dimension
    rank = options.pop("rank", None)
    rank = check_count(max(1, n // 6) if rank is None else rank, owner="fit", param="rank", maximum=n - 1)
    crafted = textcrafter_candidate(data, options)
    directions = directions_of(data.moments, pairs=True)
    exact = subspace_map(directions, erased=rank, kept=n - rank, flattening=0.0)
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    data.findings["residual_after_erasure"] = directions.residual(rank)
    return replace(crafted, map_of=lambda _: linear, parameters={**crafted.parameters, "rank": rank})


def _sides(data: FitData, further: Embeddings | None) -> tuple[Embeddings, Embeddings, Groups, Groups]:
    """Return the PII side and the plain side, with group ids of their rows."""
    positive, plain = data.pairs("method", "textcrafter")
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
    """Return the mean covariance of the perturbation given the vector: half that of two draws' difference."""
    first, second = (draft.protect(X, rng=np.random.default_rng([seed, k])).astype(np.float64) for k in (1, 2))
    difference = first - second
    covariance: Matrix = difference.T @ difference / (2 * len(X))
    return covariance


TEXTCRAFTER = Method(
    "textcrafter",
    "TextCrafter: a learnt perturbation of fixed norm, guided by a PII classifier",
    textcrafter_candidate,
    options=OPTIONS,
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
    options=(*OPTIONS, "rank"),
    postprocess="own map",
    without_map="textcrafter",
)
