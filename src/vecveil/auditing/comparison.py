"""Measure designs from gentle to strong on the user's texts: what attackers recover, and what search keeps.

The texts are split by group into three parts. Designs are fitted on the first; attacks learn from fresh releases of the
second and are scored on the third. The fit omits a quarter of the concept's frequent words, so that one fit gives the
leak of listed and of unlisted words. The attackers of an audit then attack the best design, fitted with every word,
before the frontier recommends it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import structs
from scipy.sparse import csr_array

from vecveil.auditing.attacks import (
    KernelAttack,
    LabelledVectors,
    LinearAttack,
    MLPAttack,
    NearestNeighboursAttack,
    TokenInferenceAttack,
    split_groups,
    text_groups,
)
from vecveil.auditing.auditor import protected_side
from vecveil.auditing.case import (
    MIN_TEST_TEXTS,
    MIN_TOKEN_COUNTS,
    MORE_TEXTS,
    Case,
    Encode,
    Options,
    Rows,
    Side,
    encode_with,
)
from vecveil.auditing.families import run_families
from vecveil.auditing.metrics import RetrievalTask, SealedSearchTask, SimilarityTask, UtilityTask
from vecveil.auditing.metrics.leakage import r_precision
from vecveil.auditing.records.audit_record import FAMILIES, EncoderRecord
from vecveil.auditing.records.frontier_record import (
    AuditedLeak,
    FrontierCounts,
    FrontierPoint,
    FrontierRecord,
    Kept,
    Leak,
)
from vecveil.auditing.records.verdict import PART
from vecveil.errors import ConceptError, InvalidInputError
from vecveil.io import expanded
from vecveil.privacy.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.privacy.concepts.concept import check_concept
from vecveil.privacy.concepts.matching import remove
from vecveil.privacy.concepts.matching import words as words_of
from vecveil.privacy.concepts.pairs import build_matches, within_window
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.data import MIN_PAIRS, Data, equal_vectors, sample
from vecveil.privacy.protector.fit_options import FitOptions
from vecveil.privacy.protector.fitting import PairTexts, fit_data
from vecveil.privacy.sensitivity.concept_subspace import near_duplicate_groups
from vecveil.privacy.utility.estimates import Estimate
from vecveil.privacy.utility.sealed_search import check_query_noise
from vecveil.privacy.utility.tasks import Sides
from vecveil.runtime import one_blas_thread, progress
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.text_encoder import EncoderInfo
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Release, Texts
from vecveil.validation import check_count, check_groups, check_probability, check_seed, check_texts
from vecveil.version import __version__

OWNER = "frontier"
FILE = "frontier.json"
"""File of the record in the folder of a frontier."""
SHARES = (0.4, 0.35, 0.25)
"""Shares of the texts for fitting, for training attacks and for scoring them."""
MOST_TEXTS = 6000
"""Maximum number of texts, drawn at random: more hardly refine the figures, and kernel regression costs their cube."""
KERNEL_ROWS = 4096
EVERY = 4
"""The fit omits one of every so many words of similar frequency."""
CANDIDATES = (100, 200, 500)
STORE_ROWS = 4000
"""Maximum number of texts for measuring search."""
FEWEST_ROWS = 100
"""Minimum number of texts for measuring search with `SealedSearchTask`."""

ERASED = {0.05: (0.5, 1.0), 0.12: (0.25, 0.5, 1.0), 0.3: (0.5, 1.0, 2.0), 0.42: (1.0,)}
"""Designs that keep all directions they do not erase: erased share -> noise-to-signal ratios."""
FLATTENED = ((0.21, 0.25),)
"""Erased share and noise of designs that keep a third of the directions, flattened, for similarity alone."""
FLATTENING = 0.9


def designs(dimension: int) -> list[dict[str, Any]]:
    """Return the arguments of `vecveil.fit` of each design: isotropic noise, SPARSE, and subspaces.

    They depend on the dimension alone, so equal numbers mean equal designs on any texts.
    """
    plain = [("laplace", 0.5), ("laplace", 1.0), ("laplace", 2.0), ("sparse", 1.0), ("sparse", 2.0)]
    made: list[dict[str, Any]] = [{"method": name, "noise_to_signal": noise} for name, noise in plain]

    def subspace(share: float, noise: float, *, flat: bool) -> dict[str, Any]:
        rank = max(1, round(dimension * share))
        kept = max(1, round(dimension / 3) if flat else dimension - rank)
        return {
            "method": "subspace",
            "noise_to_signal": noise,
            "rank": rank,
            "kept": min(kept, dimension - rank),
            "flattening": FLATTENING if flat else 0.0,
            "pairs": True,
            "gradients": 0,
        }

    made += [subspace(share, noise, flat=False) for share, noises in ERASED.items() for noise in noises]
    made += [subspace(share, noise, flat=True) for share, noise in FLATTENED]
    # In a few dimensions shares round to the same numbers.
    return [design for i, design in enumerate(made) if design not in made[:i]]


def frontier(
    texts: Texts,
    concept: Concept,
    encoder: Any = "minilm",
    *,
    retrieval: RetrievalTask | None = None,
    collection_size: int | None = None,
    query_noise: float = 1,
    candidates: Sequence[int] = CANDIDATES,
    leak_ceiling: float = PART,
    store_alone: bool = False,
    groups: Sequence[Any] | None = None,
    long_texts: Literal["cut", "split"] = "cut",
    out: str | os.PathLike[str] | None = None,
    table: Mapping[str, Any] | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
) -> FrontierRecord:
    """Measure about 15 designs from gentle to strong, and return their leaks and utilities.

    ``record.recommended`` is a point or None, ``record.pick(at_most_leak=0.2)`` the best one within a limit, and
    ``vecveil.fit(texts, concept, encoder, **point.arguments)`` fits it on all texts and words. The figures hold for the
    attackers of the record, on these texts. Choosing the best of many points biases its figures, so the attackers of an
    audit's quick tier attack the best point again before it is recommended.

    Args:
        texts: at most 6,000 are used, drawn at random.
        concept: one with spans; the fits omit a quarter of its frequent words.
        retrieval: judged queries, whose nDCG@10 then measures search. None: recall@10 of the nearest texts, with texts
            as queries.
        collection_size: expected rows of the collection; None takes the number of texts or documents. Further rows are
            modelled as in `SealedSearchTask`.
        query_noise: 0 measures search for queries through the map without noise.
        candidates: numbers of candidates to measure sealed search with, below the size of the collection.
        leak_ceiling: maximum share of the clean leak over chance that may remain at a recommended point.
        store_alone: recommend by search in the protected vectors alone, for a search without a key. By default search
            counts after exact ranking.
        groups: N ids of texts that belong together (a document, a patient). Near-duplicates always do.
        long_texts: as in `vecveil.fit`; the windows of a split text stay in one group.
        out: folder for the record and finished points, from which the next call continues.
        table: options of the table of the texts, kept in the record for ``vecveil fit --from``.

    Raises:
        ConceptError: too few texts contain the concept, or too few of its words are frequent.
        InvalidInputError: ``out`` contains a frontier of other texts or settings.

    Cost:
        Encoding the texts, and two fifths of them again without the concept; then some seconds per design, and a minute
        or two for the attackers of an audit.
    """
    started = time.perf_counter()
    texts = check_texts(texts, owner=OWNER, min_rows=2)
    seed = check_seed(seed, owner=OWNER)
    check_concept(concept, owner=OWNER).require_spans(OWNER)
    if groups is not None:
        groups = check_groups(groups, len(texts), owner=OWNER)
    if retrieval is not None and not isinstance(retrieval, RetrievalTask):
        raise InvalidInputError("`retrieval` is a RetrievalTask.", code="E-INPUT-TYPE", param="retrieval")
    rows = sample(len(texts), MOST_TEXTS, np.random.default_rng(seed))
    if collection_size is not None:
        least = len(rows if retrieval is None else retrieval.documents)
        size = check_count(collection_size, owner=OWNER, param="collection_size")
        if size < least:
            raise InvalidInputError(
                f"`collection_size` is {size:,}, less than the {least:,} texts at hand.",
                code="E-INPUT-RANGE",
                param="collection_size",
            )
    if long_texts not in ("cut", "split"):
        raise InvalidInputError("`long_texts` is 'cut' or 'split'.", code="E-INPUT-NAME", param="long_texts")
    if not isinstance(candidates, Sequence):
        raise InvalidInputError("`candidates` is a list of integers.", code="E-INPUT-TYPE", param="candidates")
    check_probability(leak_ceiling, owner=OWNER, param="leak_ceiling")
    query_noise = check_query_noise(query_noise, owner=OWNER)
    candidates = tuple(sorted({check_count(each, owner=OWNER, param="candidates", minimum=10) for each in candidates}))
    matches = concept.find(texts, show_progress=show_progress)
    # Copies raise the count but add no information.
    if (different := len(set(map(canonical, matches.positives())))) < 3 * MIN_PAIRS:
        raise ConceptError(
            f"A frontier needs {3 * MIN_PAIRS} different texts that contain the concept {concept.name!r} and something "
            f"besides; {different} of {len(texts)} do. {MORE_TEXTS}",
            code="E-CONCEPT-FEW",
            param="texts",
        )
    loaded = load_encoder(encoder)
    if (same := concept.for_encoder(loaded)) is not concept:
        concept, matches = same, same.find(texts, show_progress=show_progress)
    if len(rows) < len(texts):
        ids = None if groups is None else [groups[i] for i in rows]
        texts, groups = [texts[i] for i in rows], ids
        matches = _part(matches, rows, matches.spans, min_texts=3 * MIN_PAIRS)
    split, read = long_texts == "split", loaded.read_lengths
    windows = within_window(concept.detectors, matches, read, split=split, min_texts=3 * MIN_PAIRS, owner=OWNER)
    matches, texts = windows.matches, list(windows.matches.texts)
    if split:
        given = [None] * len(rows) if groups is None else groups
        groups = [(i,) if given[i] is None else given[i] for i in windows.source.tolist()]
    info = EncoderInfo.of(loaded)
    settings = _settings(matches, groups, retrieval, (collection_size, query_noise, candidates), info, seed)
    folder = None if out is None else expanded(out)
    earlier = None if folder is None else _earlier(folder, settings)
    wanted: dict[str, Any] = {"ceiling": leak_ceiling, "store_alone": store_alone}
    if earlier is not None and folder is not None and wanted != {name: getattr(earlier, name) for name in wanted}:
        earlier = structs.replace(earlier, **wanted)
        earlier.save(folder / FILE)
    if earlier is not None and earlier.is_complete:
        return earlier
    X = np.asarray(loaded.encode(texts, show_progress=show_progress), dtype=np.float32)
    bench = Bench.of(matches, X, groups, retrieval, collection_size, query_noise, seed, candidates)
    if windows.report:
        bench.missing["long_texts"] = windows.warning
    encode = encode_with(loaded, X.shape[1], show_progress=show_progress)
    bench = bench.with_pairs(encode)
    record = earlier or FrontierRecord(
        vecveil=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=settings,
        concept=concept.name,
        encoder=EncoderRecord.of(info),
        table=dict(table or {}),
        seed=seed,
        **bench.facts(),
        designs=len(designs(X.shape[1])),
        points=(),
        seconds=0.0,
        **wanted,
    )
    spent = record.seconds
    for number, design in bench.remaining(record, show_progress):
        # Small problems are slower with several BLAS threads, many times so on a busy machine.
        with one_blas_thread():
            point = bench.measure(number, design)
        if split:
            point = structs.replace(point, arguments={**point.arguments, "long_texts": long_texts})
        record = _with_point(record, point, spent + time.perf_counter() - started, folder)
    if not record.is_complete and (best := record.candidate) is not None:
        audited = bench.audited(best, encode, show_progress)
        record = _with_point(
            record, structs.replace(best, audited=audited), spent + time.perf_counter() - started, folder
        )
    return record


def _with_point(record: FrontierRecord, point: FrontierPoint, seconds: float, folder: Path | None) -> FrontierRecord:
    points = {each.number: each for each in (*record.points, point)}
    record = structs.replace(record, points=tuple(points[number] for number in sorted(points)), seconds=seconds)
    if folder is not None:
        record.save(folder / FILE)
    return record


@dataclass(frozen=True, eq=False, repr=False)
class Bench:
    """The data of a frontier: vectors, ``parts`` for fitting, training and scoring, listed and omitted words."""

    matches: ConceptMatches
    X: Embeddings
    groups: Rows
    parts: tuple[Rows, Rows, Rows]
    vocabulary: TokenVocabulary
    labels: npt.NDArray[np.uint8]
    listed: Rows
    left_out: Rows
    retrieval: RetrievalTask | None
    collection_size: int | None
    query_noise: float
    seed: int
    missing: dict[str, str]
    candidates: tuple[int, ...] = CANDIDATES
    pairs: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        matches: ConceptMatches,
        X: Embeddings,
        ids: Sequence[Any] | None,
        retrieval: RetrievalTask | None,
        collection_size: int | None,
        query_noise: float,
        seed: int,
        candidates: tuple[int, ...] = CANDIDATES,
    ) -> Bench:
        groups = _groups(matches.texts, X, ids)
        try:
            fit, learn, judge = split_groups(groups, SHARES, seed=seed)
        except InvalidInputError as error:
            raise ConceptError(str(error)) from None
        holding = matches.with_concept
        learning = np.flatnonzero(np.isin(holding, learn))
        vocabulary = matches.frequent_tokens(MIN_TOKEN_COUNTS, learning)
        labels = np.zeros((len(X), len(vocabulary)), dtype=np.uint8)
        labels[holding] = matches.token_labels(vocabulary)[0] if len(vocabulary) else 0
        listed, left_out = _words(len(vocabulary), seed)
        missing: dict[str, str] = {}
        judged = {
            name: int(labels[judge][:, part].any(axis=1).sum())
            for name, part in (("listed", listed), ("left_out", left_out))
        }
        if len(listed) < 2 or judged["listed"] < MIN_TEST_TEXTS:
            raise ConceptError(
                f"A frontier needs two words of the concept in {MIN_TOKEN_COUNTS[-1]} texts each, and "
                f"{MIN_TEST_TEXTS} texts to judge on that contain one; there are {len(listed)} and {judged['listed']}. "
                f"{MORE_TEXTS}",
                code="E-CONCEPT-FEW",
                param="texts",
            )
        if len(left_out) < 2 or judged["left_out"] < MIN_TEST_TEXTS:
            missing["left_out"] = (
                f"Leak of words left out of the fit: of {len(vocabulary)} frequent words a quarter is too few, or "
                f"fewer than {MIN_TEST_TEXTS} of the texts judged on contain one."
            )
            listed, left_out = np.arange(len(vocabulary)), np.arange(0)
        if retrieval is None and len(X) < FEWEST_ROWS:
            missing["search"] = f"Search: it needs {FEWEST_ROWS} texts; there are {len(X)}."
        if find_spec("torch") is None:
            missing["mlp"] = "The MLP among the attackers: torch is not installed."
            missing["audited"] = "The attackers of an audit need torch, which is not installed."
        return cls(
            matches,
            X,
            groups,
            (fit, learn, judge),
            vocabulary,
            labels,
            listed,
            left_out,
            retrieval,
            collection_size,
            query_noise,
            seed,
            missing,
            candidates,
        )

    def with_pairs(self, encode: Encode) -> Bench:
        """Return the bench with the arguments of `fit_pairs` on the fitting part, without the omitted words."""
        pairs = self._pairs(encode, {self.vocabulary.tokens[i] for i in self.left_out})
        if equal := int(equal_vectors(pairs["positive"], pairs["negative"]).sum()):
            count = len(pairs["positive"])
            self.missing["equal_pairs"] = f"{equal} of {count} pairs: their two vectors are equal."
        return replace(self, pairs=pairs)

    def _pairs(self, encode: Encode, unlisted: set[str]) -> dict[str, Any]:
        # A span with an omitted word stays in its text: to the fit it is ordinary text.
        spans = [tuple(s for s in row if not unlisted & set(words_of(s.term))) for row in self.matches.spans]
        part = _part(self.matches, self.parts[0], spans, min_texts=MIN_PAIRS)
        made = PairTexts.of(part, part.texts, min_token_count=None, seed=self.seed)
        rows = dict(zip(part.texts, self.parts[0], strict=True))

        def clean(texts: Sequence[str]) -> Embeddings:
            return self.X[[rows[text] for text in texts]]

        return {
            "positive": clean(made.positive),
            "negative": encode(made.negative),
            "token_labels": made.labels if made.labels.shape[1] else None,
            "background": clean(made.ordinary) if made.ordinary else None,
            "words": made.words(encode),
        }

    @property
    def readers(self) -> list[TokenInferenceAttack]:
        """The attacks on every design: regressions, nearest neighbours, and a perceptron if torch is installed."""
        own: list[TokenInferenceAttack] = [LinearAttack(), KernelAttack(rows=KERNEL_ROWS), NearestNeighboursAttack()]
        return own if "mlp" in self.missing else [*own, MLPAttack(device="cpu")]

    def facts(self) -> dict[str, Any]:
        clean = self._read(self.X, self.X[self.parts[2]])
        fit, learn, judge = map(len, self.parts)
        queries = None if self.retrieval is None else len(self.retrieval.queries)
        words = {word for held in self.matches.tokens() for word in held}
        counts = FrontierCounts(
            texts=len(self.X),
            with_concept=len(self.matches.with_concept),
            fitted=fit,
            learnt=learn,
            judged=judge,
            words=len(words),
            listed=len(self.listed),
            left_out=len(self.left_out),
            rows=self.rows,
            queries=queries,
            query_noise=self.query_noise,
        )
        return {
            "counts": counts,
            "readers": tuple(reader.name for reader in self.readers),
            "missing": self.missing,
            "clean_listed": clean["listed"][0],
            "chance_listed": clean["listed"][1],
            "clean_left_out": clean["left_out"][0] if "left_out" in clean else None,
            "chance_left_out": clean["left_out"][1] if "left_out" in clean else None,
        }

    @property
    def rows(self) -> int:
        """Rows of the collection whose search is measured."""
        return self.collection_size or len(self.X if self.retrieval is None else self.retrieval.documents)

    def remaining(self, record: FrontierRecord, show_progress: bool | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and arguments of the designs missing from ``record``, with a progress bar."""
        done = {point.number for point in record.points}
        left = [each for each in enumerate(designs(self.X.shape[1]), start=1) if each[0] not in done]
        return progress(left, "Measuring", total=len(left), show=show_progress, unit="design")

    def measure(self, number: int, design: dict[str, Any]) -> FrontierPoint:
        started = time.perf_counter()
        assert self.pairs is not None
        protector = self._fitted(self.pairs, design)
        judged = protector.protect(self.X[self.parts[2]], np.random.default_rng([self.seed, number]))
        leak = self._read(self.X, judged, protector)
        similarity, search = self._kept(protector)
        return FrontierPoint(
            number=number,
            arguments=design,
            listed=leak["listed"][0],
            left_out=leak["left_out"][0] if "left_out" in leak else None,
            similarity=similarity,
            store=search[0] if search else None,
            sealed=tuple(search[1:]),
            seconds=time.perf_counter() - started,
            audited=None,
        )

    def _fitted(self, pairs: dict[str, Any], design: Mapping[str, Any]) -> Protector:
        # One mask: a fit trains others only to measure how much a mask depends on its seed.
        once: dict[str, Any] = {"stability_seeds": 1} if design["method"] == "sparse" else {}
        options = FitOptions.of("fit_pairs", {**design, **once, "seed": self.seed, "show_progress": False})
        return fit_data(Data.of_pairs(**pairs, groups=None), options)

    # -- leak

    def audited(self, point: FrontierPoint, encode: Encode, show_progress: bool | None) -> AuditedLeak:
        """Return what the attackers of an audit's quick tier recover from a design fitted with every word."""
        design = {name: value for name, value in point.arguments.items() if name != "long_texts"}
        protector = self._fitted(self._pairs(encode, set()), design)
        held: npt.NDArray[np.bool_] = np.asarray(self.labels.any(axis=1))
        holding = self.matches.with_concept
        others = frozenset(family for family in FAMILIES if family != "token-inference")
        learn, judge = self.parts[1:]
        case = Case(
            self.matches,
            self.groups,
            learn[held[learn]],
            judge[held[judge]],
            np.setdiff1d(learn, holding),
            np.setdiff1d(judge, holding),
            self.vocabulary,
            self.labels,
            self.X,
            encode,
            Options(seed=self.seed, skip=others, show_progress=show_progress),
        )
        sides = (Side("clean", self.X, self.X, is_clean=True), protected_side(protector, self.X, None, self.seed))
        results, _ = run_families(case, sides)
        found = {name: result for (side, name), result in results.items() if side == "protected"}
        worst = max(found.values(), key=lambda result: result.value)
        figure = worst.estimates["r_precision"]
        leak = Leak(figure.value, figure.low, figure.high, worst.name, figure.n)
        return AuditedLeak(leak, results["clean", worst.name].value, float(figure.chance or 0.0))

    def _read(
        self, X: Embeddings, judged: Embeddings, protector: Protector | None = None
    ) -> dict[str, tuple[Leak, float]]:
        """Return for each set of words the leak under the strongest attack, and chance."""
        held: npt.NDArray[np.bool_] = np.asarray(self.labels.any(axis=1))
        learn, judge = (rows[held[rows]] for rows in self.parts[1:])
        train = LabelledVectors(X[learn], self.labels[learn], self.groups[learn])
        test = LabelledVectors(judged[held[self.parts[2]]], self.labels[judge], self.groups[judge])
        release: Release | None = None if protector is None else protector.release()
        covariance = None if protector is None else protector.released_noise_covariance()
        rates = train.L.mean(axis=0)
        best: dict[str, tuple[Leak, float]] = {}
        for reader in self.readers:
            scores = reader.scores(train, test, release=release, noise_covariance=covariance, seed=self.seed)
            for name, part in (("listed", self.listed), ("left_out", self.left_out)):
                if not len(part):
                    continue
                estimate = r_precision(
                    scores[:, part], test.L[:, part], test.groups, base_rates=rates[part], seed=self.seed
                )
                leak = Leak(estimate.value, estimate.low, estimate.high, reader.name, estimate.n)
                if name not in best or leak.value > best[name][0].value:
                    best[name] = leak, float(estimate.chance or 0.0)
        return best

    # -- utility

    @cached_property
    def _similarity(self) -> SimilarityTask:
        return SimilarityTask.of(self.X[np.sort(np.concatenate(self.parts[1:]))], seed=self.seed)

    @cached_property
    def _search(self) -> list[tuple[int, UtilityTask]]:
        """The measures of search, by number of candidates; 0 is the store alone."""
        if "search" in self.missing:
            return []
        own = self.X[sample(len(self.X), STORE_ROWS, np.random.default_rng(self.seed))]
        task = self.retrieval
        documents = own if task is None else task.documents
        given: dict[str, Any] = {"collection_size": self.rows, "query_noise": self.query_noise, "seed": self.seed}
        if task is not None:
            given |= {"queries": task.queries, "relevance": task.relevance, "own": task.own}
            # The texts model the collection's further rows if they outnumber the judged documents.
            given["distractors"] = own if len(documents) < min(self.rows, len(own)) else None

        def sealed(candidates: int) -> UtilityTask:
            return SealedSearchTask(documents, candidates=candidates, **given)

        # The ten nearest protected rows, exactly ranked, have the recall of the store alone.
        alone = sealed(10) if task is None else task
        enough = len(documents) >= FEWEST_ROWS
        ranked = [count for count in self.candidates if enough and count < self.rows]
        return [(0, alone), *((count, sealed(count)) for count in ranked)]

    def _kept(self, protector: Protector) -> tuple[Kept, list[Kept]]:
        """Return similarity, and search in the store alone and after exact ranking."""

        def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            return protector.protect(X, rng, noise=rng is not None)

        def kept(task: UtilityTask, candidates: int) -> Kept:
            # One seed: the numbers of candidates see the same noise.
            rng = np.random.default_rng(self.seed)
            # Both texts of a pair have noise, so similarity ignores the sides.
            sides: Sides = "both" if self.query_noise else "documents"
            estimate: Estimate = task.protected(release, rng, sides=sides)
            clean = task.clean_value
            return Kept(
                estimate.metric, estimate.value / clean, estimate.low / clean, estimate.high / clean, candidates
            )

        return kept(self._similarity, 0), [kept(task, count) for count, task in self._search]


def _groups(texts: Sequence[str], X: Embeddings, ids: Sequence[Any] | None) -> Rows:
    """Return the group of each text: equal texts, equal ids, and near-duplicates unless they join most texts."""
    plain = text_groups(texts, ids)
    near = near_duplicate_groups(X)
    first = np.unique(near, return_index=True)[1][near]
    joined = text_groups(texts, ids, pairs=np.column_stack([np.arange(len(near)), first]))
    # Texts of one template are all near each other: only ids can separate them.
    largest = max(len(texts) / 5, np.bincount(plain).max())
    return joined if np.bincount(joined).max() <= largest else plain


def _words(count: int, seed: int) -> tuple[Rows, Rows]:
    """Return the columns of listed and omitted words: one of every four in order of frequency is omitted."""
    rng = np.random.default_rng([seed, 1])
    left = [start + int(rng.integers(EVERY)) for start in range(0, count - EVERY + 1, EVERY)]
    left_out = np.array(left, dtype=np.intp)
    return np.setdiff1d(np.arange(count), left_out), left_out


def _part(matches: ConceptMatches, rows: Rows, spans: Sequence[Any], *, min_texts: int) -> ConceptMatches:
    """Return the matches of some rows, with ``spans`` (of all rows) in place of theirs."""
    texts = [matches.texts[i] for i in rows]
    chosen = [tuple(spans[i]) for i in rows]
    rests = [remove(text, row) for text, row in zip(texts, chosen, strict=True) if row]
    return build_matches(matches.name, texts, chosen, rests, None, min_texts=min_texts, owner=OWNER)


# -- the folder


def _settings(
    matches: ConceptMatches,
    groups: Sequence[Any] | None,
    retrieval: RetrievalTask | None,
    search: tuple[int | None, float, tuple[int, ...]],
    info: EncoderInfo,
    seed: int,
) -> str:
    digest = hashlib.sha256()
    given = None if groups is None else list(groups)
    for part in (
        __version__,
        matches.texts,
        matches.spans,
        given,
        info.fingerprint,
        info.precision,
        search,
        seed,
        designs(1000),
    ):
        # `surrogatepass`: texts from files with lone surrogates have no strict UTF-8 form.
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    if retrieval is not None:
        gains = csr_array(retrieval.relevance)
        for array in (retrieval.queries, retrieval.documents, retrieval.own, gains.indptr, gains.indices, gains.data):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _earlier(folder: Path, settings: str) -> FrontierRecord | None:
    if not (folder / FILE).is_file():
        return None
    record = FrontierRecord.load(folder / FILE, owner=OWNER)
    if record.settings != settings:
        raise InvalidInputError(
            f"The folder {folder.name!r} of `out` has a frontier of other texts or settings. Give another folder, "
            "or remove it.",
            code="E-INPUT-EXISTS",
            param="out",
        )
    return record
