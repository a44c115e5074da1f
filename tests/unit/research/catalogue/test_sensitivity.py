"""Deciles of sensitivity: what is planted is found on the other half, noise is not; the circular test finds both."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.experiment_data import measured
from research import run
from research.catalogue.sensitivity import (
    decile_means,
    decile_test,
    noise_tests,
    permuted_tests,
    share_below,
    without_other_words,
)
from vecveil.privacy.concepts import Concept
from vecveil.privacy.sensitivity.closed_forms import difference_sensitivity

N = 120
SENSITIVE = np.arange(12)  # the planted dimensions


def planted(seed: int, times: float = 10, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs whose difference is so many times as large in the planted dimensions."""
    rng = np.random.default_rng(seed)
    negative = rng.standard_normal((rows, N))
    scale = np.ones(N)
    scale[SENSITIVE] = times
    return negative + 0.1 * scale * rng.standard_normal((rows, N)), negative


@pytest.mark.parametrize(("over", "times"), [("pairs", 10), ("sets", 80)])
def test_planted_dimensions_are_found_on_the_other_half(over: Any, times: float) -> None:
    """Over D+ x D- a change must exceed the spread of the texts to be seen."""
    P, Q = planted(0, times)
    sensitivity = partial(difference_sensitivity, over=over)
    ranked, tested = sensitivity(P[:150], Q[:150]), sensitivity(P[150:], Q[150:])
    found = decile_test(ranked, tested)
    assert found.dimensions == 12
    assert set(np.argsort(-ranked)[:12]) == set(SENSITIVE)
    assert found.top > 1.1 * found.bottom
    # Twelve of twelve pairs: the least p-value that the test can give, 2^(1 - 12).
    assert found.higher == 12
    assert found.p_value == pytest.approx(2.0**-11)
    means = decile_means(ranked, tested)
    assert means[0] == pytest.approx(found.top)
    assert means[-1] == pytest.approx(found.bottom)


def test_the_circular_test_finds_noise_and_the_test_by_halves_does_not() -> None:
    """Null: noise. The 400 tests by halves reject at .05 in at most 11 %: binomial tail below 1e-6."""
    circular, held_out = noise_tests(difference_sensitivity, 40, N, draws=400, share=0.1, rng=np.random.default_rng(1))
    assert all(test.p_value == pytest.approx(2.0**-11) for test in circular)
    assert share_below(held_out) < 0.11


def test_permuted_ranks_find_nothing() -> None:
    """Null: ranks of other dimensions; the same bound, though the planted differences are there."""
    P, Q = planted(2)
    sensitivity = difference_sensitivity(P, Q)
    rng = np.random.default_rng(3)
    tests = permuted_tests(sensitivity, sensitivity, draws=400, share=0.1, rng=rng)
    assert share_below(tests) < 0.11
    assert decile_test(sensitivity, sensitivity).p_value < 0.001


def test_equal_figures_give_no_evidence() -> None:
    found = decile_test(np.arange(40.0), np.ones(40))
    assert found.p_value == 1
    assert found.higher == 0


@pytest.mark.parametrize(("n", "share"), [(10, 0.1), (40, 0.6), (40, 0.0)])
def test_a_share_of_too_few_dimensions_is_refused(n: int, share: float) -> None:
    with raises("E-INPUT", "share"):
        decile_test(np.arange(float(n)), np.arange(float(n)), share=share)


def test_as_many_other_words_are_removed() -> None:
    texts = ["Two men met in Paris near the old bridge.", "Paris", "Paris, again"]
    spans = Concept.from_terms("city", ["paris"]).detect(texts)
    rng = np.random.default_rng(0)
    found = [without_other_words(*one, rng) for one in zip(texts, spans, strict=True)]
    assert "Paris" in found[0]
    assert len(found[0].split()) == len(texts[0].split()) - 1
    assert found[1:] == texts[1:]  # nothing, or nothing else, would be left


SPEC = """
experiment: sensitivity
encoder: {encoder}
share: 0.2
draws: 20
seeds: 2
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def test_the_experiment_says_that_the_circular_test_shows_nothing(data: Path, encoder: Path, tmp_path: Path) -> None:
    record = measured(SPEC.format(encoder=encoder), data, tmp_path)
    deciles, controls = record["tables"]
    least = f"{2.0**-4:.1e}"  # of five dimensions
    assert [row[-1] for row in deciles["rows"]] == [least] * 3
    assert [row[3]["published"] for row in deciles["rows"]] == [0.04, 0.04, None]
    assert len(controls["rows"]) == 3
    verdicts = {one["claim"]: one["verdict"] for one in record["findings"]}
    circular = next(claim for claim in verdicts if "ranking and testing on the same" in claim)
    # Five pairs reach p = 0.0625 at best: too few to call it significant, on noise and on texts alike.
    assert verdicts[circular] == "unclear"
    (figure,) = record["figures"]
    assert all(len(one["points"]) == 10 for one in figure["series"])


def test_an_unknown_change_is_refused(data: Path, encoder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(encoder=encoder) + "over: [rows]\n")
    with raises("E-DATA-FILE", "over"):
        run(spec, data, tmp_path / "out", workers=0)
