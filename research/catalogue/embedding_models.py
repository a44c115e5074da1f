"""SPARSE, Table 8: leakage and utility under several encoders; those that cannot be loaded are said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from research.bench import Bench
from research.catalogue.embedding_models_summary import embedding_models_summary
from research.experiment import Cell, Experiment, Records
from research.points import attacks_named, measure_point
from research.scales import parse_scale
from research.specification import Spec, digest
from research.summary import Summary
from vecveil.encoders import LsaEncoder
from vecveil.encoders.lsa import LSA_FILE
from vecveil.errors import InvalidInputError, MissingDependencyError

__all__ = ["LSA", "EmbeddingModels", "EmbeddingModelsSpec"]

LSA = "lsa"
DIMENSION = 300


@dataclass(frozen=True, kw_only=True)
class EmbeddingModelsSpec(Spec):
    """What is compared.

    Attributes:
        encoders: name in the tables -> a name or folder for `vecveil.load_encoder`; ``lsa`` is fitted on the
            problem's own texts.
        lsa: options of `LsaEncoder.fit`.
        methods, scales: see the grid of ``tradeoff``; ``clean`` is measured once for all methods.
    """

    encoders: dict[str, str]
    lsa: dict[str, int] = field(default_factory=lambda: {"dimension": DIMENSION})
    methods: tuple[str, ...] = ("laplace", "purkayastha", "sparse", "subspace")
    scales: tuple[str, ...] = ("clean", "effective 10", "utility 0.95")

    def __post_init__(self) -> None:
        for scale in self.scales:
            parse_scale(scale)
        attacks_named(self.attacks, further=True)
        known = ("dimension", "ngrams", "min_texts", "max_terms", "seed")
        for name in self.lsa:
            if name not in known:
                wanted = "of " + ", ".join(known)
                raise InvalidInputError.of("experiment", "lsa", wanted, repr(name)[:40])


class EmbeddingModels(Experiment):
    """Cells with the axes problem, encoder, method, scale and seed."""

    name = "encoders"
    what = "Leakage and utility of each method under several encoders."
    source = "SPARSE, Table 8"
    spec_type = EmbeddingModelsSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the cells, those of an encoder side by side."""
        assert isinstance(spec, EmbeddingModelsSpec)
        return [
            Cell.of(problem=problem, encoder=encoder, method=method, scale=scale, seed=seed)
            for seed in range(spec.seeds)
            for problem in spec.problems
            for encoder in spec.encoders
            for method in ("none", *spec.methods)
            for scale in spec.scales
            if (method == "none") == (scale == "clean")
        ]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell."""
        assert isinstance(spec, EmbeddingModelsSpec)
        source = spec.encoders[cell["encoder"]]
        own = {"encoder": source, "lsa": dict(spec.lsa) if source == LSA else None}
        return {**super().settings(spec, cell), **own}

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Load each encoder and encode each problem's texts with it."""
        assert isinstance(spec, EmbeddingModelsSpec)
        for name, key in dict.fromkeys((cell["problem"], cell["encoder"]) for cell in cells):
            encoder = _encoder(spec, bench, name, spec.encoders[key])
            if not isinstance(encoder, str):
                bench.encode(name, encoder)

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return the point of a cell, or why its encoder could not be loaded."""
        assert isinstance(spec, EmbeddingModelsSpec)
        encoder = _encoder(spec, bench, cell["problem"], spec.encoders[cell["encoder"]])
        if isinstance(encoder, str):
            return {"skipped": encoder}
        material = bench.material(cell["problem"], cell["seed"], encoder)
        found = measure_point(
            bench, material, cell["method"], parse_scale(cell["scale"]), spec.attacks
        )
        about = {
            "name": encoder.name,
            "dimension": material.positive.shape[1],
            "fingerprint": encoder.fingerprint,
        }
        return {**found, "encoder": about}  # fmt: skip

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return a table for each problem beside the paper's, and what could not be measured."""
        return embedding_models_summary(records)


def _encoder(spec: EmbeddingModelsSpec, bench: Bench, problem: str, source: str) -> Any:
    """Return an encoder, or the reason that it cannot be loaded; it is tried once in a process."""

    def load() -> Any:
        try:
            return bench.encoder(source)
        except (InvalidInputError, MissingDependencyError) as error:
            return str(error)

    if source == LSA:
        return bench.encoder(str(_fitted(spec, bench, problem)))
    return bench.once(("loaded", source), load)


def _fitted(spec: EmbeddingModelsSpec, bench: Bench, name: str) -> Path:
    """Return the folder of the LSA encoder of a problem's texts; it is fitted if it is not there."""
    problem = bench.problem(name)
    folder = bench.work / f"lsa-{digest([problem.digest, dict(spec.lsa)])}"
    if not (folder / LSA_FILE).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        LsaEncoder.fit(problem.texts, **spec.lsa).save(folder)
    return folder
