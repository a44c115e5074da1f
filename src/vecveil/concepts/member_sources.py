"""Member sources: word lists, Faker, corpus neighbours and detectors propose members of a concept."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vecveil.concepts.concept_file import load_yaml, read_text
from vecveil.concepts.folding import canonical, words
from vecveil.concepts.matching import Detector, checked_spans, merge_spans
from vecveil.errors import (
    DataFileError,
    InvalidInputError,
    optional_import,
    wrong_type,
)
from vecveil.runtime import progress
from vecveil.validation import check_count, check_probability, check_texts

LONGEST_MEMBER = 100
"""Characters; a longer string is a sentence, no member of a concept."""


@dataclass(frozen=True, eq=False, repr=False)
class ExpansionContext:
    """The listed terms, their groups and the encoder, passed to each source. It holds terms: keep it in memory.

    Attributes:
        listed: T distinct terms of the concept in the texts, canonical, most frequent first.
        labels: span label of each term.
        clusters: (T,) group of each term, from 0; all zeros without an encoder.
        centroids: (G, n) mean unit vector of each group, or None without an encoder.
        encoder: with ``encode(texts) -> (N, n)``, or None.
        seed: of the expansion; a source derives its generator from it.
        show_progress: None shows bars on a terminal only.
    """

    listed: tuple[str, ...]
    labels: tuple[str, ...]
    clusters: npt.NDArray[np.intp]
    centroids: npt.NDArray[np.float64] | None = None
    encoder: Any = None
    seed: int = 0
    show_progress: bool | None = None
    _known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        # A word of a listed phrase counts as listed: it is removed with the phrase.
        known = {term for term in self.listed} | {w for term in self.listed for w in words(term)}
        object.__setattr__(self, "_known", frozenset(known))

    def __repr__(self) -> str:
        groups = int(self.clusters.max(initial=-1)) + 1
        return f"ExpansionContext({len(self.listed)} terms, {groups} groups)"

    def is_listed(self, member: str) -> bool:
        """Return whether ``member`` is a listed term, or a word of one."""
        return canonical(member) in self._known

    def require_encoder(self, owner: str) -> Any:
        """Return the encoder; raise `InvalidInputError` without one."""
        if self.encoder is None or self.centroids is None:
            raise InvalidInputError.of(owner, "encoder", "given to expand", "None",
                                       "Nearness is measured in the encoder's space.")  # fmt: skip
        return self.encoder


@runtime_checkable
class MemberSource(Protocol):
    """Protocol of sources that propose members of a concept."""

    name: str
    """Name in reports; it quotes no member."""

    def members(self, context: ExpansionContext) -> Mapping[str, Sequence[str]]:
        """Return members by group. All groups weigh the same, whatever their size.

        `Concept.expand` assigns members of the group ``""`` to the nearest listed terms.
        """
        ...


def checked_members(source: MemberSource, proposed: Any) -> dict[str, list[str]]:
    """Return a source's members after checking their types, without empty and overlong ones."""
    owner = type(source).__name__
    if not isinstance(proposed, Mapping):
        raise wrong_type(owner, "members", "returning a mapping of groups to members", proposed)
    return {
        group: [" ".join(m.split()) for m in rows if len(m) <= LONGEST_MEMBER and words(canonical(m))]
        for group, rows in _checked_groups(proposed, owner, "members").items()
    }


def unit_vectors(encoder: Any, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return float64 vectors of ``texts`` with norm 1 (a zero vector stays zero)."""
    return _unit(np.asarray(encoder.encode(list(texts)), dtype=np.float64))


Vectors = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]

TERMS_PER_GROUP = 12
MOST_GROUPS = 24
ROUNDS = 25  # of k-means, at most


def cluster_terms(vectors: Vectors, labels: Sequence[str], *, seed: int) -> Groups:
    """Return the group of each term by spherical k-means (Dhillon and Modha 2001) within each span label.

    A label gets one group for every twelve terms, at most 24. ``vectors`` (T, n) have norm 1.
    """
    groups = np.zeros(len(vectors), dtype=np.intp)
    first = 0
    marks = np.asarray(labels, dtype=object)
    for label in sorted(set(labels)):
        rows = np.flatnonzero(marks == label)
        # Enough terms per group for a stable centroid.
        count = int(np.clip(round(len(rows) / TERMS_PER_GROUP), 1, MOST_GROUPS))
        own = _spherical_means(vectors[rows], count, np.random.default_rng([seed, first]))
        groups[rows] = own + first
        first += int(own.max()) + 1
    return groups


def centroids_of(vectors: Vectors, groups: Groups) -> Vectors:
    """Return the (G, n) mean directions of the groups, norm 1."""
    sums = np.zeros((int(groups.max()) + 1, vectors.shape[1]))
    np.add.at(sums, groups, vectors)
    return _unit(sums)


def nearest(vectors: Vectors, centroids: Vectors) -> tuple[Groups, npt.NDArray[np.float64]]:
    """Return for each vector the group with the highest cosine, and that cosine."""
    cosines = vectors @ centroids.T
    best = cosines.argmax(axis=1)
    return best, cosines[np.arange(len(vectors)), best]


def _spherical_means(X: Vectors, count: int, rng: np.random.Generator) -> Groups:
    """Return the group of each row, numbered from 0 without gaps."""
    centres = X[_spread(X, count, rng)]
    groups = np.zeros(len(X), dtype=np.intp)
    for _ in range(ROUNDS):
        fresh = (X @ centres.T).argmax(axis=1)
        if (fresh == groups).all() and _ > 0:
            break
        groups = fresh
        sums = np.zeros_like(centres)
        np.add.at(sums, groups, X)
        # An empty group keeps its former centre.
        held = np.bincount(groups, minlength=len(centres)) > 0
        centres = np.where(held[:, None], _unit(sums), centres)
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.intp)


def _spread(X: Vectors, count: int, rng: np.random.Generator) -> list[int]:
    """Return starting rows, each drawn in proportion to its distance from those before (k-means++)."""
    chosen = [int(rng.integers(len(X)))]
    far = 1 - X @ X[chosen[0]]
    while len(chosen) < count:
        weights = np.maximum(far, 0)
        total = float(weights.sum())
        if total <= 1e-9:  # the rest are copies
            break
        chosen.append(int(rng.choice(len(X), p=weights / total)))
        far = np.minimum(far, 1 - X @ X[chosen[-1]])
    return chosen


def _unit(X: Vectors) -> Vectors:
    scaled: Vectors = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return scaled


LARGEST_FILE = 1 << 28  # 256 MiB


class WordListSource:
    """Proposes the members of a word list or gazetteer: a sequence, or group names mapped to sequences."""

    def __init__(
        self, members: Iterable[str] | Mapping[str, Iterable[str]], *, name: str = "word list"
    ) -> None:
        self.name = name
        self.groups = _checked_groups(members, "WordListSource", "members")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> WordListSource:
        """Return the source of a UTF-8 file of at most 256 MiB.

        ``.json``, ``.yaml`` and ``.yml`` hold a list of members, or group names mapped to lists. Any other file
        has one member a line; empty lines and lines that begin with ``#`` are skipped.
        """
        path = Path(path)
        owner = "WordListSource.from_file"
        text = read_text(path, owner=owner, most=LARGEST_FILE)
        kind = path.suffix.lower()
        content: Any
        if kind == ".json":
            try:
                content = json.loads(text)
            except (ValueError, RecursionError):
                raise DataFileError.of(
                    owner, "path", "a JSON file", f"{path.name!r}, not one"
                ) from None
        elif kind in (".yaml", ".yml"):
            content = load_yaml(text, path.name, owner=owner)
        else:
            lines = (line.strip() for line in text.splitlines())
            content = [line for line in lines if line and not line.startswith("#")]
        try:
            source = cls(content)
        except InvalidInputError:
            constraint = "a list of strings, or group names mapped to lists of strings"
            raise DataFileError.of(
                owner, "path", constraint, f"{path.name!r}, something else"
            ) from None
        if not any(source.groups.values()):
            got = f"{path.name!r}, without any"
            raise DataFileError.of(owner, "path", "a file with at least one member", got)
        return source

    def __repr__(self) -> str:
        count = sum(map(len, self.groups.values()))
        return f"WordListSource({count} members, {len(self.groups)} groups)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the members by group; those of a plain list in the group ``""``."""
        return self.groups


def _checked_groups(content: Any, owner: str, param: str) -> dict[str, list[str]]:
    named = content if isinstance(content, Mapping) else {"": content}
    groups: dict[str, list[str]] = {}
    for i, (group, members) in enumerate(named.items()):
        plain = isinstance(members, Iterable) and not isinstance(members, str | bytes | Mapping)
        rows: list[Any] = list(members) if plain else [None]
        if not isinstance(group, str) or not all(isinstance(member, str) for member in rows):
            got = f"another type at position {i}"
            constraint = "a sequence of strings, or names mapped to sequences of strings"
            raise InvalidInputError.of(owner, param, constraint, got)
        groups[group] = rows
    return groups


DRAWS_PER_MEMBER = 5
"""Draws per requested member; a provider of few values repeats itself and ends here."""


class FakerSource:
    """Proposes values of Faker's providers: names, cities, companies, addresses.

    Args:
        providers: names of Faker's methods without arguments, for example ``["first_name", "city"]``; or
            group names mapped to such lists.
        locales: Faker's locales, for example ``["en_US", "de_DE"]``.
        count: largest number of members of each provider.
    """

    name = "faker"

    def __init__(
        self,
        providers: Sequence[str] | Mapping[str, Sequence[str]],
        *,
        locales: Sequence[str] = ("en_US",),
        count: int = 500,
    ) -> None:
        owner = "FakerSource"
        self.count = check_count(count, owner=owner, param="count")
        named = (
            providers if isinstance(providers, Mapping) else {name: [name] for name in providers}
        )
        self.groups = {group: tuple(names) for group, names in named.items()}
        if isinstance(providers, str) or not any(self.groups.values()):
            raise InvalidInputError.of(
                owner, "providers", "a sequence of at least one name", repr(providers)
            )
        self.locales = (locales,) if isinstance(locales, str) else tuple(locales)
        self._faker = _faker(self.locales, owner)
        for name in (name for names in self.groups.values() for name in names):
            try:
                known = callable(getattr(self._faker, name)) and not name.startswith("_")
            except (AttributeError, TypeError):
                known = False
            if not known:
                raise InvalidInputError.of(
                    owner, "providers", "names of Faker's methods", repr(name)
                )

    def __repr__(self) -> str:
        return f"FakerSource({len(self.groups)} groups, locales={list(self.locales)})"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return distinct values of each provider, drawn from the context's seed."""
        self._faker.seed_instance(context.seed)
        return {
            group: [value for name in names for value in self._draw(name)]
            for group, names in self.groups.items()
        }

    def _draw(self, name: str) -> list[str]:
        make = getattr(self._faker, name)
        values: dict[str, None] = {}
        for _ in range(DRAWS_PER_MEMBER * self.count):
            values.setdefault(str(make()).replace("\n", ", "))  # addresses span lines
            if len(values) == self.count:
                break
        return list(values)


def _faker(locales: Sequence[str], owner: str) -> Any:
    with optional_import("Making members up", "faker", "faker"):
        import faker
    # Faker reads and advances Python's global generator; the caller's state must not change.
    state = random.getstate()
    try:
        return faker.Faker(list(locales))
    except (AttributeError, ValueError, ImportError):
        raise InvalidInputError.of(
            owner, "locales", "locales that Faker has", ", ".join(map(repr, locales))
        ) from None
    finally:
        random.setstate(state)


_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class CorpusNeighbourSource:
    """Proposes the words of a corpus that lie nearest to the groups of listed terms.

    A word counts if it is frequent enough, not listed, and near enough to the mean vector of its nearest
    group: its cosine is at least ``min_cosine`` and at least the ``quantile`` of the group's own cosines.

    Args:
        min_count: least number of occurrences of a word.
        most: largest number of words of each group; the nearest ones.
        vocabulary: number of most frequent words to compare; each costs one encoding.
        min_cosine: least cosine with the group's mean.
        quantile: of the cosines of the group's terms with its mean.
    """

    name = "corpus neighbours"

    def __init__(
        self,
        texts: Sequence[str],
        *,
        min_count: int = 5,
        most: int = 200,
        vocabulary: int = 20_000,
        min_cosine: float = 0.3,
        quantile: float = 0.1,
    ) -> None:
        owner = "CorpusNeighbourSource"
        self.min_count = check_count(min_count, owner=owner, param="min_count")
        self.most = check_count(most, owner=owner, param="most")
        self.vocabulary = check_count(vocabulary, owner=owner, param="vocabulary")
        self.min_cosine = check_probability(min_cosine, owner=owner, param="min_cosine")
        self.quantile = check_probability(quantile, owner=owner, param="quantile")
        checked = check_texts(texts, owner=owner)
        counts: Counter[str] = Counter()
        written: dict[str, Counter[str]] = {}
        for text in checked:
            for word in _WORD.findall(text):
                key = canonical(word)
                counts[key] += 1
                written.setdefault(key, Counter())[word] += 1
        frequent = [key for key, count in counts.items() if count >= self.min_count]
        frequent.sort(key=lambda key: (-counts[key], key))
        # The most frequent spelling: a name keeps its capital.
        self._words = {
            key: min(written[key].items(), key=lambda item: (-item[1], item[0]))[0]
            for key in frequent
        }

    def __repr__(self) -> str:
        return f"CorpusNeighbourSource({len(self._words)} words)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the nearest words of each group of listed terms, the nearest first; it needs an encoder."""
        encoder = context.require_encoder("CorpusNeighbourSource")
        assert context.centroids is not None
        keys = [key for key in self._words if not context.is_listed(key)][: self.vocabulary]
        if not keys:
            return {}
        own = unit_vectors(encoder, context.listed)
        vectors = unit_vectors(encoder, keys)
        group, cosine = nearest(vectors, context.centroids)
        result: dict[str, list[str]] = {}
        for g in range(len(context.centroids)):
            inside = own[context.clusters == g] @ context.centroids[g]
            # A loose group accepts more distant words than a tight one.
            least = max(self.min_cosine, float(np.quantile(inside, self.quantile)))
            rows = np.flatnonzero((group == g) & (cosine >= least))
            order = rows[np.argsort(-cosine[rows], kind="stable")][: self.most]
            result[f"near group {g}"] = [self._words[keys[i]] for i in order]
        return result


_CHUNK = 512  # texts per detector call and step of the bar


class DetectorSource:
    """Proposes a detector's matches in a corpus, grouped by the labels of their spans.

    Args:
        detector: any object with ``detect(texts)``, such as `PresidioDetector` or `SpacyDetector`.
        min_count: least number of occurrences of a match.
        most: largest number of members of each label; the most frequent ones.
    """

    name = "detector"

    def __init__(
        self, detector: Detector, texts: Sequence[str], *, min_count: int = 1, most: int = 1000
    ) -> None:
        owner = "DetectorSource"
        if not isinstance(detector, Detector):
            raise wrong_type(owner, "detector", "an object with a method detect(texts)", detector)
        self._detector = detector
        self._texts = check_texts(texts, owner=owner)
        self.min_count = check_count(min_count, owner=owner, param="min_count")
        self.most = check_count(most, owner=owner, param="most")

    def __repr__(self) -> str:
        return f"DetectorSource({type(self._detector).__name__}, {len(self._texts)} texts)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the matches by label, the most frequent first."""
        counts: dict[str, Counter[str]] = {}
        written: dict[str, str] = {}
        positional = getattr(self._detector, "positional", False)
        # Given spans belong to texts by position: such a detector must see all texts in one call.
        size = len(self._texts) if positional else _CHUNK
        starts = range(0, len(self._texts), size)
        for start in progress(starts, "finding members", show=context.show_progress, unit="block"):
            texts = self._texts[start : start + size]
            rows = checked_spans(
                self._detector.detect(texts), texts, owner=type(self._detector).__name__
            )
            for text, spans in zip(texts, rows, strict=True):
                for span in merge_spans(text, spans):
                    own = text[span.start : span.end]
                    key = canonical(own)
                    written.setdefault(key, own)
                    counts.setdefault(span.label, Counter())[key] += 1
        return {
            label: [
                written[key]
                for key, count in sorted(own.items(), key=lambda item: (-item[1], item[0]))
                if count >= self.min_count
            ][: self.most]
            for label, own in counts.items()
        }
