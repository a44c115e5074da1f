"""Hide an attribute of whole texts (sentiment, topic) while keeping another task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from research import tables as draw
from research.bench import Bench
from research.datasets import open_dataset
from research.datasets.kinds import TextSet
from research.experiment import Cell, Experiment, Records, note
from research.grid import GridSpec, points
from research.points import attacks_named, protector_record, released, utility
from research.results import Number, Summary
from research.scales import parse_scale
from research.specification import Settings, Whole, digest, wrong
from research.tasks import task_texts
from vecveil.auditing.attacks import LabelledVectors, split_groups
from vecveil.privacy.protector import Protector, fit_labels

ABOUT = note("attributes")


class AttributeSpec(Settings, frozen=True, kw_only=True):
    """One attribute.

    Attributes:
        data: data set whose texts have labels.
        labels: labels to distinguish; none takes all.
        keep: data sets of the tasks to measure; a utility target refers to the first.
        texts: maximum number of training texts; a third as many test texts.
    """

    data: str
    keep: tuple[str, ...]
    labels: tuple[str, ...] = ()
    texts: Whole = 4000


class AttributesSpec(GridSpec, frozen=True, kw_only=True):
    attributes: dict[str, AttributeSpec] = {}
    methods: tuple[str, ...] = ("laplace", "covariance", "subspace")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, one in self.attributes.items():
            if not one.keep:
                raise wrong(f"attributes.{name}.keep", f"`attributes.{name}.keep` names no data set.")


@dataclass(frozen=True, eq=False, repr=False)
class _Texts:
    """Texts and rows for fitting, attacking and judging; ``labels`` index ``classes``."""

    texts: list[str]
    labels: npt.NDArray[np.intp]
    groups: npt.NDArray[np.intp]
    fit: npt.NDArray[np.intp]
    attack: npt.NDArray[np.intp]
    test: npt.NDArray[np.intp]
    classes: tuple[str, ...]


class Attributes(Experiment[AttributesSpec]):
    """Cells with the axes attribute, method, scale and seed."""

    name = "attributes"
    what = "Sentiment or topic hidden in the vectors of whole texts while another task is kept."
    source = "own"
    spec_type = AttributesSpec
    version = 2  # 1: attackers trained on the fitted texts

    def cells(self, spec: AttributesSpec) -> list[Cell]:
        return points(spec, [{"attribute": name} for name in spec.attributes])

    def settings(self, spec: AttributesSpec, cell: Cell) -> dict[str, Any]:
        one = spec.attributes[cell["attribute"]]
        own = {"data": one.data, "keep": list(one.keep), "labels": list(one.labels), "texts": self._most(spec, one)}
        return {**super().settings(spec, cell), "attribute": own, "options": spec.options.get(cell["method"], {})}

    def prepare(self, spec: AttributesSpec, bench: Bench, cells: Sequence[Cell]) -> None:
        for name in dict.fromkeys(cell["attribute"] for cell in cells):
            texts = [*self._texts(spec, bench, name).texts]
            for kept in spec.attributes[name].keep:
                texts += task_texts(kept, bench.data)
            bench.encoder().encode(list(dict.fromkeys(texts)), show_progress=bench.show_progress)

    def data_digest(self, spec: AttributesSpec, bench: Bench, cell: Cell) -> str | None:
        found = self._texts(spec, bench, cell["attribute"])
        kept = [bench.task_digest(name) for name in spec.attributes[cell["attribute"]].keep]
        own = [found.texts, found.labels.tolist(), found.groups.tolist(), list(found.classes)]
        return digest([*own, *kept])

    def measure(self, spec: AttributesSpec, cell: Cell, bench: Bench) -> dict[str, Any]:
        one, seed = spec.attributes[cell["attribute"]], cell["seed"]
        found = self._texts(spec, bench, cell["attribute"])
        encoder = bench.encoder()
        X = bench.once(("attribute", cell["attribute"]), lambda: encoder.encode(found.texts))
        tasks = {kept: bench.task(kept, encoder) for kept in one.keep}
        protector: Protector | None = None
        if cell["method"] != "none":
            protector = fit_labels(
                X[found.fit],
                [found.classes[i] for i in found.labels[found.fit]],
                method=cell["method"],
                utility=tasks[one.keep[0]],
                groups=found.groups[found.fit],
                seed=seed,
                show_progress=False,
                **parse_scale(cell["scale"]).arguments(cell["method"]),
                **spec.method_options(cell["method"]),
            )
        return {
            "kept": {kept: utility(task, protector, seed) for kept, task in tasks.items()},
            **self._inferred(spec, found, X, protector, seed),
            "protector": protector_record(protector),
        }

    def _inferred(
        self, spec: AttributesSpec, found: _Texts, X: Any, protector: Protector | None, seed: int
    ) -> dict[str, Any]:
        marks = np.eye(len(found.classes), dtype=np.uint8)[found.labels]
        judged, oracle = released(protector, X[found.test], seed)
        known = LabelledVectors(X[found.attack], marks[found.attack], found.groups[found.attack])
        met = LabelledVectors(judged, marks[found.test], found.groups[found.test])
        results = {}
        for attack in attacks_named(spec.attacks, further=False):
            result = attack.run(known, met, rng=seed, show_progress=False, **oracle)
            record = result.main.to_record()  # with one label per text, R-precision is accuracy
            results[result.name] = {k: record[k] for k in ("value", "low", "high", "chance")}
        worst = max(results, key=lambda name: results[name]["value"])
        return {"attacks": results, "worst": worst, "inferred": results[worst]}

    def _most(self, spec: AttributesSpec, one: AttributeSpec) -> int:
        return one.texts if spec.texts is None else min(one.texts, spec.texts)

    def _texts(self, spec: AttributesSpec, bench: Bench, name: str) -> _Texts:
        one = spec.attributes[name]
        return bench.once(
            ("texts", name), lambda: _read(open_dataset(one.data, bench.data), one, self._most(spec, one))
        )

    def summary(self, spec: AttributesSpec, records: Records) -> Summary:
        kept = list(dict.fromkeys(name for row in records for name in row["found"]["kept"]))
        found = draw.table(
            "Attributes of whole texts",
            records.each("attribute", "scale", "method"),
            [
                draw.axis("Attribute", 0),
                draw.axis("Scale", 1),
                draw.axis("Method", 2, draw.method_name),
                draw.estimate("Accuracy of the strongest attack", "inferred"),
                draw.percent("Chance", "inferred", "chance"),
                draw.column("Attack", lambda key, rows: draw.strongest_names(rows), text=True),
                *(draw.column(f"{name}, kept", partial(_kept, name), "%") for name in kept),
            ],
        )
        return Summary([found], notes=[ABOUT])


def _kept(name: str, key: tuple[Any, ...], rows: Records) -> Number | str | None:
    if any(name in row["found"]["kept"] for row in rows):
        return rows.number("kept", name, "relative")
    return "–"


def _read(found: Any, one: AttributeSpec, most: int) -> _Texts:
    """Return texts with the selected labels; without a test split a quarter is held out by group."""
    if not isinstance(found, TextSet) or found.labels is None:
        raise wrong("data", f"The texts of `data` {one.data!r} have no labels.")
    labels = np.asarray(found.labels)
    classes = one.labels or tuple(sorted(set(found.labels)))
    missing = [name for name in classes if name not in set(found.labels)]
    if missing:
        known = ", ".join(sorted(set(found.labels)))[:200]
        raise wrong("labels", f"No text has the label {repr(missing[0])[:40]} of `labels`; there are {known}.")
    wanted = np.flatnonzero(np.isin(labels, classes))
    split = np.asarray(found.split if found.split is not None else [""] * len(labels))
    is_test = np.char.startswith(split.astype(str), "test")
    rng = np.random.default_rng(0)
    if not is_test[wanted].any():
        names = rng.permutation(np.unique(found.groups[wanted]))
        is_test = np.isin(found.groups, names[: max(1, len(names) // 4)])
    learnt = np.isin(found.groups, found.groups[wanted[is_test[wanted]]])
    train, test = wanted[~is_test[wanted] & ~learnt[wanted]], wanted[is_test[wanted]]
    train, test = (np.sort(rng.permutation(rows)[:count]) for rows, count in ((train, most), (test, most // 3)))
    rows = np.concatenate([train, test])
    index = {name: i for i, name in enumerate(classes)}
    fit, attack = split_groups(np.asarray(found.groups)[train], (0.5, 0.5), seed=0)
    return _Texts(
        [found.texts[i] for i in rows],
        np.array([index[labels[i]] for i in rows], dtype=np.intp),
        np.asarray(found.groups)[rows],
        fit,
        attack,
        np.arange(len(train), len(rows)),
        tuple(classes),
    )
