"""SPARSE, Table 2: a classifier of words, and two attacks that write the text, each trained on every defence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from research.bench import Bench, Material
from research.catalogue.attack_tables import attacks_summary
from research.catalogue.grid import Grid, GridSpec
from research.decoder_bases import corpus_digest, prepare_decoder
from research.decoders import WRITERS, DecoderSpec, check_decoders
from research.experiment import Cell, Records
from research.points import defend, leakage, protector_record, utility
from research.rewriting import every_word, judged_rows, rewrite, short
from research.scales import parse_scale
from research.specification import Spec, digest
from research.summary import Summary
from vecveil.errors import InvalidInputError
from vecveil.metrics.reconstruction import reconstruction_leakage
from vecveil.protector import Protector

__all__ = ["MLC", "AttackModels", "AttackModelsSpec", "WriterSpec", "defence_of", "label_of"]

MLC = "mlc-published"


@dataclass(frozen=True, kw_only=True)
class WriterSpec(GridSpec):
    """A grid on which attacks write texts.

    Attributes:
        decoders: by attack, how it is trained.
        judged: at most so many texts are judged, by every attack the same.
    """

    decoders: dict[str, DecoderSpec] = field(default_factory=dict)
    judged: int = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.decoders if name not in WRITERS]
        if unknown:
            wanted = "of " + ", ".join(WRITERS)
            raise InvalidInputError.of("experiment", "decoders", wanted, repr(unknown[0])[:40])
        check_decoders(self.decoders)

    def decoder(self, kind: str) -> DecoderSpec:
        """Return how an attack is trained."""
        return self.decoders.get(kind, DecoderSpec())

    def judging(self) -> dict[str, Any]:
        """Return what decides which texts are judged."""
        given = {
            kind: [one.corpus, one.sentences]
            for kind, one in sorted(self.decoders.items())
            if one.start_from is not None
        }
        return {"judged": self.judged, "left_out": given}


@dataclass(frozen=True, kw_only=True)
class AttackModelsSpec(WriterSpec):
    """The settings of Table 2.

    Attributes:
        models: the attacks that are compared: ``mlc``, ``geia``, ``vec2text``. Beside mlc, ``attacks`` are measured.
    """

    models: tuple[str, ...] = ("mlc", *WRITERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.models if name not in ("mlc", *WRITERS)]
        if unknown:
            wanted = "of mlc, " + ", ".join(WRITERS)
            raise InvalidInputError.of("experiment", "models", wanted, repr(unknown[0])[:40])


class AttackModels(Grid):
    """Three attacks on every defence."""

    name = "attacks"
    what = "A classifier of words and two attacks that write the text, trained on each defence, over ε."
    source = "SPARSE, Table 2"
    spec_type = AttackModelsSpec

    def cells(self, spec: Spec) -> list[Cell]:
        """Return the grid's cells for each attack."""
        assert isinstance(spec, AttackModelsSpec)
        grid = super().cells(spec)
        return [Cell.of(attack=kind, **c.to_record()) for kind in spec.models for c in grid]

    def settings(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """Return what decides a cell: token inference depends on no decoder, and the other way round."""
        assert isinstance(spec, AttackModelsSpec)
        found = {**super().settings(spec, cell), **spec.judging()}
        if cell["attack"] == "mlc":
            return found
        decoder = dataclasses.asdict(spec.decoder(cell["attack"]))
        return {**found, "attacks": [], "further": False, "decoder": decoder}

    def data_digest(self, spec: Spec, bench: Bench, cell: Cell) -> str | None:
        """Return a hash of the problem's texts and, for attacks that write, of the corpus."""
        assert isinstance(spec, AttackModelsSpec)
        own = super().data_digest(spec, bench, cell)
        if cell["attack"] == "mlc":
            return own
        return digest([own, corpus_digest(bench, spec.decoder(cell["attack"]))])

    def prepare(self, spec: Spec, bench: Bench, cells: Sequence[Cell]) -> None:
        """Encode the texts, and train the decoders that attacks go on from."""
        assert isinstance(spec, AttackModelsSpec)
        super().prepare(spec, bench, cells)
        for problem, kind in dict.fromkeys((c["problem"], c["attack"]) for c in cells):
            if kind != "mlc":
                prepare_decoder(bench, problem, kind, spec.decoder(kind))

    def measure(self, spec: Spec, cell: Cell, bench: Bench) -> dict[str, Any]:
        """Return what one attack reads of one defence."""
        assert isinstance(spec, AttackModelsSpec)
        material = bench.material(cell["problem"], cell["seed"])
        protector = defence_of(spec, cell, bench, material)
        rows, left_out = judged_rows(bench, material, spec.decoders, spec.judged)
        common = {
            "utility": utility(material.task, protector, material.seed),
            "protector": protector_record(protector),
            "texts": {"judged": len(rows), "left_out": left_out},
        }
        if cell["attack"] == "mlc":
            case = dataclasses.replace(material.case, test=rows)
            narrowed = dataclasses.replace(material, case=case)
            names = tuple(dict.fromkeys((MLC, *spec.attacks)))
            found = leakage(narrowed, protector, names, further=spec.further)
            worst = found["worst"]
            return {
                **common,
                "figures": found["attacks"][MLC],
                "strongest": {"name": worst, **found["attacks"][worst]},
                "attacks": found["attacks"],
            }
        kind = cell["attack"]
        written = rewrite(
            bench, material, kind, spec.decoder(kind), protector, label_of(cell), rows
        )
        words_of, groups = every_word(material), material.case.groups[rows]
        every = reconstruction_leakage(words_of(written.texts), words_of(written.written), groups)
        figures = {name: short(estimate) for name, estimate in written.figures.items()}
        return {
            **common,
            "figures": {**figures, "leakage_every_word": short(every)},
            "adaptive": written.adaptive,
            "base": dict(written.base),
            "training": dict(written.tuned),
        }

    def summary(self, spec: Spec, records: Records) -> Summary:
        """Return the paper's table with ours beside, and what becomes of its claims."""
        assert isinstance(spec, AttackModelsSpec)
        return attacks_summary(spec.models, spec.decoders, records)


def defence_of(spec: GridSpec, cell: Cell, bench: Bench, material: Material) -> Protector | None:
    """Return a cell's protector; one of several attacks on it is fitted once a process."""
    method, scale = cell["method"], cell["scale"]
    options = {k: int(v) if v == int(v) else v for k, v in spec.options.get(method, {}).items()}
    key = ("defence", cell["problem"], method, scale, cell["seed"], repr(options))
    return bench.once(key, lambda: defend(bench, material, method, parse_scale(scale), **options))


def label_of(cell: Cell) -> str:
    """Return a defence's part of a folder's name."""
    return f"{cell['method']}-{cell['scale'].replace(' ', '-')}"
