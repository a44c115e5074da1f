"""Experiments on a grid: problems x methods x scales x seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from research.bench import Bench
from research.experiment import Cell, Experiment
from research.points import attacks_named, measure_point
from research.scales import parse_scale
from research.specification import Seeds, Spec, check_names, whole_numbers
from vecveil.privacy.protector.methods import METHODS
from vecveil.privacy.sensitivity.hard_concrete import MaskOptions


def mask_options(options: Mapping[str, float]) -> MaskOptions:
    """Return the published settings of the mask training, replaced by ``options``; raise for an invalid one."""
    numbers = {*MaskOptions.__dataclass_fields__} - {"hidden", "loss", "device"}
    check_names("mask options", options, sorted(numbers))
    return MaskOptions(**whole_numbers(options))


class SeededScalesSpec(Spec, frozen=True, kw_only=True):
    """Settings of an experiment that has scales.

    Attributes:
        more_seeds: number of seeds of ``more_scales`` and of ``clean``, if more than ``seeds``.
    """

    more_seeds: Seeds = 1
    more_scales: tuple[str, ...] = ()

    @property
    def all_seeds(self) -> range:
        return range(max(self.seeds, self.more_seeds))

    def wants(self, scale: str, seed: int) -> bool:
        """Return whether a scale is measured with a seed."""
        more = scale == "clean" or scale in self.more_scales
        return seed < self.seeds or (seed < self.more_seeds and more)


class GridSpec(SeededScalesSpec, frozen=True, kw_only=True):
    """The axes of a grid.

    Attributes:
        methods: names of `vecveil.privacy.protector.METHODS`.
        scales: see `parse_scale`; ``clean`` is measured once for all methods.
        own_scales: method -> its scales, instead of ``scales``.
        further: let attackers also train on texts with exchanged terms.
        options: method -> options of the method.
    """

    methods: tuple[str, ...] = ("laplace", "purkayastha", "sparse", "subspace")
    scales: tuple[str, ...] = ("clean", "utility 0.95")
    own_scales: dict[str, tuple[str, ...]] = {}
    further: bool = False
    options: dict[str, dict[str, float]] = {}

    def __post_init__(self) -> None:
        for scale in itertools.chain(self.scales, self.more_scales, *self.own_scales.values()):
            parse_scale(scale)
        names = (*self.methods, *self.options, *self.own_scales)
        fix = "Methods that change texts are measured by pii-transforms."
        check_names("methods", names, sorted(METHODS), fix=fix)
        attacks_named(self.attacks, further=True)

    def method_options(self, method: str) -> dict[str, Any]:
        return whole_numbers(self.options.get(method, {}))


def points(spec: GridSpec, places: Iterable[Mapping[str, str]]) -> list[Cell]:
    """Return the cells of each method at its scales in some places (axes before the method), by seed and place."""
    return [
        Cell.of(**place, method=method, scale=scale, seed=seed)
        for seed, place, method in itertools.product(spec.all_seeds, places, ("none", *spec.methods))
        for scale in spec.own_scales.get(method, spec.scales)
        if spec.wants(scale, seed) and parse_scale(scale).fits(method)
    ]


G = TypeVar("G", bound=GridSpec)


class Grid(Experiment[G]):
    """Cells with the axes problem, method, scale and seed."""

    spec_type = GridSpec

    def cells(self, spec: G) -> list[Cell]:
        return points(spec, [{"problem": problem} for problem in spec.problems])

    def settings(self, spec: G, cell: Cell) -> dict[str, Any]:
        options = spec.options.get(cell["method"], {})
        found = {**super().settings(spec, cell), "further": spec.further, "options": options}
        method = METHODS.get(cell["method"])
        if method is not None and method.revision > 1:
            found["revision"] = method.revision
        return found

    def measure(self, spec: G, cell: Cell, bench: Bench) -> dict[str, Any]:
        return measure_point(
            bench,
            bench.material(cell["problem"], cell["seed"]),
            cell["method"],
            parse_scale(cell["scale"]),
            spec.attacks,
            further=spec.further,
            **spec.method_options(cell["method"]),
        )
