"""Text-level methods (SPARSE, Table 9 and appendix F.3), and text stages, which rewrite before other methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

import numpy as np

from vecveil.errors import ConceptError, InvalidInputError, unknown_name, wrong_type
from vecveil.privacy.accounting import Guarantee, rewriting_guarantee
from vecveil.privacy.concepts import Concept, ConceptMatches, Detector, Span
from vecveil.privacy.concepts.concept import concept_from_record
from vecveil.privacy.concepts.concept_file import entity_options
from vecveil.privacy.concepts.rewriting import (
    Deleting,
    Redacting,
    ReplacingAtRandom,
    ReplacingByHypernyms,
    ReplacingByMembers,
    ReplacingBySurrogates,
    Rewriter,
    made_up_members,
    members_of,
)
from vecveil.privacy.mechanisms import Mechanism
from vecveil.privacy.mechanisms.base import Arrays
from vecveil.privacy.protector.method import NoOptions, option_names
from vecveil.privacy.randomness import WordStream
from vecveil.privacy.utility.estimates import Estimate
from vecveil.privacy.utility.tasks import NeighbourTask, Sides, SimilarityTask, UtilityRelease, UtilityTask
from vecveil.types import Embeddings, Matrix
from vecveil.validation import check_count

Rewrite = Literal["hypernym", "delete", "surrogate"]
SAMPLE = 1000
"""Number of texts, encoded clean and rewritten, to measure the cost of rewriting."""


@dataclass(frozen=True)
class RandomOptions:
    """Options of ``replace-random``: number of replacement words, and minimum number of texts with each."""

    words: int = 2000
    min_word_texts: int = 5

    def __post_init__(self) -> None:
        for each in fields(self):
            check_count(getattr(self, each.name), owner="fit", param=each.name)


@dataclass(frozen=True, eq=False)
class SemanticOptions:
    """Options of ``replace-semantic``; ``members`` are ``own`` (from the texts), ``faker``, or lists by type."""

    members: Any = "own"
    locales: Any = ("en_US",)
    count: int = 500


@dataclass(frozen=True)
class TextMethod:
    """A text-level method's name, summary and builder; fields as in `vecveil.privacy.protector.Method`."""

    name: str
    summary: str
    build: Callable[[ConceptMatches, Concept, int, Any], Rewriter]
    option_type: type[Any] = NoOptions

    kind: ClassVar[str] = "empirical"
    metric: ClassVar[str] = "none"
    scales: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[bool] = False
    postprocess: ClassVar[str] = "none"

    @property
    def options(self) -> tuple[str, ...]:
        return option_names(self.option_type)


def _redact(matches: ConceptMatches, concept: Concept, seed: int, options: NoOptions) -> Rewriter:
    return Redacting(concept, seed)


def _replace_random(matches: ConceptMatches, concept: Concept, seed: int, options: RandomOptions) -> Rewriter:
    return ReplacingAtRandom.of(matches, concept, seed=seed, count=options.words, min_texts=options.min_word_texts)


def _replace_semantic(matches: ConceptMatches, concept: Concept, seed: int, options: SemanticOptions) -> Rewriter:
    if isinstance(options.members, str) and options.members == "own":
        return ReplacingByMembers.of(matches, concept, seed=seed)
    # Only types that occur in the texts need members.
    labels = {span.label for spans in matches.spans for span in spans}
    return ReplacingByMembers(concept, seed, _given_members(options, labels, seed, "members"))


def _given_members(options: SemanticOptions, labels: set[str], seed: int, param: str) -> dict[str, tuple[str, ...]]:
    """Return made-up members, or the caller's lists: at least two for each type in the texts."""
    members, locales = options.members, options.locales
    if isinstance(members, str) and members == "faker":
        locales = tuple(locales.split(",")) if isinstance(locales, str) else tuple(locales)
        count = check_count(options.count, owner="fit", param="count", minimum=2)
        return made_up_members(labels, locales=locales, count=count, seed=seed)
    expected = "'own', 'faker', or a mapping of each type to two strings or more"
    valid = isinstance(members, Mapping) and all(
        isinstance(names, Sequence)
        and not isinstance(names, str)
        and len(set(names)) > 1
        and all(isinstance(name, str) and name.strip() for name in names)
        for names in members.values()
    )
    if not valid:
        raise wrong_type("fit", param, expected, members)
    if missing := len(labels - set(members)):
        raise InvalidInputError(f"`{param}` lacks {missing} types of the texts: {expected}.", param=param)
    return {str(label): tuple(names) for label, names in members.items()}


TEXT_METHODS: dict[str, TextMethod] = {
    "redact": TextMethod("redact", "every character of the concept becomes *, before the text is encoded", _redact),
    "replace-random": TextMethod(
        "replace-random",
        "each word of the concept becomes a random word of the texts, before the text is encoded",
        _replace_random,
        option_type=RandomOptions,
    ),
    "replace-semantic": TextMethod(
        "replace-semantic",
        "each mention becomes a random member of the same type, before the text is encoded",
        _replace_semantic,
        option_type=SemanticOptions,
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class TextPlaceholder(Mechanism):
    """Placeholder mechanism of text-level methods, which release vectors of rewritten texts unchanged."""

    size: int
    kind: str = "redact"

    name: ClassVar[str] = "texts-only"
    is_random: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"TextPlaceholder(n={self.size})"

    @property
    def dimension(self) -> int:
        return self.size

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        out[:] = X
        return bool(np.isfinite(X).all())

    def noise_covariance(self) -> Matrix:
        return np.zeros((self.size, self.size))

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        rewriter = REWRITERS[self.kind]
        return rewriting_guarantee(
            dimension=self.size, what=rewriter.becomes, same=rewriter.alike, shows=rewriter.shows
        )

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        # The caller knows the rewriter and sets the kind.
        return cls(dimension)


# -- the text stage


@dataclass(frozen=True, repr=False)
class StageOptions:
    """The checked arguments of a text stage; see `vecveil.fit`."""

    rewrite: str
    concept: Concept
    own: bool
    hypernyms: Mapping[str, str]
    key: Any
    surrogates: Any
    name: str

    @classmethod
    def of(
        cls,
        rewrite: Any,
        concept: Concept,
        *,
        detector: Any = None,
        hypernyms: Any = None,
        surrogate_key: Any = None,
        surrogates: Any = None,
    ) -> StageOptions:
        """Return the options; raise InvalidInputError for arguments that the stage does not use."""
        uses = {"hypernym": ("hypernyms",), "delete": (), "surrogate": ("surrogate_key", "surrogates")}
        if rewrite is not None and rewrite not in uses:
            raise unknown_name("fit", "rewrite", tuple(uses), rewrite)
        known = () if rewrite is None else ("detector", *uses[rewrite])
        given = {"detector": detector, "hypernyms": hypernyms, "surrogate_key": surrogate_key, "surrogates": surrogates}
        for param, value in given.items():
            if value is not None and param not in known:
                which = "`rewrite`" if rewrite is None else f"another `rewrite` than {rewrite!r}"
                raise InvalidInputError(f"`{param}` belongs to {which}.", param=param)
        if rewrite == "surrogate" and surrogate_key is None:
            raise InvalidInputError(
                "`rewrite` 'surrogate' needs `surrogate_key`: without a secret anyone could compute the surrogates. "
                "Make a key file with `vecveil key new FILE`.",
                param="surrogate_key",
            )
        if hypernyms is not None and not (
            isinstance(hypernyms, Mapping)
            and all(isinstance(noun, str) and noun.strip() for noun in hypernyms.values())
        ):
            raise wrong_type("fit", "hypernyms", "a mapping of labels to nouns", hypernyms)
        finder = concept if detector is None else _detector_concept(detector, concept.name)
        finder.require_spans("fit")
        if finder.columns or any(getattr(each, "positional", False) for each in finder.detectors):
            raise InvalidInputError(
                "The concept has given spans, which later texts lack: pass a `detector`, such as ['PERSON'] or a "
                "concept file.",
                param="detector",
            )
        return cls(rewrite, finder, detector is None, hypernyms or {}, surrogate_key, surrogates or "own", concept.name)

    def build(self, texts: Sequence[str], spans: Sequence[Sequence[Span]], seed: int) -> Rewriter:
        """Return the rewriter; members for surrogates come from ``spans`` of ``texts`` by default."""
        if self.rewrite == "delete":
            return Deleting(self.concept, seed)
        if self.rewrite == "hypernym":
            return ReplacingByHypernyms.of(self.concept, self.hypernyms, name=self.name, seed=seed)
        members = members_of(texts, spans)
        if self.surrogates != "own":
            members = _given_members(SemanticOptions(self.surrogates), set(members), seed, "surrogates")
        return ReplacingBySurrogates.of(self.concept, members, self.key, seed=seed)


def _detector_concept(detector: Any, name: str) -> Concept:
    if isinstance(detector, Concept):
        return detector
    if isinstance(detector, str | os.PathLike):
        return Concept.from_file(detector)
    if isinstance(detector, list | tuple | Mapping):
        options = entity_options(list(detector) if isinstance(detector, tuple) else detector)
        return Concept.from_entities(name, options.pop("types"), **options)
    if not isinstance(detector, Detector):
        expected = "a Concept or its file, a detector, or entity types as in a concept file"
        raise wrong_type("fit", "detector", expected, detector)
    return Concept(name, (detector,))


@dataclass(frozen=True, eq=False, repr=False)
class TextStage:
    """The rewriting of one fit, which contains its texts: keep it in memory."""

    options: StageOptions
    rewriter: Rewriter
    spans: dict[str, list[Span]]
    written: dict[str, str]

    @classmethod
    def of(cls, options: StageOptions, texts: Sequence[str], seed: int, show_progress: bool | None) -> TextStage:
        """Return the stage with the spans that it detected in ``texts``."""
        texts = list(dict.fromkeys(texts))
        spans = options.concept.detect(texts, show_progress=show_progress)
        if not any(spans):
            raise ConceptError(
                "fit: `detector` finds nothing in the texts, so no text would be rewritten.",
                code="E-CONCEPT-NO-MATCH",
                param="detector",
            )
        rewriter = options.build(texts, spans, seed)
        written = dict(zip(texts, rewriter.rewrite(texts, spans=spans), strict=True))
        if len(set(written.values())) == 1:
            raise ConceptError(
                "fit: `detector` finds the whole of each text, so all texts would be rewritten alike.",
                code="E-CONCEPT-WHOLE",
                param="detector",
            )
        return cls(options, rewriter, dict(zip(texts, spans, strict=True)), written)

    def encode(self, texts: Sequence[str], encoder: Any, show_progress: bool | None) -> Embeddings:
        """Return the vectors of the rewritten ``texts``; equal rewritten texts have equal vectors."""
        new = list(dict.fromkeys(text for text in texts if text not in self.written))
        self.written.update(zip(new, self.rewriter.rewrite(new, show_progress=show_progress), strict=True))
        written = [self.written[text] for text in texts]
        place = {text: i for i, text in enumerate(dict.fromkeys(written))}
        # Each distinct text once: two encodings of it may differ in the last bits, which would look like a concept.
        vectors: Embeddings = np.asarray(encoder.encode(list(place), show_progress=show_progress))
        return vectors[[place[text] for text in written]]

    def report(self, matches: ConceptMatches) -> dict[str, Any]:
        """Return the counts for a fit's report, and another detector's recall on the concept's spans."""
        spans = self.spans.values()
        about: dict[str, Any] = {
            "kind": self.rewriter.kind,
            "detector": "own" if self.options.own else self.options.concept.describe()["detectors"],
            "texts": len(self.spans),
            "rewritten": sum(map(bool, spans)),
            "spans": sum(map(len, spans)),
            **self.rewriter.counts(),
        }
        if self.options.own or matches.labels is not None:
            return about
        total = whole = touched = 0
        for text, concept_spans in zip(matches.texts, matches.spans, strict=True):
            detected = self.spans.get(text)
            if detected is None:
                continue
            for span in concept_spans:
                total += 1
                whole += any(d.start <= span.start and span.end <= d.end for d in detected)
                touched += any(d.start < span.end and span.start < d.end for d in detected)
        recall = {"spans": total, "found": whole, "partly": touched - whole, "recall": whole / max(total, 1)}
        return about | {"detector_recall": recall}

    def cost(self, texts: Sequence[str], encoder: Any, protector: Any, seed: int) -> dict[str, Any]:
        """Return similarity and neighbours of the rewritten ``texts``, before the noise and after it."""
        rng = np.random.default_rng(seed)
        sample = [texts[int(i)] for i in np.sort(rng.permutation(len(texts))[:SAMPLE])]
        clean = np.asarray(encoder.encode(sample, show_progress=False))
        rewritten = self.encode(sample, encoder, False)
        stages = {"rewritten": rewritten, "protected": protector.protect(rewritten, rng)}
        return {name: utility_of_rows(clean, Y, rng, seed=seed) for name, Y in stages.items()}


class OriginalsTask(UtilityTask):
    """A task on vectors of original texts, scored on releases of the rewritten texts, as in sealed search."""

    def __init__(self, task: UtilityTask, originals: Embeddings, rewritten: Embeddings) -> None:
        self.task, self.key, self.label = task, task.key, task.label
        self.same_space = task.same_space
        self._rows = released_rows(originals, rewritten, owner="fit")
        self._known: dict[int, tuple[Embeddings, Embeddings]] = {}

    def clean(self) -> Estimate:
        return self.task.clean()

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        return self.task.protected(self._of_rewritten(release), rng, sides=sides)

    def to_record(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> dict[str, Any]:
        return self.task.to_record(self._of_rewritten(release), rng, sides=sides)

    def _of_rewritten(self, release: UtilityRelease) -> UtilityRelease:
        def released(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            # One array for each: a calibration draws the noise of an array once, and finds it by the array's identity.
            if id(X) not in self._known:
                self._known[id(X)] = (X, self._rows(X, np.random.default_rng(0)))
            return release(self._known[id(X)][1], rng)

        return released


REWRITERS: dict[str, type[Rewriter]] = {
    Redacting.kind: Redacting,
    ReplacingAtRandom.kind: ReplacingAtRandom,
    Deleting.kind: Deleting,
    ReplacingByMembers.kind: ReplacingByMembers,
    ReplacingByHypernyms.kind: ReplacingByHypernyms,
    ReplacingBySurrogates.kind: ReplacingBySurrogates,
}


def rewriter_from_record(record: Mapping[str, Any]) -> Rewriter:
    """Return the rewriter of a protector file; ValueError, LookupError or TypeError for an invalid record."""
    concept, seed, kind = concept_from_record(record["concept"]), record["seed"], record["kind"]
    # type, not isinstance: True is an int.
    if type(seed) is not int or seed < 0:
        raise ValueError("seed")
    if kind == Redacting.kind:
        return Redacting(concept, seed)
    if kind == ReplacingAtRandom.kind:
        words = _strings(record["words"])
        if not words:
            raise ValueError("words")
        return ReplacingAtRandom(concept, seed, words)
    if kind == Deleting.kind:
        return Deleting(concept, seed)
    if kind == ReplacingByHypernyms.kind:
        nouns = {str(label): noun for label, noun in record["nouns"].items()}
        if "" not in nouns or not all(isinstance(noun, str) for noun in nouns.values()):
            raise ValueError("nouns")
        return ReplacingByHypernyms(concept, seed, nouns)
    if kind in (ReplacingByMembers.kind, ReplacingBySurrogates.kind):
        members = {str(label): _strings(names) for label, names in record["members"].items()}
        if kind == ReplacingByMembers.kind:
            return ReplacingByMembers(concept, seed, members)
        key_id, check, source = (record[name] for name in ("key_id", "key_check", "source"))
        if not isinstance(key_id, str) or not isinstance(check, str) or not isinstance(source, str | None):
            raise TypeError("key")
        return ReplacingBySurrogates(concept, seed, members, key_id, check, source)
    raise ValueError("kind")


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError("words")
    return tuple(value)


def utility_of_rows(clean: Embeddings, released: Embeddings, rng: np.random.Generator, *, seed: int) -> dict[str, Any]:
    """Return the similarity and neighbours of ``clean`` that ``released``, vectors of the same texts, keep."""
    release = released_rows(clean, released, owner="fit")
    tasks = (SimilarityTask.of(clean, seed=seed), NeighbourTask(clean, queries=300, seed=seed))
    return {task.key: task.to_record(release, rng) for task in tasks}


def released_rows(
    clean: Embeddings, released: Embeddings, *, owner: str
) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
    """Return a release for utility tasks that maps each row of ``clean`` to the same text's row of ``released``."""
    # Tasks pass vectors, not row numbers; equal vectors have equal releases, as nothing is random.
    place = {np.asarray(row, dtype=np.float32).tobytes(): i for i, row in enumerate(clean)}

    def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
        if rng is None:
            return X
        try:
            rows = [place[np.asarray(row, dtype=np.float32).tobytes()] for row in X]
        except KeyError:
            raise InvalidInputError(
                f"{owner}: the method rewrites texts, so a task has to use the vectors of these texts.", param="tasks"
            ) from None
        return np.ascontiguousarray(released[rows])

    return release
