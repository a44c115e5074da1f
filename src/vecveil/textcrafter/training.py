"""Training of a policy: vectors, classifier and centroids in, weights and learning curves out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError, TrainingError
from vecveil.mechanisms.policy import PolicyWeights
from vecveil.mechanisms.textcrafter import check_unit_rows
from vecveil.runtime import import_torch, one_thread, progress
from vecveil.textcrafter.checkpoint import PolicyCheckpoint, digest
from vecveil.textcrafter.curves import LearningCurves
from vecveil.textcrafter.holding_out import Indices, group_numbers
from vecveil.textcrafter.policy_gradient import NotFinite, PolicyGradient
from vecveil.textcrafter.settings import PolicySettings
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

if TYPE_CHECKING:
    from vecveil.textcrafter.pii_classifier import PiiClassifier

__all__ = ["TrainedPolicy", "train_policy"]

_OWNER = "train_policy"


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """What training has made.

    Attributes:
        weights: of the last epoch, to be applied without torch.
        curves: what each epoch reached.
        settings, seed: what it was trained with.
        seconds: of training, over all runs.
    """

    weights: PolicyWeights
    curves: LearningCurves
    settings: PolicySettings
    seed: int
    seconds: float


def train_policy(
    X: Embeddings,
    classifier: PiiClassifier,
    centroids: Embeddings,
    settings: PolicySettings,
    *,
    groups: Any = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    show_progress: bool | None = None,
) -> TrainedPolicy:
    """Return the policy that a one-step policy gradient reaches on ``X`` (TextCrafter, Eq. 15 to 23).

    For each vector raw noise d ~ N(μ(e), diag σ²) is drawn, the perturbation d* formed of it and the reward R taken;
    the loss is −(R − b) · log π(d | e), d held fixed. The reference direction v has no part in log π: see
    `PolicySettings.direction`. A tenth of the vectors, 2,000 at most, is held out: the curves are measured on it.
    It is held out of the policy; p(e) is what ``classifier`` gives, whatever that was fitted on.
    The same arguments give the same arrays, on one kind of device.

    Args:
        X: vectors to protect, (N, n) float32 or float64, rows of norm 1 within 0.01, N ≥ 2 and n ≥ 2.
        classifier: gives p(e), the probability of PII.
        centroids: of clusters of plain vectors, (k, n).
        settings: shape, reward and schedule.
        groups: (N,) integers or strings; rows of one group, such as the two halves of a pair, are held out together.
            None lets every row stand alone.
        seed: of everything random.
        checkpoint: folder that is replaced after every epoch. The same call goes on from it and ends with the same
            arrays as one that was not interrupted.
        show_progress: a bar with reward, p(PII) and drift; None shows it on a terminal only.

    Raises:
        InvalidInputError: a vector has another norm, T or the heads do not fit n, or there is one group for all.
        IncompatibleError: classifier, centroids and vectors have different dimensions.
        DataFileError: the checkpoint is of other data, settings or another seed, or damaged.
        TrainingError: a reward or gradient became NaN or infinite; the last good checkpoint stays.
    """
    X, centroids = _checked(X, classifier, centroids)
    settings.heads_for(X.shape[1])
    seed = check_count(seed, owner=_OWNER, param="seed", minimum=0, maximum=2**63 - 1)
    numbers = group_numbers(groups, len(X), owner=_OWNER)
    kept = None
    if checkpoint is not None:
        identity = _identity(X, classifier, centroids, settings, seed, numbers)
        kept = PolicyCheckpoint(checkpoint, identity)
    import_torch("Training a policy", "textcrafter")
    with one_thread():
        return _train(X, classifier, centroids, settings, seed, numbers, kept, show_progress)


def _train(
    X: Embeddings,
    classifier: PiiClassifier,
    centroids: Embeddings,
    settings: PolicySettings,
    seed: int,
    groups: Indices | None,
    kept: PolicyCheckpoint | None,
    show: bool | None,
) -> TrainedPolicy:
    found = kept.load() if kept is not None else None
    learner = PolicyGradient(X, classifier, centroids, settings, seed, groups)
    at, curves, before = (0, 0), LearningCurves(()), 0.0
    if kept is not None and found is not None:
        arrays, curves = found
        try:
            learner.restore(arrays, epoch=curves.last.epoch)
        except (ValueError, RuntimeError) as error:  # torch's own, for a state of the generator
            raise kept.damaged() from error
        at, before = (curves.last.epoch, 0), curves.last.seconds
    start = time.perf_counter() - before
    steps = learner.steps
    note = ""
    try:
        if not curves.epochs:
            curves = curves.with_epoch(learner.measure(0, None, 0.0))
            if kept is not None:
                kept.save(learner.to_arrays(), curves)
        bar = progress(
            range(curves.last.epoch * steps, settings.epochs * steps), "Policy",
            show=show, unit="step", note=lambda: note,
        )  # fmt: skip
        rewards: list[float] = []
        for number in bar:
            at = (number // steps + 1, number % steps + 1)
            if at[1] == 1:
                order, rewards = learner.order(), []
            reward, p_pii, drift = learner.step(order[at[1] - 1])
            rewards.append(reward)
            note = f"reward {reward:.2f}, p(PII) {p_pii:.2f}, drift {drift:.2f}"
            if at[1] == steps:
                seconds = time.perf_counter() - start
                measures = learner.measure(at[0], float(np.mean(rewards)), seconds)
                curves = curves.with_epoch(measures)
                if kept is not None:
                    kept.save(learner.to_arrays(), curves)
    except NotFinite as cause:
        raise TrainingError(_stopped(at, str(cause), kept), *at) from cause
    from vecveil.textcrafter.network import to_weights

    weights = to_weights(learner.module)
    return TrainedPolicy(weights, curves, settings, seed, curves.last.seconds)


def _stopped(at: tuple[int, int], cause: str, kept: PolicyCheckpoint | None) -> str:
    where = f"in epoch {at[0]}, step {at[1]}" if at[1] else f"after epoch {at[0]}, before a step"
    stays = "No checkpoint was asked for."
    if kept is not None:
        found = kept.load()
        stays = "No checkpoint has been written."
        if found is not None:
            stays = (
                f"The checkpoint {str(kept.folder)!r} stays as it was after epoch {found[1].last.epoch}; remove it "
                "before a training with other settings."
            )
    return f"{_OWNER}: training stopped {where}: {cause} {stays}"


def _checked(
    X: Embeddings, classifier: PiiClassifier, centroids: Embeddings
) -> tuple[Embeddings, Embeddings]:
    X = check_embeddings(X, owner=_OWNER, param="X", min_rows=2)
    n = X.shape[1]
    if n < 2:
        raise InvalidInputError.of(_OWNER, "X", "of at least 2 dimensions", f"{n}",
                                   "No direction is orthogonal to v in one dimension.")  # fmt: skip
    check_unit_rows(X, owner=_OWNER)
    centroids = check_embeddings(centroids, owner=_OWNER, param="centroids", min_rows=1)
    for param, dimension in (
        ("centroids", centroids.shape[1]),
        ("classifier", classifier.dimension),
    ):
        if dimension != n:
            raise IncompatibleError.of(
                _OWNER, param, f"of the dimension {n} of X", f"dimension {dimension}"
            )
    return X, centroids


def _identity(
    X: Embeddings,
    classifier: PiiClassifier,
    centroids: Embeddings,
    settings: PolicySettings,
    seed: int,
    groups: Indices | None,
) -> dict[str, Any]:
    return {
        "rows": len(X),
        "dimension": X.shape[1],
        "settings": settings.to_record(),
        "seed": seed,
        "vectors": digest(X),
        "classifier": digest(classifier.weights, np.array([classifier.intercept])),
        "centroids": digest(centroids),
        "groups": None if groups is None else digest(groups),
    }
