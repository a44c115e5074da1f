"""SPARSE, Table 5 and Figure 2: protect one word; what becomes of it, of similar words, and of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from research.bench import Bench, Material
from research.catalogue.concept_groups_summary import concept_groups_summary
from research.catalogue.mask_options import mask_options
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, defend, leakage, utility
from research.scales import parse_scale
from research.specification import ProblemSpec, Spec, digest
from research.summary import Summary
from vecveil.concepts import Concept
from vecveil.concepts.folding import canonical, words
from vecveil.errors import InvalidInputError
from vecveil.protector import Protector, fit_pairs
from vecveil.protector.fitting import MIN_PAIRS
from vecveil.sensitivity import NoiseShape
from vecveil.sensitivity.hard_concrete import fit_hard_concrete_mask
from vecveil.types import Embeddings

__all__ = ["ConceptGroups", "ConceptGroupsSpec"]

FLOOR = 1e-6  # of the mask, as published
MOST_OTHERS = 4000  # texts without the word that a fit takes its covariances from
PLAIN = ("laplace", "purkayastha", "gaussian")  # know no word


Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class ConceptGroupsSpec(Spec):
    """What is compared. The concept of every problem is all the words of the groups.

    Attributes:
        groups: by name, single words; those of one group are each other's similar words.
        methods: ``laplace``, ``purkayastha`` or ``gaussian`` (they know no word: a control), ``subspace``, and names
            of ``recipes``.
        recipes: name -> options of the mask training; none are the published ones.
        scale: one, see `parse_scale`.
        words: at most so many of a group are protected, those that most texts hold.
        min_texts: how many texts must hold a word that is protected.
        pairs: at most so many texts that hold it are learnt from.
        top: how many of a mask's highest dimensions are compared.
    """

    groups: dict[str, tuple[str, ...]]
    methods: tuple[str, ...] = ("laplace", "sparse", "subspace")
    recipes: dict[str, dict[str, float]] = field(default_factory=lambda: {"sparse": {}})
    scale: str = "effective 10"
    words: int = 8
    min_texts: int = 30
    pairs: int = 300
    top: int = 5

    def __post_init__(self) -> None:
        if parse_scale(self.scale).kind == "clean":
            raise InvalidInputError.of("experiment", "scale", "one with noise", repr(self.scale))
        attacks_named(self.attacks, further=False)
        known = (*PLAIN, "subspace", *self.recipes)
        for name in self.methods:
            if name not in known:
                raise InvalidInputError.of(
                    "experiment", "methods", "of " + ", ".join(known), repr(name)[:60]
                )
        for options in self.recipes.values():
            mask_options(options)
        seen = [canonical(word) for group in self.groups.values() for word in group]
        for word in seen:
            if list(words(word)) != [word] or seen.count(word) > 1:
                raise InvalidInputError.of(
                    "experiment", "groups", "of single words, each in one group", "something else"
                )

    def problem(self, name: str) -> ProblemSpec:
        """Return a problem with all the words of the groups as its concept."""
        own = super().problem(name)
        every = tuple(word for group in self.groups.values() for word in group)
        return dataclasses.replace(own, concept=dataclasses.replace(own.concept, terms=every))


class ConceptGroups(Experiment):
    """Cells with the axes problem, group, method and seed; one without protection for each problem and seed."""

    name = "concept-groups"
    what = "One word is protected: does it leak less, do similar words, and do the masks of similar words overlap?"
    source = "SPARSE, Table 5 and Figure 2"
    spec_type = ConceptGroupsSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells."""
        assert isinstance(spec, ConceptGroupsSpec)
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

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell; all words are attacked, so every group decides every cell."""
        assert isinstance(spec, ConceptGroupsSpec)
        keys = ("scale", "words", "min_texts", "pairs")
        own = {key: getattr(spec, key) for key in keys} if cell["method"] != "none" else {}
        groups = {name: list(group) for name, group in spec.groups.items()}
        recipe = spec.recipes.get(cell["method"])
        return {**super().settings(spec, cell), **own, "groups": groups, "recipe": recipe}

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the texts, and those of each protected word without it."""
        assert isinstance(spec, ConceptGroupsSpec)
        super().prepare(spec, bench, cells)
        wanted = [cell for cell in cells if cell["method"] != "none"]
        for problem, seed in dict.fromkeys((cell["problem"], cell["seed"]) for cell in wanted):
            material = bench.material(problem, seed)
            own = [
                _pairs(spec, material, word)[1]
                for group in spec.groups
                for word in _chosen(spec, material, group)[0]
            ]
            bench.encoder().encode([t for part in own for t in part], show_progress=bench.show_progress)  # fmt: skip

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the hits on target, similar and other words for each protected word, and its mask."""
        assert isinstance(spec, ConceptGroupsSpec)
        material = _by_word(bench.material(cell["problem"], cell["seed"]))
        if cell["method"] == "none":
            found = leakage(material, None, spec.attacks)
            return {**found, "words": found.pop("categories")}
        chosen, left_out = _chosen(spec, material, cell["group"])
        return {
            "words": {word: self._word(spec, cell, bench, material, word) for word in chosen},
            "left_out": left_out,
        }

    def _word(
        self, spec: ConceptGroupsSpec, cell: Cell, bench: Bench, material: Material, word: str
    ) -> dict[str, Any]:
        method, scale = cell["method"], parse_scale(spec.scale)
        if method in PLAIN:
            key = ("plain", material.problem.name, method, material.seed)
            found = bench.once(
                key, lambda: _read(spec, material, defend(bench, material, method, scale))
            )
            return _split(spec, cell["group"], word, found)
        rows, texts = _pairs(spec, material, word)
        P, N = material.positive[rows], np.asarray(bench.encoder().encode(texts))
        about: dict[str, Any] = {"pairs": len(rows)}
        arguments: dict[str, Any] = scale.arguments("covariance")
        if method in spec.recipes:
            # Seeds differ from word to word: two masks of one seed agree in their start, whatever the words.
            seeds = [int(digest([word, material.seed, i])[:7], 16) for i in range(2)]
            options = mask_options(spec.recipes[method])
            masks = [
                fit_hard_concrete_mask(P, N, options, seed=i, show_progress=False) for i in seeds
            ]
            about["mask"] = [round(float(value), 4) for value in masks[0].mask]
            about["again"] = [round(float(value), 4) for value in masks[1].mask]
            shape = NoiseShape.from_diagonal(masks[0].mask, floor=FLOOR)
            arguments |= {"shape": shape, "postprocess": "none"}
        found = _read(spec, material, _fitted(material, word, rows, P, N, method, arguments))
        return {**about, **_split(spec, cell["group"], word, found)}

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the changes beside the paper's, the overlap of masks with its control, and heat maps."""
        assert isinstance(spec, ConceptGroupsSpec)
        return concept_groups_summary(records, tuple(spec.recipes), spec.top, spec.scale)


def _by_word(material: Material) -> Material:
    """Return the material with every word as a category of its own."""
    own = {word: word for word in material.case.vocabulary}
    return dataclasses.replace(
        material, problem=dataclasses.replace(material.problem, categories=own)
    )


def _chosen(
    spec: ConceptGroupsSpec, material: Material, group: str
) -> tuple[list[str], dict[str, str]]:
    """Return the words of a group that are protected, and why the others are not."""
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
    """Return positions among ``material.positive`` of learning texts with a word, and these texts without it."""
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
) -> Protector:  # fmt: skip
    """Return a protector of one word: every text without it is an ordinary one."""
    case = material.case
    held = case.labels[case.matches.with_concept[material.fit_rows], case.vocabulary.index(word)]
    others = material.fit_rows[held == 0]
    background = np.concatenate([material.background, material.positive[others]])
    order = np.random.default_rng(material.seed).permutation(len(background))[:MOST_OTHERS]
    groups = case.groups[case.matches.with_concept][rows]
    name = "subspace" if method == "subspace" else "covariance"
    return fit_pairs(
        P, N, None, background[order] if len(order) >= MIN_PAIRS else None, method=name, utility=material.task,
        groups=groups, seed=material.seed, show_progress=False, **arguments,
    )  # fmt: skip


def _read(
    spec: ConceptGroupsSpec, material: Material, protector: Protector | None
) -> dict[str, Any]:
    found = leakage(material, protector, spec.attacks)
    kept = utility(material.task, protector, material.seed)
    return {"words": found["categories"], "worst": found["worst"], "utility": kept["relative"]}


def _split(spec: ConceptGroupsSpec, group: str, word: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return hits, chance hits and instances of the protected word, of its group and of other groups."""
    of = {canonical(one): name for name, own in spec.groups.items() for one in own}
    sums = {key: np.zeros(3) for key in ("target", "similar", "other")}
    for one, row in found["words"].items():
        key = "target" if one == word else "similar" if of.get(one) == group else "other"
        sums[key] += np.array(
            [row["value"] * row["n"], (row["chance"] or 0.0) * row["n"], row["n"]]
        )
    rounded = {key: [round(float(v), 4) for v in values] for key, values in sums.items()}
    return {**rounded, "utility": found["utility"], "worst": found["worst"]}
