"""The experiment on candidate channels, run whole on a small data set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.experiment_data import measured
from research.catalogue import sealed_search
from research.catalogue.sealed_search import Collection, _closest
from research.datasets.kinds import RetrievalSet
from research.judging import Measured
from vecveil.privacy.utility.tasks import ndcg_of_scores

SPEC = """
experiment: sealed-search
encoder: {encoder}
attacks: [linear]
channels:
  sparse: {{method: sparse, scale: utility 0.9, options: {{epochs: 2, stability_seeds: 1}}, parts: [search, leak]}}
  weak: {{method: subspace, scale: radius 0.2, options: {{rank: 4, kept: 20, flattening: 0}}}}
  prefix: {{method: public-prefix, scale: radius 0.000001, options: {{kept: 12}}, parts: [search, leak]}}
  clean: {{parts: [leak, unlisted]}}
collections: [cranfield]
added: 110
sizes: [100]
candidates: [20, 200]
draws: 2
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def test_channels_stand_side_by_side(
    searched: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_search, "GEIA", {"width": 32, "layers": 1, "vocabulary": 300, "epochs": 1})
    record = measured(SPEC.format(encoder=encoder), searched, tmp_path)
    leaks, search = record["tables"][:2]
    assert [row[0] for row in leaks["rows"]] == ["sparse", "weak", "prefix", "clean"]
    assert [row[:2] for row in search["rows"]][:3] == [["sparse", "both"], ["sparse", "map"], ["weak", "both"]]
    lines = (tmp_path / "out" / "sealed-search" / "records.jsonl").read_text().splitlines()
    cells = {(r["cell"]["channel"], r["cell"]["part"]): r["found"] for r in map(json.loads, lines)}
    assert 0 <= cells["weak", "geia"]["leakage"]["value"] <= 1
    for channel in ("sparse", "weak", "prefix"):
        native = cells[channel, "search"]["cranfield"]["both"]["native"]
        assert native["200"]["ndcg"]["value"] == pytest.approx(1.0)  # as many candidates as rows
        assert native["200"]["recall"] == 1.0
        assert native["20"]["recall"] <= 1.0
    model = cells["weak", "model"]["cranfield"]["map"]
    assert model["low"] <= model["value"] <= model["high"] <= 1.2
    excess = {c: cells[c, "leak"]["leakage"]["value"] for c in ("weak", "clean")}
    assert excess["weak"] < excess["clean"]


def test_a_bound_within_the_error_is_unclear() -> None:
    def told(leak: float) -> str:
        bounds = [(Measured({0: 0.9, 1: 0.9}), 0.8, 1), (Measured({0: leak - 0.01, 1: leak + 0.01}), 0.2, -1)]
        return _closest("", [(bounds, "one"), ([(Measured({0: 0.1}), 0.8, 1)], "two")]).verdict

    assert [told(leak) for leak in (0.01, 0.19, 0.4)] == ["agrees", "unclear", "disagrees"]


def test_the_figure_of_candidates_is_the_one_of_the_package() -> None:
    ids = tuple(map(str, range(30)))
    judged = {"a": {"3": 2, "9": 1}, "b": {"5": 1}}
    whole = RetrievalSet("toy", ids, ids, ("a", "b"), ("a", "b"), ("test", "test"), judged)
    rng = np.random.default_rng(0)
    one = Collection(whole, lambda texts: rng.standard_normal((len(texts), 8)), rng.standard_normal((5, 8)), [])
    expected = ndcg_of_scores(one.scores, np.pad(one.grades, ((0, 0), (0, 5))))
    assert one.exact["added"][1] == pytest.approx(expected)
    every = np.tile(np.arange(35), (2, 1))
    assert one.ndcg(every, 35) == pytest.approx(expected)
