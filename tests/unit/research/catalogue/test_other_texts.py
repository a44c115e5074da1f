"""The experiment on texts outside the fit, run whole on a small data set; and its words of spans."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.experiment_data import TERMS, measured
from research.catalogue.other_texts import listed_words
from research.problems import Problem
from research.specification import ConceptSpec, ProblemSpec
from vecveil.privacy.concepts import Concept

SPEC = """
experiment: other-texts
encoder: {encoder}
attacks: [linear]
seeds: 1
setups:
  unlisted: {{problem: sts12, listed: 0.5, least: 3, search: cranfield, candidates: 20}}
  in-sample: {{problem: sts12, least: 3, in_sample: true, defences: [subspace]}}
defences:
  laplace: {{method: laplace, scale: utility 0.9}}
  subspace: {{method: subspace, scale: radius 0.5, options: {{rank: 8, kept: 12, flattening: 0, gradients: 0}}}}
  deleted: {{method: laplace, scale: radius 0.2, rewrite: delete,
    detector: {{engine: spacy, model: {model}, types: [CITY]}}}}
bars:
  - {{claim: one, setup: unlisted, at_most: 1.0}}
  - {{claim: none, setup: unlisted, figure: unseen, of: laplace, at_most: -9.0}}
  - {{claim: beside, setup: unlisted, beside: in-sample, at_most: 1.0}}
  - {{claim: kept, setup: unlisted, figure: utility.relative, at_least: 0.1, at_most: 1.0}}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def test_setups_bounds_and_a_text_stage(searched: Path, encoder: Path, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    cities = [{"label": "CITY", "pattern": city.title()} for city in TERMS["city"]]
    pipeline.add_pipe("entity_ruler").add_patterns(cities)
    pipeline.to_disk(tmp_path / "cities")
    record = measured(SPEC.format(encoder=encoder, model=tmp_path / "cities"), searched, tmp_path)
    assert [f["verdict"] for f in record["findings"]] == ["agrees", "disagrees", "agrees", "agrees"]
    lines = (tmp_path / "out" / "other-texts" / "records.jsonl").read_text().splitlines()
    cells = {(r["cell"]["setup"], r["cell"]["defence"]): r["found"] for r in map(json.loads, lines)}
    assert len(cells) == 4
    unlisted, in_sample = cells["unlisted", "subspace"], cells["in-sample", "subspace"]
    assert unlisted["listed"]["value"] == pytest.approx(unlisted["listed"]["attacks"]["linear"], abs=1e-5)
    assert "unseen" not in in_sample
    deleted = cells["unlisted", "deleted"]
    assert 0 < sum(deleted["removed"].values()) < 2  # cities are removed, numbers are not
    assert deleted["search"]["both"]["ranked"]["value"] <= 1.0
    assert in_sample["listed"]["words"] > unlisted["listed"]["words"]


def test_a_word_that_occurs_mostly_outside_spans_is_not_listed() -> None:
    kinds = ("shortness of breath seen", "a lack of air", "loss of a drug", "Breath again")
    texts = [f"{text} in case {i}" for i in range(20) for text in kinds]
    spans = [[{"start": 0, "end": 19, "label": "EFFECT"}], [], [], []] * 20
    concept = Concept.from_spans("effects", spans)
    own = ProblemSpec(data=("toy",), concept=ConceptSpec())
    problem = Problem("toy", own, concept.find(texts), np.arange(80), concept, {})
    found = listed_words(problem, 0.5).matches
    assert [sorted({span.term for span in row}) for row in found.spans[:4]] == [
        ["breath", "shortness"],
        [],
        [],
        ["breath"],
    ]
