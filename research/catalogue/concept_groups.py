"""SPARSE, Table 5 and Figure 2: protect one word; leakage of it, of similar words and of others."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from research import tables as draw
from research.bench import Bench, Material
from research.experiment import Cell, Experiment, Records, note
from research.grid import mask_options
from research.judging import Measured, Tally, Verdict, compare, verdict, within
from research.points import attacks_named, defend, leakage, utility
from research.published import published
from research.results import ClaimFinding, Figure, Number, Summary, Table, XAxis, YAxis, number
from research.scales import parse_scale
from research.specification import ProblemSpec, Spec, Whole, check_names, digest, wrong
from vecveil.privacy.concepts import Concept
from vecveil.privacy.concepts.matching import words
from vecveil.privacy.protector import Protector, fit_pairs
from vecveil.privacy.protector.data import MIN_PAIRS
from vecveil.privacy.sensitivity import NoiseShape
from vecveil.privacy.sensitivity.hard_concrete import fit_hard_concrete_mask
from vecveil.texts.folding import canonical
from vecveil.types import Embeddings, Vector

FLOOR = 1e-6  # of the mask, as published
MOST_OTHERS = 4000  # texts without the word, for the covariances of a fit
PLAIN = ("laplace", "purkayastha", "gaussian")  # independent of the word
CLOSED = "mean-difference"  # a mask in closed form: few pairs leave a trained one at its start


Rows = npt.NDArray[np.intp]


class ConceptGroupsSpec(Spec, frozen=True, kw_only=True):
    """Words, methods and limits. The concept of every problem is all words of the groups.

    Attributes:
        groups: single words by group; words of one group count as similar.
        methods: ``laplace``, ``purkayastha`` or ``gaussian`` (control: independent of the word), ``subspace``, names of
            ``recipes``, and ``mean-difference``, the mask |mean of D⁺ − D⁻| of a word's pairs, which then judges the
            paper's claims in place of the first recipe.
        recipes: name -> options of the mask training; an empty mapping takes the published ones.
        words: maximum number of protected words in a group, the most frequent first.
        min_texts: minimum number of texts with a protected word.
        pairs: maximum number of training texts of a word's protector.
        top: number of a mask's highest dimensions to compare.
    """

    groups: dict[str, tuple[str, ...]]
    methods: tuple[str, ...] = ("laplace", "sparse", "subspace")
    recipes: dict[str, dict[str, float]] = msgspec.field(default_factory=lambda: {"sparse": {}})
    scale: str = "effective 10"
    words: Whole = 8
    min_texts: Whole = 30
    pairs: Whole = 300
    top: Whole = 5

    def __post_init__(self) -> None:
        if parse_scale(self.scale).kind == "clean":
            raise wrong("scale", f"`scale` {self.scale!r} has no noise.")
        attacks_named(self.attacks, further=False)
        known = (*PLAIN, CLOSED, "subspace", *self.recipes)
        check_names("methods", self.methods, known)
        for options in self.recipes.values():
            mask_options(options)
        seen = [canonical(word) for group in self.groups.values() for word in group]
        for word in seen:
            if list(words(word)) != [word] or seen.count(word) > 1:
                raise wrong("groups", "`groups` has several words in one entry, or a word twice.")

    def problem(self, name: str) -> ProblemSpec:
        """Return a problem with all words of the groups as its concept."""
        own = super().problem(name)
        every = tuple(word for group in self.groups.values() for word in group)
        return structs.replace(own, concept=structs.replace(own.concept, terms=every))


class ConceptGroups(Experiment[ConceptGroupsSpec]):
    """Cells with the axes problem, group, method and seed; one unprotected cell for each problem and seed."""

    name = "concept-groups"
    what = "Protect one word: leakage of the word, of similar words and of others, and overlap of masks."
    source = "SPARSE, Table 5 and Figure 2"
    spec_type = ConceptGroupsSpec

    def cells(self, spec: ConceptGroupsSpec) -> list[Cell]:
        found = []
        for seed in range(spec.seeds):
            for problem in spec.problems:
                found.append(Cell.of(problem=problem, group="all", method="none", seed=seed))
                found += [
                    Cell.of(problem=problem, group=group, method=method, seed=seed)
                    for method in spec.methods
                    for group in spec.groups
                ]
        return found

    def settings(self, spec: ConceptGroupsSpec, cell: Cell) -> dict[str, Any]:
        """Return the settings of a cell. All words are attacked, so every group affects every cell."""
        keys = ("scale", "words", "min_texts", "pairs")
        own = {key: getattr(spec, key) for key in keys} if cell["method"] != "none" else {}
        groups = {name: list(group) for name, group in spec.groups.items()}
        recipe = spec.recipes.get(cell["method"])
        return {**super().settings(spec, cell), **own, "groups": groups, "recipe": recipe}

    def prepare(self, spec: ConceptGroupsSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        super().prepare(spec, bench, cells)
        wanted = [cell for cell in cells if cell["method"] != "none"]
        for problem, seed in dict.fromkeys((cell["problem"], cell["seed"]) for cell in wanted):
            material = bench.material(problem, seed)
            own = [
                _pairs(spec, material, word)[1] for group in spec.groups for word in _chosen(spec, material, group)[0]
            ]
            bench.encoder().encode([t for part in own for t in part], show_progress=bench.show_progress)

    def measure(self, spec: ConceptGroupsSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        material = _by_word(bench.material(cell["problem"], cell["seed"]))
        if cell["method"] == "none":
            found = leakage(material, None, spec.attacks)
            return {**found, "words": found.pop("categories")}
        chosen, left_out = _chosen(spec, material, cell["group"])
        return {"words": {word: self._word(spec, cell, bench, material, word) for word in chosen}, "left_out": left_out}

    def _word(self, spec: ConceptGroupsSpec, cell: Cell, bench: Bench, material: Material, word: str) -> dict[str, Any]:
        method, scale = cell["method"], parse_scale(spec.scale)
        if method in PLAIN:
            key = ("plain", material.problem.name, method, material.seed)
            found = bench.once(key, lambda: _read(spec, material, defend(bench, material, method, scale)))
            return _split(spec, cell["group"], word, found)
        rows, texts = _pairs(spec, material, word)
        P, N = material.positive[rows], np.asarray(bench.encoder().encode(texts))
        about: dict[str, Any] = {"pairs": len(rows)}
        arguments: dict[str, Any] = scale.arguments("covariance")
        if method in spec.recipes:
            # One seed per word: masks of one seed agree in their initial values, whatever the words.
            seeds = [int(digest([word, material.seed, i])[:7], 16) for i in range(2)]
            options = mask_options(spec.recipes[method])
            masks = [fit_hard_concrete_mask(P, N, options, seed=i, show_progress=False) for i in seeds]
            about["mask"] = [round(float(value), 4) for value in masks[0].mask]
            about["again"] = [round(float(value), 4) for value in masks[1].mask]
            arguments |= {"shape": NoiseShape.from_diagonal(masks[0].mask, floor=FLOOR), "postprocess": "none"}
        elif method == CLOSED:
            drawn = np.random.default_rng(int(digest([word, material.seed])[:7], 16)).integers(0, len(P), len(P))
            closed, again = (closed_mask(P[i], N[i]) for i in (np.arange(len(P)), drawn))
            about["mask"], about["again"] = ([round(float(value), 4) for value in mask] for mask in (closed, again))
            arguments |= {"shape": NoiseShape.from_diagonal(closed, floor=FLOOR), "postprocess": "none"}
        found = _read(spec, material, _fitted(material, word, rows, P, N, method, arguments))
        return {**about, **_split(spec, cell["group"], word, found)}

    def summary(self, spec: ConceptGroupsSpec, records: Records) -> Summary:
        # The paper's claims are judged on the first: a trained mask of few pairs is that of its seed.
        recipes = ((CLOSED,) if len(records.where(method=CLOSED)) else ()) + tuple(spec.recipes)
        top, scale = spec.top, spec.scale
        masks = [found for name in recipes if (found := _Masks(records, name)).words]
        overlaps = {one.recipe: mask_overlap(one.masks, one.groups, top=top) for one in masks}
        return Summary(
            tables=[
                *(_changes(records, name, scale) for name in records.values("problem")),
                *([_overlaps(masks, overlaps, top)] if masks else []),
            ],
            figures=[_heat(one, group, top) for one in masks for group in dict.fromkeys(one.groups)],
            findings=_findings(_live(records), recipes, masks, overlaps, top, scale),
            notes=[*_left_out(records), *published(TABLE).notes],
        )


def closed_mask(P: Embeddings, N: Embeddings) -> Vector:
    """Return |mean of the differences of pairs| (n,), scaled to a largest value of 1."""
    moved = np.abs(np.asarray(P - N, dtype=np.float64).mean(axis=0))
    return np.asarray(moved / moved.max())


def _by_word(material: Material) -> Material:
    """Return the material with every word as its own category."""
    own = {word: word for word in material.case.vocabulary}
    return dataclasses.replace(material, problem=dataclasses.replace(material.problem, categories=own))


def _chosen(spec: ConceptGroupsSpec, material: Material, group: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a group to protect, and why the others are left out."""
    case = material.case
    counts = dict(zip(case.vocabulary, case.labels.sum(axis=0).tolist(), strict=True))
    left_out: dict[str, str] = {}
    kept = []
    for word in map(canonical, spec.groups[group]):
        if word not in counts:
            left_out[word] = "too rare to be attacked"
        elif counts[word] < spec.min_texts or len(_pairs(spec, material, word)[0]) < MIN_PAIRS:
            left_out[word] = "in too few texts"
        else:
            kept.append(word)
    kept.sort(key=lambda word: -counts[word])
    left_out |= dict.fromkeys(kept[spec.words :], "beyond the number of words")
    return kept[: spec.words], left_out


def _pairs(spec: ConceptGroupsSpec, material: Material, word: str) -> tuple[Rows, list[str]]:
    """Return positions in ``material.positive`` of learning texts with a word, and these texts without it."""
    case = material.case
    column = case.vocabulary.index(word)
    rows = material.fit_rows
    rows = rows[case.labels[case.matches.with_concept[rows], column] == 1]
    texts = [case.texts[i] for i in case.matches.with_concept[rows]]
    if not texts:
        return rows, []
    found = Concept.from_terms(word, [word]).find(texts, min_texts=1)
    kept, negatives = found.with_concept, found.negatives()
    taken = np.sort(np.random.default_rng(0).permutation(len(kept))[: spec.pairs])
    return rows[kept[taken]], [negatives[i] for i in taken]


def _fitted(
    material: Material, word: str, rows: Rows, P: Embeddings, N: Embeddings, method: str, arguments: dict[str, Any]
) -> Protector:
    """Return a protector of one word; texts without the word are the background."""
    case = material.case
    held = case.labels[case.matches.with_concept[material.fit_rows], case.vocabulary.index(word)]
    others = material.fit_rows[held == 0]
    background = np.concatenate([material.background, material.positive[others]])
    order = np.random.default_rng(material.seed).permutation(len(background))[:MOST_OTHERS]
    groups = case.groups[case.matches.with_concept][rows]
    name = "subspace" if method == "subspace" else "covariance"
    return fit_pairs(
        P,
        N,
        None,
        background[order] if len(order) >= MIN_PAIRS else None,
        method=name,
        utility=material.task,
        groups=groups,
        seed=material.seed,
        show_progress=False,
        **arguments,
    )


def _read(spec: ConceptGroupsSpec, material: Material, protector: Protector | None) -> dict[str, Any]:
    found = leakage(material, protector, spec.attacks)
    kept = utility(material.task, protector, material.seed)
    return {"words": found["categories"], "worst": found["worst"], "utility": kept["relative"]}


def _split(spec: ConceptGroupsSpec, group: str, word: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return hits, chance hits and instances of the protected word, of its group and of other groups."""
    of = {canonical(one): name for name, own in spec.groups.items() for one in own}
    sums = {key: np.zeros(3) for key in ("target", "similar", "other")}
    for one, row in found["words"].items():
        key = "target" if one == word else "similar" if of.get(one) == group else "other"
        sums[key] += np.array([row["value"] * row["n"], (row["chance"] or 0.0) * row["n"], row["n"]])
    rounded = {key: [round(float(v), 4) for v in values] for key, values in sums.items()}
    return {**rounded, "utility": found["utility"], "worst": found["worst"]}


TABLE = "sparse-table-5"
KINDS = ("target", "similar", "other")
ALPHA = 0.05
ENOUGH_WORDS = 20  # with fewer, groups are too small for a permutation test
SAME = 0.8  # share of a mask's highest dimensions common to two seeds above which the word determines them
DRAWS = 2000
DIFFERENCE = note("concept-groups")

Change = tuple[float, float, float]


def _left_out(records: Records) -> list[str]:
    found = []
    for (group,), rows in records.each("group"):
        reasons: dict[str, str] = {}
        for row in rows:
            reasons |= row["found"].get("left_out", {})
        if reasons:
            counts = Counter(reasons.values())
            said = ", ".join(f"{count} {why}" for why, count in counts.most_common())
            found.append(f"Words of {group} that are not protected themselves: {said}.")
    return found


def _live(records: Records) -> Records:
    """Return the records of the problems in whose clean vectors the attack finds more words than by chance."""
    return Records(
        [
            row
            for _, own in draw.counted(records).each("problem")
            for row in own
            if draw.above_chance(own.where(method="none"), "leakage")
        ]
    )


class _Masks:
    """The masks of a recipe for the first problem and seed, one for each word."""

    def __init__(self, records: Records, recipe: str) -> None:
        self.recipe = recipe
        own = records.where(method=recipe)
        for axis in ("problem", "seed") if len(own) else ():
            own = own.where(**{axis: own[0]["cell"][axis]})
        held = [(word, row["cell"]["group"], one) for row in own for word, one in row["found"]["words"].items()]
        self.words, self.groups = [word for word, _, _ in held], [group for _, group, _ in held]
        self.masks, self.again = ([np.array(one[key]) for _, _, one in held] for key in ("mask", "again"))

    def agreement(self, top: int) -> float:
        """Return the share of the highest dimensions that a word's masks of two seeds have in common."""
        return float(np.mean([shared(a, b, top) for a, b in zip(self.masks, self.again, strict=True)]))


def change_of(records: Records, group: str, method: str, kind: str) -> Change:
    """Return the relative change of leakage of ``target``, ``similar`` or ``other`` words, all protected words pooled.

    Returns:
        The change against no protection (−1: nothing leaks) and its 95 % bootstrap interval over protected words, each
        with all its seeds. NaN if the unprotected attack finds none of the words.
    """
    hits = _hits(records, group, method, kind)
    one, other = np.array(list(hits.values())).reshape(-1, 2).T
    if not one.sum():
        return math.nan, math.nan, math.nan
    rows = np.random.default_rng(0).integers(0, len(one), (DRAWS, len(one)))
    totals = one[rows].sum(axis=1)
    changes = other[rows].sum(axis=1)[totals > 0] / totals[totals > 0] - 1
    low, high = np.quantile(changes, [0.025, 0.975])
    return float(other.sum() / one.sum() - 1), float(low), float(high)


def _hits(records: Records, group: str, method: str, kind: str) -> dict[str, tuple[float, float]]:
    """Return the words that the attack finds without protection and with it, by protected word, over all seeds."""
    found: dict[str, tuple[float, float]] = {}
    for row in records.where(group=group, method=method):
        cell = row["cell"]
        clean = records.where(group="all", problem=cell["problem"], seed=cell["seed"])
        if not len(clean):
            continue
        hits = {word: one["value"] * one["n"] for word, one in clean[0]["found"]["words"].items()}
        similar = set(row["found"]["words"]) | set(row["found"]["left_out"])
        for word, one in row["found"]["words"].items():
            of = {
                "target": [word],
                "similar": [w for w in hits if w in similar and w != word],
                "other": [w for w in hits if w not in similar],
            }
            before, after = found.get(word, (0.0, 0.0))
            found[word] = before + sum(hits[w] for w in of[kind] if w in hits), after + one[kind][0]
    return found


def _measured(records: Records, group: str, method: str, kind: str) -> Measured | None:
    """Return `change_of` in per cent, by protected word (jackknife), or None with fewer than two words.

    The words are the sample: seeds of one word are no independent draws. Two changes are compared word by word.
    """
    hits = _hits(records, group, method, kind)
    one, other = np.array(list(hits.values())).reshape(-1, 2).T
    rest = one.sum() - one
    if len(hits) < 2 or not rest.all():
        return None
    whole, without = other.sum() / one.sum() - 1, (other.sum() - other) / rest - 1
    pseudo = len(hits) * whole - (len(hits) - 1) * without
    seeds = len(records.where(group=group, method=method).values("seed"))
    return Measured({word: 100 * float(value) for word, value in zip(hits, pseudo, strict=True)}, pooled=seeds)


def _changes(records: Records, problem: str, scale: str) -> Table:
    own = records.where(problem=problem)

    def unprotected(key: tuple[str, str], at: Records) -> Number | None:
        count, hits = _unprotected(own, at)
        return Number(hits / count) if count else None

    def change(title: str, kind: str) -> draw.Drawn:
        def cell(key: tuple[Any, ...], _: Records) -> Number | None:
            group, method = key
            return _number(change_of(own, group, method, kind), group, method, kind, scale)

        return draw.column(title, cell, "%")

    def kept(key: tuple[str, str], at: Records) -> Number:
        shares = [one["utility"] for row in at for one in row["found"]["words"].values()]
        return Number(float(np.mean([share for share in shares if share is not None])))

    groups = [
        (key, at)
        for key, at in own.each("group", "method")
        if key[1] != "none" and any(row["found"]["words"] for row in at)
    ]
    titles = zip(("Protected word", "Similar words", "Other words"), KINDS, strict=True)
    return draw.table(
        draw.marked(own, f"{problem}: the protected word, similar words, other words"),
        groups,
        [
            draw.axis("Group", 0),
            draw.axis("Method", 1, draw.method_name),
            draw.column("Words", lambda _, at: number([len(r["found"]["words"]) for r in at], percent=False, digits=0)),
            draw.column("Instances", lambda _, at: draw.count(_unprotected(own, at)[0])),
            draw.column("Leakage without protection", unprotected, "%"),
            *(change(title, kind) for title, kind in titles),
            draw.column("Utility kept", kept, "%"),
        ],
        f"Change of leakage against no protection at scale '{scale}', protected words pooled; the interval is a "
        f"bootstrap over these words. {DIFFERENCE}",
    )


def _unprotected(records: Records, rows: Records) -> tuple[float, float]:
    """Return instances of the protected words, and how many the attack finds without protection."""
    instances = hits = 0.0
    for row in rows:
        clean = records.where(group="all", seed=row["cell"]["seed"])
        for word in row["found"]["words"] if len(clean) else ():
            one = clean[0]["found"]["words"].get(word, {"n": 0, "value": 0.0})
            instances += one["n"]
            hits += one["n"] * one["value"]
    return instances, hits


def _number(change: Change, group: str, method: str, kind: str, scale: str) -> Number | None:
    value, low, high = change
    if math.isnan(value):
        return None
    parsed = parse_scale(scale)
    row = published(TABLE).find(group=group, tokens=kind, method=method)
    close = row is not None and parsed.kind == "effective" and parsed.value == row["epsilon"]
    theirs = float(row["leakage_change"]) / 100 if row is not None and close else None
    return Number(value, low=low, high=high, published=theirs)


def _overlaps(masks: Sequence[_Masks], overlaps: dict[str, Overlap], top: int) -> Table:
    def size(mask: Vector) -> float:
        return float(mask.sum() ** 2 / (mask**2).sum()) if mask.any() else 0.0

    def mean(measure: Callable[[Vector], float], digits: int) -> Callable[[Any, Records], Number]:
        def cell(key: tuple[_Masks, Overlap], _: Records) -> Number:
            return Number(float(np.mean([measure(mask) for mask in key[0].masks])), percent=False, digits=digits)

        return cell

    groups = [((one, overlaps[one.recipe]), Records([])) for one in masks]
    return draw.table(
        "Overlap of masks",
        groups,
        [
            draw.axis("Mask", 0, lambda one: one.recipe),
            draw.column("Words", lambda key, _: draw.count(len(key[0].words))),
            draw.column("Same group", lambda key, _: number([key[1].within]), "%"),
            draw.column("Other groups", lambda key, _: number([key[1].across]), "%"),
            draw.axis("p, groups permuted", 1, lambda overlap: f"{overlap.p_value:.1e}"),
            draw.column("Same word, other seed", lambda key, _: Number(key[0].agreement(top)), "%"),
            draw.column("By chance", lambda key, _: Number(top / len(key[0].masks[0])), "%"),
            draw.column("Deviation of a mask", mean(lambda mask: float(mask.std()), 3)),
            draw.column("Effective dimensions", mean(size, 0)),
        ],
        f"Share of the {top} highest dimensions of a mask that two masks have in common, of two words, or of one word "
        "with another seed (mean-difference: of its pairs drawn again). Each word's mask has a different seed, so that "
        "no two share an initial state. The p-value: how often random groups agree as much more within groups than "
        "across.",
    )


def _heat(one: _Masks, group: str, top: int) -> Figure:
    own = [i for i, name in enumerate(one.groups) if name == group]
    columns = union_of_top([one.masks[i] for i in own], top)
    return Figure(
        f"{one.recipe}: masks of {group}",
        kind="heat",
        caption=f"Values of the masks in the union of the {top} highest dimensions of each word.",
        x=XAxis("dimension"),
        y=YAxis("protected word"),
        rows=[one.words[i] for i in own],
        columns=[str(c) for c in columns],
        values=[[float(one.masks[i][c]) for c in columns] for i in own],
    )


def _findings(
    records: Records,
    recipes: Sequence[str],
    masks: Sequence[_Masks],
    overlaps: dict[str, Overlap],
    top: int,
    scale: str,
) -> list[ClaimFinding]:
    groups = [group for group in records.values("group") if group != "all"]
    rows: list[dict[str, Any]] = []
    judged: list[Overlap] = []
    if recipes:
        rows = [
            {"group": group, "tokens": kind, "leakage_change": change}
            for group in groups
            for kind in KINDS
            if (change := _measured(records, group, recipes[0], kind))
        ]
        shares: dict[tuple[str, str], dict[int, float]] = {}
        for (seed,), own in records.each("seed"):
            words = _Masks(own, recipes[0])
            if not words.words:
                continue
            judged.append(mask_overlap(words.masks, words.groups, top=top))
            for group, both in judged[-1].by_group.items():
                for kind, share in zip(("same-group", "other-group"), both, strict=True):
                    if not math.isnan(sum(both)):
                        shares.setdefault((kind, group), {})[seed] = share
        rows += [
            {"group": group, "words": kind, "mask_overlap": Measured(by)}
            for (kind, group), by in shares.items()
            if len(by) > 1  # one seed has no error
        ]
    masked = f" Masks: {'in closed form, |mean of D⁺ − D⁻|' if recipes[:1] == (CLOSED,) else 'trained'}."
    found = draw.findings_of("concept-groups", rows, ("group", "tokens", "words"), difference=DIFFERENCE + masked)
    if judged:
        # A group has few pairs of words, so all groups together decide, in each seed.
        few = sum(len(own.words) for own in masks if own.recipe == recipes[0]) < ENOUGH_WORDS
        told = [_verdict_on(one, few=few) for one in judged]
        held, against = told.count("agrees"), told.count("disagrees")
        inside, across = (statistics.fmean(getattr(one, key) for one in judged) for key in ("within", "across"))
        in_seeds = f"p ≤ {ALPHA} in {held} of {len(judged)} seeds"
        pooled = f"{inside:.1%} in a group, {across:.1%} across, {in_seeds}"
        found = [
            structs.replace(
                one,
                verdict="unclear" if few else verdict(Tally(held, against, len(judged)), fewest=1),
                ours=pooled if one.verdict == "not measured" else f"{pooled}; by group it {one.ours}",
                seeds=len(judged),
            )
            if one.id == "masks-of-related-words-overlap"
            else one
            for one in found
        ]
    for name, one in overlaps.items():
        few = sum(len(own.words) for own in masks if own.recipe == name) < ENOUGH_WORDS
        found.append(
            ClaimFinding(
                f"Masks of similar words ({name}) share more of their highest dimensions than words grouped at random.",
                "SPARSE, Fig. 2",
                _verdict_on(one, few=few),
                f"{one.within:.1%} in a group, {one.across:.1%} across, p = {one.p_value:.1e}",
                "shown in a picture",
            )
        )
    for one_recipe in masks:
        agreement = one_recipe.agreement(top)
        found.append(
            ClaimFinding(
                f"The word, not the seed, decides the highest dimensions of its mask ({one_recipe.recipe}).",
                "SPARSE, Fig. 2",
                within(agreement, least=SAME),
                f"{agreement:.0%} of the {top} are the same with another seed",
                "not tested",
            )
        )
    methods = records.values("method")
    for name in (*recipes, "subspace"):
        if name in methods and "laplace" in methods:
            found += _beyond_noise(records, groups, name, scale)
    return found


def _verdict_on(overlap: Overlap, *, few: bool) -> Verdict:
    """Return whether groups share more than words grouped at random; with ``few`` words the verdict is unclear."""
    if overlap.p_value <= ALPHA and overlap.within > overlap.across:
        return "agrees"
    if few:
        return "unclear"
    return "disagrees" if overlap.p_value >= 1 - ALPHA and overlap.within < overlap.across else "no difference"


def _beyond_noise(records: Records, groups: list[str], method: str, scale: str) -> list[ClaimFinding]:
    """Return whether protecting a word hides it more than noise of equal norm that is independent of the word."""
    pairs = [
        (one, other)
        for group in groups
        if (one := _measured(records, group, method, "target"))
        and (other := _measured(records, group, "laplace", "target"))
    ]
    if not pairs:
        return []
    gaps = [one.value - other.value for one, other in pairs]
    tally = Tally.of([(compare(other, one), {}) for one, other in pairs])
    return [
        ClaimFinding(
            f"Noise shaped for a word ({draw.method_name(method)}) hides it more than isotropic noise of equal norm.",
            "SPARSE, Table 5" if method != "subspace" else "own",
            verdict(tally),
            f"{tally}, of the change of its leakage beside that under Laplace noise; {min(gaps):+.1f} to "
            f"{max(gaps):+.1f} points (scale '{scale}')",
            "not compared",
        )
    ]


PERMUTATIONS = 2000


@dataclass(frozen=True, slots=True)
class Overlap:
    """Agreement of the highest dimensions of masks.

    Attributes:
        within, across: mean share of the highest dimensions common to two words of one group, or of two groups.
        by_group: group -> (within, with words of other groups); a group of one word has no ``within``.
        p_value: permutation test of within − across; 1 where there is nothing to compare.
    """

    within: float
    across: float
    by_group: dict[str, tuple[float, float]]
    p_value: float


def top_dimensions(mask: Vector, top: int) -> npt.NDArray[np.intp]:
    """Return the ``top`` dimensions with the highest values of a mask (n,), the highest first."""
    return np.argsort(-np.asarray(mask), kind="stable")[:top]


def union_of_top(masks: Sequence[Vector], top: int) -> list[int]:
    """Return the dimensions that are among the ``top`` of any mask, in ascending order."""
    return sorted({int(i) for mask in masks for i in top_dimensions(mask, top)})


def shared(one: Vector, other: Vector, top: int) -> float:
    """Return the share of the ``top`` dimensions that two masks have in common."""
    both = np.intersect1d(top_dimensions(one, top), top_dimensions(other, top))
    return len(both) / top


def mask_overlap(masks: Sequence[Vector], groups: Sequence[str], *, top: int) -> Overlap:
    """Return the agreement of masks (n,) within and across groups, with a permutation test."""
    names = list(dict.fromkeys(groups))
    index = np.array([names.index(group) for group in groups])
    held = np.zeros((len(masks), len(masks[0])))
    for i, mask in enumerate(masks):
        held[i, top_dimensions(mask, top)] = 1
    pairs = held @ held.T / top
    upper = np.triu(np.ones_like(pairs, dtype=bool), 1)

    def means(of: npt.NDArray[np.intp]) -> tuple[float, float]:
        same = of[:, None] == of[None]
        parts = [pairs[upper & same], pairs[upper & ~same]]
        return tuple(float(part.mean()) if len(part) else np.nan for part in parts)  # type: ignore[return-value]

    within, across = means(index)
    by_group = {}
    for k, name in enumerate(names):
        own = index == k
        inside = pairs[np.ix_(own, own)][np.triu_indices(int(own.sum()), 1)]
        outside = pairs[np.ix_(own, ~own)]
        by_group[name] = (
            float(inside.mean()) if inside.size else np.nan,
            float(outside.mean()) if outside.size else np.nan,
        )
    if np.isnan([within, across]).any():
        return Overlap(within, across, by_group, 1.0)
    rng = np.random.default_rng(0)
    differences = [one - other for one, other in (means(rng.permutation(index)) for _ in range(PERMUTATIONS))]
    reached = sum(difference >= within - across - 1e-12 for difference in differences)
    return Overlap(within, across, by_group, (1 + reached) / (1 + PERMUTATIONS))
