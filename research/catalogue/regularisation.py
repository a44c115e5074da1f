"""SPARSE, Table 10: what the weight λ of the sparsity term does to the mask, to leakage and to utility."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from research.bench import Bench
from research.catalogue.mask_options import mask_options, whole_numbers
from research.catalogue.regularisation_summary import regularisation_summary
from research.catalogue.seeds import SeededScalesSpec
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, measure_point
from research.scales import parse_scale
from research.specification import Spec
from research.summary import Summary
from vecveil.errors import InvalidInputError

__all__ = ["Recipe", "Regularisation", "RegularisationSpec"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to train the mask, with the λ and the scales that it is measured at.

    Attributes:
        lambdas: weights of the sparsity term; any number above 0.
        scales: see `parse_scale`, but for ``clean``, which is measured once.
        options: of the training, in place of the published ones.
    """

    lambdas: tuple[float, ...]
    scales: tuple[str, ...]
    options: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for scale in self.scales:
            if parse_scale(scale).kind == "clean":
                raise InvalidInputError.of("experiment", "scales", "scales with noise", repr(scale))
        if "regularisation" in self.options:
            raise InvalidInputError.of("experiment", "options", "without regularisation, which `lambdas` give",
                                       "one with it")  # fmt: skip
        for weight in self.lambdas:
            mask_options({**self.options, "regularisation": weight})


@dataclass(frozen=True, kw_only=True)
class RegularisationSpec(SeededScalesSpec):
    """What is compared.

    Attributes:
        recipes: by name; the paper's is ``published``.
        stability_seeds: masks trained for each λ, of which the first is used and the others say how far seeds agree.
    """

    recipes: dict[str, Recipe]
    stability_seeds: int = 2

    def __post_init__(self) -> None:
        for scale in self.more_scales:
            parse_scale(scale)
        attacks_named(self.attacks, further=True)


class Regularisation(Experiment):
    """Cells with the axes problem, recipe, lambda, scale and seed."""

    name = "lambda"
    what = "Leakage, utility and density of SPARSE's mask against the weight of its sparsity term."
    source = "SPARSE, Table 10"
    spec_type = RegularisationSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells, those of one mask side by side."""
        assert isinstance(spec, RegularisationSpec)
        found = []
        for seed in spec.all_seeds:
            for problem in spec.problems:
                found.append(_cell(problem, "none", 0.0, "clean", seed))
                for name, recipe in spec.recipes.items():
                    for weight in recipe.lambdas:
                        found += [
                            _cell(problem, name, weight, scale, seed)
                            for scale in recipe.scales
                            if spec.wants(scale, seed)
                        ]
        return found

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, RegularisationSpec)
        return {**super().settings(spec, cell), "options": _options(spec, cell)}

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the point of a cell."""
        assert isinstance(spec, RegularisationSpec)
        material = bench.material(cell["problem"], cell["seed"])
        method = "none" if cell["recipe"] == "none" else "sparse"
        scale = parse_scale(cell["scale"])
        return measure_point(bench, material, method, scale, spec.attacks, **_options(spec, cell))

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the points of each problem beside the paper's, and which of its two directions holds."""
        return regularisation_summary(records)


def _cell(problem: str, recipe: str, weight: float, scale: str, seed: int) -> Cell:
    weights = {"lambda": weight}  # no name of Python's
    return Cell.of(problem=problem, recipe=recipe, **weights, scale=scale, seed=seed)


def _options(spec: RegularisationSpec, cell: Cell) -> dict[str, Any]:
    if cell["recipe"] == "none":
        return {}
    options = whole_numbers(spec.recipes[cell["recipe"]].options)
    return {
        **options,
        "regularisation": cell["lambda"],
        "stability_seeds": spec.stability_seeds,
    }
