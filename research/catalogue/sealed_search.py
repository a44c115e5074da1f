"""Candidate channels of sealed search side by side: what they leak, and what exact re-ranking keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from research import tables as draw
from research.bench import Bench
from research.datasets import open_dataset
from research.datasets.kinds import RetrievalSet, TextSet
from research.decoders import target_words
from research.experiment import Cell, Experiment, Records, note
from research.judging import Measured, Verdict, compare
from research.points import attacks_named, defend, leakage, protector_record, released, short, utility
from research.results import ClaimFinding, Number, Summary, Table, number
from research.scales import Scale, parse_scale
from research.specification import Settings, Spec, Whole, check_names, digest, json_ready, whole_numbers
from research.tasks import test_rows
from research.word_split import WordSplit, leaks
from vecveil.auditing.attacks import CandidateVectors, GEIAAttack, LikelihoodMatching, PairedVectors, TextVectors
from vecveil.auditing.metrics import SealedSearchTask
from vecveil.privacy.protector import Aim, Candidate, Data, Method, Protector, register_method
from vecveil.privacy.protector.methods import METHODS
from vecveil.privacy.protector.methods.subspace import directions_of
from vecveil.privacy.sensitivity.concept_subspace import subspace_map
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.privacy.utility.tasks import ndcg_of_scores, unit_rows

Rows = npt.NDArray[Any]
PARTS = ("search", "leak", "unlisted", "matching", "geia", "model")
GEIA: dict[str, Any] = {"width": 128, "layers": 2, "vocabulary": 4000, "epochs": 8}  # minutes
SAMPLE = 3000  # sentences from which the model of a calibration extrapolates
SEARCHES = ("search", "model")
SIDES = ("both", "map")
NEAREST = 10
LEAST_RADIUS = 1e-4  # noise too small to change a figure, which a fit accepts
SMALL, LARGE = "mlp-512", "mlp-2048"


@dataclass(frozen=True)
class PrefixOptions:
    """Option of the prefix: number of directions to keep."""

    kept: int


def _prefix(data: Data, options: PrefixOptions, aim: Aim) -> Candidate:
    """Return the leading principal directions: the first stage of SHARD (arXiv 2606.27976) is this without noise."""
    kept = int(options.kept)
    exact = subspace_map(directions_of(data.moments, pairs=True), erased=0, kept=kept)
    linear = LinearMap.quantised(exact.down, exact.up, norm=data.moments.rms_norm)
    return Candidate(NoiseShape.isotropic(data.dimension), lambda _: linear, {"kept": kept})


PREFIX = Method("public-prefix", "leading principal directions", _prefix, PrefixOptions, postprocess="own map")


@contextlib.contextmanager
def _prefix_known() -> Iterator[None]:
    """Register the public prefix within the block only: importing an experiment must not change the methods."""
    register_method(PREFIX)
    try:
        yield
    finally:
        METHODS.pop(PREFIX.name)


class ChannelSpec(Settings, frozen=True, kw_only=True):
    """The store's data for finding candidates.

    Attributes:
        method, scale, options: of the protector; `parse_scale`. The method ``none`` is clean vectors.
        parts: what to measure, of `PARTS`.
    """

    method: str = "none"
    scale: str = "clean"
    options: dict[str, float] = {}
    parts: tuple[str, ...] = PARTS

    @property
    def noise(self) -> Scale:
        """The scale; the radius of a channel without noise is the least that float32 keeps."""
        scale = parse_scale(self.scale)
        return replace(scale, value=max(scale.value, LEAST_RADIUS)) if scale.kind == "radius" else scale

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a fit; subspace gets ``pairs``, because it would otherwise search for the given settings."""
        given = {"pairs": True} if self.method == "subspace" else {}
        return {**given, **whole_numbers(self.options)}


class SealedSearchSpec(Spec, frozen=True, kw_only=True):
    """Channels and collections.

    Attributes:
        collections: retrieval sets; their test queries search.
        sentences: data set that fills up the collections; ``without`` names its sources to leave out.
        added: sentences added to a collection.
        sizes: further sizes, of a part of the collection or the collection with sentences.
        candidates: numbers of blobs that a search opens.
        draws: of the noise.
    """

    channels: dict[str, ChannelSpec] = {}
    collections: tuple[str, ...] = ()
    sentences: str = "sentences"
    without: tuple[str, ...] = ()
    added: Whole = 100_000
    sizes: tuple[int, ...] = ()
    candidates: tuple[int, ...] = (200, 500, 1000)
    draws: Whole = 5

    def __post_init__(self) -> None:
        attacks_named(self.attacks, further=False)
        for one in self.channels.values():
            parse_scale(one.scale)
            check_names("parts", one.parts, PARTS)


class Collection:
    """Queries, documents in random order before the added sentences, judgements, and the exact search by size.

    Attributes:
        texts: (D + A, n) documents and sentences.
        scores: (Q, D + A) exact cosines.
        grades: (Q, D) judgements.
        sizes: size of the store by name.
        copies: rows and columns of queries that are documents too.
        exact: by name, the ten nearest rows (Q, 10) and nDCG@10 (Q,), NaN for a query without a relevant document.
    """

    def __init__(self, found: RetrievalSet, encode: Any, added: Rows, sizes: Sequence[int]) -> None:
        order = np.random.default_rng(0).permutation(len(found.documents))
        place = {found.document_ids[i]: j for j, i in enumerate(order)}
        rows = test_rows(found.query_split)
        self.query_texts = [found.queries[i] for i in rows]
        self.document_texts = [found.documents[i] for i in order]
        self.grades = np.zeros((len(rows), len(order)), dtype=np.float32)
        for row, i in enumerate(rows):
            for document, grade in found.relevant[found.query_ids[i]].items():
                self.grades[row, place[document]] = grade
        self.queries, self.documents = encode(self.query_texts), encode(self.document_texts)
        texts = np.concatenate([self.documents, added]) if len(added) else self.documents
        copies = [place[found.query_ids[i]] for i in rows] if found.same_pool else []
        self.copies = np.arange(len(copies)), np.array(copies, dtype=np.intp)
        self.scores = self.cosines(self.queries, texts)
        every = {"native": len(order), "added": len(texts)} | {str(n): n for n in sizes}
        self.sizes = {name: size for name, size in every.items() if size <= len(texts)}
        self.exact = {}
        for name, size in self.sizes.items():
            ten = nearest(self.scores[:, :size], NEAREST)
            self.exact[name] = ten, self.ndcg(ten, size)

    def shares(self, queries: Rows, store: Rows, candidates: int) -> dict[str, Any]:
        """Return nDCG@10 as a share of exact search's: of the store alone, and after exact ranking of candidates."""
        exact = self.exact["native"][1]
        seen = self.cosines(queries, store)
        return {
            "alone": share_of(ndcg_of_scores(seen, self.grades), exact),
            "ranked": share_of(self.ndcg(nearest(seen, candidates), len(store)), exact),
        }

    def cosines(self, queries: Rows, texts: Rows) -> Rows:
        """Return the cosines (Q, D), below all others for the query's own copy among the documents."""
        found: Rows = _unit(queries) @ _unit(texts).T
        found[self.copies] = -2.0
        return found

    def ndcg(self, candidates: Rows, size: int) -> Rows:
        """Return nDCG@10 of the candidates (Q, k) in their exact order, in a store of ``size`` rows."""
        exact = np.take_along_axis(self.scores, candidates, axis=1)
        top = np.take_along_axis(candidates, nearest(exact, NEAREST), axis=1)
        own = self.grades[:, :size]
        held = np.take_along_axis(np.pad(own, ((0, 0), (0, 1))), np.minimum(top, own.shape[1]), axis=1)
        discounts = 1 / np.log2(np.arange(2, NEAREST + 2))
        ideal = np.sort(own, axis=1)[:, ::-1][:, :NEAREST] @ discounts
        blank = np.full(len(ideal), np.nan)
        found: Rows = np.divide(held @ discounts, ideal, out=blank, where=ideal > 0)
        return found


def _unit(X: Rows) -> Rows:
    return unit_rows(X).astype(np.float32)


def nearest(scores: Rows, count: int) -> Rows:
    """Return the columns of the ``count`` highest scores of each row, highest first."""
    count = min(count, scores.shape[1])
    some = np.argpartition(scores, -count, axis=1)[:, -count:]
    order = np.take_along_axis(scores, some, axis=1).argsort(axis=1)[:, ::-1]
    return np.take_along_axis(some, order, axis=1)


def searched(
    spec: SealedSearchSpec, collections: Mapping[str, Collection], added: Rows, protector: Protector, seed: int
) -> dict[str, Any]:
    """Return the figures of each collection by side and size of the store."""
    kept: dict[tuple[Any, ...], list[Rows]] = {}
    for turn in range(spec.draws):
        rng = np.random.default_rng([seed, 31, turn])
        tail = _unit(protector.protect(added, rng))  # one draw for all collections, for time
        for of, one in collections.items():
            store = np.concatenate([_unit(protector.protect(one.documents, rng)), tail])
            for side in SIDES:
                sent = protector.protect(one.queries, rng, noise=side == "both")
                seen = _unit(sent) @ store.T
                for name, size in one.sizes.items():
                    part = seen[:, :size]
                    own = np.take_along_axis(part, one.exact[name][0], axis=1).T
                    ranks = np.stack([(part > cosine[:, None]).sum(axis=1) for cosine in own])
                    kept.setdefault((of, side, name, "rank"), []).append(ranks)
                    ranked = nearest(part, max(spec.candidates))
                    for count in spec.candidates:
                        found = one.ndcg(ranked[:, :count], size)
                        kept.setdefault((of, side, name, count), []).append(found)
    return {
        of: {
            side: {name: _figures(spec, one.exact[name][1], kept, (of, side, name)) for name in one.sizes}
            for side in SIDES
        }
        for of, one in collections.items()
    }


def _figures(spec: SealedSearchSpec, exact: Rows, kept: Mapping[Any, Any], at: tuple[str, ...]) -> dict[str, Any]:
    """Return rank, and recall and nDCG@10 by candidates."""
    ranks = np.stack(kept[*at, "rank"])
    found: dict[str, Any] = {"rank90": float(np.quantile(ranks, 0.9)) + 1}
    for count in spec.candidates:
        ndcg = share_of(np.mean(kept[*at, count], axis=0), exact)
        found[str(count)] = {"recall": round(float((ranks < count).mean()), 5), "ndcg": ndcg}
    return found


def share_of(each: Rows, exact: Rows) -> dict[str, float]:
    """Return a mean over queries as a share of exact search's, with its interval (paired bootstrap)."""
    judged = np.isfinite(exact)
    own, clean = each[judged], exact[judged]
    picked = np.random.default_rng(0).integers(len(clean), size=(1000, len(clean)))
    ends = np.quantile(own[picked].mean(axis=1) / clean[picked].mean(axis=1), (0.025, 0.975))
    shares = [own.mean() / clean.mean(), *ends]
    return {key: round(float(x), 5) for key, x in zip(("value", "low", "high"), shares, strict=True)}


def predicted(
    spec: SealedSearchSpec, collections: Mapping[str, Collection], added: Rows, protector: Protector, seed: int
) -> dict[str, Any]:
    """Return the nDCG@10 that a calibration predicts with the sentences added, from the documents and a few of them."""
    rng = np.random.default_rng([seed, 32])
    few = added[rng.permutation(len(added))[:SAMPLE]]

    def release(X: Rows, generator: np.random.Generator | None) -> Rows:
        return protector.protect(X, generator, noise=generator is not None)

    found: dict[str, Any] = {name: {} for name in collections}
    for name, one in collections.items():
        for side in SIDES:
            task = SealedSearchTask(
                one.documents,
                candidates=spec.candidates[1],
                collection_size=one.sizes["added"],
                queries=one.queries,
                relevance=one.grades,
                distractors=few,
                query_noise=float(side == "both"),
                seed=seed,
            )
            got = task.protected(release, rng)
            ends = (("value", got.value), ("low", got.low), ("high", got.high))
            found[name][side] = {key: round(value / task.clean_value, 5) for key, value in ends}
    return found


def matched(material: Any, protector: Protector | None, seed: int) -> dict[str, Any]:
    """Return how often likelihood matching identifies a released text among ten that differ in one term."""
    case = material.case
    X, versions = case.embeddings, case.substitutes
    if versions is None:
        return {"skipped": "too few terms"}
    judged, oracle = released(protector, X[versions.rows], seed)
    groups = case.groups[versions.rows]
    rows = case.training_rows
    result = LikelihoodMatching().run(
        PairedVectors(X[rows], X[rows], case.groups[rows]),
        CandidateVectors(judged, versions.pool, versions.truth, versions.options, groups),
        rng=seed,
        show_progress=False,
        **oracle,
    )
    return {"top_1": {**short(result.main), "chance": 1 / versions.options.shape[1]}}


def written(material: Any, protector: Protector | None, seed: int) -> dict[str, Any]:
    """Return the share of target words in texts that a small GEIA writes from released vectors."""
    case = material.case

    def evidence(X: Any, rows: Any) -> TextVectors:
        return TextVectors(X, [case.texts[i] for i in rows], case.groups[rows])

    train, test = case.training_rows, case.test
    judged, oracle = released(protector, case.embeddings[test], seed)
    attack = GEIAAttack("small", words_of=target_words(material), judged=200, device="cpu", **GEIA)
    result = attack.run(
        evidence(case.embeddings[train], train), evidence(judged, test), rng=seed, show_progress=False, **oracle
    )
    return {name: short(estimate) for name, estimate in result.estimates.items()}


class SealedSearch(Experiment[SealedSearchSpec]):
    """Cells with the axes problem, channel, part and seed."""

    name = "sealed-search"
    what = "Candidate channels of sealed search: leakage, and what exact ranking finds."
    source = "own"
    spec_type = SealedSearchSpec

    def cells(self, spec: SealedSearchSpec) -> list[Cell]:
        return [
            Cell.of(problem=problem, channel=name, part=part, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for name, channel in spec.channels.items()
            for part in channel.parts
            if not (part in SEARCHES and channel.method == "none")
        ]

    def settings(self, spec: SealedSearchSpec, cell: Cell) -> dict[str, Any]:
        channel = json_ready(spec.channels[cell["channel"]])
        found = {**super().settings(spec, cell), **{k: channel[k] for k in ("method", "scale", "options")}}
        if cell["part"] in SEARCHES:
            names = ("collections", "sentences", "without", "added", "sizes", "candidates", "draws")
            found |= {"attacks": [], **{name: json_ready(spec)[name] for name in names}}
        if cell["part"] == "geia":
            found |= {"attacks": [], "geia": GEIA}
        return found

    def prepare(self, spec: SealedSearchSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        if any(cell["part"] in SEARCHES for cell in cells):
            self._collections(spec, bench)

    def data_digest(self, spec: SealedSearchSpec, bench: Bench, cell: Cell) -> str | None:
        own = super().data_digest(spec, bench, cell)
        if cell["part"] not in SEARCHES:
            return own
        return digest([own, *(bench.task_digest(name) for name in spec.collections)])

    def measure(self, spec: SealedSearchSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        channel, part, seed = spec.channels[cell["channel"]], cell["part"], cell["seed"]
        if part == "unlisted":
            return self._unlisted(spec, channel, cell, bench)
        material, scale = bench.material(cell["problem"], seed), channel.noise

        def fitted() -> Protector | None:
            with _prefix_known():
                return defend(bench, material, channel.method, scale, **channel.arguments)

        protector = bench.once(("channel", cell["problem"], seed, repr(channel)), fitted)
        if part == "matching":
            return matched(material, protector, seed)
        if part == "geia":
            return written(material, protector, seed)
        if part in SEARCHES:
            assert protector is not None
            measure = searched if part == "search" else predicted
            return measure(spec, *self._collections(spec, bench), protector, seed)
        return {
            **leakage(material, protector, spec.attacks),
            "utility": utility(material.task, protector, seed),
            "protector": protector_record(protector),
        }

    def _unlisted(self, spec: SealedSearchSpec, channel: ChannelSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the leakage of listed and unseen words if half of them are listed, on other texts than the fit's."""
        problem, seed = cell["problem"], cell["seed"]
        key = ("held out", problem, seed)
        held = bench.once(key, lambda: WordSplit(bench.problem(problem), bench.encoder(), seed))
        protector = None
        if channel.method != "none":
            with _prefix_known():
                protector = held.fitted(
                    channel.method,
                    held.concept(held.listed),
                    utility=bench.task(bench.utility_of(problem), held.encoder),
                    **channel.noise.arguments(channel.method),
                    **channel.arguments,
                )
        return leaks(held, protector, [name for name in spec.attacks if name != LARGE])

    def _collections(self, spec: SealedSearchSpec, bench: Bench) -> tuple[dict[str, Collection], Rows]:
        """Return the collections by name, and the vectors of the added sentences."""

        def read() -> tuple[dict[str, Collection], Rows]:
            sentences = open_dataset(spec.sentences, bench.data)
            assert isinstance(sentences, TextSet)
            sources = sentences.labels or ("",) * len(sentences.texts)
            pairs = zip(sentences.texts, sources, strict=True)
            texts = [text for text, source in pairs if source not in spec.without][: spec.added]
            encode = bench.encoder().encode
            added = encode(texts, show_progress=bench.show_progress)
            found = {}
            for name in spec.collections:
                collection = open_dataset(name, bench.data)
                assert isinstance(collection, RetrievalSet)
                found[name] = Collection(collection, encode, added, spec.sizes)
            return found, added

        return bench.once(("collections", spec.collections, spec.added), read)

    def summary(self, spec: SealedSearchSpec, records: Records) -> Summary:
        shown = [name for name in spec.channels if len(records.where(channel=name))]
        sizes = {str(size): f"{size:,}" for size in spec.sizes}
        stores = {"native": "own", "added": f"+ {spec.added:,}"}
        leaks = [((name,), records.where(channel=name)) for name in shown]
        tables = [_leaks(leaks, records)]
        for name in spec.collections:
            tables.append(_search(records, shown, name, stores, spec.candidates, "own size and with sentences"))
            tables.append(_search(records, shown, name, sizes, (200, 500), "by size of the store"))
        tables.append(_model(spec, records, shown))
        findings = [*(_target(spec, records, *one) for one in TARGETS), _strong(spec, records)]
        return Summary(tables=tables, findings=findings, notes=[ABOUT])


ABOUT = note("sealed-search")
BASE, ISOTROPIC = "sparse", "isotropic 1"
TARGETS = (("both", 0.985, 0.15, 0.08), ("map", 0.98, 0.10, 0.05))
"""Side, least nDCG@10, and largest shares of SPARSE's excess: to the strongest attack, to a perceptron of 512 units."""
STRONG = ("npl", 1000, 0.96, 0.4)
"""Collection, candidates, least nDCG@10 with queries through the map, largest share of isotropic noise's excess."""


def _shares(records: Records, part: str, base: str, channel: str, *path: str) -> Measured | None:
    """Return the excess over chance as a share of another channel's, seed by seed."""
    rows = records.where(part=part)
    found = draw.excess_shares(rows.where(channel=channel), rows.where(channel=base), *path)
    return Measured(dict(enumerate(found))) if found else None


def _share(records: Records, part: str, base: str, channel: str, *path: str) -> Number | None:
    found = _shares(records, part, base, channel, *path)
    return number([*found.by_seed.values()], digits=0) if found else None


def _leaks(groups: Sequence[draw.Group], records: Records) -> Table:
    def column(title: str, part: str, *path: str) -> draw.Drawn:
        return draw.column(title, lambda key, rows: rows.where(part=part).estimate(*path), "%")

    def chance(title: str, part: str, *path: str) -> draw.Drawn:
        return draw.column(title, lambda key, rows: rows.where(part=part).number(*path, "chance"), "%")

    def share(title: str, part: str, base: str, *path: str) -> draw.Drawn:
        return draw.column(title, lambda key, rows: _share(records, part, base, key[0], *path), "%")

    small, large = (("attacks", name, "r_precision") for name in (SMALL, LARGE))
    return draw.table(
        "What each channel leaks",
        groups,
        [
            draw.axis("Channel", 0),
            draw.column("Seeds", lambda key, rows: draw.count(len(rows.values("seed")))),
            column("Listed words, strongest attack", "leak", "leakage"),
            draw.column("Strongest", lambda key, rows: draw.strongest_names(rows.where(part="leak")), text=True),
            column("2,048 units", "leak", *large),
            column("512 units", "leak", *small),
            chance("Chance", "leak", "leakage"),
            share("Strongest, of SPARSE's excess", "leak", BASE, "leakage"),
            share("512 units, of SPARSE's excess", "leak", BASE, *small),
            column("Listed, other texts", "unlisted", "listed"),
            chance("Chance, listed", "unlisted", "listed"),
            column("Unlisted, other texts", "unlisted", "unseen"),
            chance("Chance, unlisted", "unlisted", "unseen"),
            share("Unlisted, of isotropic noise's excess", "unlisted", ISOTROPIC, "unseen"),
            column("Matching, 1 of 10", "matching", "top_1"),
            column("Words in texts that a small GEIA writes", "geia", "leakage"),
            chance("Chance, GEIA", "geia", "leakage"),
        ],
    )


def _search(
    records: Records, shown: Sequence[str], name: str, sizes: Mapping[str, str], counts: Sequence[int], title: str
) -> Table:
    """Return rank, recall and nDCG@10 of channels and sides in one collection, in stores of some sizes."""
    found = records.where(part="search")
    groups = [((one, side), rows) for one in shown if (rows := found.where(channel=one)) for side in SIDES]
    columns = [draw.axis("Channel", 0), draw.axis("Queries", 1)]

    def column(title: str, *path: str, **options: Any) -> draw.Drawn:
        unit = "%" if options.get("percent", True) else None
        return draw.column(title, lambda key, rows: rows.number(name, key[1], *path, **options), unit)

    def ndcg(title: str, *path: str) -> draw.Drawn:
        return draw.column(title, lambda key, rows: rows.estimate(name, key[1], *path, "ndcg"), "%")

    for size, label in sizes.items():
        columns.append(column(f"rank, {label}", size, "rank90", percent=False, digits=0))
        columns.append(column(f"recall, {label}, {counts[1]}", size, str(counts[1]), "recall"))
        columns += [ndcg(f"nDCG, {label}, {count:,}", size, str(count)) for count in counts]
    return draw.table(f"{name}, {title}", groups, columns)


def _model(spec: SealedSearchSpec, records: Records, shown: Sequence[str]) -> Table:
    """Return the nDCG@10 with sentences added as measured, and as a calibration predicts it from few of them."""
    found = records.where(part="search")
    cells = records.where(part="model")
    groups = [
        ((name, one, side), rows)
        for name in spec.collections
        for one in shown
        if (rows := cells.where(channel=one))
        for side in SIDES
    ]
    count = str(spec.candidates[1])

    def measured(key: tuple[Any, ...]) -> Number | None:
        return found.where(channel=key[1]).number(key[0], key[2], "added", count, "ndcg", "value")

    def error(key: tuple[Any, ...], rows: Records) -> Number | None:
        both = rows.number(key[0], key[2], "value"), measured(key)
        return number([both[0].value - both[1].value]) if both[0] and both[1] else None

    return draw.table(
        f"The model of a calibration, {spec.added:,} sentences added, {count} candidates",
        groups,
        [
            draw.axis("Collection", 0),
            draw.axis("Channel", 1),
            draw.axis("Queries", 2),
            draw.column("nDCG, measured", lambda key, rows: measured(key), "%"),
            draw.column("nDCG, predicted", lambda key, rows: rows.estimate(key[0], key[2]), "%"),
            draw.column("Error", error, "%"),
        ],
        f"Predicted from the collection's documents and {SAMPLE:,} sentences.",
    )


def _closest(claim: str, found: Sequence[tuple[Sequence[tuple[Measured, float, int]], str]]) -> ClaimFinding:
    """Return whether a channel meets all bounds beyond their errors, and the one that exceeds them least.

    Args:
        found: for each channel its bounds (figure, limit, 1 for at least and -1 for at most), and its figures in words.
    """
    if not found:
        return ClaimFinding(claim, "own", "not measured", "not measured")
    channels = [
        (
            min(sign * compare(figure, limit) for figure, limit, sign in bounds),
            -sum(max(sign * (limit - figure.value), 0.0) for figure, limit, sign in bounds),
            shown,
        )
        for bounds, shown in found
    ]
    outcome, _, ours = max(channels)
    told: tuple[Verdict, ...] = ("unclear", "agrees", "disagrees")
    return ClaimFinding(claim, "own", told[outcome], ours)


def _target(
    spec: SealedSearchSpec, records: Records, side: str, least: float, most: float, small: float
) -> ClaimFinding:
    found = []
    for name in spec.channels:
        rows = records.where(channel=name, part="search")
        ndcg = [
            one
            for of in spec.collections
            for size in ("native", "added")
            if (one := rows.measured(of, side, size, "500", "ndcg"))
        ]
        worst = _shares(records, "leak", BASE, name, "leakage")
        fast = _shares(records, "leak", BASE, name, "attacks", SMALL, "r_precision")
        if ndcg and worst and fast:
            kept = min(ndcg, key=lambda one: one.value)
            shown = (
                f"{name}: nDCG@10 {kept.value:.3f} in the worst collection, {100 * worst.value:.1f} % to the strongest "
                f"attack, {100 * fast.value:.1f} % to 512 units "
                f"({len(worst.by_seed)} seeds)"
            )
            found.append((((kept, least, 1), (worst, most, -1), (fast, small, -1)), shown))
    claim = (
        f"500 candidates keep nDCG@10 at {least}, queries: {side}, while the strongest attack recovers at most "
        f"{100 * most:.0f} % of SPARSE's excess, a perceptron of 512 units {100 * small:.0f} %."
    )
    return _closest(claim, found)


def _strong(spec: SealedSearchSpec, records: Records) -> ClaimFinding:
    collection, count, least, most = STRONG
    found = []
    for name in spec.channels:
        at = records.where(channel=name)
        kept = at.where(part="search").measured(collection, "map", "native", str(count), "ndcg")
        unlisted = _shares(records, "unlisted", ISOTROPIC, name, "unseen")
        listed, chance = (at.where(part="leak").measured("leakage", key) for key in ("low", "chance"))
        if kept and unlisted and listed and chance:
            over = Measured({seed: low - chance.by_seed[seed] for seed, low in listed.by_seed.items()})
            shown = (
                f"{name}: nDCG@10 {kept.value:.3f}, unlisted words {100 * unlisted.value:.0f} % of isotropic noise's "
                f"excess, listed ones from {100 * listed.value:.1f} %, chance {100 * chance.value:.1f} %"
            )
            found.append((((kept, least, 1), (unlisted, most, -1), (over, 0.0, -1)), shown))
    claim = (
        f"{count:,} candidates and map queries keep nDCG@10 at {least} in {collection}, while unlisted words leak at "
        f"most {100 * most:.0f} % of isotropic noise's excess and the interval of listed ones holds chance."
    )
    return _closest(claim, found)
