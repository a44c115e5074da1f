"""Leakage of words outside the concept's list: listed, expanded and unseen words, measured separately."""

from __future__ import annotations

import copy
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research import tables as draw
from research.bench import Bench
from research.datasets import open_dataset
from research.datasets.kinds import TextSet
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, protector_record, released, utility
from research.problems import Problem, read_terms
from research.results import ClaimFinding, Number, Summary, Table, number
from research.scales import parse_scale
from research.specification import Spec, check_names, wrong
from vecveil.attacks import LabelledVectors, split_groups
from vecveil.concepts import Concept, TokenVocabulary
from vecveil.concepts.expansion import (
    CorpusNeighbourSource,
    Expansion,
    ExpansionContext,
    FakerSource,
    MemberSource,
    WordListSource,
)
from vecveil.concepts.folding import canonical, words
from vecveil.protector import Protector, fit
from vecveil.types import Embeddings

SHARES = (0.35, 0.35, 0.3)  # of the texts: fitted on, attackers learn from, attackers are judged on
MIN_COUNT = 10  # texts that an attacker learns a word from
KINDS = ("listed", "expanded", "unseen")


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """Sources of an expansion's members; an empty field is no source.

    Attributes:
        corpus: data set of sentences, searched for words near the listed ones in the encoder's space.
        corpus_labels: labels of the texts to take from it; none takes all.
        word_list: a file of terms in the data folder.
        gazetteer: data set -> labels of its annotated spans.
        faker: providers of Faker.
        members: maximum number of members in all.
    """

    corpus: str | None = None
    corpus_labels: tuple[str, ...] = ()
    word_list: str | None = None
    gazetteer: dict[str, tuple[str, ...]] = field(default_factory=dict)
    faker: tuple[str, ...] = ()
    members: int = 2000


@dataclass
class Withholding:
    """A source without some words."""

    source: MemberSource
    withheld: frozenset[str] = field(repr=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.source.name

    def members(self, context: ExpansionContext) -> Mapping[str, Sequence[str]]:
        """Return the members that contain none of the withheld words."""
        return {
            group: [m for m in own if self.withheld.isdisjoint(words(canonical(m)))]
            for group, own in self.source.members(context).items()
        }


def member_sources(spec: SourceSpec, data: Path, withheld: frozenset[str]) -> list[MemberSource]:
    """Return the sources of a specification, each without the withheld words."""
    found: list[MemberSource] = []
    if spec.corpus is not None:
        corpus = open_dataset(spec.corpus, data)
        if isinstance(corpus, TextSet):
            labels = corpus.labels or ("",) * len(corpus.texts)
            chosen = set(spec.corpus_labels)
            texts = [
                t
                for t, label in zip(corpus.texts, labels, strict=True)
                if not chosen or label in chosen
            ]
            found.append(CorpusNeighbourSource(texts, min_count=10, vocabulary=8000, most=100))
    if spec.word_list is not None:
        found.append(WordListSource(read_terms(data / spec.word_list)))
    for name, labels in spec.gazetteer.items():
        annotated = open_dataset(name, data)
        if isinstance(annotated, TextSet) and annotated.spans is not None:
            counts: dict[str, Counter[str]] = {label: Counter() for label in labels}
            for text, row in zip(annotated.texts, annotated.spans, strict=True):
                for span in row:
                    if span["label"] in counts:
                        counts[span["label"]][text[span["start"] : span["end"]].lower()] += 1
            groups = {label: [m for m, _ in own.most_common(600)] for label, own in counts.items()}
            found.append(WordListSource(groups, name=name))
    if spec.faker:
        found.append(FakerSource(list(spec.faker), count=200))
    return [Withholding(source, withheld) for source in found]


class WordSplit:
    """One split of a problem's texts and words, as vectors; ``seed`` decides both splits.

    Args:
        listed: share of the words that a fit knows, in quarters.
        least: texts that attackers learn a word from.
        in_sample: let attackers learn on the fitted texts, twice as many, instead of other ones.
    """

    def __init__(
        self, problem: Problem, encoder: Any, seed: int, *,
        listed: float = 0.5, least: int = MIN_COUNT, in_sample: bool = False,
    ) -> None:  # fmt: skip
        self.problem, self.encoder, self.seed = problem, encoder, seed
        self.matches = problem.matches
        self.ids = problem.groups[self.matches.with_concept]
        rest, self.test = split_groups(self.ids, (sum(SHARES[:2]), SHARES[2]), seed=seed)
        halves = split_groups(self.ids[rest], (0.5, 0.5), seed=seed)
        self.fit, self.attack = (rest, rest) if in_sample else (rest[part] for part in halves)
        every, tokens = self.matches.token_labels(min_count=1)
        counts = every[self.attack].sum(axis=0)
        kept = tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= least)
        self.vocabulary = TokenVocabulary(kept)
        self.labels, _ = self.matches.token_labels(self.vocabulary)
        self.listed, self.withheld = _split_words(tokens.tokens, seed, round(4 * listed))
        others = np.isin(problem.groups, np.delete(self.ids, self.fit))
        ordinary = np.setdiff1d(self.matches.without_concept, np.flatnonzero(others))
        self.rows = np.concatenate([self.matches.with_concept[self.fit], ordinary])
        self.texts = [problem.texts[i] for i in self.rows]

    @cached_property
    def positive(self) -> Embeddings:
        """(P, n) vectors of the texts with the concept."""
        found: Embeddings = self.encoder.encode(self.matches.positives())
        return found

    @cached_property
    def negative(self) -> Embeddings:
        """(P, n) vectors of the same texts without any word of the concept."""
        found: Embeddings = self.encoder.encode(self.matches.negatives())
        return found

    def rewritten(self, protector: Protector) -> WordSplit:
        """Return the split with the vectors of the texts as a protector rewrites them, for the same words.

        Rows that no attacker learns from or is judged on are zero.
        """
        found = copy.copy(self)
        rows = np.union1d(self.attack, self.test)
        found.positive, found.negative = (
            encoded_rows(rows, texts, lambda part: self.encoder.encode(protector.rewrite(part)))
            for texts in (self.matches.positives(), self.matches.negatives())
        )
        return found

    def concept(self, known: frozenset[str] | None) -> Concept:
        """Return the concept of the fitted texts, restricted to spans with a known word; None keeps all."""
        spans = [
            [
                {"start": s.start, "end": s.end, "label": s.label}
                for s in self.matches.spans[i]
                if known is None or not known.isdisjoint(words(s.term))
            ]
            for i in self.rows
        ]
        return Concept.from_spans(self.problem.name, spans)

    def kinds(self, expansion: Expansion | None) -> dict[str, npt.NDArray[np.intp]]:
        """Return the label columns of listed, expanded and unseen words; kinds with one word are left out."""
        rows = () if expansion is None else expansion.rows
        members = {w for row in rows for m in row.members for w in words(m)}
        kinds = [
            "listed" if t in self.listed else "expanded" if t in members else "unseen"
            for t in self.vocabulary.tokens
        ]
        found = {
            kind: np.array([j for j, k in enumerate(kinds) if k == kind], dtype=np.intp)
            for kind in KINDS
        }
        return {kind: columns for kind, columns in found.items() if len(columns) > 1}


def encoded_rows(
    rows: npt.NDArray[np.intp], texts: Sequence[str], encode: Callable[[list[str]], Embeddings]
) -> Embeddings:
    """Return the vectors of ``texts`` (N, n) at ``rows``, and zero elsewhere."""
    vectors = encode([texts[i] for i in rows])
    X = np.zeros((len(texts), vectors.shape[1]), dtype=vectors.dtype)
    X[rows] = vectors
    return X


def _split_words(
    tokens: Sequence[str], seed: int, count: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the listed and the withheld words: of every four by frequency ``count`` and one."""
    rng = np.random.default_rng([seed, 6])
    listed, withheld = set(), set()
    for start in range(0, len(tokens), 4):
        four = rng.permutation(np.asarray(tokens[start : start + 4])).tolist()
        listed.update(four[:count])
        withheld.update(four[count : count + 1])
    return frozenset(listed), frozenset(withheld)


def strongest(
    held: WordSplit, columns: npt.NDArray[np.intp], protector: Protector | None, attacks: Sequence[str],
    *, removed: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the result of the strongest attack on the words of some columns.

    Args:
        removed: attack the vectors of the texts without the concept, to measure what the rest of a sentence reveals.
    """
    X = held.negative if removed else held.positive
    learnt, judged = (
        rows[held.labels[rows][:, columns].any(axis=1)] for rows in (held.attack, held.test)
    )
    attacked, oracle = released(protector, X[judged], held.seed)
    without = None if removed else held.negative[learnt]
    train = LabelledVectors(X[learnt], held.labels[learnt][:, columns], held.ids[learnt], without)
    test = LabelledVectors(attacked, held.labels[judged][:, columns], held.ids[judged])
    chosen = [
        a for a in attacks_named(attacks, further=False) if not (removed and a.name == "transplant")
    ]
    results = [a.run(train, test, rng=held.seed, show_progress=False, **oracle) for a in chosen]
    worst = max(results, key=lambda result: result.value)
    record = worst.main.to_record()
    return {
        "words": len(columns), "texts": len(judged), "attack": worst.name,
        **{key: record[key] for key in ("value", "low", "high", "chance")},
        "attacks": {result.name: round(result.value, 5) for result in results},
    }  # fmt: skip


VARIANTS = {
    "none": "no protection",
    "removed": "every concept word removed from the text",
    "laplace": "Laplace",
    "sparse": "SPARSE",
    "subspace": "subspace, listed words alone",
    "expansion-found": "subspace, listed words and members in existing texts",
    "expansion-few": "subspace, listed words and few members",
    "expansion": "subspace, listed words and their expansion",
    "oracle": "subspace, every word known",
}
BAR = 0.5  # of SPARSE's excess over chance, for unseen words
ABOUT = (
    "Half of the concept's words are listed; a quarter is available to the sources of an expansion (a corpus, lists, "
    "Faker); a quarter is withheld from them. Expanded words are available words that a source proposed; all others "
    "are unseen. The sources of the default specification are rich: for sts the list that defines the concept, for ade "
    "sentences of the same set, including judged ones; other sources propose fewer of the right words. Protectors and "
    "attackers use different texts; the attackers know every word. "
    "Two rows bound the results: 'every word known' is the same method with nothing held out, and 'every concept word "
    "removed' measures what the rest of a sentence reveals about a removed word."
)


def _leakages(records: Records, problem: str) -> Table:
    def share(key: tuple[str], rows: Records, kind: str) -> Number | None:
        return number(_ratios(records, problem, key[0], kind), digits=0)

    columns = [draw.axis("Protector", 0, VARIANTS.__getitem__)]
    for kind in KINDS:
        columns += [
            draw.estimate(f"{kind.title()} words", "leakage", kind),
            draw.percent("Chance", "leakage", kind, "chance"),
            draw.column("Of SPARSE's excess", partial(share, kind=kind), "%"),
        ]
    groups = records.where(problem=problem).each("variant")
    kept = draw.percent("Utility kept", "utility", "relative")[1]
    columns.append(
        draw.column(
            "Utility kept", lambda key, rows: "–" if key[0] == "removed" else kept(key, rows), "%"
        )
    )
    return draw.table(problem, groups, columns)


def _ratios(records: Records, problem: str, variant: str, kind: str) -> list[float]:
    """Return each seed's excess over chance as a share of SPARSE's, where SPARSE's is above chance."""
    rows = records.where(problem=problem)
    return draw.excess_shares(
        rows.where(variant=variant), rows.where(variant="sparse"), "leakage", kind
    )


def _costs(records: Records) -> Table:
    return draw.table("What an expansion costs", records.where(variant="expansion").each("problem"), [
        draw.axis("Problem", 0),
        draw.plain("Members", "expansion", "members"),
        draw.plain("Texts", "expansion", "texts"),
        draw.plain("Encodings to find members", "expansion", "encodings", "members"),
        draw.plain("Encodings of texts", "expansion", "encodings", "texts"),
        draw.plain("Seconds to expand", "expansion", "seconds"),
    ])  # fmt: skip


def bar(records: Records, problem: str) -> ClaimFinding:
    """Return whether the default fit reaches the bar on unseen words, beside the other variants."""
    claim = f"Unseen words leak at most half of SPARSE's excess over chance ({problem})."
    found = {
        variant: ratios
        for variant in ("subspace", "expansion-found", "expansion", "oracle")
        if (ratios := _ratios(records, problem, variant, "unseen"))
    }
    if "subspace" not in found:
        return ClaimFinding(claim, "own", "not measured", "not measured")
    ours = "; ".join(f"{VARIANTS[v]}: {_shown(ratios)}" for v, ratios in found.items())
    agrees = statistics.fmean(found["subspace"]) <= BAR
    return ClaimFinding(claim, "own", "agrees" if agrees else "disagrees", ours)


def _shown(ratios: Sequence[float]) -> str:
    mean = f"{100 * statistics.fmean(ratios):.0f} %"
    if len(ratios) == 1:
        return mean
    return f"{mean} ({100 * min(ratios):.0f} to {100 * max(ratios):.0f} over {len(ratios)} seeds)"


@dataclass(frozen=True, kw_only=True)
class HeldOutSpec(Spec):
    """Variants, seeds and sources.

    Attributes:
        variants: keys of `VARIANTS`.
        more_seeds, more_variants: variants that are measured with more seeds.
        few_members: members of the variant ``expansion-few``.
        sources: sources of the expansion of each problem.
    """

    variants: tuple[str, ...] = tuple(VARIANTS)
    more_seeds: int = 1
    more_variants: tuple[str, ...] = ()
    scale: str = "utility 0.95"
    few_members: int = 200
    sources: dict[str, SourceSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_scale(self.scale)
        attacks_named(self.attacks, further=False)
        check_names("variants", (*self.variants, *self.more_variants), VARIANTS)
        expanded = any(v.startswith("expansion") for v in (*self.variants, *self.more_variants))
        for name in self.problems:
            if expanded and name not in self.sources:
                raise wrong(f"sources.{name}", "given for the variants of expansions", "nothing")


class HeldOutTerms(Experiment[HeldOutSpec]):
    """Cells with the axes problem, variant and seed."""

    name = "held-out-terms"
    what = "Leakage of listed words, of words that an expansion proposed, and of unseen words."
    source = "own"
    spec_type = HeldOutSpec

    def cells(self, spec: HeldOutSpec) -> list[Cell]:
        return [
            Cell.of(problem=problem, variant=variant, seed=seed)
            for seed in range(max(spec.seeds, spec.more_seeds))
            for problem in spec.problems
            for variant in (spec.variants if seed < spec.seeds else spec.more_variants)
        ]

    def settings(self, spec: HeldOutSpec, cell: Cell) -> dict[str, Any]:
        """Return the settings of a cell; sources decide every cell, as they decide the kind of each word."""
        sources = spec.sources.get(cell["problem"])
        own = (
            None
            if sources is None
            else {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(sources).items()}
        )
        few = spec.few_members if cell["variant"] == "expansion-few" else None
        return {**super().settings(spec, cell), "scale": spec.scale, "sources": own, "few": few}

    def prepare(self, spec: HeldOutSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        for problem, seed in dict.fromkeys((cell["problem"], cell["seed"]) for cell in cells):
            held, expansion = (
                self._held(bench, problem, seed),
                self._expansion(spec, bench, problem, seed),
            )
            if expansion is not None:
                held.encoder.encode(
                    [*expansion.texts, *expansion.negatives], show_progress=bench.show_progress
                )

    def measure(self, spec: HeldOutSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        problem, variant, seed = cell["problem"], cell["variant"], cell["seed"]
        held = self._held(bench, problem, seed)
        expansion = self._expansion(spec, bench, problem, seed)
        task = bench.task(bench.utility_of(problem), held.encoder)
        protector = None
        extra: dict[str, Any] = {}
        if variant not in ("none", "removed"):
            method = variant if variant in ("laplace", "sparse") else "subspace"
            if variant == "expansion-few":
                extra["expansion"] = self._expansion(
                    spec, bench, problem, seed, members=spec.few_members
                )
            elif variant.startswith("expansion"):
                made = 0 if variant == "expansion-found" else None
                extra["expansion"] = self._expansion(spec, bench, problem, seed, made=made)
            concept = held.concept(None if variant == "oracle" else held.listed)
            protector = fit(
                held.texts, concept, held.encoder, method=method, utility=task, seed=seed,
                show_progress=False, **parse_scale(spec.scale).arguments(method), **extra,
            )  # fmt: skip
        found = {
            kind: strongest(held, columns, protector, spec.attacks, removed=variant == "removed")
            for kind, columns in held.kinds(expansion).items()
        }
        used = extra.get("expansion")
        return {
            "leakage": found,
            "utility": None if variant == "removed" else utility(task, protector, seed),
            "expansion": None if used is None else used.report(),
            "protector": protector_record(protector),
        }

    def _held(self, bench: Bench, problem: str, seed: int) -> WordSplit:
        key = ("held out", problem, seed)
        return bench.once(key, lambda: WordSplit(bench.problem(problem), bench.encoder(), seed))

    def _expansion(
        self, spec: HeldOutSpec, bench: Bench, problem: str, seed: int, *,
        members: int | None = None, made: int | None = None,
    ) -> Expansion | None:  # fmt: skip
        """Return the expansion of the listed words: ``members`` at most, ``made`` new texts (None: the default)."""
        sources = spec.sources.get(problem)
        if sources is None:
            return None
        held = self._held(bench, problem, seed)
        most = sources.members if members is None else members

        def expand() -> Expansion:
            return held.concept(held.listed).expand(
                held.texts, sources=member_sources(sources, bench.data, held.withheld), encoder=held.encoder,
                members=most, substitutions=made, seed=seed, show_progress=False,
            )  # fmt: skip

        return bench.once(("expansion", problem, seed, most, made), expand)

    def summary(self, spec: HeldOutSpec, records: Records) -> Summary:
        names = records.values("problem")
        return Summary(
            tables=[*(_leakages(records, name) for name in names), _costs(records)],
            findings=[bar(records, name) for name in names],
            notes=[ABOUT],
        )
