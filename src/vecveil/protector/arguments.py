"""Checks of what `fit` and `fit_pairs` are given, made before anything is encoded or searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError, message
from vecveil.mechanisms import OPEN_RANGE, Before, Step
from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector.families import EllipticalLaplace, GaussianNoise, LdpNoise
from vecveil.protector.methods import Method, method_named
from vecveil.protector.scale import Scale
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_count, check_embeddings

__all__ = [
    "Choices",
    "UtilityChoice",
    "check_choices",
    "check_groups",
    "check_labels",
    "check_relabel",
    "same_space",
    "task_of",
]

UtilityChoice = Literal["similarity", "neighbours"]


@dataclass(frozen=True)
class Choices:
    """What a fit is asked to do, checked.

    Attributes:
        map: what shapes the noisy vectors: ``none``, ``wiener``, or the method's ``own map``.
        after: the steps after it.
    """

    method: Method
    scale: Scale
    map: str
    before: Before
    after: tuple[Step, ...]
    output: Literal["full", "reduced"]
    splits: int


def check_choices(
    method: str,
    scale: Scale,
    utility: Any,
    postprocess: Any,
    before: Before | str | None,
    output: str,
    options: dict[str, Any],
) -> Choices:
    """Return the choices; refuses unknown ones and those that do not go together.

    ``splits`` is taken out of ``options``; the rest is the method's.
    """
    owner = "fit"
    chosen = method_named(method)
    scale.check(method, chosen.scales, delta=chosen.delta)
    splits = check_count(options.pop("splits", 1), owner=owner, param="splits", maximum=16)
    if unknown := sorted(set(options) - set(chosen.options)):
        known = ", ".join(chosen.options) or "no options"
        raise InvalidInputError.of(owner, unknown[0], f"an option of method {method!r}", "an unknown name",
                                   fix=f"It takes {known}.")  # fmt: skip
    if splits > 1 and not isinstance(
        chosen.family(0.5), EllipticalLaplace | GaussianNoise | LdpNoise
    ):
        raise InvalidInputError.of(owner, "splits", f"1 for method {method!r}", splits)
    if not isinstance(utility, UtilityTask) and utility not in ("similarity", "neighbours"):
        raise InvalidInputError(
            message(owner, "utility", "'similarity', 'neighbours' or a vecveil.metrics.UtilityTask",
                    repr(utility)[:60] if isinstance(utility, str) else type(utility).__name__)
        )  # fmt: skip
    wanted, after = check_postprocess(postprocess, chosen.postprocess)
    if wanted == "wiener" and chosen.kind != "formal":
        raise InvalidInputError.of(owner, "postprocess", f"without 'wiener' for method {method!r}", "'wiener'",
                                   "It filters noise of a given shape, and there is none.")  # fmt: skip
    first = Before.of(chosen.before if before is None else before)
    if chosen.before == "normalise" and first.kind != "normalise":
        raise InvalidInputError.of(owner, "before", f"'normalise' for method {method!r}", repr(first.kind),
                                   "Its guarantee speaks of the unit sphere.")  # fmt: skip
    if output not in ("full", "reduced"):
        raise InvalidInputError.of(owner, "output", "'full' or 'reduced'", repr(output)[:40])
    if output == "reduced" and wanted != "own map":
        raise InvalidInputError.of(owner, "output", "'full'", "'reduced'",
                                   "Only the own map of a subspace method drops dimensions.")  # fmt: skip
    other_space = output == "reduced" or any(step.kind in ("truncate", "project") for step in after)
    if other_space and isinstance(utility, UtilityTask) and utility.same_space:
        param = "output" if output == "reduced" else "postprocess"
        raise InvalidInputError.of(owner, param, "without a change of dimension with this utility",
                                   "'reduced'" if output == "reduced" else "truncate or project",
                                   "The task compares released vectors with clean ones.")  # fmt: skip
    return Choices(chosen, scale, wanted, first, after, output, splits)  # type: ignore[arg-type]


def check_postprocess(value: Any, default: str) -> tuple[str, tuple[Step, ...]]:
    """Return the map that is wanted and the steps after it.

    Args:
        value: None, or a string such as ``wiener,normalise,float16``, or a sequence of such names and of `Step`.
            ``none`` or ``wiener`` in the first place stands for the map; else the method's own stays.
        default: the method's own map.
    """
    owner = "fit"
    if value is None:
        return default, ()
    listed = value.split(",") if isinstance(value, str) else value
    if isinstance(listed, Step):
        listed = [listed]
    if not isinstance(listed, list | tuple) or not all(
        isinstance(one, str | Step) for one in listed
    ):
        wanted = "None, a string of step names, or a list of them"
        raise InvalidInputError.of(owner, "postprocess", wanted, type(value).__name__)
    steps = [one.strip() if isinstance(one, str) else one for one in listed]
    wanted = default
    if steps and steps[0] in ("none", "wiener"):
        wanted = str(steps.pop(0))
    return wanted, tuple(one if isinstance(one, Step) else _step(one) for one in steps)


def _step(text: str) -> Step:
    kind, _, value = text.partition(":")
    try:
        number = float(value) if value else None
    except ValueError:
        got = repr(text)[:40]
        raise InvalidInputError.of(
            "fit", "postprocess", "steps such as truncate:128 or int8:0.5", got
        ) from None
    if kind == "int8" and number is None:
        number = OPEN_RANGE
    return Step(kind, number)  # type: ignore[arg-type]


def same_space(value: Embeddings, param: str, n: int) -> Embeddings:
    """Return ``value`` checked, of the dimension n of ``positive``."""
    checked = check_embeddings(value, owner="fit_pairs", param=param)
    if checked.shape[1] != n:
        got = f"dimension {checked.shape[1]}"
        raise IncompatibleError.of("fit_pairs", param, f"of dimension {n}, like `positive`", got)
    return checked


def check_labels(value: Any, rows: int) -> TokenLabels | None:
    """Return 0/1 labels (rows, V) as uint8, without the columns that are the same in every row.

    None if fewer than two columns are left: one label tells no term from another.
    """
    labels = np.asarray(value)
    numbers = labels.dtype.kind in "biuf"
    if labels.ndim != 2 or len(labels) != rows or not numbers or not np.isin(labels, (0, 1)).all():
        raise InvalidInputError.of("fit_pairs", "token_labels", f"a 0/1 array of shape ({rows}, V)",
                                   f"dtype {labels.dtype}, shape {labels.shape}",
                                   "Row i tells which concept terms the text of positive row i holds.")  # fmt: skip
    labels = labels.astype(np.uint8)
    labels = np.ascontiguousarray(labels[:, labels.any(axis=0) & ~labels.all(axis=0)])
    return labels if labels.shape[1] > 1 else None


def check_relabel(value: Any) -> Any:
    """Return ``"presidio"``, a detector of the caller's own, or None for no relabelling."""
    if value is None or value is False:
        return None
    if value is True or value == "presidio":
        return "presidio"
    if not callable(getattr(value, "detect", None)):
        got = repr(value)[:40] if isinstance(value, str) else type(value).__name__
        raise InvalidInputError.of(
            "fit", "relabel", "'presidio' or an object with `detect(texts)`", got
        )
    return value


def check_groups(value: Any, rows: int) -> Groups:
    """Return the group ids (rows,)."""
    groups = np.asarray(value)
    if groups.shape != (rows,) or groups.dtype.kind not in "iuUS":
        raise InvalidInputError.of("fit_pairs", "groups", f"{rows} integers or strings, one for each positive",
                                   f"dtype {groups.dtype}, shape {groups.shape}")  # fmt: skip
    return groups


def task_of(utility: UtilityChoice | UtilityTask, own: Embeddings, seed: int) -> UtilityTask:
    """Return the utility task; by name it is measured on the user's own texts."""
    if isinstance(utility, UtilityTask):
        return utility
    if utility == "similarity":
        return SimilarityTask.of(own, seed=seed)
    return NeighbourTask(own[:2000], queries=300, seed=seed)
