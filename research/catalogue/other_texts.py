"""Leakage of listed and unlisted words to attackers who train on texts other than the protector's."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from research import tables as draw
from research.bench import Bench
from research.catalogue.sealed_search import SIDES, Collection
from research.datasets import open_dataset
from research.datasets.kinds import RetrievalSet
from research.experiment import Cell, Experiment, Records, note
from research.judging import Measured, within
from research.points import attacks_named, protector_record, utility
from research.problems import Problem
from research.results import ClaimFinding, Number, Summary, Table, number
from research.scales import parse_scale
from research.specification import Settings, Spec, Whole, check_names, digest, json_ready, whole_numbers, wrong
from research.tasks import test_rows
from research.word_split import MIN_COUNT, WordSplit, leaks
from vecveil.auditing.metrics import StsTask, UtilityTask
from vecveil.errors import out_of_range
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.matching import Span, words
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.methods import METHODS
from vecveil.texts.folding import canonical

SMALL = "mlp-512"
LEAST_INSIDE = 5  # occurrences inside spans from which a word can be listed


class SetupSpec(Settings, frozen=True, kw_only=True):
    """How texts and words are divided.

    Attributes:
        listed: share of the words that a fit knows: 0.5, 0.75 or 1.
        least: minimum number of training texts of a word that attackers learn.
        in_sample: attackers train on the fitted texts, twice as many, and are judged on others.
        inside: the concept is the list of the words with at least this share of their occurrences inside the problem's
            spans; None keeps the problem's concept.
        search: a retrieval set, whose documents are the rows of a sealed store.
        queries: of that set, all of which contain a word of the concept.
        candidates: blobs that a search opens.
        defences: those to measure; none takes all.
    """

    problem: str
    listed: float = 1.0
    least: Whole = MIN_COUNT
    in_sample: bool = False
    inside: float | None = None
    search: str | None = None
    queries: Whole = 400
    candidates: Whole = 500
    defences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.listed not in (0.5, 0.75, 1.0):
            raise out_of_range("experiment", "listed", "0.5, 0.75 or 1", self.listed)


class DetectorSpec(Settings, frozen=True, kw_only=True):
    """A detector of entities; see `vecveil.Concept.from_entities`."""

    types: tuple[str, ...]
    engine: str = "presidio"
    model: str | None = None


class DefenceSpec(Settings, frozen=True, kw_only=True):
    """Arguments of `vecveil.fit`; the method ``none`` is clean vectors.

    Attributes:
        scale: see `parse_scale`.
        options: of the method.
        rewrite, detector: of a text stage.
    """

    method: str = "none"
    scale: str = "utility 0.95"
    options: dict[str, float] = {}
    rewrite: str | None = None
    detector: DetectorSpec | None = None

    def arguments(self, bench: Bench) -> dict[str, Any]:
        """Return the arguments of a fit."""
        found = {**parse_scale(self.scale).arguments(self.method), **whole_numbers(self.options)}
        if self.rewrite is not None:
            found["rewrite"] = self.rewrite
        own = self.detector
        if own is not None:
            found["detector"] = bench.once(
                ("detector", own),
                lambda: Remembering(Concept.from_entities("entities", own.types, engine=own.engine, model=own.model)),
            )
        return found


class Remembering:
    """A detector that caches the spans of each text in a run: detectors with a model are slow."""

    def __init__(self, concept: Concept) -> None:
        self.concept = concept
        self._known: dict[str, list[Span]] = {}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self.concept.detect(new, show_progress=False), strict=True))
        return [self._known[text] for text in texts]


class BarSpec(Settings, frozen=True, kw_only=True):
    """Bounds on a figure of a defence in one setup, on its mean over seeds.

    Attributes:
        figure: its place in a record: ``listed`` (strongest attack), ``listed.attacks.linear``, ``search.both.ranked``.
        of: the figure is the excess over chance as a share of this defence's.
        beside: the figure is the absolute difference to this setup.
    """

    claim: str
    setup: str
    figure: str = "listed"
    defence: str = "subspace"
    of: str | None = None
    beside: str | None = None
    at_least: float | None = None
    at_most: float | None = None


class OtherTextsSpec(Spec, frozen=True, kw_only=True):
    """Setups, defences and bounds."""

    setups: dict[str, SetupSpec] = {}
    defences: dict[str, DefenceSpec] = {}
    bars: tuple[BarSpec, ...] = ()

    def __post_init__(self) -> None:
        attacks_named(self.attacks, further=False)
        for setup in self.setups.values():
            check_names("setups.problem", [setup.problem], self.problems)
            check_names("setups.defences", setup.defences, self.defences)
        for defence in self.defences.values():
            parse_scale(defence.scale)
        for bar in self.bars:
            check_names("bars.setup", [bar.setup, bar.beside or bar.setup], self.setups)
            check_names("bars.defence", [bar.defence, bar.of or bar.defence], self.defences)


def listed_words(problem: Problem, share: float) -> Problem:
    """Return the problem with a list as its concept: words that occur mostly inside its spans, in all positions.

    Only texts with spans count: in a text without any, annotators may have marked nothing.
    """
    inside: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for text, spans in zip(problem.texts, problem.matches.spans, strict=True):
        if spans:
            every.update(words(canonical(text)))
            inside.update(word for span in spans for word in words(span.term))
    terms = sorted(
        word
        for word, count in inside.items()
        if count >= LEAST_INSIDE and count >= share * every[word] and len(word) > 2 and word.isalpha()
    )
    concept = Concept.from_terms(problem.name, terms)
    return replace(problem, concept=concept, matches=concept.find(problem.texts), rest={})


def halves(task: UtilityTask) -> tuple[UtilityTask, UtilityTask]:
    """Return the task on one half of its pairs, for calibration, and on the other, for measurement."""
    if not isinstance(task, StsTask):
        raise wrong("utility", f"`utility` is a {type(task).__name__}; name a data set of sentence pairs.")
    first, second = (
        StsTask(task.left[rows], task.right[rows], task.scores[rows]) for rows in rows_of_halves(len(task.scores))
    )
    return first, second


def rows_of_halves(pairs: int) -> list[npt.NDArray[np.intp]]:
    return np.array_split(np.random.default_rng(0).permutation(pairs), 2)


def removed(held: WordSplit, protector: Protector) -> dict[str, float]:
    """Return the share of the words' occurrences that a text stage removes from the texts, by kind of word."""
    rewritten = protector.rewrite(held.matches.positives())
    left = held.vocabulary.labels([words(canonical(text)) for text in rewritten]) * held.labels
    return {
        kind: 1 - float(left[:, columns].sum() / held.labels[:, columns].sum())
        for kind, columns in held.kinds().items()
    }


def searched(one: Collection, protector: Protector, candidates: int, seed: int) -> dict[str, Any]:
    """Return nDCG@10 as a share of exact search's: of the store alone, and after exact ranking of its candidates."""
    documents, queries = one.documents, one.queries
    if protector.rewriter is not None:
        encode = protector.loaded_encoder().encode
        documents, queries = (encode(protector.rewrite(texts)) for texts in (one.document_texts, one.query_texts))
    rng = np.random.default_rng([seed, 31])
    store = protector.protect(documents, rng, rewritten=True)
    found: dict[str, Any] = {"clean": float(np.nanmean(one.exact["native"][1]))}
    for side in SIDES:
        sent = protector.protect(queries, rng, noise=side == "both", rewritten=True)
        found[side] = one.shares(sent, store, candidates)
    return found


class OtherTexts(Experiment[OtherTextsSpec]):
    """Cells with the axes setup, defence and seed."""

    name = "other-texts"
    what = "Leakage to attackers who learn on other texts than the fit's, and bounds on it."
    source = "own"
    spec_type = OtherTextsSpec

    def cells(self, spec: OtherTextsSpec) -> list[Cell]:
        return [
            Cell.of(setup=name, defence=defence, seed=seed)
            for seed in range(spec.seeds)
            for name, setup in spec.setups.items()
            for defence in setup.defences or spec.defences
        ]

    def problems(self, spec: OtherTextsSpec, cell: Cell) -> tuple[str, ...]:
        return (spec.setups[cell["setup"]].problem,)

    def settings(self, spec: OtherTextsSpec, cell: Cell) -> dict[str, Any]:
        own = spec.setups[cell["setup"]], spec.defences[cell["defence"]]
        # Without empty fields: a new field of a specification must not rename old records.
        given = [{k: v for k, v in json_ready(one).items() if v} for one in own]
        given[0].pop("defences", None)
        method = METHODS.get(own[1].method)
        if method is not None and method.revision > 1:
            given[1]["revision"] = method.revision
        return {**super().settings(spec, cell), "setup": given[0], "defence": given[1]}

    def data_digest(self, spec: OtherTextsSpec, bench: Bench, cell: Cell) -> str | None:
        own, search = super().data_digest(spec, bench, cell), spec.setups[cell["setup"]].search
        return own if search is None else digest([own, bench.task_digest(search)])

    def prepare(self, spec: OtherTextsSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        for name in dict.fromkeys(cell["setup"] for cell in cells):
            held = self._held(spec, bench, name, 0)
            held.encoder.encode(held.matches.negatives(), show_progress=bench.show_progress)

    def measure(self, spec: OtherTextsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        defence, seed = spec.defences[cell["defence"]], cell["seed"]
        setup = spec.setups[cell["setup"]]
        held = self._held(spec, bench, cell["setup"], seed)
        task, judged = halves(bench.task(bench.utility_of(setup.problem), held.encoder))
        protector = None
        if defence.method != "none":
            concept = held.concept(None if setup.listed == 1 else held.listed)
            protector = held.fitted(defence.method, concept, utility=task, **defence.arguments(bench))
        found: dict[str, Any] = {}
        seen = held
        if protector is not None and protector.rewriter is not None:
            seen = held.rewritten(protector)
            found["removed"] = removed(held, protector)
        if protector is not None and setup.search is not None:
            found["search"] = searched(self._collection(setup, bench), protector, setup.candidates, seed)
        found |= leaks(seen, protector, spec.attacks)
        return {**found, "utility": utility(judged, protector, seed), "protector": protector_record(protector)}

    def _held(self, spec: OtherTextsSpec, bench: Bench, name: str, seed: int) -> WordSplit:
        setup = spec.setups[name]

        def split() -> WordSplit:
            problem = bench.problem(setup.problem)
            if setup.inside is not None:
                problem = listed_words(problem, setup.inside)
            return WordSplit(
                problem, bench.encoder(), seed, listed=setup.listed, least=setup.least, in_sample=setup.in_sample
            )

        return bench.once(("held out", name, seed), split)

    def _collection(self, setup: SetupSpec, bench: Bench) -> Collection:
        """Return the setup's retrieval set with queries that hold a word of the concept."""
        assert setup.search is not None

        def read() -> Collection:
            found = open_dataset(str(setup.search), bench.data)
            assert isinstance(found, RetrievalSet)
            rows = test_rows(found.query_split)
            spans = bench.problem(setup.problem).concept.detect([found.queries[i] for i in rows])
            holding = [i for i, row in zip(rows, spans, strict=True) if row]
            drawn = np.random.default_rng(0).permutation(holding)[: setup.queries]
            parts = (found.query_ids, found.queries, found.query_split)
            ids, queries, split = (tuple(part[i] for i in drawn) for part in parts)
            relevant = {key: found.relevant[key] for key in ids}
            chosen = replace(found, query_ids=ids, queries=queries, query_split=split, relevant=relevant)
            return Collection(chosen, bench.encoder().encode, np.empty((0, 0)), ())

        return bench.once(("collection", setup.search, setup.problem, setup.queries), read)

    def summary(self, spec: OtherTextsSpec, records: Records) -> Summary:
        tables = [_table(name, rows) for (name,), rows in records.each("setup")]
        findings = [_finding(bar, records) for bar in spec.bars]
        return Summary(tables=tables, findings=findings, notes=[ABOUT])


ABOUT = note("other-texts")
KINDS = {"listed": "Listed words", "unseen": "Unlisted words"}


def _table(name: str, records: Records) -> Table:
    base = records.where(defence="laplace")
    columns = [draw.axis("Protector", 0)]
    for kind, title in KINDS.items():
        if not records.figures(kind, "value"):
            continue

        def share(key: Any, rows: Records, kind: str = kind) -> Number | None:
            return number(draw.excess_shares(rows, base, kind), digits=0)

        def strongest_of(key: Any, rows: Records, kind: str = kind) -> str:
            return ", ".join(dict.fromkeys(row["found"][kind]["attack"] for row in rows))

        columns += [
            draw.estimate(title, kind),
            draw.percent("Chance", kind, "chance"),
            draw.column("Of isotropic noise's excess", share, "%"),
            draw.percent("512 units", kind, "attacks", SMALL),
            draw.column("Strongest", strongest_of, text=True),
        ]
        if records.figures("removed", kind):
            columns.append(draw.percent("Removed by rewriting", "removed", kind))
    for side in SIDES if records.figures("search", SIDES[0], "ranked", "value") else ():
        columns.append(draw.estimate(f"nDCG@10, store alone, {side}", "search", side, "alone"))
        columns.append(draw.estimate(f"nDCG@10, ranked exactly, {side}", "search", side, "ranked"))
    columns.append(draw.percent("Utility kept", "utility", "relative"))
    columns.append(draw.column("Seeds", lambda key, rows: draw.count(len(rows))))
    return draw.table(name, records.each("defence"), columns)


def _finding(bar: BarSpec, records: Records) -> ClaimFinding:
    """Return whether the mean over seeds is within the bounds."""
    path = bar.figure.split(".")

    def figures(setup: str, defence: str) -> list[float]:
        rows = records.where(setup=setup, defence=defence)
        return rows.figures(*path) or rows.figures(*path, "value")

    found = figures(bar.setup, bar.defence)
    if bar.of is not None:
        own = records.where(setup=bar.setup)
        found = draw.excess_shares(own.where(defence=bar.defence), own.where(defence=bar.of), *path)
    elif bar.beside is not None:
        gaps = [one - other for one, other in zip(found, figures(bar.beside, bar.defence), strict=False)]
        found = [math.copysign(gap, gap * sum(gaps)) for gap in gaps]
    if not found:
        return ClaimFinding(bar.claim, "own", "not measured", "not measured")
    mean = statistics.fmean(found)
    ours = f"{100 * mean:.1f} %"
    if len(found) > 1:
        ours += f" ({100 * min(found):.1f} to {100 * max(found):.1f} over {len(found)} seeds)"
    least, most = (math.inf * sign if x is None else x for x, sign in ((bar.at_least, -1), (bar.at_most, 1)))
    measured = Measured(dict(enumerate(found)))
    return ClaimFinding(bar.claim, "own", within(measured, least=least, most=most), ours)
