"""Checks of what `fit` and `fit_pairs` are given, made before anything is encoded or searched."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vecveil.checks import check_embeddings
from vecveil.errors import IncompatibleError, InvalidInputError, message
from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector.methods import Method, method_named
from vecveil.types import Embeddings, Groups, TokenLabels

__all__ = [
    "UtilityChoice",
    "check_choices",
    "check_groups",
    "check_labels",
    "same_space",
    "task_of",
]

UtilityChoice = Literal["similarity", "neighbours"]


def check_choices(
    method: str, utility: Any, postprocess: str | None, output: str, options: dict[str, Any]
) -> tuple[Method, str]:
    """Return the method and the post-processing that is wanted; refuses unknown choices."""
    owner = "fit"
    chosen = method_named(method)
    if unknown := sorted(set(options) - set(chosen.options)):
        known = ", ".join(chosen.options) or "no options"
        raise InvalidInputError(
            message(owner, unknown[0], f"an option of method {method!r}", "an unknown name",
                    fix=f"It takes {known}.")
        )  # fmt: skip
    if not isinstance(utility, UtilityTask) and utility not in ("similarity", "neighbours"):
        raise InvalidInputError(
            message(owner, "utility", "'similarity', 'neighbours' or a vecveil.metrics.UtilityTask",
                    repr(utility)[:60] if isinstance(utility, str) else type(utility).__name__)
        )  # fmt: skip
    wanted = chosen.postprocess if postprocess is None else postprocess
    if wanted not in ("none", "wiener") and postprocess is not None:
        raise InvalidInputError(
            message(owner, "postprocess", "None, 'none' or 'wiener'", repr(wanted)[:40])
        )
    if output not in ("full", "reduced"):
        raise InvalidInputError(message(owner, "output", "'full' or 'reduced'", repr(output)[:40]))
    if output == "reduced" and wanted != "own map":
        raise InvalidInputError(
            message(owner, "output", "'full'", "'reduced'",
                    "Only the subspace method's own map drops dimensions.")
        )  # fmt: skip
    if output == "reduced" and isinstance(utility, UtilityTask) and utility.same_space:
        raise InvalidInputError(
            message(owner, "output", "'full' with this utility", "'reduced'",
                    "The task compares released vectors with clean ones.")
        )  # fmt: skip
    return chosen, wanted


def same_space(value: Embeddings, param: str, n: int) -> Embeddings:
    """Return ``value`` checked, of the dimension n of ``positive``."""
    checked = check_embeddings(value, owner="fit_pairs", param=param)
    if checked.shape[1] != n:
        got = f"dimension {checked.shape[1]}"
        raise IncompatibleError(
            message("fit_pairs", param, f"of dimension {n}, like `positive`", got)
        )
    return checked


def check_labels(value: Any, rows: int) -> TokenLabels | None:
    """Return 0/1 labels (rows, V) as uint8, without the columns that are the same in every row.

    None if fewer than two columns are left: one label tells no term from another.
    """
    labels = np.asarray(value)
    numbers = labels.dtype.kind in "biuf"
    if labels.ndim != 2 or len(labels) != rows or not numbers or not np.isin(labels, (0, 1)).all():
        raise InvalidInputError(
            message("fit_pairs", "token_labels", f"a 0/1 array of shape ({rows}, V)",
                    f"dtype {labels.dtype}, shape {labels.shape}",
                    "Row i tells which concept terms the text of positive row i holds.")
        )  # fmt: skip
    labels = labels.astype(np.uint8)
    labels = np.ascontiguousarray(labels[:, labels.any(axis=0) & ~labels.all(axis=0)])
    return labels if labels.shape[1] > 1 else None


def check_groups(value: Any, rows: int) -> Groups:
    """Return the group ids (rows,)."""
    groups = np.asarray(value)
    if groups.shape != (rows,) or groups.dtype.kind not in "iuUS":
        raise InvalidInputError(
            message("fit_pairs", "groups", f"{rows} integers or strings, one for each positive",
                    f"dtype {groups.dtype}, shape {groups.shape}")
        )  # fmt: skip
    return groups


def task_of(utility: UtilityChoice | UtilityTask, own: Embeddings, seed: int) -> UtilityTask:
    """Return the utility task; by name it is measured on the user's own texts."""
    if isinstance(utility, UtilityTask):
        return utility
    if utility == "similarity":
        return SimilarityTask.of(own, seed=seed)
    return NeighbourTask(own[:2000], queries=300, seed=seed)
