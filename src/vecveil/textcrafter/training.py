"""Train a policy from vectors, a classifier and centroids to weights and learning curves."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import (
    DataFileError,
    IncompatibleError,
    InvalidInputError,
    TrainingError,
)
from vecveil.io import write_bytes
from vecveil.mechanisms.policy import PolicyWeights
from vecveil.mechanisms.textcrafter import check_unit_rows
from vecveil.runtime import import_torch, one_thread, progress
from vecveil.textcrafter.pii_classifier import PiiClassifier
from vecveil.textcrafter.policy_gradient import (
    Indices,
    LearningCurves,
    NotFinite,
    PolicyGradient,
    group_numbers,
)
from vecveil.textcrafter.settings import PolicySettings
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

_STATE = "policy.safetensors"
SCHEMA = "vecveil.policy-training/1"
_OWNER = "train_policy"

Array = npt.NDArray[Any]


def array_digest(*arrays: Array) -> str:
    """Return the SHA-256 of dtypes, shapes and values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class PolicyCheckpoint:
    """The checkpoint of a training: a folder with one file that holds everything the next epoch depends on.

    ``policy.safetensors`` has weights, Adam's moments, the generator's state and, in its header, the identity and the
    curves so far; it is replaced atomically after every epoch, so a crash leaves the last epoch or the one before.
    Reading a checkpoint cannot run code.

    Args:
        folder: created, readable by its owner only, at the first write.
        identity: what must agree before training resumes: settings, seed, digests of the data. JSON-ready.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            got = "an empty name" if isinstance(folder, str) else type(folder).__name__
            raise InvalidInputError.of(_OWNER, "checkpoint", "the path of a folder", got)
        self.folder = Path(folder)
        # tuples become lists, as in the file
        self.identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))

    @property
    def _path(self) -> Path:
        return self.folder / _STATE

    def load(self) -> tuple[dict[str, Array], LearningCurves] | None:
        """Return the arrays and curves of the last epoch, or None without a checkpoint.

        A checkpoint of other data, settings or another seed, or a damaged one, raises `DataFileError`.
        """
        try:
            if not self._path.exists():
                return None
        except (OSError, ValueError) as error:  # no permission, a name too long, a zero byte
            raise self.damaged() from error
        from safetensors import safe_open

        try:
            with safe_open(str(self._path), framework="numpy") as file:
                header = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            schema = header["schema"]
        except Exception as error:  # safetensors has its own exceptions
            raise self.damaged() from error
        # Before the rest is read: another version may store it in another form.
        if schema != SCHEMA:
            raise DataFileError.of(_OWNER, "checkpoint", f"of the schema {SCHEMA!r}", repr(schema)[:40],
                                   "Another version of vecveil wrote it.",
                                   "Train with that version, or remove the folder.",
                                   code="E-DATA-VERSION")  # fmt: skip
        try:
            identity = dict(json.loads(header["identity"]))
            curves = LearningCurves.from_record(json.loads(header["curves"]))
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise self.damaged() from error
        self._compare(identity)
        return arrays, curves

    def _compare(self, stored: Mapping[str, Any]) -> None:
        for key, expected in self.identity.items():
            other = stored.get(key)
            if other == expected:
                continue
            if isinstance(expected, dict) and isinstance(other, dict):  # report the setting, not the dict
                key, expected, other = next(
                    (name, expected.get(name), other.get(name))
                    for name in sorted({*expected, *other})
                    if expected.get(name) != other.get(name)
                )
            raise DataFileError.of(_OWNER, "checkpoint", f"one with {key} {str(expected)[:60]}",
                        f"one with {key} {str(other)[:60]}",
                        "A training resumes only with the data, settings and seed that it started with.",
                        "Give another folder, or remove "
                        f"{str(self.folder)[:200]}.")  # fmt: skip

    def save(self, arrays: Mapping[str, Array], curves: LearningCurves) -> None:
        """Replace the folder's file with this epoch's."""
        from safetensors.numpy import save as to_bytes

        header = {
            "schema": SCHEMA,
            "identity": json.dumps(self.identity),
            "curves": json.dumps(curves.to_record()),
        }
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # write_bytes, not safetensors' writer: atomic, and a full disk is an OSError.
            write_bytes(self._path, to_bytes(dict(arrays), metadata=header), mode=0o600)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise DataFileError.of(_OWNER, "checkpoint", "a folder that can be written",
                                   f"{self.folder.name}: {reason}") from error  # fmt: skip

    def damaged(self) -> DataFileError:
        """Return the error for an unreadable checkpoint."""
        return DataFileError.of(_OWNER, "checkpoint", "a folder that a training has written",
                    f"{self.folder.name}, which cannot be read as one", fix="Remove the folder.")  # fmt: skip


def forget_checkpoint(folder: Path) -> None:
    """Remove the file of a finished training, and the folder if nothing else is in it."""
    (folder / _STATE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: other files are not ours to remove
        folder.rmdir()


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """The outcome of a training.

    ``weights`` are of the last epoch and applicable without torch; ``seconds`` count all runs.
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

    Each vector gets raw noise d ~ N(μ(e), diag σ²), the perturbation d* of it and the reward R; the loss is
    −(R − b) · log π(d | e), d held fixed. The reference direction v does not enter log π: see
    `PolicySettings.direction`. A tenth of the vectors, at most 2,000, is held out for the curves. It is held out
    of the policy only: ``classifier`` may have been fitted on it. Equal arguments give equal arrays, on one kind of
    device.

    Args:
        X: vectors to protect, (N, n) float32 or float64, rows of norm 1 within 0.01, N ≥ 2 and n ≥ 2.
        classifier: gives p(e), the probability of PII.
        centroids: of clusters of plain vectors, (k, n).
        groups: (N,) integers or strings; rows of one group, such as the two halves of a pair, are held out together.
            None treats every row as a group.
        checkpoint: folder that is replaced after every epoch. The same call resumes from it and ends with the arrays
            of an uninterrupted one.

    Raises:
        IncompatibleError: classifier, centroids and vectors have different dimensions.
        DataFileError: the checkpoint is of other data, settings or another seed, or damaged.
        TrainingError: a reward or gradient became NaN or infinite; the last good checkpoint stays.
    """
    X, centroids = _checked(X, classifier, centroids)
    settings.heads_for(X.shape[1])
    seed = check_count(seed, owner=_OWNER, param="seed", minimum=0, maximum=2**63 - 1)
    numbers = group_numbers(groups, len(X), owner=_OWNER)
    kept = None
    # Digests in place of the data: a checkpoint must not hold texts or vectors.
    if checkpoint is not None:
        identity = {
            "rows": len(X),
            "dimension": X.shape[1],
            "settings": settings.to_record(),
            "seed": seed,
            "vectors": array_digest(X),
            "classifier": array_digest(classifier.weights, np.array([classifier.intercept])),
            "centroids": array_digest(centroids),
            "groups": None if numbers is None else array_digest(numbers),
        }
        kept = PolicyCheckpoint(checkpoint, identity)
    import_torch("Training a policy", "textcrafter")
    # Several threads would add in a varying order: the last bits would differ between runs.
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
    stored = kept.load() if kept is not None else None
    # Built even when resuming: the restore checks the arrays against this network's shapes.
    learner = PolicyGradient(X, classifier, centroids, settings, seed, groups)
    at, curves, before = (0, 0), LearningCurves(()), 0.0
    if kept is not None and stored is not None:
        arrays, curves = stored
        try:
            learner.restore(arrays, epoch=curves.last.epoch)
        except (ValueError, RuntimeError) as error:  # torch's own, for a state of the generator
            raise kept.damaged() from error
        at, before = (curves.last.epoch, 0), curves.last.seconds or 0.0
    start = time.perf_counter() - before  # seconds of earlier runs count
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
                if kept is not None:
                    kept.save(learner.to_arrays(), curves)
    except NotFinite as cause:
        raise TrainingError(_stopped(at, str(cause), kept), *at) from cause
    weights = learner.module.to_weights()
    return TrainedPolicy(weights, curves, settings, seed, curves.last.seconds or 0.0)


def _stopped(at: tuple[int, int], cause: str, kept: PolicyCheckpoint | None) -> str:
    where = f"in epoch {at[0]}, step {at[1]}" if at[1] else f"after epoch {at[0]}, before a step"
    stays = "It has no checkpoint."
    if kept is not None:
        stored = kept.load()
        stays = "No checkpoint has been written."
        if stored is not None:
            stays = (
                f"The checkpoint {str(kept.folder)!r} stays as it was after epoch {stored[1].last.epoch}; remove it "
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
