"""`FitOptions`: the checked settings of a fit, from its method and scale to its seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vecveil.errors import InvalidInputError, out_of_range, unknown_name, wrong_type
from vecveil.mechanisms import OPEN_RANGE, Before, Step
from vecveil.metrics import NeighbourTask, RetrievalTask, SealedSearchTask, SimilarityTask, UtilityTask
from vecveil.protector.method import NoiseScale
from vecveil.protector.methods import METHODS, Method, method_named
from vecveil.protector.protector import Output
from vecveil.types import Embeddings
from vecveil.validation import check_count

Utility = Literal["similarity", "neighbours", "sealed-search"] | UtilityTask
Postprocess = str | Step | Sequence[str | Step] | None

SEALED_TARGET = 0.99
"""Default target of sealed search, whose exact ranking leaves candidates as the only loss."""
SEALED_ROWS = 4000
"""Most texts of the fit that sealed search is calibrated on: their protected scores are sorted at every step."""
OWN_TAIL = 2000
"""Fewest texts of a collection that stand for the rest of it: with fewer, ordinary texts do where there are any."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FitOptions:
    """The settings of a fit, checked once.

    Attributes:
        owner: the calling function, for messages.
        sealed: for sealed search its ``candidates``, ``collection_size`` and ``query_noise``, else None.
        accept_leak: whether sealed search may leave next to no protection.
        map: the map after the noise: ``none``, ``wiener``, or the method's ``own map``.
        after: the steps after the map.
    """

    owner: str
    method: Method
    scale: NoiseScale
    utility: Utility
    sealed: dict[str, Any] | None
    accept_leak: bool
    before: Before
    map: str
    after: tuple[Step, ...]
    output: Output
    splits: int
    method_options: dict[str, Any]
    encoder: Any
    concept: str | None
    seed: int
    show_progress: bool | None

    @classmethod
    def of(
        cls,
        owner: str,
        *,
        method: str,
        utility: Any,
        candidates: Any,
        collection_size: Any,
        query_noise: Any,
        accept_leak: bool,
        before: Before | str | None,
        postprocess: Any,
        output: str,
        encoder: Any,
        concept: str | None,
        seed: int,
        show_progress: bool | None,
        method_options: dict[str, Any],
        **scales: float | None,
    ) -> FitOptions:
        """Return the options; ``scales`` are the fields of `NoiseScale`."""
        # The method first: it decides which scales and options are allowed.
        chosen = method_named(method)
        sealed = _check_sealed(utility, candidates, collection_size, query_noise)
        if sealed is not None and "target_utility" in chosen.scales and not any(scales.values()):
            scales["target_utility"] = SEALED_TARGET
        scale = NoiseScale(**scales)
        scale.check(method, chosen.scales, delta=chosen.delta)
        method_options = dict(method_options)
        # Every noise made of normals takes splits, so it is not an option of one method.
        splits = check_count(method_options.pop("splits", 1), owner="fit", param="splits", maximum=16)
        check_option_names(method, chosen.options, method_options)
        # Any δ: whether noise can be split does not depend on it.
        if splits > 1 and not chosen.family(0.5).can_split:
            raise InvalidInputError.of("fit", "splits", f"1 for method {method!r}", splits)
        if not isinstance(utility, UtilityTask) and utility not in get_args(get_args(Utility)[0]):
            got = repr(utility)[:60] if isinstance(utility, str) else type(utility).__name__
            constraint = "'similarity', 'neighbours', 'sealed-search' or a vecveil.metrics.UtilityTask"
            raise InvalidInputError.of("fit", "utility", constraint, got)
        map_name, after = check_postprocess(postprocess, chosen.postprocess)
        if map_name == "wiener" and chosen.kind != "formal":
            raise InvalidInputError.of(
                "fit",
                "postprocess",
                f"without 'wiener' for method {method!r}",
                "'wiener'",
                "The filter needs noise of a known shape.",
            )
        first = Before.of(chosen.before if before is None else before)
        if chosen.before == "normalise" and first.kind != "normalise":
            raise InvalidInputError.of(
                "fit",
                "before",
                f"'normalise' for method {method!r}",
                repr(first.kind),
                "Its guarantee holds on the unit sphere.",
            )
        if output not in ("full", "reduced"):
            raise unknown_name("fit", "output", ("'full'", "'reduced'"), output)
        if output == "reduced" and map_name != "own map":
            raise InvalidInputError.of(
                "fit", "output", "'full'", "'reduced'", "Only a subspace method's own map drops dimensions."
            )
        # Such a task needs clean and released vectors of one dimension.
        other_space = output == "reduced" or any(s.kind in ("truncate", "project") for s in after)
        if other_space and isinstance(utility, UtilityTask) and utility.same_space:
            param = "output" if output == "reduced" else "postprocess"
            raise InvalidInputError.of(
                "fit",
                param,
                "without a change of dimension with this utility",
                "'reduced'" if output == "reduced" else "truncate or project",
                "The task compares released vectors with clean ones.",
            )
        return cls(
            owner=owner,
            method=chosen,
            scale=scale,
            utility=utility,
            sealed=sealed,
            accept_leak=bool(accept_leak),
            before=first,
            map=map_name,
            after=after,
            output=output,  # type: ignore[arg-type]
            splits=splits,
            method_options=method_options,
            encoder=encoder,
            concept=concept,
            seed=check_count(seed, owner=owner, param="seed", minimum=0),
            show_progress=show_progress,
        )

    def task(self, own: Embeddings, positive: Embeddings, background: Embeddings | None) -> UtilityTask:
        """Return the utility task; a task given by name uses the user's texts."""
        if self.sealed is not None:
            return self._sealed_task(own, positive, background)
        if isinstance(self.utility, UtilityTask):
            return self.utility
        if self.utility == "similarity":
            return SimilarityTask.of(own, seed=self.seed)
        return NeighbourTask(own[:2000], queries=300, seed=self.seed)

    def _sealed_task(self, own: Embeddings, positive: Embeddings, background: Embeddings | None) -> SealedSearchTask:
        assert self.sealed is not None
        size = self.sealed["collection_size"]
        documents, distractors = own[: min(SEALED_ROWS, size)], None
        judged: dict[str, Any] = {}
        if isinstance(self.utility, RetrievalTask):
            documents = self.utility.documents
            judged = {"queries": self.utility.queries, "relevance": self.utility.relevance}
            if len(documents) < min(OWN_TAIL, size):
                distractors = own[:SEALED_ROWS]
        elif self.owner == "fit_pairs" and background is not None and len(positive) < OWN_TAIL:
            # Ordinary texts of `fit` are the user's; a background may be of another domain.
            documents, distractors = positive[:size], background[:SEALED_ROWS]
        return SealedSearchTask(
            documents,
            distractors=distractors,
            **judged,
            **self.sealed,
            target=self.scale.target_utility or SEALED_TARGET,
            seed=self.seed,
        )

    def check_size(self, texts: int) -> None:
        """Raise InvalidInputError for a collection that is to be smaller than the ``texts`` of the fit."""
        if self.sealed is not None and self.sealed["collection_size"] < texts:
            raise out_of_range(
                "fit", "collection_size", f"at least {texts}, the number of texts", self.sealed["collection_size"]
            )


def _check_sealed(utility: Any, candidates: Any, collection_size: Any, query_noise: Any) -> dict[str, Any] | None:
    """Return the settings of sealed search, or None for another utility."""
    named = isinstance(utility, str) and utility == "sealed-search"
    given = {"candidates": candidates, "collection_size": collection_size}
    if not (named or (isinstance(utility, RetrievalTask) and any(given.values()))):
        for param, value in (*given.items(), ("query_noise", None if query_noise is True else query_noise)):
            if value is not None:
                raise InvalidInputError.of(
                    "fit",
                    param,
                    "left out for this utility",
                    repr(value)[:40],
                    fix="It belongs to utility='sealed-search' or a RetrievalTask.",
                )
        return None
    for param, value in given.items():
        if value is None:
            raise InvalidInputError.of(
                "fit", param, "given for sealed search", None, "More rows need more candidates, or less noise."
            )
    if not isinstance(query_noise, bool):
        raise wrong_type("fit", "query_noise", "True or False", query_noise)
    size = check_count(collection_size, owner="fit", param="collection_size", minimum=10)
    count = check_count(candidates, owner="fit", param="candidates", minimum=10, maximum=size)
    return {"candidates": count, "collection_size": size, "query_noise": query_noise}


def check_option_names(method: str, known: tuple[str, ...], options: dict[str, Any]) -> None:
    if unknown := sorted(set(options) - set(known)):
        raise InvalidInputError.of(
            "fit",
            unknown[0],
            f"an option of method {method!r}",
            "an unknown name",
            fix=f"It takes {', '.join(known) or 'no options'}.",
        )


def check_postprocess(value: Any, default: str) -> tuple[str, tuple[Step, ...]]:
    """Return the name of the map and the steps after it.

    Args:
        value: None, or a string such as ``wiener,normalise,float16``, or a sequence of such names and of `Step`.
            ``none`` or ``wiener`` first replaces the method's map.
        default: the method's own map.
    """
    if value is None:
        return default, ()
    # The command line gives one string, Python usually a list.
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, Step):
        items = [items]
    if not isinstance(items, list | tuple) or not all(isinstance(i, str | Step) for i in items):
        raise wrong_type("fit", "postprocess", "None, a string of step names, or a list of them", value)
    steps = [item.strip() if isinstance(item, str) else item for item in items]
    name = str(steps.pop(0)) if steps and steps[0] in ("none", "wiener") else default
    return name, tuple(step if isinstance(step, Step) else _step(step) for step in steps)


def _step(text: str) -> Step:
    kind, _, value = text.partition(":")
    try:
        number = float(value) if value else None
    except ValueError:
        raise InvalidInputError.of(
            "fit", "postprocess", "steps such as truncate:128 or int8:0.5", repr(text)[:40]
        ) from None
    if kind == "int8" and number is None:
        number = OPEN_RANGE  # the fit sets it to the range of the releases
    return Step(kind, number)  # type: ignore[arg-type]


def check_label_method(method: str, target_advantage: float | None) -> None:
    """Raise InvalidInputError for methods and scales that need pairs."""
    why = "Labels name no words to remove, so there are no pairs."
    if not method_named(method).labels:
        known = ", ".join(name for name, each in METHODS.items() if each.labels)
        raise InvalidInputError.of("fit", "method", f"one of {known} for a concept given by labels", repr(method), why)
    if target_advantage is not None:
        raise InvalidInputError.of(
            "fit",
            "target_advantage",
            "left out for a concept given by labels",
            target_advantage,
            why,
            "Give `epsilon`, `noise_to_signal`, `target_utility` or `target_cosine`.",
        )
