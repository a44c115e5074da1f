"""`FitOptions`: the checked settings of a fit, from its method and scale to its seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from vecveil.errors import InvalidInputError, out_of_range, unknown_name, wrong_type
from vecveil.privacy.mechanisms import OPEN_RANGE, Before, Step
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import ELLIPTICAL_LAPLACE, KINDS, Candidate, Method, Scale, options_of
from vecveil.privacy.protector.methods import METHODS, TEXT_METHODS
from vecveil.privacy.protector.methods.noise import with_wiener
from vecveil.privacy.protector.protector import Output
from vecveil.privacy.utility.sealed_search import SealedSearchTask, check_query_noise
from vecveil.privacy.utility.tasks import NeighbourTask, RetrievalTask, SimilarityTask, UtilityTask
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_seed

Utility = Literal["similarity", "neighbours", "sealed-search"] | UtilityTask
Postprocess = str | Step | Sequence[str | Step] | None

SEALED_TARGET = 0.99
"""Default target of sealed search, whose only loss is a missed candidate."""
SEALED_ROWS = 4000
"""Maximum number of texts for the calibration of sealed search, which sorts their scores at every step."""
OWN_TAIL = 2000
"""Minimum number of texts to model the rest of a collection; with fewer, ordinary texts model it if there are any."""

DEFAULTS: dict[str, Any] = {
    "method": "subspace",
    **dict.fromkeys((*KINDS, "delta")),
    "utility": "similarity",
    "candidates": None,
    "collection_size": None,
    "query_noise": 1,
    "accept_leak": False,
    "before": None,
    "postprocess": None,
    "output": "full",
    "splits": 1,
    "encoder": None,
    "concept_name": None,
    "seed": 0,
    "show_progress": None,
}
"""Keywords that every fit takes; others are options of the method."""


@dataclass(frozen=True)
class SealedSearch:
    """Settings of the search that a fit calibrates for; fields as in `vecveil.fit_pairs`."""

    candidates: int
    collection_size: int
    query_noise: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FitOptions:
    """The settings of a fit, checked once.

    Attributes:
        owner: the calling function, for messages.
        own: the method's options, an object of its ``option_type``.
        map: the map after the noise: ``none``, ``wiener``, or the method's ``own map``.
        after: the steps after the map.
    """

    owner: str
    method: Method
    own: Any
    scale: Scale | None
    utility: Utility
    sealed: SealedSearch | None
    accept_leak: bool
    before: Before
    map: str
    after: tuple[Step, ...]
    output: Output
    splits: int
    encoder: Any
    concept: str | None
    seed: int
    show_progress: bool | None

    @classmethod
    def of(cls, owner: str, keywords: Mapping[str, Any]) -> FitOptions:
        """Return the options of the keywords of a fit: those in `DEFAULTS`, and the options of the method."""
        given = {**DEFAULTS, **keywords}
        # The method first: it decides which scales and options are allowed.
        method, utility = method_named(given["method"]), given["utility"]
        if owner == "fit_labels":
            require_no_pairs(method, None)
        sealed = _sealed_search(given)
        if sealed is not None and "target_utility" in method.scales and all(given[k] is None for k in KINDS):
            given["target_utility"] = SEALED_TARGET
        scale = Scale.of(given, method=method.name, allowed=method.scales, takes_delta=method.delta)
        if owner == "fit_labels":
            require_no_pairs(method, scale)
        splits = check_count(given["splits"], owner="fit", param="splits", maximum=16)
        own = options_of(method, {name: value for name, value in given.items() if name not in DEFAULTS})
        # Any δ: whether noise can be split does not depend on it.
        if splits > 1 and not method.family(0.5).can_split:
            raise InvalidInputError(
                f"Method {method.name!r} draws no normals that `splits` could split.", param="splits"
            )
        named = isinstance(utility, str) and utility in get_args(get_args(Utility)[0])
        if not isinstance(utility, UtilityTask) and not named:
            raise InvalidInputError(
                "`utility` is 'similarity', 'neighbours', 'sealed-search' or a vecveil.metrics.UtilityTask.",
                param="utility",
            )
        map_name, after = check_postprocess(given["postprocess"], method.postprocess)
        if map_name == "wiener" and method.kind != "formal":
            raise InvalidInputError(
                f"Method {method.name!r} has no noise of a known shape, which the Wiener filter needs: leave 'wiener' "
                "out of `postprocess`.",
                param="postprocess",
            )
        before = Before.of(method.before if given["before"] is None else given["before"])
        if method.before == "normalise" and before.kind != "normalise":
            raise InvalidInputError(
                f"The guarantee of method {method.name!r} holds on the unit sphere: pass before='normalise', or leave "
                "`before` out.",
                param="before",
            )
        if not isinstance(given["accept_leak"], bool):
            raise wrong_type("fit", "accept_leak", "True or False", given["accept_leak"])
        if not isinstance(given["concept_name"], str | None):
            raise wrong_type("fit", "concept_name", "a name, or None", given["concept_name"])
        output = given["output"]
        if not isinstance(given["output"], str) or output not in ("full", "reduced"):
            raise unknown_name("fit", "output", ("full", "reduced"), output)
        truncated = getattr(own, "release", "full") == "truncated"
        if truncated and map_name == "wiener":
            raise InvalidInputError(
                "A truncated release has masked vectors, which the Wiener filter does not know: leave 'wiener' out of "
                "`postprocess`.",
                param="postprocess",
            )
        if output == "reduced" and map_name != "own map" and not truncated:
            raise InvalidInputError(
                "`output` 'reduced' needs the map of a subspace method, or sparse with release='truncated': these "
                "alone drop dimensions.",
                param="output",
            )
        # Such a task needs clean and released vectors of one dimension.
        other_space = output == "reduced" or any(step.kind in ("truncate", "project") for step in after)
        if other_space and isinstance(utility, UtilityTask) and utility.same_space:
            param = "output" if output == "reduced" else "postprocess"
            raise InvalidInputError(
                f"`{param}` changes the dimension, and this utility compares released vectors with clean ones.",
                param=param,
            )
        return cls(
            owner=owner,
            method=method,
            own=own,
            scale=scale,
            utility=utility,
            sealed=sealed,
            accept_leak=given["accept_leak"],
            before=before,
            map=map_name,
            after=after,
            output=output,
            splits=splits,
            encoder=given["encoder"],
            concept=given["concept_name"],
            seed=check_seed(given["seed"], owner=owner),
            show_progress=given["show_progress"],
        )

    def with_method_options(self, **changes: Any) -> FitOptions:
        return replace(self, own=replace(self.own, **changes))

    def of_rows(self, kept: Any, data: Data) -> FitOptions:
        """Return the options with ``preserve``, one class per row, of the pairs ``kept``; None keeps all."""
        preserve = getattr(self.own, "preserve", None)
        if kept is None or preserve is None:
            return self
        pairs, behind = len(data.positive), 0 if data.background is None else len(data.background)
        if len(preserve) not in (pairs, pairs + behind):
            return self
        return self.with_method_options(preserve=[preserve[i] for i in kept] + list(preserve[pairs:]))

    def task(self, own: Embeddings, data: Data) -> UtilityTask:
        """Return the utility task; a task given by name uses the user's texts, of which ``own`` is a sample."""
        if self.sealed is not None:
            return self._sealed_task(self.sealed, own, data)
        if isinstance(self.utility, UtilityTask):
            return self.utility
        if self.utility == "similarity":
            return SimilarityTask.of(own, seed=self.seed)
        return NeighbourTask(own[:2000], queries=300, seed=self.seed)

    def _sealed_task(self, sealed: SealedSearch, own: Embeddings, data: Data) -> SealedSearchTask:
        size = sealed.collection_size
        documents, distractors = own[: min(SEALED_ROWS, size)], None
        judged: dict[str, Any] = {}
        if isinstance(self.utility, RetrievalTask):
            documents = self.utility.documents
            task = self.utility
            judged = {"queries": task.queries, "relevance": task.relevance, "own": task.own}
            if len(documents) < min(OWN_TAIL, size):
                distractors = own[:SEALED_ROWS]
        elif self.owner == "fit_pairs" and data.background is not None and len(data.positive) < OWN_TAIL:
            # Ordinary texts of `fit` are the user's; a background may be of a different domain.
            documents, distractors = data.positive[:size], data.background[:SEALED_ROWS]
        target = None if self.scale is None else self.scale.utility_target
        return SealedSearchTask(
            documents, distractors=distractors, **judged, **vars(sealed), target=target or SEALED_TARGET, seed=self.seed
        )

    def check_size(self, texts: int) -> None:
        """Raise InvalidInputError for a collection smaller than the ``texts`` of the fit."""
        if self.sealed is not None and self.sealed.collection_size < texts:
            raise out_of_range(
                "fit", "collection_size", f"at least {texts}, the number of texts", self.sealed.collection_size
            )

    def with_steps(self, candidate: Candidate, data: Data) -> Candidate:
        """Return the method's candidate with the steps of these options, and its method's noise family by default."""
        delta = None if self.scale is None else self.scale.delta
        own = candidate.family is not ELLIPTICAL_LAPLACE  # a family that depends on what the method has learnt
        family = candidate.family if own else self.method.family(delta)
        candidate = replace(candidate, family=family, before=self.before, after=self.after)
        if self.map == "wiener":
            candidate = with_wiener(candidate, data.moments)
        # Only the fitted map determines the dimension of a projection.
        linear = candidate.map_of(1.0)
        reduced = linear is not None and self.output == "reduced"
        dimension = linear.rank if linear is not None and reduced else data.dimension
        for step in self.after:
            if step.matrix is not None and step.matrix.shape[1] != dimension:
                raise InvalidInputError(
                    f"The projection in `postprocess` has shape {step.matrix.shape}; it gets {dimension} dimensions.",
                    param="postprocess",
                )
            dimension = step.output_dimension(dimension)
        return candidate

    def fitted_method(self) -> tuple[Method, Any]:
        """Return the method and its options, or the plain method if another map replaces the method's own."""
        if self.method.without_map is None or self.map == "own map":
            return self.method, self.own
        plain = METHODS[self.method.without_map]
        return plain, plain.option_type(**{name: getattr(self.own, name) for name in plain.options})


def method_named(name: str) -> Method:
    """Return the method of this name that protects vectors."""
    if isinstance(name, str) and name in TEXT_METHODS:
        raise InvalidInputError(
            f"Method {name!r} rewrites texts before they are encoded, and these vectors contain the concept already. "
            "Call vecveil.fit with texts and a concept that matches them.",
            param="method",
        )
    if not isinstance(name, str) or name not in METHODS:
        raise unknown_name("fit", "method", sorted(METHODS), name)
    return METHODS[name]


def require_no_pairs(method: Method, scale: Scale | None) -> None:
    """Raise InvalidInputError for a method or a scale that needs pairs."""
    if not method.labels:
        known = ", ".join(name for name, each in METHODS.items() if each.labels)
        raise InvalidInputError(
            f"Method {method.name!r} needs pairs of texts with and without the concept, and labels name no words to "
            f"remove. Use one of {known}.",
            param="method",
        )
    if scale is not None and scale.kind == "target_advantage":
        raise InvalidInputError(
            "`target_advantage` needs pairs, and labels name no words to remove. Give `epsilon`, `noise_to_signal`, "
            "`target_utility` or `target_cosine`.",
            param="target_advantage",
        )


def _sealed_search(given: Mapping[str, Any]) -> SealedSearch | None:
    utility, query_noise = given["utility"], given["query_noise"]
    sizes = {name: given[name] for name in ("candidates", "collection_size")}
    named = isinstance(utility, str) and utility == "sealed-search"
    if not (named or (isinstance(utility, RetrievalTask) and any(sizes.values()))):
        for param, value in (*sizes.items(), ("query_noise", None if query_noise == 1 else query_noise)):
            if value is not None:
                raise InvalidInputError(
                    f"`{param}` belongs to utility='sealed-search' or a RetrievalTask.", param=param
                )
        return None
    for param, value in sizes.items():
        if value is None:
            raise InvalidInputError(
                f"Sealed search needs `{param}`: more rows need more candidates, or less noise.", param=param
            )
    size = check_count(sizes["collection_size"], owner="fit", param="collection_size", minimum=10)
    count = check_count(sizes["candidates"], owner="fit", param="candidates", minimum=10, maximum=size)
    return SealedSearch(count, size, check_query_noise(query_noise, owner="fit"))


def check_postprocess(value: Any, default: str) -> tuple[str, tuple[Step, ...]]:
    """Return the name of the map (``default`` is the method's own) and the steps after it.

    ``value`` is None, a string such as ``wiener,normalise,float16``, or a sequence of such names and of `Step`.
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
        raise InvalidInputError(
            f"Unknown step of `postprocess`: {repr(text)[:40]}. Use steps such as truncate:128 or int8:0.5.",
            param="postprocess",
        ) from None
    if kind == "int8" and number is None:
        number = OPEN_RANGE  # the fit sets it to the range of the releases
    return Step(kind, number)  # type: ignore[arg-type]
