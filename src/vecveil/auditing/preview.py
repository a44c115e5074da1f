"""Preview an attacker's guesses for a few texts, on clean and on protected vectors, at several noise levels.

The attacker learns from background texts that contain listed words, or into which the preview inserts them. It is one
attacker on few texts: an audit (`vecveil.audit`) tries more and stronger attacks.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks import KernelAttack, LabelledVectors, TransplantAttack, split_groups, text_groups
from vecveil.auditing.attacks.attack import Knowledge
from vecveil.auditing.metrics import SimilarityTask
from vecveil.auditing.metrics.leakage import r_precision
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.matching import Span, remove
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.methods.text_level import released_rows
from vecveil.privacy.utility.estimates import Estimate
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_count, check_embeddings, check_positive, check_seed, check_texts

Encode = Callable[[Sequence[str]], Embeddings]
Report = Callable[[float, str], None]
"""Receives the share of the work done, 0 to 1, and the next step; may raise to end the preview."""

FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
MOST_TEXTS = 400
FEWEST_TEXTS = 60
MOST_WORDS = 200
FEWEST_WORDS = 2
_OWNER = "Preview"
_SHOWN = 5  # guesses for each text
_ROWS = 2000  # training rows of the attacker: more read a little more, at the cube of the cost
_SHARES = (0.6, 0.1, 0.3)  # of the practice texts: training, validation, test
_BATCH = 32  # small: in a server, other requests wait for the encoder
_ENCODING = 0.4  # share of the time that encoding takes, for the progress report
_REPLACED = re.compile(r"[^\W\d_]{4,}")  # four letters or more: shorter words are mostly function words


@dataclass(frozen=True, eq=False, repr=False)
class PreviewLevel:
    """Utility, leakage and guesses at one noise level.

    Attributes:
        factor: multiple of the protector's own noise; 0 for clean vectors.
        utility: Pearson correlation of pairs' cosines with the clean ones, noise on both sides.
        leakage: R-precision of the attacker on background texts held out of its training.
        guesses: for each text (index of the word, score in [0, 1]), best first.
    """

    factor: float
    utility: Estimate
    leakage: Estimate
    guesses: tuple[tuple[tuple[int, float], ...], ...]

    def to_record(self) -> dict[str, Any]:
        utility, leakage = self.utility.to_record(), self.leakage.to_record()
        return vars(self) | {"utility": utility, "leakage": leakage}


@dataclass(frozen=True, eq=False, repr=False)
class PreviewResult:
    """The attacker's guesses on clean and on protected vectors.

    Attributes:
        held: for each text the indices of its listed ``words``.
        clean: the same attack on clean vectors.
        levels: at growing noise; a single level if the method's noise has no scale.
        chosen: index of the level with the protector's own noise.
        practice: counts of background texts, of those with a listed word, of training and test texts.
        rewrites: True if the protector rewrites texts, and adds no noise to vectors.
    """

    words: tuple[str, ...]
    held: tuple[tuple[int, ...], ...]
    clean: PreviewLevel
    levels: tuple[PreviewLevel, ...]
    chosen: int
    practice: dict[str, int]
    rewrites: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, with the words and without the texts."""
        levels = [level.to_record() for level in self.levels]
        return vars(self) | {"clean": self.clean.to_record(), "levels": levels}


class VectorMemory:
    """LRU cache of up to ``most`` background vectors, keyed by hashes of the texts; it contains no text."""

    def __init__(self, most: int = 8000) -> None:
        self._most = check_count(most, owner="VectorMemory", param="most")
        self._kept: OrderedDict[bytes, npt.NDArray[Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def encode(self, texts: Sequence[str], encode: Encode, *, encoder: str) -> Embeddings:
        """Return the vectors of ``texts``, encoding only the new ones; ``encoder`` names the encoder."""
        head = encoder.encode("utf-8", "surrogatepass") + b"\0"
        keys = [hashlib.sha256(head + text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        # By key: a text that occurs twice is encoded once.
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._kept}
        fresh: dict[bytes, npt.NDArray[Any]] = {}
        if missing:
            fresh = dict(zip(missing, np.asarray(encode(list(missing.values()))), strict=True))
        # Before anything is evicted: one call may request more vectors than the cache holds.
        vectors = np.stack([fresh[key] if key in fresh else self._kept[key] for key in keys])
        for key in keys:
            if key in fresh:
                # Copy the row: a view would keep the whole batch in memory.
                self._kept[key] = fresh[key].copy()
            self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return vectors


class WordList:
    """The 2 to 200 words and phrases that an attacker guesses from; spellings of one word count once."""

    def __init__(self, words: Sequence[str]) -> None:
        first: dict[str, str] = {}
        for word in check_texts(words, owner=_OWNER, param="words", min_rows=FEWEST_WORDS):
            first.setdefault(canonical(word), word.strip())
        if not FEWEST_WORDS <= len(first) <= MOST_WORDS:
            raise InvalidInputError(
                f"A preview guesses from {FEWEST_WORDS} to {MOST_WORDS} different `words`, not {len(first)}.",
                param="words",
            )
        self.words = tuple(first.values())
        self._index = {term: i for i, term in enumerate(first)}
        self._concept = Concept.from_terms("words", self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordList({len(self)} words)"

    def find(self, texts: Texts) -> list[list[Span]]:
        return self._concept.detect(texts, show_progress=False)

    def index(self, span: Span) -> int:
        return self._index.get(span.term, -1)

    def labels(self, spans: Sequence[Sequence[Span]]) -> npt.NDArray[np.bool_]:
        """Return (N, V) labels: True where a span of the text is the word."""
        labels = np.zeros((len(spans), len(self)), dtype=bool)
        for i, row in enumerate(spans):
            labels[i, [word for span in row if (word := self.index(span)) >= 0]] = True
        return labels


@dataclass(frozen=True, eq=False, repr=False)
class PracticeTexts:
    """The texts that the attacker learns from and is scored on.

    Attributes:
        ordinary: background texts, for utility.
        texts, without: E texts with at least one listed word, and the same texts without it.
        labels: (E, V) the listed words of ``texts``.
        groups: (E,) group ids; versions of one background text, and near-duplicates, share a group.
        found: number of background texts that contain a listed word.
    """

    ordinary: tuple[str, ...]
    texts: tuple[str, ...]
    without: tuple[str, ...]
    labels: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.intp]
    found: int


def practice_texts(background: Texts, words: WordList, *, seed: int = 0) -> PracticeTexts:
    """Return texts with listed words, made from 60 to 400 background texts.

    A text with a listed word is used unchanged, and again with a different listed word in its place. In any other text
    a listed word replaces one of the text's words. All words are inserted equally often.
    """
    given = check_texts(background, owner=_OWNER, param="background", min_rows=FEWEST_TEXTS)
    rng = np.random.default_rng([seed, 21])
    rows = np.sort(rng.permutation(len(given))[:MOST_TEXTS])
    ordinary = tuple(given[i] for i in rows)
    waiting: list[int] = []
    texts: list[str] = []
    without: list[str] = []
    groups: list[int] = []
    found = 0
    for text, spans, group in zip(ordinary, words.find(ordinary), text_groups(ordinary), strict=True):
        bare = remove(text, spans) if spans else text
        # A text of listed words alone has no vector without them.
        if not bare:
            continue
        if spans:
            texts.append(text)
            found += 1
        place = spans[int(rng.integers(len(spans)))] if spans else _room(text, rng)
        # Never the same word again: the two versions of a text must differ in their labels.
        word = words.words[_next_word(waiting, words.index(place), len(words), rng)]
        texts.append(text[: place.start] + word + text[place.end :])
        # One or two texts were added above: fill up to their number.
        groups += [int(group)] * (len(texts) - len(groups))
        without += [bare] * (len(texts) - len(without))
    # Searched again, not taken from the loop: a word put into a text may join its neighbours or not be found.
    labels = words.labels(words.find(texts))
    kept = np.flatnonzero(labels.any(axis=1))
    return PracticeTexts(
        ordinary,
        tuple(texts[i] for i in kept),
        tuple(without[i] for i in kept),
        labels[kept],
        np.array(groups, dtype=np.intp)[kept],
        found,
    )


def _next_word(waiting: list[int], excluded: int, count: int, rng: np.random.Generator) -> int:
    """Return the index of a word other than ``excluded``; all ``count`` words are drawn equally often."""
    # Draw without replacement and refill with a whole permutation. With two different words left, one of them
    # is not the excluded word.
    if len(set(waiting)) < 2:
        waiting[:0] = [int(i) for i in rng.permutation(count)]
    return waiting.pop(max(i for i, word in enumerate(waiting) if word != excluded))


def _room(text: str, rng: np.random.Generator) -> Span:
    """Return the span of a random word of the text, or of its end if no word is long enough."""
    own = list(_REPLACED.finditer(text))
    if not own:
        return Span(len(text), len(text), "room")
    chosen = own[int(rng.integers(len(own)))]
    return Span(chosen.start(), chosen.end(), "room")


@dataclass(frozen=True, eq=False, repr=False)
class _Vectors:
    """Vectors of background texts, of practice texts with and without their words, and of previewed texts."""

    ordinary: Embeddings
    texts: Embeddings
    without: Embeddings
    previewed: Embeddings


class Preview:
    """Trains an attacker for each noise level, and guesses the words of texts.

    The attacker has background texts, the encoder and the protector with its noise, and learns from fresh releases of
    its training texts (`TransplantAttack`; `KernelAttack` if texts are rewritten).

    Args:
        background: ordinary texts, 60 or more; at most 400 of them are used.
        words: 2 to 200 words or phrases to guess from.
        encode: the protector's encoder as a function; None loads the encoder that the protector records.
        factors: noise levels, as multiples of the protector's noise; 1 is always among them.
        memory: keeps vectors of background texts between previews, never vectors of previewed texts.
        encoder: name of the encoder of the vectors in ``memory``.
        seed: of texts, split, training and noise: the same seed gives the same result.

    Raises:
        InvalidInputError: too few texts or words, or a protector that rewrites only the texts of its fit.
    """

    def __init__(
        self,
        protector: Protector,
        background: Texts,
        words: Sequence[str],
        *,
        encode: Encode | None = None,
        factors: Sequence[float] = FACTORS,
        memory: VectorMemory | None = None,
        encoder: str = "",
        seed: int = 0,
    ) -> None:
        if protector.rewriter is not None and protector.rewriter.needs_spans:
            raise InvalidInputError(
                "A preview needs a `protector` that finds its concept in any text; this one knows the texts of its fit "
                "only.",
                param="protector",
            )
        self.protector = protector
        self.words = WordList(words)
        self.seed = check_seed(seed, owner=_OWNER)
        levels = {check_positive(factor, owner=_OWNER, param="factors") for factor in factors}
        self.factors = tuple(sorted(levels | {1.0})) if _can_rescale(protector) else (1.0,)
        self._encode = encode or protector.loaded_encoder().encode
        self._memory = VectorMemory() if memory is None else memory
        self._encoder = encoder
        self._practice = practice_texts(background, self.words, seed=self.seed)

    def run(self, texts: Texts, *, report: Report | None = None) -> PreviewResult:
        """Return the guesses for ``texts`` at each level, and the leakage on background texts.

        ``texts`` are released once for each level, and are not kept.
        """
        say = report or (lambda share, step: None)
        texts = check_texts(texts, owner=_OWNER)
        made = self._practice
        learn, choose, judge = split_groups(made.groups, _SHARES, seed=self.seed)
        rewriter = self.protector.rewriter
        clean = self._encoded(texts, say)
        # Where vectors are protected, both are one object: `given is clean` distinguishes this case in `_level`.
        given = clean if rewriter is None else self._encoded(texts, say, rewriter.rewrite)
        parts = (learn, choose, judge)
        say(_ENCODING, "training an attacker on clean vectors")
        before = self._level(0.0, clean, clean, parts, None)
        levels, steps = [], len(self.factors) + 1
        for i, factor in enumerate(self.factors, start=1):
            share = _ENCODING + (1 - _ENCODING) * i / steps
            say(share, f"training an attacker on protected vectors ({i} of {len(self.factors)})")
            protector = self.protector if factor == 1 else self.protector.rescaled(factor)
            levels.append(self._level(factor, clean, given, parts, None if protector.text_only else protector))
        say(1.0, "done")
        labels = self.words.labels(self.words.find(texts))
        return PreviewResult(
            words=self.words.words,
            held=tuple(tuple(int(j) for j in np.flatnonzero(row)) for row in labels),
            clean=before,
            levels=tuple(levels),
            chosen=self.factors.index(1.0),
            practice={
                "background": len(made.ordinary),
                "found": made.found,
                "learnt": len(learn) + len(choose),
                "judged": len(judge),
            },
            rewrites=rewriter is not None,
        )

    def _level(
        self,
        factor: float,
        clean: _Vectors,
        given: _Vectors,
        parts: Sequence[npt.NDArray[np.intp]],
        protector: Protector | None,
    ) -> PreviewLevel:
        """Return utility, leakage and guesses for ``given`` released by ``protector``; None adds no noise."""
        learn, choose, judge = parts
        # The same stream at each level: levels then differ by the scale of the noise, not by its draw.
        rng = np.random.default_rng([self.seed, 22])
        release: Release = (lambda X, rng: X) if protector is None else protector.release()
        labels, groups = self._practice.labels, self._practice.groups
        train, validation = (
            LabelledVectors(given.texts[r], labels[r], groups[r], given.without[r]) for r in (learn, choose)
        )
        judged, previewed = release(given.texts[judge], rng), release(given.previewed, rng)
        knowledge = Knowledge(
            judged.shape[1],
            None if protector is None else release,
            None if protector is None else protector.released_noise_covariance(),
        )
        # Transplanting moves differences Φ(s⁺) − Φ(s⁻) between texts; rewriting leaves no such difference.
        attack = (TransplantAttack if given is clean else KernelAttack)(rows=_ROWS)
        setting = attack.choose(train, validation, knowledge, rng)
        model = attack.learn([train, validation], setting, knowledge, rng)
        # The same model guesses for the previewed texts, so the leakage describes the displayed guesses.
        scores = model(judged)
        frequent = labels[np.concatenate([learn, choose])].mean(axis=0)
        # Words are put in equally often, so words rare in training are frequent in the test set: chance is the
        # better of guessing by frequency and guessing at random.
        leakage = max(
            (
                r_precision(scores, labels[judge], groups[judge], base_rates=rates, seed=self.seed)
                for rates in (frequent, np.zeros(len(self.words)))
            ),
            key=lambda estimate: estimate.chance or 0.0,
        )
        utility = self._utility(clean, given, protector, rng)
        return PreviewLevel(factor, utility, leakage, _best(model(previewed)))

    def _utility(
        self, clean: _Vectors, given: _Vectors, protector: Protector | None, rng: np.random.Generator
    ) -> Estimate:
        task = SimilarityTask.of(clean.ordinary, seed=self.seed)
        if protector is None and given is clean:
            return task.clean()
        rewritten = released_rows(clean.ordinary, given.ordinary, owner=_OWNER)
        if protector is None:
            return task.protected(rewritten, rng, sides="both")
        return task.protected(lambda V, g: protector.protect(rewritten(V, rng), g, rewritten=True), rng)

    def _encoded(self, previewed: Texts, say: Report, rewrite: Callable[[Texts], list[str]] | None = None) -> _Vectors:
        """Return the vectors of background and previewed texts, after ``rewrite`` if given."""
        made = self._practice
        texts = [*made.ordinary, *made.texts, *made.without]
        if rewrite is not None:
            texts, previewed = rewrite(texts), rewrite(previewed)
        blocks = []
        for start in range(0, len(texts), _BATCH):
            say(_ENCODING * start / len(texts), "encoding background texts")
            part = texts[start : start + _BATCH]
            blocks.append(self._memory.encode(part, self._vectors, encoder=self._encoder))
        # Bypass the cache: it must not keep vectors of previewed texts.
        every = np.concatenate([*blocks, self._vectors(previewed)])
        ends = np.cumsum([len(made.ordinary), len(made.texts), len(made.without)])
        return _Vectors(*np.split(every, ends))

    def _vectors(self, texts: Sequence[str]) -> Embeddings:
        vectors = np.asarray(self._encode(list(texts)))
        X = check_embeddings(vectors, owner=_OWNER, param="encode", dimension=self.protector.dimension)
        if len(X) != len(texts):
            raise InvalidInputError(f"`encode` returned {len(X)} vectors for {len(texts)} texts.", param="encode")
        return X


def _can_rescale(protector: Protector) -> bool:
    try:
        protector.rescaled(2.0)
    except InvalidInputError:
        return False
    return True


def _best(scores: npt.NDArray[Any]) -> tuple[tuple[tuple[int, float], ...], ...]:
    # Stable: equal scores keep the order of the words, so that a seed repeats the result.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_SHOWN]
    return tuple(
        tuple((int(word), float(np.clip(row[word], 0.0, 1.0))) for word in best)
        for row, best in zip(scores, order, strict=True)
    )
