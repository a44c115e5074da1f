"""Find experiments by name; those on the grid share a module."""

from __future__ import annotations

import importlib
from typing import Any

from research.experiment import Experiment
from vecveil.errors import unknown_name

__all__ = ["EXPERIMENTS", "experiment_named"]

_WHERE = {
    "tradeoff": "tradeoff.Tradeoff",
    "attacks": "attacks.AttackModels",
    "categories": "tradeoff.Categories",
    "whitebox": "tradeoff.WhiteBox",
    "concept-groups": "concept_groups.ConceptGroups",
    "datasets": "statistics.Statistics",
    "encoders": "encoders.EmbeddingModels",
    "pii-transforms": "pii_transforms.PiiTransforms",
    "lambda": "regularisation.Regularisation",
    "readings": "readings.Readings",
    "latency": "latency.Latency",
    "case-study": "case_study.CaseStudy",
    "sensitivity": "sensitivity.SensitivityDeciles",
    "textcrafter": "textcrafter.TextCrafterSets",
    "frontier": "tradeoff.Frontier",
    "guarantee": "tradeoff.ConceptGuarantee",
    "attributes": "attributes.Attributes",
    "sealed-search": "sealed_search.SealedSearch",
    "other-texts": "other_texts.OtherTexts",
    "benchmark": "benchmark.Benchmark",
}

EXPERIMENTS = tuple(_WHERE)
"""Names, in the order of the papers' tables, ours last."""


def experiment_named(name: str) -> Experiment[Any]:
    if name not in _WHERE:
        raise unknown_name("experiment", "name", EXPERIMENTS, name)
    module, _, kind = _WHERE[name].partition(".")
    found: Experiment[Any] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return found
