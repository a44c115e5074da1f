"""Train a policy from vectors, a classifier and centroids to weights and learning curves."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, TrainingError
from vecveil.io import StateFile, expanded
from vecveil.privacy.mechanisms.textcrafter import PolicyWeights, check_unit_rows
from vecveil.privacy.textcrafter.pii_classifier import PiiClassifier
from vecveil.privacy.textcrafter.policy_gradient import LearningCurves, NotFinite, PolicyGradient, group_numbers
from vecveil.privacy.textcrafter.policy_settings import PolicySettings
from vecveil.runtime import one_thread, progress
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_seed

_STATE = "policy.safetensors"
_OWNER = "train_policy"

Array = npt.NDArray[Any]


def array_digest(*arrays: Array) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def forget_checkpoint(folder: Path) -> None:
    """Remove the file of a finished training, and the folder if nothing else is in it."""
    (folder / _STATE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: other files are not ours to remove
        folder.rmdir()


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """The outcome of a training: ``weights`` of the last epoch, applicable without torch; ``seconds`` over all runs."""

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

    Each vector gets raw noise d ~ N(μ(e), diag σ²), its perturbation d* and the reward R; the loss is −(R − b) · log
    π(d | e), d held fixed. A tenth of the vectors, at most 2,000, is held out of the policy for the curves;
    ``classifier`` may have been fitted on it. Equal arguments give equal arrays, on one kind of device.

    Args:
        X: vectors to protect, (N, n) float32 or float64, rows of norm 1 within 0.01, N ≥ 2 and n ≥ 2.
        classifier: gives p(e), the probability of PII.
        centroids: of clusters of plain vectors, (k, n).
        groups: (N,) integers or strings; rows of one group, such as the two sides of a pair, are held out together.
            None treats every row as a group.
        checkpoint: folder that is replaced after every epoch. The same call resumes from it and ends with the arrays of
            an uninterrupted one.

    Raises:
        IncompatibleError: classifier, centroids and vectors have different dimensions.
        DataFileError: the checkpoint is of other data, settings or another seed, or damaged.
        TrainingError: a reward or gradient became NaN or infinite; the last good checkpoint stays.
    """
    X, centroids = _checked(X, classifier, centroids)
    settings.heads_for(X.shape[1])
    seed = check_seed(seed, owner=_OWNER)
    numbers = group_numbers(groups, len(X), owner=_OWNER)
    state_file = None
    # Digests in place of the data: a checkpoint must not contain texts or vectors.
    if checkpoint is not None:
        if not isinstance(checkpoint, str | os.PathLike) or not os.fspath(checkpoint):
            raise InvalidInputError("checkpoint must be the path of a folder.", param="checkpoint")
        identity = {
            **settings.to_record(),
            "rows": len(X),
            "dimension": X.shape[1],
            "seed": seed,
            "vectors": array_digest(X),
            "classifier": array_digest(classifier.weights, np.array([classifier.intercept])),
            "centroids": array_digest(centroids),
            "groups": None if numbers is None else array_digest(numbers),
        }
        state_file = StateFile(expanded(checkpoint) / _STATE, identity)
    # Several threads would sum in a varying order: the last bits would differ between runs.
    with one_thread():
        learner = PolicyGradient(X, classifier, centroids, settings, seed, numbers)
        return _train(learner, state_file, show_progress)


def _train(learner: PolicyGradient, state_file: StateFile | None, show: bool | None) -> TrainedPolicy:
    settings = learner.settings
    stored = state_file.load() if state_file is not None else None
    at, curves, before = (0, 0), LearningCurves(()), 0.0
    if state_file is not None and stored is not None:
        try:
            curves = LearningCurves.read(stored[1], owner="checkpoint")
            learner.restore(stored[0], epoch=curves.last.epoch)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:  # the last of torch's generator
            raise state_file.damaged() from error
        at, before = (curves.last.epoch, 0), curves.last.seconds
    start = time.perf_counter() - before  # seconds of earlier runs count
    steps = learner.steps
    note = ""
    try:
        if not curves.epochs:
            curves = curves.with_epoch(learner.measure(0, None, 0.0))
            if state_file is not None:
                state_file.save(learner.to_arrays(), curves.to_record())
        bar = progress(
            range(curves.last.epoch * steps, settings.epochs * steps),
            "Policy",
            show=show,
            unit="step",
            note=lambda: note,
        )
        rewards: list[float] = []
        for number in bar:
            at = (number // steps + 1, number % steps + 1)
            # Checkpoints fall between epochs, so the order of an epoch is drawn at its start.
            if at[1] == 1:
                order, rewards = learner.order(), []
            reward, p_pii, drift = learner.step(order[at[1] - 1])
            rewards.append(reward)
            note = f"reward {reward:.2f}, p(PII) {p_pii:.2f}, drift {drift:.2f}"
            if at[1] == steps:
                seconds = time.perf_counter() - start
                measures = learner.measure(at[0], float(np.mean(rewards)), seconds)
                curves = curves.with_epoch(measures)
                if state_file is not None:
                    state_file.save(learner.to_arrays(), curves.to_record())
    except NotFinite as cause:
        raise TrainingError(_stopped(at, str(cause), state_file, curves), *at) from cause
    weights = learner.module.to_weights()
    return TrainedPolicy(weights, curves, settings, learner.seed, curves.last.seconds)


def _stopped(at: tuple[int, int], cause: str, state_file: StateFile | None, saved: LearningCurves) -> str:
    where = f"in epoch {at[0]}, step {at[1]}" if at[1] else f"after epoch {at[0]}, before a step"
    stays = "It has no checkpoint."
    if state_file is not None:
        stays = "No checkpoint has been written."
        if saved.epochs:
            stays = (
                f"The checkpoint {str(state_file.path.parent)!r} stays as it was after epoch {saved.last.epoch}; "
                "remove it before a training with other settings."
            )
    return f"{_OWNER}: training stopped {where}: {cause} {stays}"


def _checked(X: Embeddings, classifier: PiiClassifier, centroids: Embeddings) -> tuple[Embeddings, Embeddings]:
    X = check_embeddings(X, owner=_OWNER, param="X", min_rows=2)
    n = X.shape[1]
    if n < 2:
        raise InvalidInputError(
            "X has one dimension, in which no direction is orthogonal to v: give at least two.", param="X"
        )
    check_unit_rows(X, owner=_OWNER)
    centroids = check_embeddings(centroids, owner=_OWNER, param="centroids", min_rows=1)
    for param, dimension in (("centroids", centroids.shape[1]), ("classifier", classifier.dimension)):
        if dimension != n:
            raise IncompatibleError(f"{param} has dimension {dimension} and X has {n}.", param=param)
    return X, centroids
