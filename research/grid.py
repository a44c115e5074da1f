"""Experiments whose cells are points: problems x methods x scales x seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from research.bench import Bench
from research.experiment import Cell, Experiment
from research.points import attacks_named, measure_point
from research.scales import parse_scale
from research.specification import Spec
from vecveil.errors import InvalidInputError
from vecveil.protector.methods import METHODS
from vecveil.sensitivity.hard_concrete import MaskOptions


@dataclass(frozen=True, kw_only=True)
class SeededScalesSpec(Spec):
    """Settings of an experiment that has scales.

    Attributes:
        more_seeds: seeds of the scales in ``more_scales``, where that is more than ``seeds``.
        more_scales: scales that are measured with more seeds; ``clean`` is, too.
    """

    more_seeds: int = 1
    more_scales: tuple[str, ...] = ()

    @property
    def all_seeds(self) -> range:
        """The seeds of the scale that has most."""
        return range(max(self.seeds, self.more_seeds))

    def wants(self, scale: str, seed: int) -> bool:
        """Return whether a scale is measured with a seed."""
        more = scale == "clean" or scale in self.more_scales
        return seed < self.seeds or (seed < self.more_seeds and more)


def whole_numbers(options: Mapping[str, float]) -> dict[str, float | int]:
    """Return options with 100.0 as 100: counts are counts."""
    return {key: int(value) if value == int(value) else value for key, value in options.items()}


def mask_options(options: Mapping[str, float]) -> MaskOptions:
    """Return how a mask is trained: the published settings but for ``options``.

    Raises:
        InvalidInputError: an option that there is not, or a value that it cannot have.
    """
    numbers = {
        name
        for name in MaskOptions.__dataclass_fields__
        if name not in ("hidden", "loss", "device")
    }
    for name in options:
        if name not in numbers:
            wanted = "of " + ", ".join(sorted(numbers))
            raise InvalidInputError.of("experiment", "mask options", wanted, repr(name)[:40])
    return MaskOptions(**whole_numbers(options))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class GridSpec(SeededScalesSpec):
    """The axes of a grid.

    Attributes:
        methods: names of `vecveil.protector.METHODS`.
        scales: see `parse_scale`; ``clean`` is measured once for all methods.
        own_scales: method -> its scales, in place of ``scales``: for methods that have others.
        further: whether attackers also learn from texts with exchanged terms that they make.
        options: method -> options of the method.
    """

    methods: tuple[str, ...] = ("laplace", "purkayastha", "sparse", "subspace")
    scales: tuple[str, ...] = ("clean", "utility 0.95")
    own_scales: dict[str, tuple[str, ...]] = field(default_factory=dict)
    further: bool = False
    options: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = (scale for scales in self.own_scales.values() for scale in scales)
        for scale in (*self.scales, *self.more_scales, *own):
            parse_scale(scale)
        for name in (*self.methods, *self.options, *self.own_scales):
            if name not in METHODS:
                wanted = "of " + ", ".join(sorted(METHODS))
                fix = "Methods that change texts are measured by pii-transforms."
                raise InvalidInputError.of(
                    "experiment", "methods", wanted, repr(name)[:60], fix=fix
                )
        attacks_named(self.attacks, further=True)


class Grid(Experiment):
    """Cells with the axes problem, method, scale and seed."""

    spec_type = GridSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells; those of a problem and seed side by side, the first seeds of all problems first.

        A method is measured at the scales that it has.
        """
        assert isinstance(spec, GridSpec)
        axes = itertools.product(spec.all_seeds, spec.problems, ("none", *spec.methods))
        found = []
        for seed, problem, method in axes:
            for scale in spec.own_scales.get(method, spec.scales):
                if spec.wants(scale, seed) and parse_scale(scale).fits(method):
                    found.append(Cell.of(problem=problem, method=method, scale=scale, seed=seed))
        return found

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, GridSpec)
        options = spec.options.get(cell["method"], {})
        found = {**super().settings(spec, cell), "further": spec.further, "options": options}
        method = METHODS.get(cell["method"])
        if method is not None and method.revision > 1:
            found["revision"] = method.revision
        return found

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the point of a cell."""
        assert isinstance(spec, GridSpec)
        material = bench.material(cell["problem"], cell["seed"])
        options = {
            k: int(v) if v == int(v) else v for k, v in spec.options.get(cell["method"], {}).items()
        }
        return measure_point(
            bench, material, cell["method"], parse_scale(cell["scale"]), spec.attacks,
            further=spec.further, **options,
        )  # fmt: skip
