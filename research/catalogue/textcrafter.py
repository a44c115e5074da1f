"""TextCrafter, Table I and Fig. 3: four sets, each defence, reconstruction and utility in both scenarios."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.bench import Bench
from research.experiment import Cell, Experiment, Records
from research.records import only_one
from research.results import Summary
from research.specification import digest, json_ready
from research.textcrafter.cells import base_sentences, corpus_keys, pii_cell, sentence_cell, task_cell, train_base
from research.textcrafter.data import (
    PairedTexts,
    Pii,
    PiiTexts,
    Task,
    TaskSet,
    pii_vectors,
    read_pii,
    read_set,
    task_vectors,
)
from research.textcrafter.defences import DEFENCES, MADE_HERE, Applied, kept_policy, make
from research.textcrafter.specification import PII, TextCrafterSpec
from research.textcrafter.summary import RADII, SWEPT, figures, findings, tables

CONSTANT_TERMS = {"alpha": 1.0, "baseline_offset": 0.0}
"""The paper's terms on which no policy depends (α‖e' − e‖ = αr, and the baseline's offset): part of the records."""


class TextCrafterSets(Experiment[TextCrafterSpec]):
    """Cells with the axes part, set, defence and seed."""

    name = "textcrafter"
    what = (
        "Reconstruction, utility in both scenarios, token inference and PII probes on four sets, behind TextCrafter "
        "and the defences it is compared with."
    )
    source = "TextCrafter, Table I and Fig. 3"
    spec_type = TextCrafterSpec

    def cells(self, spec: TextCrafterSpec) -> list[Cell]:
        """Return every cell; those of a seed and set side by side, reconstruction last."""

        def cell(part: str, where: str, defence: str, seed: int) -> Cell:
            return Cell.of(part=part, set=where, defence=defence, seed=seed)

        found = []
        if "curves" in spec.parts:
            found += [cell("curves", PII, d, 0) for d in spec.defences if _is_policy(spec, d) and _is_row(d)]
        for seed in range(spec.seeds):
            for part, sets in (("pii", [PII]), ("utility", list(spec.problems))):
                if part in spec.parts:
                    own = [d for d in spec.defences if seed < (spec.seeds if d in RADII else spec.seeds_of(d))]
                    found += [cell(part, where, d, seed) for where in sets for d in own]
        if "sentences" in spec.parts:
            read = [d for d in spec.defences if _is_row(d) or d in SWEPT]
            for seed in range(spec.seeds):
                found += [cell("sentences", w, d, seed) for w in spec.problems for d in read if seed < spec.seeds_of(d)]
        return found

    def problems(self, spec: TextCrafterSpec, cell: Cell) -> tuple[str, ...]:
        return () if cell["set"] == PII else (cell["set"],)

    def settings(self, spec: TextCrafterSpec, cell: Cell) -> dict[str, Any]:
        from vecveil.privacy.textcrafter.policy_settings import PolicySettings

        defence = spec.defence(cell["defence"])
        options = defence.options_at(spec.radius, 1)
        found = super().settings(spec, cell)
        if cell["part"] != "utility":
            del found["attacks"]
        if defence.method.startswith("textcrafter"):  # a default that changes makes another policy
            names = {field.name for field in dataclasses.fields(PolicySettings)} - {"device"}
            own = {name: value for name, value in options.items() if name in names}
            options = {**options, **PolicySettings(**own).to_record(), **CONSTANT_TERMS}
        found |= {"method": defence.method, "options": options, "learns": defence.learns}
        if defence.method in MADE_HERE[1:]:
            found["radius"] = spec.radius
        if cell["set"] != PII:
            found["rows"] = list(spec.rows)
        if cell["set"] == PII or defence.learns == "pii":
            found["pii"] = json_ready(spec.pii)
        if cell["part"] == "sentences":
            found |= {"seen": spec.seen, "judged": spec.judged, "base": _base_settings(spec)}
        return found

    def data_digest(self, spec: TextCrafterSpec, bench: Bench, cell: Cell) -> str | None:
        parts = [_set(bench, name).digest for name in self.problems(spec, cell)]
        if cell["set"] == PII or _is_policy(spec, cell["defence"]):
            parts.append(_corpus(bench).digest)
        if cell["part"] == "sentences":
            parts.append(_base_digest(bench))
        return digest(parts)

    def detectors(self, spec: TextCrafterSpec, cells: Sequence[Cell]) -> set[str]:
        own = {"presidio"} if self._needs_pii(spec, cells) else set()
        return super().detectors(spec, cells) | own

    @staticmethod
    def _needs_pii(spec: TextCrafterSpec, cells: Sequence[Cell]) -> bool:
        return any(cell["set"] == PII or _is_policy(spec, cell["defence"]) for cell in cells)

    def prepare(self, spec: TextCrafterSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        for name in dict.fromkeys(n for cell in cells for n in self.problems(spec, cell)):
            _task(bench, name)
        if self._needs_pii(spec, cells):
            _pii(bench)
        if any(cell["part"] == "sentences" for cell in cells):
            _base(bench)

    def measure(self, spec: TextCrafterSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        name, seed = cell["defence"], cell["seed"]
        if cell["set"] == PII:
            pii = _pii(bench)
            defence = self._defence(bench, name, seed, pii.material)
            if cell["part"] == "curves":
                training = defence.protector.report["training"]
                return {"training": training, "details": defence.details}
            return {**pii_cell(pii, defence, seed), "details": defence.details}
        task = _task(bench, cell["set"])
        defence = self._defence(bench, name, seed, task.material)
        if cell["part"] == "utility":
            found = task_cell(task, defence, seed, spec.attacks)
            return {**found, "sizes": task.to_record(), "details": defence.details}
        own = digest([self.settings(spec, cell), self.data_digest(spec, bench, cell)])
        found = sentence_cell(
            task,
            defence,
            bench.work / "decoders" / f"{cell['set']}-{name}-{seed}-{own}",
            start_from=_base(bench),
            seen=spec.seen,
            judged=spec.judged,
            encode=bench.encoder().encode,
            seed=seed,
            corpus=_corpus_keys(bench),
        )
        return {**found, "details": {**defence.details, **found["details"]}}

    def _defence(self, bench: Bench, name: str, seed: int, material: PairedTexts) -> Applied:
        spec = _spec(bench)
        if not _is_policy(spec, name):
            return make(spec.defence(name), material, spec.radius, seed)
        cell = Cell.of(part="curves", set=PII, defence=name, seed=seed)
        own = digest([self.settings(spec, cell), _corpus(bench).digest])
        path = bench.work / "policies" / f"{name}-{seed}-{own}.vecveil"

        def train() -> Applied:
            return make(spec.defence(name), _pii(bench).material, spec.radius, seed)

        return bench.once(("policy", path), lambda: kept_policy(path, train))

    def summary(self, spec: TextCrafterSpec, records: Records) -> Summary:
        return Summary(
            tables=tables(spec, records),
            figures=figures(spec, records),
            findings=findings(spec, records),
            notes=[
                "The sentence-level attack is GEIA, a small decoder trained here and fine-tuned on fresh protected "
                "vectors. It is weaker than the paper's Vec2Text: compare defences, not papers.",
                "Records marked as converted come from an earlier benchmark with the same texts, settings and seeds.",
            ],
        )


def _is_policy(spec: TextCrafterSpec, name: str) -> bool:
    """Return whether a defence learns from the PII corpus, whatever the set."""
    return spec.defence(name).learns == "pii"


def _is_row(name: str) -> bool:
    """Return whether a defence is a row of the paper's table and no control."""
    return name not in DEFENCES or DEFENCES[name].main


def _base_settings(spec: TextCrafterSpec) -> dict[str, Any]:
    """Return the settings of the base decoder."""
    found: dict[str, Any] = {"data": spec.base_data, "texts": spec.base_texts}
    if spec.start_from is not None:
        try:
            own = (Path(spec.start_from) / "decoder.json").read_text(encoding="utf-8")
        except OSError:
            own = ""
        found["decoder"] = digest(own)
    return found


def _spec(bench: Bench) -> TextCrafterSpec:
    assert isinstance(bench.spec, TextCrafterSpec)
    return bench.spec


def _set(bench: Bench, name: str) -> TaskSet:
    spec = _spec(bench)

    def read() -> TaskSet:
        return read_set(name, spec.problem(name), bench.data, spec.rows)

    return bench.once(("set", name), read)


def _corpus(bench: Bench) -> PiiTexts:
    return bench.once("pii corpus", lambda: read_pii(_spec(bench).pii, bench.data))


def _encode(bench: Bench) -> Any:
    encoder = bench.encoder()
    return lambda texts: encoder.encode(texts, show_progress=bench.show_progress)


def _task(bench: Bench, name: str) -> Task:
    return bench.once(("task", name), lambda: task_vectors(_set(bench, name), _encode(bench)))


def _pii(bench: Bench) -> Pii:
    return bench.once("pii vectors", lambda: pii_vectors(_corpus(bench), _encode(bench)))


def _sentences(bench: Bench) -> list[str]:
    spec = _spec(bench)
    return bench.once("base sentences", lambda: base_sentences(spec.base_data, bench.data, spec.base_texts))


def _base_digest(bench: Bench) -> str:
    return bench.once("base digest", lambda: digest(_sentences(bench)))


def _corpus_keys(bench: Bench) -> frozenset[str]:
    return bench.once("base keys", lambda: corpus_keys(_sentences(bench)))


def _base(bench: Bench) -> Path:
    """Return the folder of the base decoder, training it if needed."""
    spec = _spec(bench)
    if spec.start_from is not None:
        return Path(spec.start_from)
    own = digest([spec.encoder, spec.base_texts, _base_digest(bench)])
    folder = bench.work / "base" / own
    with only_one(folder):
        if not (folder / "decoder.json").exists():
            train_base(_sentences(bench), folder, _encode(bench), show_progress=bench.show_progress)
    return folder
